"""The backbone a run starts from: a user's weights, or those that come with the package."""

from __future__ import annotations

from pathlib import Path

import torch

from ..backbones import Backbone, load
from ..backbones.packaged import packaged_weights
from ..backbones.recognition import recognise
from ..errors import TrainingError


def open_backbone(arch: str, weights: str | None, device: torch.device) -> Backbone:
    """`arch` (or `file`: what the file's own header says) with `weights`, in fp32, which what trains must be in."""
    path = Path(weights) if weights else packaged_weights(arch)
    if path is None:
        raise TrainingError(
            f"no weights come with the package for {arch!r}: name a file (weights=...); `factorjepa weights list` "
            "shows what is released"
        )
    return load(path, recognise(path).spec if arch == "file" else arch, device=device, dtype=torch.float32)
