"""Regions of agents without labels: parts of each frame that stand out and have an agent's size, shape and place.

`foreground` says where agents may be, `parts` gives every frame's parts at every scale and measures them, `scoring`
weighs the measures into the log-odds of being an agent.

Of parts that contain one another those are kept whose worth adds up to the most, so that a crowd comes apart where its
parts are worth more than their union. A part that flow leads to from a likely part of the frame before is likelier:
what is there for long is there.

A stopped agent is found by what it looks like. So is a parked vehicle that looks like the moving ones: from a few
seconds of video nothing tells the two apart.

The constants are fitted by `benchmarks/fit_regions.py`; they are the same for all data, and no label is seen when they
are used. A confidence is a rank with a sensible operating point, not a probability: 0.55, the paper's threshold, is
where a part is worth keeping, and fewer than 55 of 100 such regions are agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..pixels import Frames
from .foreground import Foreground, foreground
from .hierarchy import Doubles, Integers
from .parts import Parts, measured
from .proposals import describe, mask_side
from .regions import Floats, Region, region_of
from .scoring import SCORING, Scoring, chance
from .settings import RegionSettings

WORTH_KEEPING = 0.08  # chance at which a part is worth keeping (fit_regions.py): it becomes confidence 0.55
PERSISTENCE = (
    0.8  # of a part's log-odds above that: what its continuation inherits; the best IDF1 of a few (decision 52)
)

_THRESHOLD = 0.55  # the confidence that the paper keeps a region from
_UNLIKELY = 0.05  # confidence below which a part is not proposed
_FILLER = 1e-6  # what a part not worth keeping is worth in places that nothing else wants
_SAME = 0.5  # IoU from which a part continues another


class UnsupervisedProposals:
    """`Proposals` from feature affinity, motion and what persists over the window."""

    name = "unsupervised v3"

    def __init__(self, settings: RegionSettings) -> None:
        self._settings = settings

    def __call__(self, frames: Frames, features: Floats, camera: Floats, context: int) -> list[list[Region]]:
        seen = foreground(frames, features, camera, mask_side(self._settings, frames.shape[1]), context)
        parts = [measured(seen, t, self._settings.min_area) for t in range(len(frames))]
        return [
            [region_of(mask, describe(mask, grid), float(sure)) for mask, sure in zip(*found, strict=True)]
            for found, grid in zip(chosen_regions(seen, parts), features, strict=True)
        ]


@dataclass(frozen=True)
class _Kept:
    """What the next frame inherits from: R parts of a frame."""

    labels: Integers  # [S, S] which part each pixel is in, -1: none
    excess: Doubles  # [R] log-odds above the worth of keeping


def chosen_regions(
    seen: Foreground,
    parts: Sequence[Parts],
    scoring: Scoring = SCORING,
    worth_keeping: float = WORTH_KEEPING,
    persistence: float = PERSISTENCE,
) -> list[tuple[NDArray[np.bool_], Doubles]]:
    """Of every frame the masks `[R, S, S]` of the chosen parts and their confidences `[R]`, frame after frame."""
    level = np.log(worth_keeping / (1 - worth_keeping))
    before: _Kept | None = None
    result = []
    for t, here in enumerate(parts):
        odds = scoring.log_odds(here.measures)
        if before is not None and seen.followed[t]:
            odds = odds + persistence * _inherited(here, before, seen.flow[t])
        confidence = chance(odds - level + np.log(_THRESHOLD / (1 - _THRESHOLD)))
        likely = np.where(confidence >= _UNLIKELY, _FILLER * confidence, -1.0)
        taken = here.tree.best_apart(worth(here, odds, worth_keeping, otherwise=likely))
        rows = np.searchsorted(here.nodes, taken)
        before = _Kept(here.tree.labels(taken), odds[rows] - level)
        result.append((before.labels[None] == np.arange(len(taken))[:, None, None], confidence[rows]))
    return result


def worth(parts: Parts, log_odds: Doubles, worth_keeping: float, otherwise: Doubles | float = -1.0) -> Doubles:
    """Of every node of the tree, `[M]`; `otherwise` is that of candidates not worth keeping.

    The halves of an agent are rival guesses at the same agent as the whole. Odds, unlike chances, go on growing where a
    guess is nearly certain, so that two good guesses do not outweigh a better one.
    """
    excess = log_odds - np.log(worth_keeping / (1 - worth_keeping))
    result = np.full(len(parts.tree.parent), -1.0)
    result[parts.nodes] = np.where(excess > 0, np.expm1(excess), otherwise)
    return result


def _inherited(here: Parts, before: _Kept, flow: Floats) -> Doubles:
    """The excess of the part of the frame before that each part continues, by how well it does, `[N]`."""
    tree, side, count = here.tree, len(before.labels), len(before.excess)
    if not count or not len(here.nodes):
        return np.zeros(len(here.nodes))
    rows, columns = np.mgrid[:side, :side]
    x, y = (np.rint(place + flow[..., k]).astype(np.int64) for k, place in enumerate((columns, rows)))
    inside = (x >= 0) & (x < side) & (y >= 0) & (y < side)
    carried = np.where(inside, before.labels[y.clip(0, side - 1), x.clip(0, side - 1)], -1)
    shared = tree.shared(carried, count)
    pixels = shared[-1]
    overlap = shared[here.nodes] / (tree.area[here.nodes, None] + pixels - shared[here.nodes])
    best = overlap.argmax(axis=1)
    fit = ((overlap.max(axis=1) - _SAME) / (1 - _SAME)).clip(0, 1)
    return np.asarray(fit * np.maximum(before.excess[best], 0))
