"""A check of the teacher against native annotations, apart from every statistic: does it count what people marked?

Legend: T frames that both know; O observations; M compared measures.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from scipy.stats import spearmanr

from ..corpus.manifest import Clip, Manifest
from ..corpus.windows import centre_square
from ..errors import RegimeError
from ..storage import write_text
from .axes import NAMES, frame_measures
from .measuring import Measurer
from .scene import Array, BoxMasks, Scene, clipped
from .settings import Thresholds

_SAME_MOMENT = 0.06  # s between a teacher's frame and an annotated one
_SAME_SHAPE = 0.03  # by which two aspect ratios may differ: sides are rounded to whole, even pixels
COMPARED = ("count", "occupancy", "overlap", "truncation", "interaction", "heterogeneity")


class Native(Protocol):
    """Where annotations come from."""

    name: str

    def scene(self, clip: Clip) -> tuple[Scene, float] | None:
        """What is marked in the clip's video, and the clip's start in it, seconds; None where nothing is."""
        ...


@dataclass(frozen=True)
class Agreement:
    """One measure over the frames that both know."""

    measure: str
    teacher: float
    native: float
    rank_correlation: float  # of frames; NaN where one of them never changes
    clip_correlation: float  # of the clips' means
    frames: int
    clips: int


@dataclass(frozen=True)
class Frames:
    """Both measured on the moments that both have, [T, M] each; NaN where a frame has no value."""

    teacher_TM: Array
    native_TM: Array


@dataclass(frozen=True)
class Check:
    clips: dict[str, Frames]
    unmarked: int  # clips that the annotations do not cover

    def pooled(self) -> list[Agreement]:
        return agreements(list(self.clips.values()))

    def write(self, folder: Path) -> Path:
        """`agreement.csv`: all clips together, then each."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["clip_id", *(field.name for field in dataclasses.fields(Agreement))])
        parts = [("all", self.pooled()), *((name, agreements([found])) for name, found in self.clips.items())]
        for name, rows in parts:
            writer.writerows([name, *map(_written, dataclasses.astuple(row))] for row in rows)
        write_text(folder / "agreement.csv", text.getvalue())
        return folder


def check_corpus(
    manifest: Manifest,
    measurer: Measurer,
    native: Native,
    thresholds: Thresholds,
    progress: Callable[[int, int], object] | None = None,
) -> Check:
    """The teacher and the annotations on every clip that both know."""
    found: dict[str, Frames] = {}
    for number, clip in enumerate(manifest, start=1):
        if (told := native.scene(clip)) is not None:
            marked, start = told
            both = paired(measurer.scene(clip), as_seen(marked, clip), start, thresholds)
            if len(both.teacher_TM):
                found[clip.clip_id] = both
        if progress is not None:
            progress(number, len(manifest))
    if not found:
        raise RegimeError(
            f"no moment of any clip is annotated in {native.name}: are these the clips' videos, under the names of the "
            f"files that were ingested (here {_file_of(manifest[0])!r})?"
        )
    return Check(found, len(manifest) - len(found))


def as_seen(native: Scene, clip: Clip) -> Scene:
    """The centre square, which is what the teacher sees of a clip."""
    if abs(native.width / native.height - clip.width / clip.height) > _SAME_SHAPE * clip.width / clip.height:
        raise RegimeError(
            f"clip {clip.clip_id!r} is {clip.width} x {clip.height}, its annotations {native.width:g} x "
            f"{native.height:g}: they are of a picture of another shape"
        )
    return cropped(native, *centre_square(round(native.width), round(native.height)))


def cropped(native: Scene, left: float, top: float, side: float) -> Scene:
    """The part that the teacher sees, boxes clipped to it; who is outside is nobody."""
    box_O4 = clipped(native.box_O4, (left, top, left + side, top + side))
    area_O = (box_O4[:, 2:] - box_O4[:, :2]).prod(1)
    whole = dataclasses.replace(
        native, width=float(side), height=float(side), box_O4=box_O4, area_O=area_O,
        cover=BoxMasks(native.frame_O, box_O4, native.frames),
    )  # fmt: skip
    return whole.kept(area_O > 0)


def paired(teacher: Scene, native: Scene, start: float, thresholds: Thresholds) -> Frames:
    """Frames of no length where no moment is marked. `start` is the clip's place in the annotated video, seconds.

    A teacher that tells no classes counts everybody, so everybody who is marked counts beside it.
    """
    if teacher.superclass_O is None or native.superclass_O is None:
        teacher, native = (dataclasses.replace(scene, superclass_O=None) for scene in (teacher, native))
    moments = teacher.times_T + start
    nearest, close = _nearest(native.times_T, moments)
    parts = []
    for scene, frames in ((teacher, np.flatnonzero(close)), (native, nearest[close])):
        slots = np.full(scene.frames, -1)
        slots[frames] = np.arange(len(frames))
        found_TM = frame_measures(scene.with_slots(slots, moments[close]), thresholds)
        parts.append(found_TM[:, [NAMES.index(name) for name in COMPARED]])
    return Frames(*parts)


def agreements(clips: Sequence[Frames]) -> list[Agreement]:
    """Of frames and of clips' means together; a measure that one of the two cannot give is left out."""
    found = []
    for m, name in enumerate(COMPARED):
        both = [
            (one.teacher_TM[known, m], one.native_TM[known, m]) for one in clips
            if (known := np.isfinite(one.teacher_TM[:, m]) & np.isfinite(one.native_TM[:, m])).any()
        ]  # fmt: skip
        if not both:
            continue
        teacher, native = (np.concatenate(side) for side in zip(*both, strict=True))
        means_C2 = np.array([[side.mean() for side in pair] for pair in both])
        found.append(
            Agreement(
                name, float(teacher.mean()), float(native.mean()), _correlation(teacher, native),
                _correlation(*means_C2.T), len(teacher), len(both),
            )
        )  # fmt: skip
    return found


def _nearest(times_T: Array, moments: Array) -> tuple[np.ndarray, np.ndarray]:
    """The annotated frame nearest each moment, and whether it is the same moment. Each frame serves one moment."""
    if not len(times_T):
        return np.zeros(len(moments), np.int64), np.zeros(len(moments), bool)
    after = np.searchsorted(times_T, moments).clip(0, len(times_T) - 1)
    before = (after - 1).clip(0)
    nearest = np.where(np.abs(times_T[before] - moments) < np.abs(times_T[after] - moments), before, after)
    close = np.abs(times_T[nearest] - moments) <= _SAME_MOMENT
    close[1:] &= nearest[1:] != nearest[:-1]
    return nearest, close


def _correlation(one: Array, other: Array) -> float:
    """Spearman's; none of fewer than three, or where one never changes."""
    varies = len(one) > 2 and np.ptp(one) > 0 and np.ptp(other) > 0
    return float(spearmanr(one, other).statistic) if varies else float("nan")


def _written(value: object) -> object:
    return ("" if np.isnan(value) else f"{value:.6g}") if isinstance(value, float) else value


def _file_of(clip: Clip) -> str:
    return str(clip.attributes.get("source_file", clip.source))
