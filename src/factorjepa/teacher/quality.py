"""How good the teacher's evidence is: regions, identities, visibility and edges against what is truly there.

Everything here takes plain arrays and sets and gives counts that add up over windows: a rate is taken once, at the end,
over all of them. P found regions, N true agents of a frame.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import spearmanr

from ..detectors.boxes import box_iou
from ..errors import TeacherError
from .annotations import TrueFrame
from .proposals import corners, mask_iou
from .regions import Region, region_of

SAME = 0.5  # IoU from which a region is the agent

_NO_DESCRIPTOR = np.zeros(1, np.float32)


@dataclass(frozen=True)
class Matches:
    """One frame: which found region is which asked-for agent."""

    pairs: NDArray[np.int64]  # [K, 2] region, agent
    excused: NDArray[np.bool_]  # [P] regions on an ignored agent: neither right nor wrong


@dataclass(frozen=True)
class Rates:
    """Found and true, true but not found, found but not true; they add up over windows."""

    hits: int = 0
    false: int = 0
    missed: int = 0

    def __add__(self, other: Rates) -> Rates:
        return Rates(self.hits + other.hits, self.false + other.false, self.missed + other.missed)

    @property
    def precision(self) -> float:
        return self.hits / (self.hits + self.false) if self.hits + self.false else float("nan")

    @property
    def recall(self) -> float:
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else float("nan")

    @property
    def f1(self) -> float:
        total = 2 * self.hits + self.false + self.missed
        return 2 * self.hits / total if total else float("nan")


@dataclass(frozen=True)
class Identities:
    """`rates` of identity-preserving matches (their F1 is IDF1), and how often a true track is broken."""

    rates: Rates = Rates()
    fragmentations: int = 0  # a true track is lost and found again
    switches: int = 0  # it is found again as somebody else
    tracks: int = 0  # true tracks
    mostly: int = 0  # of them found in at least four fifths of their frames
    partly: int = 0  # in less, but at least a fifth

    def __add__(self, other: Identities) -> Identities:
        return Identities(
            self.rates + other.rates,
            self.fragmentations + other.fragmentations,
            self.switches + other.switches,
            self.tracks + other.tracks,
            self.mostly + other.mostly,
            self.partly + other.partly,
        )


def overlaps(regions: Sequence[Region], true: TrueFrame, side: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """IoU `[P, N]`, of masks where the truth has them and else of boxes, and the share of each region on each agent."""
    if true.masks is None:
        found = corners(regions) / side
        iou = box_iou(found, true.boxes)
        areas, true_areas = ((b[:, 2:] - b[:, :2]).prod(axis=1) for b in (found, true.boxes))
    else:
        agents = [region_of(mask, _NO_DESCRIPTOR, 1.0) for mask in true.masks]
        iou = mask_iou(regions, agents)
        areas, true_areas = (np.array([r.pixels for r in some], dtype=np.float64) for some in (regions, agents))
    shared = iou * (areas[:, None] + true_areas) / (1 + iou)
    return iou, shared / np.maximum(areas[:, None], 1e-12)


def match(iou: NDArray[np.float64], share: NDArray[np.float64], ignored: NDArray[np.bool_]) -> Matches:
    """Give regions to asked-for agents, each to at most one, with the largest total IoU among pairs of at least 0.5."""
    asked = np.flatnonzero(~ignored)
    worth = np.where(iou[:, asked] >= SAME, iou[:, asked], 0.0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    good = worth[rows, columns] > 0
    pairs = np.stack([rows[good], asked[columns[good]]], axis=1)
    excused = np.asarray(((iou[:, ignored] >= SAME) | (share[:, ignored] >= SAME)).any(axis=1))
    excused[pairs[:, 0]] = False
    return Matches(pairs, excused)


def region_rates(matches: Matches, ignored: NDArray[np.bool_]) -> Rates:
    hits = len(matches.pairs)
    return Rates(hits, len(matches.excused) - hits - int(matches.excused.sum()), int((~ignored).sum()) - hits)


def identities(
    frames: Iterable[tuple[Sequence[int], Sequence[int], NDArray[np.float64]]],
) -> Identities:
    """IDF1 and its like over one window, from (found ids, true ids, IoU `[P, N]`) of every frame.

    Regions on ignored agents are left out by the caller.
    """
    try:
        import motmetrics
    except ImportError:
        raise TeacherError(
            "identities are scored by the package motmetrics; install it with pip install 'factorjepa[tracking]'"
        ) from None
    accumulator = motmetrics.MOTAccumulator(auto_id=True)
    for found, true, iou in frames:
        distance = np.where(iou.T >= SAME, 1 - iou.T, np.nan)
        accumulator.update(list(true), list(found), distance)
    counted = ["num_fragmentations", "num_switches", "num_unique_objects", "mostly_tracked", "partially_tracked"]
    names = ["idtp", "idfp", "idfn", *counted]
    table = motmetrics.metrics.create().compute(accumulator, metrics=names, return_dataframe=False)
    hits, false, missed, *counts = (int(np.nan_to_num(table[name])) for name in names)
    return Identities(Rates(hits, false, missed), *counts)


def rank_correlation(estimated: Sequence[float], true: Sequence[float]) -> float:
    """Spearman's rank correlation; nan where one side does not vary."""
    if len(set(estimated)) < 2 or len(set(true)) < 2:
        return float("nan")
    return float(spearmanr(estimated, true).statistic)


def edge_rates(found: Collection[Hashable], true: Collection[Hashable]) -> Rates:
    """Edges as sets of pairs of ids; a direction counts if the pairs have one."""
    hits = len(set(found) & set(true))
    return Rates(hits, len(set(found)) - hits, len(set(true)) - hits)
