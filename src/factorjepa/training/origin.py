"""The backbone a run starts from: a user's weights, or those that come with the package."""

from __future__ import annotations

from pathlib import Path

import torch

from ..backbones import Backbone, BackboneSpec, load
from ..backbones.checkpoint import fitting
from ..backbones.packaged import how_to_get, packaged_weights
from ..backbones.recognition import recognise
from ..errors import TrainingError


def open_backbone(arch: str, weights: str | None, device: torch.device) -> Backbone:
    """`arch` (or `file`: what the file's own header says) with `weights`, in fp32, which what trains must be in."""
    return load(*_named(arch, weights), device=device, dtype=torch.float32)


def check_weights(arch: str, weights: str | None) -> BackboneSpec:
    """Refuse now what `open_backbone` would refuse: weights that are not there, or are of another architecture."""
    return fitting(*_named(arch, weights))[1]


def _named(arch: str, weights: str | None) -> tuple[Path, str | BackboneSpec]:
    path = Path(weights) if weights else packaged_weights(arch)
    if path is None and arch == "file":
        raise TrainingError("arch is `file`, and no file is named: weights=FILE")
    if path is None:
        raise TrainingError(
            f"no weights come with the package for {arch!r}: {how_to_get(arch)}. Then name the file: weights=FILE "
            "(training.weights=FILE of a study)"
        )
    return path, recognise(path).spec if arch == "file" else arch
