"""The streets and runs of the diagnostics' tests, and a decoder of their backbone, a few updates old."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from diagnostics.conftest import evaluator, streets, trained  # noqa: F401
from factorjepa.rendering.decoder import StoredDecoder, load_decoder
from factorjepa.rendering.settings import DecodeSettings
from factorjepa.rendering.training import DecoderTraining
from training.conftest import one_thread, settings, tiny  # noqa: F401

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"width": 24, "depth": 1, "heads": 2, "channels": 8, "widths": (8, 8, 8, 8)}


@pytest.fixture
def decoding(streets: Path) -> Callable[..., DecodeSettings]:  # noqa: F811
    """Settings of a decoder on the streets; keywords change them."""

    def made(**changes: Any) -> DecodeSettings:
        values: dict[str, Any] = {
            "data": str(streets), "arch": "file", "weights": str(streets.parent / "weights.safetensors"),
            "sizes": (32,), "decoder": SMALL, "updates": 4, "batch": 4, "validate_every": 2, "validation_clips": 2,
            "warmup": 1,
        }  # fmt: skip
        return DecodeSettings.model_validate({**values, **changes})

    return made


@pytest.fixture
def decoder_folder(streets: Path, decoding: Callable[..., DecodeSettings]) -> Path:  # noqa: F811
    """A finished decoder; made once."""
    out = streets.parent / "decoder"
    with open(streets.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "decoder.safetensors").exists():
            DecoderTraining(decoding(), CPU).run(out)
    return out


@pytest.fixture
def stored(decoder_folder: Path) -> StoredDecoder:
    return load_decoder(decoder_folder, "file")
