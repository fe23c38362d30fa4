"""What is truly in a window, in one form for simulated clips and annotated footage: what quality is measured against.

An agent that retention would drop anyway (too small), or of which too little is seen, is neither asked for nor held
against whoever finds it: it is `ignored`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ..errors import TeacherError
from ..video import frame_index
from ..world import ClipTruth

MIN_VISIBLE = 0.25  # share of an agent that must be seen for it to be asked for
_MIN_INSIDE = 0.5  # share of a footage box that must lie in the window's square
_LARGEST = 1e9  # number of any kind in a file
# MOT17 asks for pedestrians (1). People on vehicles, vehicles, static people, distractors and reflections may be found;
# occluders (9-11) are nobody.
_PEDESTRIAN, _OTHERS = 1, (2, 3, 4, 5, 6, 7, 8, 12)


@dataclass(frozen=True)
class TrueFrame:
    """The N agents of one frame."""

    ids: NDArray[np.int64]  # [N]
    boxes: NDArray[np.float64]  # [N, 4] left, top, right, bottom in [0, 1] of the square
    masks: NDArray[np.bool_] | None  # [N, side, side] visible support; None where only boxes are known
    visible: NDArray[np.float64]  # [N] share of the agent that is seen
    ignored: NDArray[np.bool_]  # [N]


def simulated_frames(
    truth: ClipTruth, times: NDArray[np.float64], side: int, min_area: float, min_visible: float = MIN_VISIBLE
) -> list[TrueFrame]:
    """The true agents at `times` (seconds of the clip), masks on `side x side` pixels, `min_area` as in retention."""
    result = []
    for number in np.minimum(frame_index(times, truth.fps), truth.frames - 1).tolist():
        rows = truth.observations(number)
        instances = truth.instances(number)
        shown = cv2.resize(instances, (side, side), interpolation=cv2.INTER_NEAREST)
        masks = shown[None] == (truth.agent[rows] + 1)[:, None, None]
        seen = masks.any(axis=(1, 2))
        rows, masks = rows[seen], masks[seen]
        visible = truth.visible_fraction[rows].astype(np.float64)
        ignored = (visible < min_visible) | (masks.sum(axis=(1, 2)) < min_area * side * side)
        ids = truth.agent_ids[truth.agent[rows]].astype(np.int64)
        result.append(TrueFrame(ids, _boxes_of(masks), masks, visible, ignored))
    return result


def true_interactions(truth: ClipTruth, start: float, end: float) -> set[frozenset[int]]:
    """Pairs of ids, one of which reacts to the other by itself between `start` and `end` seconds."""
    return {
        frozenset((one.agent, one.other))
        for one in truth.interactions
        if one.start < end and one.end > start and one.kind != "indirect"
    }


@dataclass(frozen=True)
class MotBoxes:
    """The rows of a MOT17 ground-truth file, boxes in pixels of the video at hand."""

    frame: NDArray[np.int64]  # [R] from 0
    ids: NDArray[np.int64]  # [R]
    boxes: NDArray[np.float64]  # [R, 4] left, top, right, bottom
    asked: NDArray[np.bool_]  # [R] a pedestrian to be found; the others may be found
    visible: NDArray[np.float64]  # [R]
    kinds: NDArray[np.int64]  # [R] MOT17's class

    @classmethod
    def read(cls, path: Path, width: int, original_width: int | None = None) -> MotBoxes:
        """`frame, id, left, top, width, height, flag, class, visibility` of a video that is now `width` pixels wide.

        Boxes are in the pixels of the original. If its width is not given, the boxes decide: they either fit the video
        at hand or belong to a 1920 pixel original.
        """
        try:
            table = np.loadtxt(path, delimiter=",", ndmin=2)
        except (OSError, ValueError) as error:
            raise TeacherError(f"{path}: cannot be read as MOT ground truth ({error})") from None
        if table.size and table.shape[1] != 9:
            raise TeacherError(
                f"{path}: has {table.shape[1]} columns, not the 9 of MOT17 ground truth "
                "(frame, id, left, top, width, height, flag, class, visibility)"
            )
        table = table.reshape(-1, 9)
        if not np.isfinite(table).all() or (np.abs(table) > _LARGEST).any() or (table[:, 0] < 1).any():
            raise TeacherError(
                f"{path}: has frames before the first, or numbers that are not finite or absurd; is it damaged?"
            )
        table = table[np.isin(table[:, 7], (_PEDESTRIAN, *_OTHERS))]
        right = table[:, 2] + table[:, 4]
        if original_width is None:
            beyond = table.size and np.median(right) > 0 and (right > 1.3 * width).mean() > 0.01
            original_width = 1920 if beyond else width
        boxes = np.concatenate([table[:, 2:4], table[:, 2:4] + table[:, 4:6]], axis=1) * (width / original_width)
        asked = (table[:, 7] == _PEDESTRIAN) & (table[:, 6] == 1)
        frame, ids, kinds = table[:, 0].astype(np.int64) - 1, table[:, 1].astype(np.int64), table[:, 7].astype(np.int64)
        return cls(frame, ids, boxes, asked, table[:, 8], kinds)


def mot_frames(
    truth: MotBoxes,
    times: NDArray[np.float64],
    fps: float,
    square: tuple[int, int, int],
    min_area: float,
    min_visible: float = MIN_VISIBLE,
) -> list[TrueFrame]:
    """The annotated people at `times`, boxes cut to the `square` (left, top, side of the video's pixels)."""
    left, top, side = square
    result = []
    for number in frame_index(times, fps).tolist():
        rows = np.flatnonzero(truth.frame == number)
        whole = (truth.boxes[rows] - np.array([left, top, left, top])) / side
        boxes = whole.clip(0, 1)
        inside = _area(boxes) / np.maximum(_area(whole), 1e-12)
        kept = inside > 0
        rows, boxes, inside = rows[kept], boxes[kept], inside[kept]
        visible = truth.visible[rows]
        ignored = ~truth.asked[rows] | (visible < min_visible) | (inside < _MIN_INSIDE) | (_area(boxes) < min_area)
        result.append(TrueFrame(truth.ids[rows], boxes, None, visible, ignored))
    return result


def _area(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((boxes[:, 2:] - boxes[:, :2]).prod(axis=1))


def _boxes_of(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Boxes `[N, 4]` in [0, 1] of masks `[N, side, side]`, none of them empty."""
    side = masks.shape[-1]
    spans = np.stack([masks.any(axis=1), masks.any(axis=2)], axis=1)  # [N, 2, side] columns and rows that are touched
    low, high = spans.argmax(axis=2), side - spans[..., ::-1].argmax(axis=2)
    return np.asarray(np.concatenate([low, high], axis=1) / side)
