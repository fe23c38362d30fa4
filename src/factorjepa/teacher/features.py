"""Frozen features of single frames, behind one interface whoever makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import TeacherError
from .regions import Floats

if TYPE_CHECKING:
    import torch

    from .settings import FeatureSettings


class FrameFeatures(Protocol):
    """A frozen network, or a fixed rule, that describes each frame by itself: no frame depends on another."""

    name: str  # what made the features, weights included: goes into every output
    width: int  # D

    def __call__(self, frames: NDArray[np.uint8]) -> Floats:
        """`uint8 [T, S, S, 3]` (any square S) -> `float32 [T, g, g, D]`, unit length per cell."""
        ...


def open_features(settings: FeatureSettings, device: torch.device | str | None = None) -> FrameFeatures:
    """The features that the settings name. `device=None` is the GPU where there is one, for what runs on one.

    >>> features = open_features(FeatureSettings())
    >>> features.name
    'classical v1'
    """
    if settings.kind == "classical":
        from .classical import ClassicalFeatures

        if settings.weights is not None or settings.layer is not None:
            raise TeacherError(
                "features.kind is classical, a fixed rule without weights or layers, but features.weights or "
                "features.layer is set; leave them out, or set features.kind to dinov2 or nano"
            )
        return ClassicalFeatures()
    from .networks import open_dinov2, open_nano

    if settings.kind == "dinov2":
        return open_dinov2(settings, device)
    return open_nano(settings, device)


def square_frames(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The frames as they are, or an error if they are not what `FrameFeatures` takes."""
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[1] != frames.shape[2] or frames.shape[3] != 3:
        raise TeacherError(
            f"features: expected square frames uint8 [T, S, S, 3], got {frames.dtype} {list(frames.shape)}; cut the "
            "window's square first"
        )
    return frames
