"""What stands beside a corpus: its data card, its table of what was left out, its figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from factorjepa.corpus.charts import composition_figure
from factorjepa.corpus.composition import compose
from factorjepa.corpus.datacard import write_datacard
from factorjepa.corpus.inspection import describe, privacy_table, rejected_tables
from factorjepa.corpus.manifest import Manifest
from factorjepa.corpus.rejected import Rejected, amounts_rejected, read_in_part, read_rejected, write_rejected
from factorjepa.errors import CorpusError

from .clips import four_splits, make_clip

ROWS = [
    Rejected("talk.m4a", "reading", "unreadable", "audio only"),
    Rejected("a.mp4", "quality", "blurred", "sharpness 0.2", "pune/s1/a", "pune/s1/a#0.0", 0, 0.0, 7.5),
    Rejected("a.mp4", "quality", "blurred", "sharpness 0.1", "pune/s1/a", "pune/s1/a#0.1", 0, 7.5, 15.0),
    Rejected("b.mp4", "privacy", "failed checks", "unmatched", "pune/s1/b", "pune/s1/b#0.0", 0, 0.0, 9.0),
]


def printed(table: object) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text()


def test_what_was_left_out_is_read_back_and_counted_by_reason(tmp_path: Path) -> None:
    assert read_rejected(tmp_path) == []
    write_rejected(tmp_path, ROWS)
    assert read_rejected(tmp_path) == ROWS
    amounts = [(a.stage, a.reason, a.count, a.seconds) for a in amounts_rejected(ROWS)]
    assert amounts == [
        ("reading", "unreadable", 1, 0.0), ("quality", "blurred", 2, 15.0), ("privacy", "failed checks", 1, 9.0),
    ]  # fmt: skip
    assert "blurred" in printed(rejected_tables(ROWS))
    lines = (tmp_path / "rejected.csv").read_text().splitlines()
    assert lines[0].startswith("file,source,clip_id,")
    assert lines[1].startswith("talk.m4a,,,")
    assert len(lines) == 1 + len(ROWS)


def test_files_that_were_read_in_part_are_named_and_not_counted_as_left_out(tmp_path: Path) -> None:
    part = [
        Rejected("cut.ts", "reading", "damaged", "2 undecodable packets", "pune/s1/cut"),
        Rejected("cut.ts", "reading", "shorter than stated", "9.0 s could be read of 60.0 s", "pune/s1/cut"),
        Rejected("odd.mp4", "reading", "unreadable rest", "from 4.0 s on: cut off", "pune/s1/odd"),
        Rejected("gone.mp4", "reading", "damaged", "1 damaged frame", "pune/s1/gone"),
        Rejected("gone.mp4", "reading", "unreadable", "cut off", "pune/s1/gone"),  # nothing could be read of this one
    ]
    assert [(a.reason, a.files) for a in amounts_rejected(part)] == [("unreadable", ("gone.mp4",))]
    assert read_in_part(part) == ["cut.ts", "odd.mp4"]
    text = printed(rejected_tables(part))
    assert "Read in part: cut.ts, odd.mp4" in text
    assert "shorter" not in text
    write_datacard(tmp_path, Manifest(four_splits()), [], {"privacy": "on"}, part[:3])
    card = (tmp_path / "DATACARD.md").read_text()
    assert "2 files could be read in part only." in card
    assert "| stage |" not in card
    assert "Left out" not in printed(rejected_tables(part[:3]))


def test_of_many_files_the_first_are_named() -> None:
    rows = [Rejected(f"{k}.mp4", "reading", "unreadable", "empty") for k in range(5)]
    assert "0.mp4, 1.mp4, 2.mp4 and 2 more" in printed(rejected_tables(rows))


def test_a_table_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "rejected.parquet").write_text("x")
    with pytest.raises(CorpusError, match="cannot be read"):
        read_rejected(tmp_path)


def test_a_card_counts_clips_and_is_left_alone_when_nothing_changed(tmp_path: Path) -> None:
    manifest = Manifest(four_splits())
    write_datacard(tmp_path, manifest, ["Filmed by | bicycle."], {"privacy": "on", "faces": "scrfd"}, ROWS)
    card = (tmp_path / "DATACARD.md").read_text()
    assert "| audit | 2 |" in card
    assert "- faces: scrfd" in card
    assert "| quality | blurred | 2 | 15.0 |" in card
    moment = (tmp_path / "DATACARD.md").stat().st_mtime_ns
    write_datacard(tmp_path, manifest, ["Filmed by | bicycle."], {"privacy": "on", "faces": "scrfd"}, ROWS)
    assert (tmp_path / "DATACARD.md").stat().st_mtime_ns == moment


def test_names_from_a_users_table_are_shown_as_they_are_and_carry_no_instructions(tmp_path: Path) -> None:
    hostile = "[/x] [red]<script>|"
    clips = [make_clip(0, city=hostile, attributes={"weather": hostile}), make_clip(1, attributes={"weather": "rain"})]
    assert printed(describe("x", compose(Manifest(clips)))).count(hostile) == 2
    write_datacard(tmp_path, Manifest(clips), [], {"privacy": "on"})
    assert "| [/x] [red]&lt;script>/ |" in (tmp_path / "DATACARD.md").read_text()
    assert "What no detector sees is not blurred" in (tmp_path / "DATACARD.md").read_text()


def test_the_privacy_table_sums_what_the_filter_did() -> None:
    clips = [make_clip(k, attributes={"privacy_face_tracks": k, "privacy": "on"}) for k in range(4)]
    text = printed(privacy_table(Manifest(clips), ROWS, {"privacy": "on", "faces": "scrfd, non-commercial"}))
    assert "non-commercial" in text
    assert "6 in 3 clips" in text
    assert "excluded by checks" in text
    assert "1 clip" in text


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_figure_shows_every_city_and_mode_and_its_total(tmp_path: Path, kind: str) -> None:
    clips = four_splits(train=7)
    clips[0] = replace(clips[0], attributes={"site": "metropolitan"})
    path = tmp_path / f"composition.{kind}"
    composition_figure(Manifest(clips), path)
    first = path.read_bytes()
    composition_figure(Manifest(clips), path)
    assert path.read_bytes() == first
    if kind == "svg":
        for word in ("navapur", "sagarpur", "metropolitan", "drive", "walk", "aerial", "clips"):
            assert word in first.decode()


def test_figures_of_other_kinds_or_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="png, pdf, svg"):
        composition_figure(Manifest([make_clip()]), tmp_path / "a.bmp")
    with pytest.raises(CorpusError, match="no clips"):
        composition_figure(Manifest([]), tmp_path / "a.png")
