"""Who is better for no more: what costs compare, and what is said where they do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from factorjepa.report.making import make_report
from factorjepa.scores import RunInfo, Scores
from factorjepa.statistics import CompareSettings, ParetoRow, compare

from .tables import rows_of, scores_of

QUICK = CompareSettings(replicates=400, mixed="none")
SHIFTS = {"frozen": 0.9, "auto_rgn": 0.5, "lora": 0.3, "factorjepa": 0.0}
TOGETHER, LATER = ("factorjepa study --out a",), ("factorjepa study --out a methods=[factorjepa]",)
HOURS = {"auto_rgn": 1.0, "lora": 2.0, "factorjepa": 3.0}


def scored(by: Mapping[str, tuple[str, ...]], on: Mapping[str, str] | None = None) -> Scores:
    """Methods that take as many hours as `HOURS` says, trained by these commands."""

    def told(run: RunInfo) -> RunInfo:
        seconds = HOURS[run.method] * 3600 if run.method in HOURS else None
        where = (on or {}).get(run.method, "")
        return dataclasses.replace(
            run, seconds=seconds, trained_by=by.get(run.method, ()), trained_on=where, trainable=10 if seconds else 0
        )

    scores = scores_of(rows_of(SHIFTS))
    return Scores(scores.table, scores.diagnostics, scores.evaluator, list(map(told, scores.runs)))


def pareto(scores: Scores) -> dict[str, ParetoRow]:
    return {row.method: row for row in compare(scores, QUICK).pareto}


def test_within_a_go_hours_keep_a_cheaper_method_from_being_dominated() -> None:
    found = pareto(scored(dict.fromkeys(HOURS, TOGETHER)))
    assert [row.dominated_by for row in found.values()] == [[], [], [], []]
    assert {row.note for row in found.values()} == {""}
    assert found["auto_rgn"].goes == [1]


def test_between_goes_hours_say_nothing_and_that_is_told() -> None:
    found = pareto(scored({"auto_rgn": TOGETHER, "lora": TOGETHER, "factorjepa": LATER}))
    assert found["auto_rgn"].dominated_by == ["factorjepa"]  # for no more parameters; lora took longer in the same go
    assert found["frozen"].dominated_by == []  # takes nothing in any go
    assert (found["auto_rgn"].goes, found["factorjepa"].goes, found["frozen"].goes) == ([1], [2], [])
    assert "trained in 2 goes" in found["lora"].note
    assert "compare within a go alone" in found["lora"].note


def test_the_same_command_on_another_machine_or_beside_other_runs_is_another_go() -> None:
    by = dict.fromkeys(HOURS, TOGETHER)
    first = "NVIDIA H200, 9 at a time, since 2026-03-01T10:00:00+00:00"
    for other in (first.replace("H200", "A100"), first.replace("9 at", "3 at"), first.replace("10:", "17:")):
        found = pareto(scored(by, {"auto_rgn": first, "lora": first, "factorjepa": other}))
        assert (found["lora"].goes, found["factorjepa"].goes) == ([1], [2])


def test_seeds_of_several_goes_compare_with_those_of_the_same_ones() -> None:
    scores = scored(dict.fromkeys(HOURS, TOGETHER))
    runs = [dataclasses.replace(run, trained_by=LATER) if run.seed == 29 else run for run in scores.runs]
    found = pareto(Scores(scores.table, scores.diagnostics, scores.evaluator, runs))
    assert found["auto_rgn"].dominated_by == []
    assert found["auto_rgn"].goes == [1, 2]


def test_the_page_says_which_hours_compare(tmp_path: Path) -> None:
    scored({"auto_rgn": TOGETHER, "lora": TOGETHER, "factorjepa": LATER}).write(tmp_path / "scores.parquet")
    page = make_report(tmp_path, settings=QUICK).page.read_text(encoding="utf-8")
    assert "nano: runs were trained in 2 goes, with other commands, machines or runs beside them" in page
    assert "2: factorjepa study --out a methods=[factorjepa]" in page
    scored(dict.fromkeys(HOURS, TOGETHER)).write(tmp_path / "scores.parquet")
    assert "goes, with other commands" not in make_report(tmp_path, settings=QUICK).page.read_text(encoding="utf-8")
