"""What stands in for training in worker processes. They import this module: it needs no more than they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from factorjepa.training import several
from factorjepa.training.settings import TrainSettings
from factorjepa.training.several import Job


def crowded(job: Job, device: str) -> None:
    """One run finds no room on the GPU."""
    if job.out.name == "large":
        raise torch.OutOfMemoryError("CUDA out of memory")
    (job.out.parent / f"{job.out.name}.done").touch()


def saves(job: Job, device: str) -> None:
    """A run that a signal reaches: the quick one is saved long before the slow one."""
    several.Engine = _Slow  # type: ignore[misc, assignment]
    several._train(job, device)


class _Slow:
    def __init__(self, settings: TrainSettings, device: object) -> None:
        self.told = False

    def stop(self) -> None:
        self.told = True

    def run(self, out: Path, resume: bool, progress: Callable[[int, int, str], object], *more: object) -> None:
        out.mkdir()
        (out / "began").touch()
        while not self.told:
            progress(0, 1, "")
            time.sleep(0.02)
        time.sleep(1.5 if out.name == "quick" else 3.0)
        (out / "saved").touch()
