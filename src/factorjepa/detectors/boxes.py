"""Boxes with scores: what every detector gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SAME_OBJECT = 0.5  # box IoU, within a class


@dataclass(frozen=True)
class Detections:
    """M boxes of one picture."""

    boxes: NDArray[np.float64]  # [M, 4] left, top, right, bottom in [0, 1]
    scores: NDArray[np.float64]  # [M]
    kinds: NDArray[np.int64]  # [M] class numbers

    def take(self, rows: NDArray[Any]) -> Detections:
        return Detections(self.boxes[rows], self.scores[rows], self.kinds[rows])


def joined(parts: Sequence[Detections]) -> Detections:
    """All of several looks at one picture, each object once."""
    arrays = (np.concatenate(one) for one in zip(*((p.boxes, p.scores, p.kinds) for p in parts), strict=True))
    return suppressed(Detections(*arrays))


def suppressed(found: Detections, same: float = _SAME_OBJECT, across: bool = False) -> Detections:
    """Best first; of boxes of one class (with `across`: of any) that overlap by `same` or more, only the best."""
    order = np.lexsort((*found.boxes.T, -found.scores))
    found = found.take(order)
    clash = (box_iou(found.boxes, found.boxes) >= same) & (across | (found.kinds[:, None] == found.kinds))
    kept = np.ones(len(order), dtype=bool)
    for k in range(len(order)):
        if kept[k]:
            kept[k + 1 :] &= ~clash[k, k + 1 :]
    return found.take(kept)


def box_iou(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """IoU of boxes `[N, 4]` and `[M, 4]` (left, top, right, bottom): `[N, M]`."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clip(0).prod(axis=2)
    area_a, area_b = ((boxes[:, 2:] - boxes[:, :2]).clip(0).prod(axis=1) for boxes in (first, second))
    return np.asarray(shared / np.maximum(area_a[:, None] + area_b - shared, 1e-12), dtype=np.float64)
