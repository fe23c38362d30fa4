"""Composition tables against counts made by hand."""

from __future__ import annotations

import pytest

from factorjepa.corpus.composition import Amount, compose
from factorjepa.corpus.manifest import Manifest
from factorjepa.corpus.splits import Split

from .clips import make_clip

MANIFEST = Manifest(
    [
        make_clip(0, t_end=8.0, attributes={"scene_type": "market", "agents": 10, "night": True}),
        make_clip(1, t_end=12.0, attributes={"scene_type": "market", "agents": 20, "night": False}),
        make_clip(2, Split.TEST, t_end=9.0, attributes={"scene_type": "junction", "agents": 60}),
        make_clip(3, Split.AUDIT, t_end=11.0, attributes={"glare": float("nan")}),
        make_clip(0, t_end=8.0, clip_id="navapur/s01/v00#1.1", path="second.mp4"),
    ]
)


def test_amounts_count_clips_sources_and_hours() -> None:
    tables = compose(MANIFEST)
    assert tables.total == Amount(5, 4, pytest.approx(38 / 3600))
    assert list(tables.splits) == [Split.TRAIN, Split.TEST, Split.AUDIT]
    assert tables.splits[Split.TRAIN] == Amount(3, 2, pytest.approx(22 / 3600))
    assert tables.cities["sagarpur"] == Amount(1, 1, pytest.approx(9 / 3600))
    assert {mode: amount.clips for mode, amount in tables.capture_modes.items()} == {"aerial": 1, "drive": 3, "walk": 1}


def test_cross_tables_hold_every_combination() -> None:
    table = compose(MANIFEST).city_by_mode
    assert table.rows == ("navapur", "sagarpur")
    assert table.counts["navapur", "drive"] == 2
    assert table.counts["sagarpur", "walk"] == 0
    assert table.row_total("navapur") == 4
    assert compose(MANIFEST).city_by_split.counts["navapur", "test"] == 1


def test_words_are_counted_and_numbers_spread() -> None:
    tables = compose(MANIFEST)
    assert list(tables.tags["scene_type"].items()) == [("market", 2), ("junction", 1)]
    assert tables.tags["night"] == {"yes": 1, "no": 1}
    agents = tables.measures["agents"]
    assert (agents.count, agents.mean, agents.minimum, agents.median, agents.maximum) == (3, 30, 10, 20, 60)
    assert "glare" not in tables.measures
    assert tables.seconds is not None
    assert (tables.seconds.minimum, tables.seconds.p25, tables.seconds.median, tables.seconds.maximum) == (6, 6, 7, 10)


def test_an_empty_corpus_has_empty_tables() -> None:
    tables = compose(Manifest([]))
    assert tables.total == Amount(0, 0, 0.0)
    assert tables.seconds is None
    assert not tables.splits
    assert tables.city_by_mode.rows == ()
