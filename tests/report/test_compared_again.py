"""When the page compares anew: other scores, an older rule; and what was asked for is asked again."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from factorjepa.errors import StorageError
from factorjepa.report.making import make_report
from factorjepa.scores import Scores
from factorjepa.statistics import CompareSettings, Comparison, compare
from factorjepa.statistics.contrasts import Contrast

from . import synthetic
from .test_page import QUICK, SMALL, made


def test_a_comparison_of_other_scores_is_made_again_and_said(tmp_path: Path) -> None:
    made(tmp_path, synthetic.scores(**SMALL, methods=("frozen", "factorjepa"), structure=False))
    fewer = synthetic.scores(**SMALL, methods=("frozen", "auto_rgn", "factorjepa"), structure=False)
    fewer.write(tmp_path / "scores.parquet")
    again = make_report(tmp_path)
    assert again.compared
    assert any("made again" in note for note in again.notes)


def test_a_page_elsewhere_is_made_of_scores_that_may_not_be_written_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, mine, keep = tmp_path / "theirs", tmp_path / "mine", Comparison.write

    def refuse(self: Comparison, folder: Path) -> None:
        if folder.is_relative_to(theirs):
            raise StorageError(f"{folder}: not writable")
        keep(self, folder)

    theirs.mkdir()
    synthetic.scores(**SMALL, methods=("frozen", "factorjepa"), structure=False).write(theirs / "scores.parquet")
    monkeypatch.setattr(Comparison, "write", refuse)
    told = make_report(theirs, to=mine, settings=QUICK)
    assert told.compared
    assert any("theirs/comparison: stays as it was" in note for note in told.notes)
    assert not (theirs / "comparison").exists()
    assert Comparison.read(mine / "tables").contrasts


def test_what_a_comparison_was_asked_for_is_asked_again_where_the_scores_still_hold_it(tmp_path: Path) -> None:
    before = synthetic.scores(**SMALL, methods=("frozen", "auto_rgn", "lora", "full"), structure=False)
    before.write(tmp_path / "scores.parquet")
    asked = [Contrast(f"{a} over {b}", a, b) for a, b in (("lora", "auto_rgn"), ("full", "auto_rgn"))]
    variants = ["future_l1/agents", "future_l1/interacting"]
    settings = CompareSettings(replicates=300, mixed="none", also=asked, variants=variants)
    compare(before, settings).write(tmp_path / "comparison")
    assert not make_report(tmp_path).compared
    after = synthetic.scores(**SMALL, methods=("frozen", "auto_rgn", "lora"), structure=False, random=1)
    kept = after.table.filter(pc.not_equal(pc.cast(after.table["variant"], "string"), "interacting"))
    Scores(kept, after.diagnostics, after.evaluator, after.runs).write(tmp_path / "scores.parquet")
    again = make_report(tmp_path)
    assert again.compared
    assert any("without full over auto_rgn and future_l1/interacting, which" in note for note in again.notes)
    found = Comparison.read(tmp_path / "comparison")
    assert (found.settings["replicates"], found.settings["mixed"]) == (300, "none")
    assert found.settings["variants"] == ["future_l1/agents"]
    assert [one["a"] for one in found.settings["also"]] == ["lora"]


def test_a_comparison_by_an_older_rule_is_made_again(tmp_path: Path) -> None:
    scores = synthetic.scores(**SMALL, methods=("auto_rgn", "factorjepa"), structure=False)
    scores.write(tmp_path / "scores.parquet")
    made_before = compare(scores, QUICK)
    made_before.settings.pop("decided_by")
    made_before.write(tmp_path / "comparison")
    assert make_report(tmp_path).compared
    assert not make_report(tmp_path).compared
