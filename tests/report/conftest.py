"""Runs with a known record, and a page of everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factorjepa.adaptation import METHODS
from factorjepa.config import dump
from factorjepa.examples import write_example
from factorjepa.report.making import make_report
from factorjepa.statistics import CompareSettings
from factorjepa.training.settings import TrainSettings

from . import synthetic

Make = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path) -> Make:
    """`run("a", method="full", until=7)`: a run's folder with a falling record."""

    def made(name: str, method: str = "factorjepa", updates: int = 40, until: int | None = None) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.yaml").write_text(dump(TrainSettings(data="-", method=method, updates=updates)))
        terms = METHODS[method].reads_targets
        last = until if until is not None else updates if METHODS[method].trains else 0
        records: list[dict[str, Any]] = []
        for step in range(last + 1):
            if step:
                falling = 0.3 + 0.2 / step
                records.append({"step": step, "loss": falling, "jepa": falling, "factor": 2 * falling * terms})
            if step % 10 == 0:
                records.append({"step": step, "val/future_l1": 0.4 - 0.002 * step})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        return folder

    return made


@pytest.fixture(scope="session")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on two backbones, every diagnostic, an example with questions."""
    out = tmp_path_factory.mktemp("report") / "scores"
    out.mkdir()
    backbones = ("nano", "vitg_1b")
    synthetic.scores(cities=10, sources=2, clips=1, seeds=(17, 29), backbones=backbones).write(out / "scores.parquet")
    write_example(out / "examples" / "first", synthetic.example())
    make_report(out, settings=CompareSettings(replicates=500, mixed="none"))
    return out
