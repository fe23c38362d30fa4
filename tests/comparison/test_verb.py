"""`factorjepa compare` as people use it."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from factorjepa.cli import main
from factorjepa.errors import ScoresError
from factorjepa.scores import Scores
from factorjepa.statistics import Comparison
from factorjepa.statistics.variants import with_variants
from factorjepa.terminal import console
from factorjepa.verbs.diagnostics import _remarks, _summary

from .tables import FUTURE, MOTION, rows_of, scores_of

INFOS = [FUTURE, MOTION]


def run(monkeypatch: pytest.MonkeyPatch, *words: object, width: int = 100) -> int:
    monkeypatch.setattr(sys, "argv", ["factorjepa", "compare", *map(str, words)])
    monkeypatch.setattr(console, "width", width)
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """One file per method, as evaluation writes them."""
    shifts = {"frozen": 0.5, "auto_rgn": 0.3, "factorjepa": 0.0, "mono_states_late": 0.001}
    rows = rows_of(shifts, infos=INFOS)
    for method in shifts:
        scores_of([row for row in rows if row["method"] == method], INFOS).write(tmp_path / method / "scores.parquet")
    return [tmp_path / method for method in shifts]


def test_joins_files_prints_decisions_and_writes_tables(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *files, "--out", tmp_path / "out", "--replicates", 500, "--no-mixed") == 0
    said = capsys.readouterr().out
    assert all(len(line) <= 100 for line in said.splitlines() if str(tmp_path) not in line)
    table = said[said.index("prespecified contrasts") : said.index("exploratory")]
    decided = next(line for line in table.splitlines() if "Future-frame L1" in line)
    assert decided.split()[-1] == "better"
    assert "Factorjepa over Mono_States_Late" in said
    assert "not separated" in said
    found = Comparison.read(tmp_path / "out")
    assert {row.method for row in found.scores} == {path.name for path in files}
    assert found.settings["replicates"] == 500


def test_two_methods_that_somebody_asks_for_are_compared_too(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Auto-RGN over a control that no contrast of ours sets beside it; adjusted among those that were asked for."""
    quick = ("--out", tmp_path / "out", "--replicates", 300, "--no-mixed")
    assert run(monkeypatch, *files, *quick) == 0
    before = Comparison.read(tmp_path / "out").contrasts
    asked = ("--also", "mono_states_late:auto_rgn", "--also", "frozen:factorjepa", "--also", "factorjepa:frozen")
    assert run(monkeypatch, *files, *quick, *asked) == 0
    after = Comparison.read(tmp_path / "out").contrasts
    more = [row for row in after if (row.a, row.b) not in {(one.a, one.b) for one in before}]
    assert {(row.a, row.b) for row in more} == {("mono_states_late", "auto_rgn")}  # the other is there, turned round
    assert {row.family for row in more} == {"asked for"}
    kept = {(row.contrast, row.diagnostic): row.adjusted_p for row in after if row not in more}
    assert kept == pytest.approx({(row.contrast, row.diagnostic): row.adjusted_p for row in before}, nan_ok=True)
    future = next(row for row in more if row.diagnostic == FUTURE.name)
    assert future.effect == pytest.approx(0.299, abs=0.01)
    assert future.decision == "better"


def test_pairs_that_were_asked_for_and_steps_without_factorjepa_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who compares two baselines sees the answer on the screen, not only in a file."""
    quick = ("--out", tmp_path / "out", "--replicates", 300, "--no-mixed")

    def said(shifts: dict[str, float], *words: object) -> str:
        scores_of(rows_of(shifts)).write(tmp_path / "scores.parquet")
        assert run(monkeypatch, tmp_path, *quick, *words, width=120) == 0
        return capsys.readouterr().out

    unasked = said({"lora": 0.3, "dora": 0.0})
    assert "not compared by default: add --also dora:lora" in unasked
    asked = said({"lora": 0.3, "dora": 0.0}, "--also", "dora:lora")
    assert "asked for with --also, exploratory; positive favours the first" in asked
    (row,) = [line for line in asked[asked.index("Dora over Lora") :].splitlines() if "Future-frame L1" in line]
    assert float(row.split()[2]) == pytest.approx(0.3, abs=0.01)
    assert row.split()[-1] == "better"
    assert "add --also" not in asked
    step = said({"auto_rgn_look": 0.0, "auto_rgn_views": 0.2})
    assert "Auto_Rgn_Look over Auto_Rgn_Views" in step
    frozen = said({"frozen": 0.5, "lora": 0.3})
    assert "Lora over Frozen" in frozen
    assert "Lora over Frozen" not in said({"frozen": 0.5, "lora": 0.3, "factorjepa": 0.0})
    many = said({"frozen": 0.5} | {f"lora@{word}": 0.1 for word in "abcdefghijklmn"})
    assert many.count(" over Frozen") == 12
    assert "2 contrasts more: contrasts.csv" in many


@pytest.mark.parametrize("pair", ["factorjepa_raw:frozen", "frozen:factorjepa_raw"])
def test_a_pair_that_is_compared_anyway_is_printed_when_asked_for_and_decided_as_before(
    pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where FactorJEPA is there, others over frozen are in the files alone, unless somebody names them."""
    scores_of(rows_of({"frozen": 0.5, "factorjepa_raw": 0.3, "factorjepa": 0.0})).write(tmp_path / "scores.parquet")
    quick = ("--out", tmp_path / "out", "--replicates", 300, "--no-mixed")
    assert run(monkeypatch, tmp_path, *quick) == 0
    assert "Factorjepa_Raw over Frozen" not in capsys.readouterr().out
    before = Comparison.read(tmp_path / "out").contrasts
    assert run(monkeypatch, tmp_path, *quick, "--also", pair) == 0
    said = capsys.readouterr().out
    asked = said[said.index("asked for with --also") :]
    row = next(line for line in asked[asked.index("Factorjepa_Raw over Frozen") :].splitlines() if "Future" in line)
    assert float(row.split()[2]) == pytest.approx(0.2, abs=0.01)
    assert row.split()[-1] == "better"
    after = Comparison.read(tmp_path / "out").contrasts
    kept = [[(one.contrast, one.family, one.decision, str(one.adjusted_p)) for one in rows] for rows in (before, after)]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    ("pair", "words"),
    [("auto_rgn", "as A:B"), ("auto_rgn:", "as A:B"), ("a:b:c", "as A:B"), ("auto_rgn:auto_rgn", "with itself"),
     ("auto_rgm:frozen", "no method 'auto_rgm' (did you mean 'auto_rgn'?)")],
)  # fmt: skip
def test_a_pair_that_cannot_be_compared_is_refused(
    pair: str, words: str, files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *files, "--also", pair, width=400) != 0
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (files[0] / "comparison").exists()


def test_a_variant_that_somebody_asks_for_is_compared_by_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Level over all tokens, and better on those with agents: a decision of its own, and no other's."""
    level, apart = {"auto_rgn": 0.0, "factorjepa": 0.0}, {"auto_rgn": 0.3, "factorjepa": 0.0}
    rows = [*rows_of(level), *rows_of(apart, variants=["teacher_agents"], random=1)]
    scores_of(rows).write(tmp_path / "scores.parquet")
    out, quick = tmp_path / "out", ("--replicates", 300, "--no-mixed")
    asked = ("--variant", "future_l1/teacher_agents")
    assert run(monkeypatch, tmp_path, "--out", out, *quick, *asked, width=80) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "nano: Future-frame L1 (teacher_agents); positive favours the first" in said
    found = {row.diagnostic: row for row in Comparison.read(out).contrasts if row.contrast == "total"}
    assert found["future_l1"].decision == "not separated"
    assert found["future_l1"].family == "primary"
    by_variant = found["future_l1/teacher_agents"]
    assert (by_variant.decision, by_variant.family, by_variant.status) == ("better", "asked for", "companion")
    assert by_variant.effect == pytest.approx(0.3, abs=0.02)
    assert Comparison.read(out).settings["variants"] == ["future_l1/teacher_agents"]
    assert run(monkeypatch, tmp_path, "--out", out, *quick) == 0  # the scores themselves are as they were
    assert "future_l1/teacher_agents" not in {row.diagnostic for row in Comparison.read(out).contrasts}


@pytest.mark.parametrize(
    ("name", "words"),
    [("future_l1", "named as DIAGNOSTIC/VARIANT"), ("pooled", "named as DIAGNOSTIC/VARIANT"),
     ("future_l2/pooled", "no diagnostic 'future_l2' (did you mean"),
     ("future_l1/poled", "no variant 'poled' (did you mean 'pooled'?); there are: pooled"),
     ("future_l1/pooled", "compared by that already")],
)  # fmt: skip
def test_a_variant_that_cannot_be_compared_by_is_refused(
    name: str, words: str, files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *files, "--variant", name, width=400) != 0
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (files[0] / "comparison").exists()


@pytest.mark.parametrize("variant", ["magnitude", "chance", "reversed", "denominator"])
def test_a_method_is_not_called_better_for_more_of_what_is_told_beside_a_score(variant: str) -> None:
    scores = scores_of(rows_of({"frozen": 0.5, "auto_rgn": 0.3}, variants=["pooled", variant]))
    with pytest.raises(ScoresError, match=f"of {variant} neither more nor less is better"):
        with_variants(scores, [f"future_l1/{variant}"])


def test_people_read_titles_and_everything_fits_eighty_columns(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, *files, "--out", out, "--replicates", 500, "--no-mixed", width=80) == 0
    said = capsys.readouterr().out.split(str(tmp_path))[0]
    assert all(len(line) <= 80 for line in said.splitlines())
    assert "total: Factorjepa over Auto_Rgn" in said
    assert " ".join(said.split()).count("no scores of FactorJEPA-RAW") == 1  # told once
    assert "factorjepa_raw" not in said
    assert "…" not in said


@pytest.mark.parametrize("width", [80, 200])
def test_means_of_many_methods_fit_the_terminal_with_their_whole_titles(width: int) -> None:
    titles = [f"Monolithic + states of method-{name}" for name in "abcdefg"]
    f1 = dataclasses.replace(FUTURE, name="f1", title="Taxonomy F1", reduction="macro_f1", headline="")
    rows = rows_of(dict.fromkeys("abcdefg", 0.1), cities=2)
    rows += rows_of(dict.fromkeys("abcdefg", 0.0), cities=2, infos=[f1], variants=["tp/x", "fp/x", "fn/x"])
    rows += [row | {"variant": "chance", "value": 0.8} for row in rows if row["variant"] == "tp/x"]
    scores = scores_of(rows, [FUTURE, f1, MOTION])
    runs = [dataclasses.replace(run, title=titles["abcdefg".index(run.method)]) for run in scores.runs]
    scores = Scores(scores.table, scores.diagnostics, scores.evaluator, runs)
    terminal = Console(width=width, file=io.StringIO())
    tables = _summary(scores, width)
    for table in tables:
        terminal.print(table)
    said = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert len(tables) == (2 if width == 80 else 1)
    assert all(len(line) <= width for line in said.splitlines())
    assert said.count("Monolithic") == 7
    assert said.count("method-") == 7
    assert "…" not in said
    assert "Motion cosine" not in said
    assert [line.split(":")[0] for line in _remarks(scores)] == ["not measured on these clips", "Taxonomy F1"]


def test_missing_scores_are_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path / "nothing") == 1
    assert "factorjepa evaluate" in capsys.readouterr().err


def test_the_same_scores_twice_are_an_error_in_words(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, files[2], files[2]) == 1
    said = capsys.readouterr().err
    assert "factorjepa with seed" in said
    assert "the same scores were given twice" in said
    assert "{" not in said


def test_clips_of_one_source_are_pointed_out_before_a_comparison_refuses_them() -> None:
    rows = rows_of({"a": 0.0, "b": 0.0}, cities=1)
    one = [row for row in rows if row["source"] == rows[0]["source"]]
    assert any("one source: compare and report need two" in line for line in _remarks(scores_of(one)))
    assert not any("one source" in line for line in _remarks(scores_of(rows)))
