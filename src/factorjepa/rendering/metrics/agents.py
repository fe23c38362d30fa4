"""Agent F1 (appendix H): which agents of the observed frame are found again in the decoded one.

Detections are matched greedily, best overlap first, one to one, within a class and from the prespecified IoU on. Greedy
and not Hungarian: an assignment that maximises a sum may give up a perfect match for two that barely pass, and then an
agent that is exactly where it was would count through its neighbour. At an IoU of 0.5 or more the two rarely differ.

Agents below a declared size count on neither side, without a cliff: everyone may be matched, but only a reference
agent that is large enough is a hit or a miss, and only a found one that is large enough is a false alarm.

Legend: N reference boxes, M found boxes; boxes are left, top, right, bottom in [0, 1].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ...config import Settings
from ...detectors.boxes import Detections, box_iou

Doubles = NDArray[np.float64]
Pairs = NDArray[np.intp]


class AgentSettings(Settings):
    """The prespecified matching rule. Fixed before methods are compared."""

    iou: float = Field(default=0.5, gt=0, le=1, description="least overlap of two boxes of one agent (PASCAL VOC's)")
    by_class: bool = Field(default=False, description="whether only boxes of one class match")
    smallest: float = Field(default=0.004, ge=0, le=1, description="share of the picture a box must have to count")
    small: float = Field(default=0.015, ge=0, le=1, description="share of the picture below which an agent is small")
    hidden: float = Field(default=0.5, gt=0, le=1, description="hidden share from which occlusion is heavy")


@dataclass(frozen=True)
class Agents:
    """Agents of one picture, and which share of each is hidden."""

    found: Detections
    hidden: Doubles  # [N]

    @classmethod
    def of_detections(cls, found: Detections) -> Agents:
        return cls(found, covered_shares(found.boxes))

    def __len__(self) -> int:
        return len(self.hidden)


@dataclass(frozen=True)
class AgentCounts:
    """Of one frame. Counts add up over frames and clips; F1 is computed from sums."""

    tp: int
    fp: int
    fn: int
    small_tp: int  # of the reference's agents, those that are small
    small_fn: int
    hidden_tp: int  # those that others hide
    hidden_fn: int

    @property
    def f1(self) -> float:
        """NaN where there is nobody on either side."""
        return _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def recall(self) -> float:
        return _ratio(self.tp, self.tp + self.fn)

    @property
    def precision(self) -> float:
        return _ratio(self.tp, self.tp + self.fp)

    @property
    def small_recall(self) -> float:
        return _ratio(self.small_tp, self.small_tp + self.small_fn)

    @property
    def hidden_recall(self) -> float:
        return _ratio(self.hidden_tp, self.hidden_tp + self.hidden_fn)


def summed(counts: Iterable[AgentCounts]) -> AgentCounts:
    listed = list(counts)
    return AgentCounts(*(sum(getattr(one, field.name) for one in listed) for field in fields(AgentCounts)))


def agent_counts(reference: Agents, found: Detections, settings: AgentSettings) -> AgentCounts:
    """One frame's detections on the decoded picture against the agents of the observed one (or of ground truth)."""
    there = reference.found
    hit = np.zeros(len(reference), bool)
    used = np.zeros(len(found.scores), bool)
    pairs = matched(there, found, settings.iou, settings.by_class)
    hit[pairs[:, 0]], used[pairs[:, 1]] = True, True
    size = areas(there.boxes)
    counts = size >= settings.smallest
    small, hidden = counts & (size < settings.small), counts & (reference.hidden >= settings.hidden)
    return AgentCounts(
        tp=int((hit & counts).sum()),
        fp=int((~used & (areas(found.boxes) >= settings.smallest)).sum()),
        fn=int((~hit & counts).sum()),
        small_tp=int((hit & small).sum()),
        small_fn=int((~hit & small).sum()),
        hidden_tp=int((hit & hidden).sum()),
        hidden_fn=int((~hit & hidden).sum()),
    )


def matched(reference: Detections, found: Detections, iou: float, by_class: bool) -> Pairs:
    """Rows `[P, 2]` of the reference and of what was found, best overlap first. Ties: the surer detection first."""
    overlap_NM = box_iou(reference.boxes, found.boxes)
    if by_class:
        overlap_NM = np.where(reference.kinds[:, None] == found.kinds, overlap_NM, 0.0)
    rows, columns = np.nonzero(overlap_NM >= iou)
    order = np.lexsort((columns, rows, -found.scores[columns], -overlap_NM[rows, columns]))
    free_N, free_M = np.ones(len(reference.scores), bool), np.ones(len(found.scores), bool)
    pairs = []
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if free_N[row] and free_M[column]:
            free_N[row] = free_M[column] = False
            pairs.append((row, column))
    return np.array(pairs, np.intp).reshape(-1, 2)


def areas(boxes_N4: Doubles) -> Doubles:
    """Shares of the picture."""
    return np.asarray((boxes_N4[:, 2:] - boxes_N4[:, :2]).clip(0).prod(axis=1))


def covered_shares(boxes_N4: Doubles) -> Doubles:
    """The largest share of each box that one nearer box covers; who stands lower in the picture is nearer."""
    low = np.maximum(boxes_N4[:, None, :2], boxes_N4[None, :, :2])
    high = np.minimum(boxes_N4[:, None, 2:], boxes_N4[None, :, 2:])
    shared = (high - low).clip(0).prod(axis=2) / np.maximum(areas(boxes_N4)[:, None], 1e-12)
    nearer = boxes_N4[None, :, 3] > boxes_N4[:, None, 3]
    return np.asarray(np.where(nearer, shared, 0.0).max(axis=1, initial=0.0))


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
