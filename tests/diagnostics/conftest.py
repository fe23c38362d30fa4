"""The streets of the training tests dealt into all four splits, with packets, and short runs of several families."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.corpus.simulated import PLAN
from factorjepa.corpus.splits import Split
from factorjepa.diagnostics.evaluator import Conditions, Evaluator
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.teacher.making import make_packets
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.training.engine import Engine
from factorjepa.training.settings import TrainSettings
from training.conftest import one_thread, settings, tiny  # noqa: F401

CPU = torch.device("cpu")
FAMILIES = ("frozen", "full", "auto_rgn", "continual", "lora", "factorjepa_raw", "factorjepa", "mono_states_early")
_DEALT = (
    (Split.TRAIN, 3), (Split.TRAIN, 2), (Split.VALIDATION, 2), (Split.TEST, 2), *[(Split.AUDIT, 2)] * 3,
)  # a source each  # fmt: skip


@pytest.fixture(scope="session")
def streets(tiny: Path) -> Path:  # noqa: F811
    """A corpus of seven sources and 15 clips."""
    folder = tiny / "streets"
    with open(tiny / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tiny / "dealt").exists():
            _deal(tiny / "corpus", folder)
            make_packets(folder, folder / "targets", TeacherSettings(), None, workers=1)
            (tiny / "dealt").touch()
    return folder


def _deal(corpus: Path, folder: Path) -> None:
    sources: dict[str, list[Clip]] = {}
    for clip in Manifest.read(corpus):
        sources.setdefault(clip.source, []).append(clip)
    dealt = [
        dataclasses.replace(clip, split=split)
        for (split, count), clips in zip(_DEALT, sources.values(), strict=True)
        for clip in clips[:count]
    ]
    shutil.copytree(corpus / "clips", folder / "clips", copy_function=os.link, dirs_exist_ok=True)
    shutil.copy(corpus / PLAN, folder / PLAN)
    Manifest(dealt).write(folder)


@pytest.fixture
def trained(streets: Path, settings: Callable[..., TrainSettings]) -> Callable[..., Path]:  # noqa: F811
    """The folder of a finished run of a method, two updates long; made once. Its last step counts, not its best."""

    def run(method: str, seed: int = 17) -> Path:
        out = streets.parent / "runs" / f"{method}-{seed}"
        with open(streets.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (out / "done").exists():
                Engine(settings(method=method, data=str(streets), seed=seed), CPU).run(out, False)
                (out / "best").unlink()
                (out / "done").touch()
        return out

    return run


@pytest.fixture
def evaluator(streets: Path, settings: Callable[..., TrainSettings]) -> Callable[..., Evaluator]:  # noqa: F811
    """The frozen side of an evaluation of these streets; keywords are settings."""

    def made(**changes: object) -> Evaluator:
        conditions = Conditions.of(settings(data=str(streets)), None, None)
        return Evaluator(conditions, EvaluateSettings.model_validate({"split": "audit", **changes}), CPU)

    return made
