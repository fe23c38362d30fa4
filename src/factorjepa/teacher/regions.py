"""What the teacher sees in one window: regions of single frames, and tracklets of regions over frames.

Coordinates are those of the window's square. Masks live on a grid of `side x side` pixels; boxes, centres and camera
motion are in [0, 1] of the square, x to the right and y down.

Frames before `context` form the context. Whatever is said about a context frame is computed from context frames alone;
later frames may be judged with everything seen before them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Region:
    """One region of one frame: `(m, b, u, p)` of the paper. `mask` is cut to the box, whose corner is (left, top)."""

    mask: NDArray[np.bool_]  # [h, w] visible support
    left: int  # pixels of the mask grid
    top: int
    descriptor: Floats  # [D] unit length
    confidence: float  # in [0, 1]

    @property
    def pixels(self) -> int:
        return int(np.count_nonzero(self.mask))

    def box(self, side: int) -> tuple[float, float, float, float]:
        """Left, top, right, bottom in [0, 1]."""
        height, width = self.mask.shape
        return self.left / side, self.top / side, (self.left + width) / side, (self.top + height) / side

    def full_mask(self, side: int) -> NDArray[np.bool_]:
        """The support on the whole mask grid, `[side, side]`."""
        whole = np.zeros((side, side), dtype=bool)
        height, width = self.mask.shape
        whole[self.top : self.top + height, self.left : self.left + width] = self.mask
        return whole


@dataclass(frozen=True)
class Tracklet:
    """Regions of one agent in ascending frames. Frames in between without a region are gaps."""

    frames: tuple[int, ...]
    regions: tuple[Region, ...]

    def until(self, frame: int) -> Tracklet:
        """The part before `frame`: what was known then."""
        kept = sum(seen < frame for seen in self.frames)
        return Tracklet(self.frames[:kept], self.regions[:kept])


@dataclass(frozen=True)
class Evidence:
    """Everything the structural maps read. T frames, a feature grid of g x g cells, D features."""

    features: Floats  # [T, g, g, D] unit length per cell
    camera: Floats  # [T, 2, 3] affine motion of the static scene from frame t-1 to t; identity at 0
    regions: tuple[tuple[Region, ...], ...]  # [T] retained regions of each frame
    tracklets: tuple[Tracklet, ...]  # in order of first appearance
    side: int  # pixels of the mask grid
    context: int  # frames of the context

    @property
    def frames(self) -> int:
        return len(self.regions)


def region_of(whole: NDArray[np.bool_], descriptor: Floats, confidence: float) -> Region:
    """The region of a mask on the whole grid; the mask must not be empty."""
    rows, columns = np.flatnonzero(whole.any(axis=1)), np.flatnonzero(whole.any(axis=0))
    top, left = int(rows[0]), int(columns[0])
    cut = whole[top : rows[-1] + 1, left : columns[-1] + 1].copy()
    return Region(cut, left, top, descriptor, confidence)
