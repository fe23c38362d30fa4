"""A corpus, its targets and a backbone small enough that every method trains within seconds."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from factorjepa.backbones import build
from factorjepa.backbones.checkpoint import save
from factorjepa.corpus.simulated import SimulationPlan, simulate_corpus
from factorjepa.corpus.splits import Split
from factorjepa.teacher.making import make_packets
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.training.settings import TrainSettings
from factorjepa.world import WorldSettings

SPEC: dict[str, Any] = {
    "dim": 48, "depth": 4, "heads": 2, "mlp_hidden": 96, "taps": (0, 1, 2, 3), "grid": (4, 4), "predictor_dim": 48,
    "predictor_depth": 2, "predictor_heads": 2,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Test processes share the cores, and threads that wait for each other crawl."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `weights.safetensors` and a `corpus` whose training and validation clips have packets.

    Made once for all test processes: their base folders are siblings.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tiny"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            _make(folder)
            (folder / "made").touch()
    return folder


def _make(folder: Path) -> None:
    save(build("nano", **SPEC), folder / "weights.safetensors")
    world = WorldSettings(size=32, fps=8.0, seconds=(6.0, 6.5))
    plan = SimulationPlan(seed=3, clips=21, clips_per_source=3, world=world, shares=(0.85, 0.15, 0.0))
    simulate_corpus(folder / "corpus", plan, workers=1)
    splits = [Split.TRAIN, Split.VALIDATION]
    make_packets(folder / "corpus", folder / "corpus" / "targets", TeacherSettings(), splits, workers=1)


@pytest.fixture
def settings(tiny: Path) -> Callable[..., TrainSettings]:
    """Settings of a run on it; keywords change them."""

    def made(**changes: Any) -> TrainSettings:
        values: dict[str, Any] = {
            "data": str(tiny / "corpus"), "arch": "file", "weights": str(tiny / "weights.safetensors"), "size": 32,
            "method": "full", "updates": 2, "batch": 4, "lr": 1e-3, "warmup": 1, "momentum": 0.99, "masks": "spread",
            "trainable_blocks": 2, "lora_rank": 4, "validate_every": 2, "save_every": 2, "probe_batches": 1,
            "dictionary_clips": 8, "validation_clips": 3,
        }  # fmt: skip
        return TrainSettings(**{**values, **changes})

    return made
