"""Small objects: the picture is looked at whole and in enlarged parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..pixels import Frames
from .boxes import Detections, joined

_CUT_OFF = 0.01  # of the tile: a box this close to a tile's inner edge is part of something larger


def detect_tiled(detect: Callable[[Frames], Detections], frame: Frames, tiles: int = 2) -> Detections:
    """Detections of `uint8 [H, W, 3]` and of `tiles` x `tiles` parts of it, which overlap by a third."""
    size = np.array(frame.shape[1::-1])  # width, height
    part_size = np.rint(tile_share(tiles) * size).astype(np.int64)
    starts = [
        np.rint(np.linspace(0, side - part, tiles)).astype(int) for side, part in zip(size, part_size, strict=True)
    ]
    parts = [detect(frame)]
    for top in starts[1]:
        for left in starts[0]:
            here = np.ascontiguousarray(frame[top : top + part_size[1], left : left + part_size[0]])
            edges = np.array([left, top, left + part_size[0], top + part_size[1]]) / np.tile(size, 2)
            parts.append(_placed(detect(here), edges))
    return joined(parts)


def tile_share(tiles: int) -> float:
    """Of the picture's sides that one of `tiles` x `tiles` parts has."""
    return 3 / (2 * tiles + 1)


def _placed(found: Detections, edges: NDArray[np.float64]) -> Detections:
    """A part's detections in the whole picture, less those that the part's inner edges cut."""
    span = np.tile(edges[2:] - edges[:2], 2)
    boxes = found.boxes * span + np.tile(edges[:2], 2)
    inner = (edges > 0) & (edges < 1)
    whole = (~((np.abs(boxes - edges) < _CUT_OFF * span) & inner)).all(axis=1)
    return Detections(boxes, found.scores, found.kinds).take(np.asarray(whole))
