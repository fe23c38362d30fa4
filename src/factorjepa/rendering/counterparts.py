"""Which agent of a decoded frame is which agent of the observed one, although it may have moved or changed its look.

Agent F1 asks whether an agent is where it was. A failure has to be named, and for that the agent must be found again
when it is somewhere else. Who is in the same place, or looks alike within `reach`, can be the same agent; among these,
agents are assigned (Hungarian) by how far they moved and how much their look and size changed. Look is a frozen
descriptor, the mean colours of a 4 x 4 grid over the box. X is first made as soft as the decoded frame is: blur, which
every decoder adds, is no other look. In the same place with another look must still be somebody: a smear that hardly
stands out from what is around it is what remains of an agent, neither the agent nor one more.

Legend: N observed agents, M agents of the decoded frame, D = 48 descriptor values, H x W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ..detectors.boxes import Detections, box_iou
from .metrics.agents import Doubles, areas

_GRID = 4  # an agent is described by the mean colours of so many cells a side of its box, compared by L1
_BLURS = (0.01, 0.02, 0.03, 0.045)  # sides: how soft a decoded frame may be
_SHIFTS = (-0.15, 0.0, 0.15)  # of the box's size: detectors' boxes are not exact to the pixel
_AROUND = 0.5  # of the box's size: how far its surroundings reach
NOBODY = -1

Picture = NDArray[np.float32]  # [H, W, 3] in [0, 1]


@dataclass(frozen=True)
class Counterparts:
    """One decoded frame against the observed one."""

    partner_N: NDArray[np.int64]  # row of the decoded agent, or NOBODY
    unlikeness_N: Doubles  # of the partners' looks, NaN for nobody
    overlap_N: Doubles  # box IoU of the partners, 0 for nobody
    extra_M: NDArray[np.bool_]  # decoded agents that are nobody's partner and not what remains of somebody
    original_M: NDArray[np.int64]  # observed agent of whom an extra one is a copy, or NOBODY

    @property
    def kept_N(self) -> NDArray[np.bool_]:
        return np.asarray(self.partner_N != NOBODY)


def counterparts(
    observed: Picture,
    there: Detections,
    decoded: Picture,
    found: Detections,
    reach: float,
    alike: float,
    same_place: float,
    faded: float,
) -> Counterparts:
    """`reach` in sides of the picture, `alike` in the descriptor's units, `same_place` a box IoU, `faded` a share."""
    soft = as_soft_as(decoded, observed)
    looks = unlikeness(soft, there.boxes, decoded, found.boxes)
    apart = np.linalg.norm(centres(there.boxes)[:, None] - centres(found.boxes)[None], axis=-1)
    ratio = np.abs(np.log(np.maximum(areas(there.boxes), 1e-6)[:, None] / np.maximum(areas(found.boxes), 1e-6)))
    cost = apart / reach + looks / alike + ratio / np.log(4.0)
    overlaps = box_iou(there.boxes, found.boxes)
    by_place = (looks >= alike) & (overlaps >= same_place)
    remains = np.zeros_like(by_place)
    for n, m in np.argwhere(by_place):
        left = max(contrast(decoded, box) for box in (there.boxes[n], found.boxes[m]))  # boxes are not exact
        remains[n, m] = left < (1.0 - faded) * contrast(soft, there.boxes[n])
    possible = (apart <= reach) & ((looks < alike) | (by_place & ~remains))
    rows, columns = linear_sum_assignment(np.where(possible, cost, 1e6))
    real = possible[rows, columns]
    rows, columns = rows[real], columns[real]
    count = len(there.scores)
    partner = np.full(count, NOBODY, np.int64)
    partner[rows] = columns
    changed, overlap = np.full(count, np.nan), np.zeros(count)
    changed[rows], overlap[rows] = looks[rows, columns], overlaps[rows, columns]
    extra = ~remains[partner == NOBODY].any(axis=0)
    extra[columns] = False
    return Counterparts(
        partner, changed, overlap, extra, _originals(extra, partner, (apart <= reach) & (looks < alike), apart)
    )


def as_soft_as(decoded: Picture, observed: Picture) -> Picture:
    """The observed frame under the blur that brings it nearest to the decoded one; as it is if none does."""
    soft = [np.asarray(cv2.GaussianBlur(observed, (0, 0), blur * len(observed)), np.float32) for blur in _BLURS]
    return min((observed, *soft), key=lambda one: float(np.abs(one - decoded).mean()))


def unlikeness(first: Picture, boxes_N4: Doubles, second: Picture, boxes_M4: Doubles) -> Doubles:
    """`[N, M]` mean absolute difference of descriptors; the best of nine small shifts of the second box."""
    if not len(boxes_N4) or not len(boxes_M4):
        return np.zeros((len(boxes_N4), len(boxes_M4)))
    one_ND = descriptors(first, boxes_N4)
    size = np.tile(boxes_M4[:, 2:] - boxes_M4[:, :2], 2)
    shifted = [boxes_M4 + size * np.array([x, y, x, y]) for x in _SHIFTS for y in _SHIFTS]
    best = np.full((len(boxes_N4), len(boxes_M4)), np.inf)
    for boxes in shifted:
        other_MD = descriptors(second, boxes)
        best = np.minimum(best, np.abs(one_ND[:, None] - other_MD[None]).mean(-1))
    return best


def descriptors(picture: Picture, boxes_N4: Doubles) -> Doubles:
    """`[N, D]`."""
    return np.array([crop(picture, box, _GRID).ravel() for box in boxes_N4]).reshape(-1, _GRID * _GRID * 3)


def contrast(picture: Picture, box: Doubles) -> float:
    """How far the colours of the box's cells are, in the mean, from the mean colour around it."""
    wide = box + np.tile(box[2:] - box[:2], 2) * np.array([-_AROUND, -_AROUND, _AROUND, _AROUND])
    around = np.zeros(picture.shape[:2], bool)
    around[_pixels(picture, wide)] = True
    around[_pixels(picture, box)] = False
    if not around.any():  # it fills the picture
        return 0.0
    return float(np.abs(crop(picture, box, _GRID) - picture[around].mean(axis=0)).mean())


def crop(picture: Picture, box: Doubles, side: int) -> Picture:
    """What lies in the box, `[side, side, 3]`."""
    part = picture[_pixels(picture, box)]
    how = cv2.INTER_AREA if min(part.shape[:2]) >= side else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(part, (side, side), interpolation=how), np.float32)


def _pixels(picture: Picture, box: Doubles) -> tuple[slice, slice]:
    """Rows and columns, at least one of each."""
    height, width = picture.shape[:2]
    left, right = (int(np.clip(round(v * width), 0, width)) for v in box[[0, 2]])
    top, bottom = (int(np.clip(round(v * height), 0, height)) for v in box[[1, 3]])
    left, top = min(left, width - 1), min(top, height - 1)
    return slice(top, max(bottom, top + 1)), slice(left, max(right, left + 1))


def centres(boxes_N4: Doubles) -> Doubles:
    return np.asarray((boxes_N4[:, :2] + boxes_N4[:, 2:]) / 2)


def _originals(
    extra_M: NDArray[np.bool_], partner_N: NDArray[np.int64], copied_NM: NDArray[np.bool_], apart_NM: Doubles
) -> NDArray[np.int64]:
    """Of whom each extra agent is a copy: the nearest one that looks like it and is in its own place as well."""
    original = np.full(len(extra_M), NOBODY, np.int64)
    if not len(partner_N):
        return original
    candidate = copied_NM & (partner_N != NOBODY)[:, None]
    nearest = np.where(candidate, apart_NM, np.inf)
    found = extra_M & candidate.any(axis=0)
    original[found] = nearest.argmin(axis=0)[found]
    return original
