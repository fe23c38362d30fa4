"""Scores that are kept beside a report: small, and saying the same."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from factorjepa.scores import Scores
from report import synthetic

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "keep_scores.py"
SMALL = {"cities": 4, "sources": 2, "clips": 2, "seeds": (17, 29), "structure": False}


def test_kept_scores_are_joined_rounded_and_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [synthetic.scores(**SMALL, methods=(name,)) for name in ("auto_rgn", "factorjepa")]
    for number, part in enumerate(parts):
        part.write(tmp_path / str(number) / "scores.parquet")
    spec = importlib.util.spec_from_file_location("keep_scores", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    out = tmp_path / "kept"
    words = ["keep_scores", str(tmp_path / "0"), str(tmp_path / "1"), "--out", str(out), "--strip", "nano"]
    monkeypatch.setattr(sys, "argv", words)
    script.main()
    kept, whole = Scores.read(out), Scores.joined(parts)
    assert kept.scored() == whole.scored()
    assert kept.diagnostics == whole.diagnostics

    def by_key(scores: Scores) -> dict[tuple[object, ...], float]:
        rows = scores.table.to_pylist()
        return {tuple(value for name, value in row.items() if name != "value"): row["value"] for row in rows}

    mine, theirs = by_key(kept), by_key(whole)
    assert mine.keys() == theirs.keys()
    keys = list(theirs)
    np.testing.assert_allclose([mine[key] for key in keys], [theirs[key] for key in keys], rtol=2**-12)
    assert [mine[key] for key in keys] != [theirs[key] for key in keys]
