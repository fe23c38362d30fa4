"""A check of the teacher against native annotations, apart from every statistic: does it count what people marked?

Legend: T frames that both know; O observations.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from ..errors import RegimeError
from .axes import NAMES, frame_measures
from .scene import BoxMasks, Scene, clipped
from .settings import Thresholds

_SAME_MOMENT = 0.06  # s between a teacher's frame and an annotated one
COMPARED = ("count", "occupancy", "overlap", "truncation", "interaction")  # classes are not the teacher's


@dataclass(frozen=True)
class Agreement:
    """One measure over the frames that both know."""

    measure: str
    teacher: float
    native: float
    rank_correlation: float  # of frames; NaN where one of them never changes
    frames: int


def cropped(native: Scene, left: float, top: float, side: float) -> Scene:
    """The part that the teacher sees, boxes clipped to it; who is outside is nobody."""
    box_O4 = clipped(native.box_O4, (left, top, left + side, top + side))
    area_O = (box_O4[:, 2:] - box_O4[:, :2]).prod(1)
    whole = dataclasses.replace(
        native, width=float(side), height=float(side), box_O4=box_O4, area_O=area_O,
        cover=BoxMasks(native.frame_O, box_O4, native.frames),
    )  # fmt: skip
    return whole.kept(area_O > 0)


def agreement(teacher: Scene, native: Scene, start: float, thresholds: Thresholds) -> list[Agreement]:
    """Both measured on the moments that both have. `start` is the clip's place in the annotated video, seconds."""
    moments = teacher.times_T + start
    nearest = np.abs(native.times_T[None] - moments[:, None]).argmin(1) if native.frames else np.empty(0, np.int64)
    close = np.abs(native.times_T[nearest] - moments) <= _SAME_MOMENT if native.frames else np.zeros(0, bool)
    if not close.any():
        raise RegimeError(
            f"no frame of the teacher's window ({moments[0]:.2f} to {moments[-1]:.2f} s) is annotated; is this the "
            "clip's video, and does it start where the manifest says?"
        )
    parts = []
    for scene, frames in ((teacher, np.flatnonzero(close)), (native, nearest[close])):
        slots = np.full(scene.frames, -1)
        slots[frames] = np.arange(len(frames))
        parts.append(frame_measures(scene.with_slots(slots, moments[close]), thresholds))
    found = []
    for name in COMPARED:
        one, other = (part[:, NAMES.index(name)] for part in parts)
        both = np.isfinite(one) & np.isfinite(other)
        varies = both.sum() > 2 and np.ptp(one[both]) > 0 and np.ptp(other[both]) > 0
        correlation = float(spearmanr(one[both], other[both]).statistic) if varies else float("nan")
        means = [float(values[both].mean()) if both.any() else float("nan") for values in (one, other)]
        found.append(Agreement(name, means[0], means[1], correlation, int(both.sum())))
    return found
