"""What the five axes are measured on: the agents of a clip's sampled frames, in one form for every source.

Boxes are in pixels of the valid, unpadded picture Omega and clipped to it. Distances are in units of the root of its
area, so that they mean the same at any resolution and in both directions of a wide picture.

Legend: T sampled frames; O observations (one agent in one frame), sorted by frame.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import RegimeError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

UNRESOLVED = -1  # superclass of an instance whose class maps to none, or to several
NOBODY = -1  # track of an instance that was associated with no other


class Cover(Protocol):
    """How much of each frame the visible masks of some observations cover together."""

    def union(self, kept_O: Bools) -> Array:
        """Pixels, [T]."""
        ...


@dataclass(frozen=True)
class Scene:
    """The candidate instances of one clip."""

    times_T: Array  # seconds of the clip
    width: float  # of Omega, pixels
    height: float
    frame_O: Ints
    track_O: Ints
    superclass_O: Ints | None  # index into SUPERCLASSES; None: the source cannot say
    confidence_O: Array
    box_O4: Array  # left, top, right, bottom
    area_O: Array  # visible pixels
    drift_O2: Array  # what the static scene does at this place because the camera moves, units per second
    cover: Cover

    def __post_init__(self) -> None:
        if len(self.frame_O) and (np.diff(self.frame_O) < 0).any():
            raise RegimeError("the observations of a scene must be sorted by frame")

    @property
    def frames(self) -> int:
        return len(self.times_T)

    @property
    def support(self) -> float:
        """|Omega|, pixels."""
        return self.width * self.height

    @property
    def unit(self) -> float:
        return float(np.sqrt(self.support))

    @property
    def centre_O2(self) -> Array:
        """p, in units."""
        return np.asarray((self.box_O4[:, :2] + self.box_O4[:, 2:]) / (2 * self.unit))

    @property
    def counts_T(self) -> Ints:
        return np.bincount(self.frame_O, minlength=self.frames)

    def kept(self, chosen_O: Bools) -> Scene:
        """The scene with these observations alone."""
        changes: dict[str, Any] = {
            name: getattr(self, name)[chosen_O]
            for name in ("frame_O", "track_O", "confidence_O", "box_O4", "area_O", "drift_O2")
        }
        if self.superclass_O is not None:
            changes["superclass_O"] = self.superclass_O[chosen_O]
        return dataclasses.replace(self, **changes, cover=_PartOf(self.cover, chosen_O))

    def every(self, step: int) -> Scene:
        """Every `step`-th frame."""
        slots_T = np.where(np.arange(self.frames) % step == 0, np.arange(self.frames) // step, -1)
        return self.with_slots(slots_T, self.times_T[::step])

    def reordered(self, order_T: Ints) -> Scene:
        """Frame `order_T[t]` shown at time t: pictures stay whole, their sequence does not."""
        slots_T = np.empty(self.frames, np.int64)
        slots_T[order_T] = np.arange(self.frames)
        return self.with_slots(slots_T, self.times_T)

    def with_slots(self, slots_T: Ints, times_T: Array) -> Scene:
        """Frame t moves to `slots_T[t]`, or is left out where that is -1."""
        slot_O = slots_T[self.frame_O]
        chosen = self.kept(slot_O >= 0)
        slot_O = slot_O[slot_O >= 0]
        order_O = np.argsort(slot_O, kind="stable")
        changes: dict[str, Any] = {
            name: getattr(chosen, name)[order_O] for name in ("track_O", "confidence_O", "box_O4", "area_O", "drift_O2")
        }
        if chosen.superclass_O is not None:
            changes["superclass_O"] = chosen.superclass_O[order_O]
        cover = _Moved(chosen.cover, order_O, slots_T, len(times_T))
        return dataclasses.replace(chosen, times_T=times_T, frame_O=slot_O[order_O], cover=cover, **changes)


def clipped(box_O4: Array, valid: Sequence[float]) -> Array:
    """Boxes in pixels of a padded picture, clipped to its valid part and counted from that part's corner."""
    left, top, right, bottom = valid
    low, high = np.array([left, top, left, top]), np.array([right - left, bottom - top] * 2)
    return np.asarray(np.clip(np.asarray(box_O4, np.float64).reshape(-1, 4) - low, 0, high))


@dataclass(frozen=True)
class DisjointMasks:
    """Visible masks that never share a pixel: simulated ground truth, where one agent is nearest at each."""

    frame_O: Ints
    area_O: Array
    frames: int

    def union(self, kept_O: Bools) -> Array:
        return np.asarray(np.bincount(self.frame_O[kept_O], self.area_O[kept_O], minlength=self.frames), np.float64)


@dataclass(frozen=True)
class BoxMasks:
    """Boxes in place of masks, where annotations have no more: exact areas of their unions."""

    frame_O: Ints
    box_O4: Array
    frames: int

    def union(self, kept_O: Bools) -> Array:
        covered_T = np.zeros(self.frames)
        rows = np.flatnonzero(kept_O)
        starts = np.searchsorted(self.frame_O[rows], np.arange(self.frames + 1))
        for t in range(self.frames):
            covered_T[t] = area_of_union(self.box_O4[rows[starts[t] : starts[t + 1]]])
        return covered_T


def area_of_union(box_N4: Array) -> float:
    """Of rectangles: they are counted on the grid that their edges make."""
    if not len(box_N4):
        return 0.0
    x, left_right = np.unique(box_N4[:, [0, 2]], return_inverse=True)
    y, top_bottom = np.unique(box_N4[:, [1, 3]], return_inverse=True)
    (left, right), (top, bottom) = left_right.reshape(-1, 2).T, top_bottom.reshape(-1, 2).T
    steps = np.zeros((len(y), len(x)), np.int64)  # +1 where a rectangle begins, -1 where it ends; summed both ways
    for rows, columns, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(steps, (rows, columns), sign)
    covered = steps.cumsum(0).cumsum(1)[:-1, :-1] > 0
    return float(np.diff(y) @ covered @ np.diff(x))


@dataclass(frozen=True)
class _PartOf:
    whole: Cover
    chosen_O: Bools

    def union(self, kept_O: Bools) -> Array:
        everyone_O = np.zeros(len(self.chosen_O), bool)
        everyone_O[np.flatnonzero(self.chosen_O)[kept_O]] = True
        return self.whole.union(everyone_O)


@dataclass(frozen=True)
class _Moved:
    whole: Cover
    order_O: NDArray[np.intp]
    slots_T: Ints
    frames: int

    def union(self, kept_O: Bools) -> Array:
        before_O = np.zeros(len(self.order_O), bool)
        before_O[self.order_O[kept_O]] = True
        covered_T = np.zeros(self.frames)
        there = self.slots_T >= 0
        covered_T[self.slots_T[there]] = self.whole.union(before_O)[there]
        return covered_T
