"""`factorjepa compare` as people use it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from factorjepa.cli import main
from factorjepa.statistics import Comparison
from factorjepa.terminal import console

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


def test_people_read_titles_and_everything_fits_eighty_columns(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, *files, "--out", out, "--replicates", 500, "--no-mixed", width=80) == 0
    said = capsys.readouterr().out.split(str(tmp_path))[0]
    assert all(len(line) <= 80 for line in said.splitlines())
    assert "total: Factorjepa over Auto_Rgn" in said
    assert "untestable: no scores of FactorJEPA-RAW" in " ".join(said.split())
    assert "factorjepa_raw" not in said
    assert "…" not in said


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
