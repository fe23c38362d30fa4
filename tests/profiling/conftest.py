"""An architecture small enough that every case takes a second, known by name while these tests run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from factorjepa.backbones import spec
from factorjepa.training.settings import TrainSettings

TINY: dict[str, Any] = {
    "dim": 48, "depth": 3, "heads": 2, "mlp_hidden": 96, "taps": (0, 1, 2), "grid": (4, 4), "predictor_dim": 48,
    "predictor_depth": 1, "predictor_heads": 2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(spec._REGISTRY, "tiny", spec.resolve("nano", **TINY))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def settings() -> TrainSettings:
    return TrainSettings(
        data="-", arch="tiny", size=32, batch=2, masks="blocks", method="factorjepa", trainable_blocks=1, updates=10
    )
