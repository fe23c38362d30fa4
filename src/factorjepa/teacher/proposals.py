"""Where regions come from, and which of the proposed ones are kept (Panel A, region retention)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from ..pixels import Frames
from .regions import Floats, Region
from .settings import RegionSettings


class Proposals(Protocol):
    """Proposes candidate regions of every frame of a window.

    Regions of frames before `context` depend on frames before `context` only.
    """

    name: str  # what proposes, weights included: goes into every output

    def __call__(self, frames: Frames, features: Floats, camera: Floats, context: int) -> list[list[Region]]:
        """`uint8 [T, S, S, 3]`, `[T, g, g, D]`, `[T, 2, 3]` -> candidates of each frame, on a grid of
        `mask_side(settings, S)` pixels."""
        ...


def mask_side(settings: RegionSettings, size: int) -> int:
    """Pixels of the mask grid for frames of `size` pixels: no finer than the picture."""
    return min(settings.side, size)


def describe(mask: NDArray[np.bool_], features: Floats) -> Floats:
    """Mean feature `[D]` over the cells of `[g, g, D]` that a mask `[side, side]` covers, weighted by how much."""
    grid = features.shape[0]
    how = cv2.INTER_AREA if mask.shape[0] >= grid else cv2.INTER_LINEAR
    weight = cv2.resize(mask.astype(np.float32), (grid, grid), interpolation=how)
    cells = np.flatnonzero(weight)
    mean = weight.take(cells) @ features.reshape(grid * grid, -1).take(cells, axis=0)
    return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12), dtype=np.float32)


def retain(regions: Sequence[Region], settings: RegionSettings, side: int) -> list[Region]:
    """Confident, large enough, and no duplicate of a more confident one; most confident first.

    Of two equally confident duplicates the larger is kept, then the one further left and up, then whatever their bytes
    say: the order in which regions come in does not matter.
    """
    smallest = settings.min_area * side * side
    kept = [r for r in regions if r.confidence >= settings.min_confidence and r.pixels >= smallest]
    kept.sort(key=_rank)
    overlap = mask_iou(kept, kept, at_least=settings.duplicate_iou)
    survivors: list[int] = []
    for k in range(len(kept)):
        if not (overlap[k, survivors] >= settings.duplicate_iou).any():
            survivors.append(k)
    return [kept[k] for k in survivors]


def _rank(region: Region) -> tuple[object, ...]:
    place = -region.confidence, -region.pixels, region.left, region.top
    return *place, region.mask.shape, region.mask.tobytes(), region.descriptor.tobytes()


def mask_iou(first: Sequence[Region], second: Sequence[Region], at_least: float = 0.0) -> NDArray[np.float64]:
    """Mask IoU of every pair, `[N, M]`; pairs whose boxes and areas rule out `at_least` are 0 without being looked at.

    Most pairs of a crowded frame do not touch, so only the few that do are compared pixel by pixel.
    """
    result = np.zeros((len(first), len(second)))
    if not first or not second:
        return result
    a, b = corners(first), corners(second)
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared_box = (high - low).clip(0).prod(axis=2)
    area_a, area_b = (np.array([r.pixels for r in regions], dtype=np.int64) for regions in (first, second))
    most = np.minimum(np.minimum(area_a[:, None], area_b), shared_box)  # no intersection is larger
    possible = most / np.maximum(area_a[:, None] + area_b - most, 1)
    for i, j in zip(*np.nonzero((most > 0) & (possible >= at_least)), strict=True):
        (left, top), (right, bottom) = low[i, j], high[i, j]
        shared = np.count_nonzero(
            first[i].mask[top - a[i, 1] : bottom - a[i, 1], left - a[i, 0] : right - a[i, 0]]
            & second[j].mask[top - b[j, 1] : bottom - b[j, 1], left - b[j, 0] : right - b[j, 0]]
        )
        result[i, j] = shared / (area_a[i] + area_b[j] - shared)
    return result


def corners(regions: Sequence[Region]) -> NDArray[np.int64]:
    """Left, top, right, bottom in pixels of the mask grid, `[N, 4]`."""
    found = [(r.left, r.top, r.left + r.mask.shape[1], r.top + r.mask.shape[0]) for r in regions]
    return np.array(found, dtype=np.int64).reshape(-1, 4)
