"""All painted surfaces of a street in one picture, each as a chain of ever smaller copies.

One look-up per pixel then draws sky, ground and houses at the right sharpness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Singles = NDArray[np.floating[Any]]  # float32 throughout; arithmetic with scalars hides it from the type checker
_PAD = 2  # px around each texture
LEVELS = 4  # copies of each texture, each half as large as the one before


@dataclass(frozen=True)
class Tile:
    """A texture in the atlas with its smaller copies below it.

    A copy shrunk by s (1, 1/2, 1/4, ...) of a texture H rows high starts at row 2H(1 - s): the place is linear in s, so
    no table is needed to find it.
    """

    left: int
    top: int
    width: int
    height: int
    unit: float  # pixels to the right per unit of the position asked for
    density: float  # pixels down per metre
    base: float  # row at 0 m

    def u(self, position: Singles, scale: Singles | None = None) -> Singles:
        across = position if scale is None else position * scale
        return linear(across, self.unit, self.left)

    def v(self, position: Singles, scale: Singles, metres: float, offset: float) -> Singles:
        """Rows at `position * metres + offset` metres."""
        end = self.top + 2 * self.height
        row = linear(position, self.density * metres, self.density * offset + self.base - 2 * self.height)
        between(row, -2.0 * self.height, -1.0 - self.height)
        row *= scale
        row += np.float32(end)
        return row


def linear(values: Singles, factor: float, offset: float) -> Singles:
    """values * factor + offset in one pass."""
    return np.asarray(cv2.addWeighted(values, factor, values, 0.0, offset))


def shrink(nearness: Singles, limit: float) -> Singles:
    """How much the copy for each pixel is shrunk, by one over its depth: 1 up to `limit` metres, then 1/2, 1/4, 1/8.

    The exponent of a floating-point number is its logarithm: masking the rest rounds down to a power of two.
    """
    power = (nearness * np.float32(limit)).view(np.int32)
    power &= np.int32(0x7F800000)
    return between(power.view(np.float32), 2.0 ** (1 - LEVELS), 1.0)


def between(values: Singles, low: float, high: float) -> Singles:
    """np.clip in place, at half its cost."""
    np.maximum(values, np.float32(low), out=values)
    return np.asarray(cv2.threshold(values, high, 0.0, cv2.THRESH_TRUNC, values)[1])


class Atlas:
    """Collects textures side by side."""

    def __init__(self) -> None:
        self.chains: list[tuple[int, list[Image]]] = []  # column where each starts, and its copies
        self.width = self.height = 0

    def add(
        self, texture: Image, *, unit: float, density: float = 1.0, base: float = 0.0, levels: int = LEVELS
    ) -> Tile:
        height, width = texture.shape[:2]
        copies = [texture]
        for level in range(1, levels):
            shrunk = (max(1, width >> level), max(1, height >> level))
            copies.append(np.asarray(cv2.resize(copies[-1], shrunk, interpolation=cv2.INTER_AREA), np.uint8))
        left = self.width + _PAD
        self.chains.append((left, copies))
        self.width, self.height = left + width + _PAD, max(self.height, 2 * height)
        return Tile(left, 0, width, height, unit, density, base)

    def finish(self) -> Image:
        image = np.zeros((self.height, self.width, 3), np.uint8)
        for left, copies in self.chains:
            height, top, bottom = len(copies[0]), 0, 0
            for level, copy in enumerate(copies):
                bottom, right = top + len(copy), left + copy.shape[1]
                image[top:bottom, left:right] = copy
                image[top:bottom, left - _PAD : left] = copy[:, -_PAD:]  # the ring closes
                image[top:bottom, right : right + _PAD] = copy[:, :_PAD]
                top += height >> level
            image[bottom : bottom + _PAD, left:right] = copies[-1][-1]  # below the last one, look-ups may round down
        return image
