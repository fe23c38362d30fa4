"""Curves beside the record: every point once, also after a resume."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from factorjepa.errors import TrainingError
from factorjepa.training.logs import Logs, refuse_missing
from factorjepa.training.run import EVENTS, RunDirectory


def write(folder: Path, log_to: list[str], steps: range, resumed: int | None = None) -> None:
    config = "method: full\n"
    with RunDirectory.begin(folder, config, {}, resumed is not None) as run, Logs.opened(run, log_to, resumed) as logs:
        run.save(steps.start, {}, {}) if resumed is None else run.forget_after(resumed)
        for step in steps:
            logs.log({"step": step, "loss": step / 10 + (resumed or 0), "val/future_l1": 1.0})


def test_a_reader_finds_every_point_of_a_resumed_run_once(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(tmp_path / "run", ["tensorboard"], range(5))
    write(tmp_path / "run", ["tensorboard"], range(3, 6), resumed=2)
    events = accumulator.EventAccumulator(str(tmp_path / "run" / EVENTS))
    events.Reload()
    points = [(event.step, round(event.value, 5)) for event in events.Scalars("train/loss")]
    assert points == [(0, 0.0), (1, 0.1), (2, 0.2), (3, 2.3), (4, 2.4), (5, 2.5)]
    assert len(events.Scalars("val/future_l1")) == 6
    assert [record["step"] for record in RunDirectory.existing(tmp_path / "run").metrics()] == [0, 1, 2, 3, 4, 5]


def test_a_run_resumed_within_a_second_is_read_in_order_after_many_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenth file of a process would come before its ninth by name."""
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    monkeypatch.setattr(writer, "_global_uid", writer.AtomicCounter(9))
    test_a_reader_finds_every_point_of_a_resumed_run_once(tmp_path)


class FakeRun:
    """What is used of `wandb.Run`: like the real one it drops steps before its own."""

    kept: dict[str, list[int]] = {}  # noqa: RUF012

    def __init__(self, **asked: Any) -> None:
        self.id, self.asked = asked["id"], asked
        self.steps = self.kept.setdefault(self.id, [])
        self.step = self.steps[-1] + 1 if self.steps else 0

    def log(self, values: dict[str, float], step: int) -> None:
        assert step >= self.step, "wandb would warn and drop it"
        self.steps.append(step)

    def finish(self) -> None:
        self.asked["finished"] = True


def test_weights_and_biases_knows_a_resumed_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRun, "kept", {})
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=FakeRun))  # type: ignore[arg-type]
    write(tmp_path / "run", ["wandb"], range(5))
    write(tmp_path / "run", ["wandb"], range(3, 7), resumed=2)
    (steps,) = FakeRun.kept.values()
    assert steps == [0, 1, 2, 3, 4, 5, 6]


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(TrainingError, match=r"pip install 'factorjepa\[logs\]'"):
        refuse_missing(["no_such_logger"])
