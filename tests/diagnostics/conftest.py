"""The tiny corpus of the training tests, with packets of every split, and runs of several families on it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from training.conftest import one_thread, settings, tiny  # noqa: F401

from factorjepa.teacher.making import make_packets
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.training.engine import Engine
from factorjepa.training.settings import TrainSettings

FAMILIES = ("frozen", "full", "auto_rgn", "continual", "lora", "factorjepa_raw", "factorjepa", "mono_states_early")


@pytest.fixture(scope="session")
def measured(tiny: Path) -> Path:  # noqa: F811
    """The tiny folder, once the clips of all its splits have packets."""
    with open(tiny / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tiny / "measured").exists():
            make_packets(tiny / "corpus", tiny / "corpus" / "targets", TeacherSettings(), None, workers=1)
            (tiny / "measured").touch()
    return tiny


@pytest.fixture
def trained(measured: Path, settings: Callable[..., TrainSettings]) -> Callable[[str], Path]:  # noqa: F811
    """The folder of a finished run of a method, two updates long; made once."""

    def run(method: str) -> Path:
        out = measured / "runs" / method
        with open(measured / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (out / "best").exists():
                Engine(settings(method=method), torch.device("cpu")).run(out, False)
        return out

    return run
