"""Tracklets as dense tables over the window: what the structural maps and the evidence cells read.

Shapes: K tracklets, T frames, E descriptor width. Cells of a table where a tracklet has no region are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .regions import Floats, Tracklet


@dataclass(frozen=True)
class Trajectories:
    """Every retained tracklet of a window."""

    seen_KT: NDArray[np.bool_]
    box_KT4: Floats  # left, top, right, bottom in [0, 1]
    area_KT: Floats  # visible support, share of the picture
    confidence_KT: Floats
    descriptor_KTE: Floats  # projected, unit length where seen

    def __len__(self) -> int:
        return len(self.seen_KT)

    @property
    def frames(self) -> int:
        return int(self.seen_KT.shape[1])

    @property
    def centre_KT2(self) -> Floats:
        return np.asarray((self.box_KT4[..., :2] + self.box_KT4[..., 2:]) / 2, np.float32)

    @property
    def truncated_KT(self) -> NDArray[np.bool_]:
        """Where the box touches the picture's border."""
        touches = (self.box_KT4[..., :2] <= 0).any(-1) | (self.box_KT4[..., 2:] >= 1).any(-1)
        return np.asarray(touches & self.seen_KT)

    @property
    def length_K(self) -> Floats:
        """Frames with a region."""
        return np.asarray(self.seen_KT.sum(1), np.float32)

    @property
    def span_KT(self) -> NDArray[np.bool_]:
        """From the first to the last frame with a region, gaps included."""
        begun = np.logical_or.accumulate(self.seen_KT, axis=1)
        return np.asarray(begun & np.logical_or.accumulate(self.seen_KT[:, ::-1], axis=1)[:, ::-1])

    @property
    def continuity_K(self) -> Floats:
        """Share of the span with a region."""
        return np.asarray(self.length_K / np.maximum(self.span_KT.sum(1), 1), np.float32)

    def mean_over_seen(self, values_KT: Floats) -> Floats:
        """`[K]`, 0 for a tracklet without a region."""
        total_K = np.where(self.seen_KT, values_KT, 0).sum(1)
        return np.asarray(total_K / np.maximum(self.length_K, 1), np.float32)


def trajectories(tracklets: Sequence[Tracklet], frames: int, side: int, projection_DE: Floats) -> Trajectories:
    """The tables of `tracklets` in a window of `frames`; masks live on `side` pixels a side."""
    count = len(tracklets)
    rows = [
        (k, frame, region)
        for k, one in enumerate(tracklets)
        for frame, region in zip(one.frames, one.regions, strict=True)
    ]
    where = (np.array([k for k, _, _ in rows], np.intp), np.array([frame for _, frame, _ in rows], np.intp))
    seen = np.zeros((count, frames), bool)
    box = np.zeros((count, frames, 4), np.float32)
    area, confidence = np.zeros((count, frames), np.float32), np.zeros((count, frames), np.float32)
    descriptor = np.zeros((count, frames, projection_DE.shape[1]), np.float32)
    if rows:
        seen[where] = True
        box[where] = [region.box(side) for _, _, region in rows]
        area[where] = [region.pixels / side**2 for _, _, region in rows]
        confidence[where] = np.clip([region.confidence for _, _, region in rows], 0.0, 1.0)
        descriptor[where] = unit(np.stack([region.descriptor for _, _, region in rows]) @ projection_DE)
    return Trajectories(seen, box, area, confidence, descriptor)


def unit(rows: Floats) -> Floats:
    """Rows at unit length; a row of zeros stays."""
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(length, 1e-6), dtype=np.float32)


def camera_chain(camera_T23: Floats) -> Floats:
    """`[T, 3, 3]`: where a static point of frame 0 lies in frame t. Nonsensical motion counts as none."""
    steps = np.tile(np.eye(3, dtype=np.float64), (len(camera_T23), 1, 1))
    steps[:, :2] = camera_T23
    determinant = np.linalg.det(np.nan_to_num(steps[:, :2, :2], nan=0.0, posinf=0.0, neginf=0.0))
    broken = ~np.isfinite(steps).all((1, 2)) | ~((determinant > 0.25) & (determinant < 4.0))
    steps[broken] = np.eye(3)
    chain = [np.eye(3)]
    for step in steps[1:]:
        chain.append(step @ chain[-1])
    return np.stack(chain).astype(np.float32)
