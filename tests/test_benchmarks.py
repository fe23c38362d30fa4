"""Benchmarks are run by hand, now and then: that they still run is seen to here, on next to nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import bench_predictor
import look_back
import seen_before
from factorjepa.scores import Scores
from factorjepa.verbs.data import simulate


def test_the_predictors_benchmark_measures_variants_beside_the_plain_one(tmp_path: Path) -> None:
    small = ["--batch", "1", "--agents", "2", "--neighbours", "1", "--warmup", "0", "--runs", "1"]
    log = tmp_path / "log.json"
    assert bench_predictor.main([*small, "--variants", "factorized carried", "--json", str(log)]) == 0
    rows = json.loads(log.read_text())["rows"]
    assert [row["variant"] for row in rows] == ["monolithic", "factorized carried"]
    assert all(row["median_ms"] > 0 for row in rows)


def test_heads_on_frozen_features_are_told_what_they_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(tmp_path / "dense", ["seconds=[6,7]", "fps=4"], clips=40, seed=3, preset="dense")
    assert look_back.main([str(tmp_path / "dense"), "--epochs", "1", "--hidden", "8"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" |") and "0." in line]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [
        "nothing", "last tubelet", *look_back.SEEN[1:], "last tubelet",
    ]  # fmt: skip
    assert len({row.split()[-2] for row in rows}) > 4  # what is shown counts


@pytest.mark.parametrize("what", look_back.SEEN)
def test_what_a_head_is_shown_is_of_its_own_place(what: str) -> None:
    """Cells hold their number, tubelets a hundred times theirs, levels a thousandth."""
    tubelet, cell, level = torch.arange(6.0), torch.arange(16.0), torch.arange(2.0)
    levels = (100 * tubelet[:, None, None] + cell[:, None] + level / 1000)[None, ..., None]
    found = look_back.Features(levels, torch.zeros(1, 32, 3), torch.zeros(1, 32, 1), torch.ones(1).bool())
    shown = look_back.seen(found, what)
    assert shown[:, :16].equal(shown[:, 16:])
    expected = {
        "nothing": [0.0], "last tubelet": [505.001], "last two": [405.001, 505.001],
        "all six": [100 * t + 5.001 for t in range(6)], "all levels": [505.0, 505.001],
        "3 x 3 places": [500 + c + 0.001 for c in (0, 1, 2, 4, 5, 6, 8, 9, 10)],
    }[what]  # fmt: skip
    assert shown[0, 5].tolist() == pytest.approx(expected)


def test_streets_of_a_corpus_that_another_has_looked_at_are_told_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    look = Path(__file__).parents[1] / "docs" / "results" / "nano_look" / "scores"
    words = ["--clips", "3000", "--before", "6200", "--scores", str(look), "--out", str(tmp_path)]
    assert seen_before.main(words) == 0
    told = capsys.readouterr().out
    assert "62 test streets of 3000 clips; of 6200 clips they were: 54 train, 2 validation, 6 test" in told
    kept = set(Scores.read(tmp_path).table["source"].to_pylist())
    assert len(kept) == 54
    assert not any(street in told.splitlines()[1] for street in kept)
    assert seen_before.main(["--clips", "3000", "--before", "3000"]) == 0  # the same corpus: every one of them
    assert "they were: 62 test" in capsys.readouterr().out
