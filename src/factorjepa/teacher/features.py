"""Frozen features of single frames, behind one interface whoever makes them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .regions import Floats


class FrameFeatures(Protocol):
    """A frozen network, or a fixed rule, that describes each frame by itself: no frame depends on another."""

    name: str  # what made the features, weights included: goes into every output
    width: int  # D

    def __call__(self, frames: NDArray[np.uint8]) -> Floats:
        """`uint8 [T, S, S, 3]` (any square S) -> `float32 [T, g, g, D]`, unit length per cell."""
        ...
