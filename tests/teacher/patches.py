"""Hand-made regions for the teacher's tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from factorjepa.teacher.regions import Region, region_of

SIDE = 128


def patch(
    x: float, y: float, width: float, height: float, look: int = 0, confidence: float = 0.9, side: int = SIDE
) -> Region:
    """An elliptic region around (x, y) in [0, 1], with one of eight looks."""
    place = (np.arange(side) + 0.5) / side
    inside = ((place - x) / (width / 2)) ** 2 + (((place - y) / (height / 2)) ** 2)[:, None] <= 1
    if not inside.any():
        inside[min(int(y * side), side - 1), min(int(x * side), side - 1)] = True
    descriptor = np.full(8, 0.2, np.float32)
    descriptor[look] = 1.0
    return region_of(inside, descriptor / np.linalg.norm(descriptor), confidence)


def still(frames: int) -> NDArray[np.float32]:
    """A camera that does not move, `[T, 2, 3]`."""
    return np.tile(np.array([[1, 0, 0], [0, 1, 0]], np.float32), (frames, 1, 1))
