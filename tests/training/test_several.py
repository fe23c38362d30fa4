"""Runs side by side: one protocol, and nothing lost when they are told to stop."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from factorjepa.errors import TrainingError
from factorjepa.training import several
from factorjepa.training.run import RunDirectory
from factorjepa.training.settings import TrainSettings
from factorjepa.training.several import Job, train_all

Make = Callable[..., TrainSettings]
CPU = torch.device("cpu")


def test_a_run_that_is_told_to_stop_saves_first_and_goes_on_later(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(settings(method="auto_rgn", updates=4, save_every=4), tmp_path / "run")
    stop = multiprocessing.get_context("spawn").Event()
    stop.set()
    monkeypatch.setattr(several, "_stop", stop)
    several._train(job, "cpu")
    assert RunDirectory(job.out).steps()[-1] == 1
    stop.clear()
    train_all([job], CPU, workers=1)
    assert job.done


def test_finished_runs_of_other_settings_are_refused(settings: Make, tmp_path: Path) -> None:
    train_all([Job(settings(method="auto_rgn", updates=1), tmp_path / "run")], CPU, workers=1)
    with pytest.raises(TrainingError, match="lr"):
        train_all([Job(settings(method="auto_rgn", updates=1, lr=0.5), tmp_path / "run")], CPU, workers=1)
