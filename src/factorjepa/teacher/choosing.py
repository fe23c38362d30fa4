"""Which parts of each frame are agents: chosen together, and in the light of the frames beside it.

Of parts that contain one another those are kept whose worth adds up to the most, so that a crowd comes apart where its
parts are worth more than their union.

What is there for long is there. A part that flow leads to from a part kept in the frame beside is likelier. Frames are
gone through forwards, and those of the context backwards again: a context frame is judged from the whole context, a
later one from everything before it.

Shapes: S side of the grid, N candidate parts of a frame, R chosen ones, M nodes of its tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .foreground import Foreground
from .hierarchy import Doubles, Integers
from .parts import Parts
from .regions import Floats
from .scoring import SCORING, Scoring, chance

WORTH_KEEPING = 0.15  # chance at which a part is worth keeping (fit_regions.py): it becomes confidence 0.55
PERSISTENCE = 0.8  # of a part's log-odds above that: what its continuation inherits

_THRESHOLD = 0.55  # the confidence that the paper keeps a region from
_UNLIKELY = 0.05  # confidence below which a part is not proposed
_FILLER = 1e-6  # what a part not worth keeping is worth in places that nothing else wants
_SAME = 0.5  # IoU from which a part continues another


@dataclass(frozen=True)
class Chosen:
    """R regions of a frame, none of which overlaps another."""

    labels: Integers  # [S, S] which one each pixel is in, -1: none
    excess: Doubles  # [R] log-odds above the worth of keeping

    def confidence(self) -> Doubles:
        """`[R]` in [0, 1]; the paper's threshold is where a region is worth keeping."""
        return chance(self.excess + np.log(_THRESHOLD / (1 - _THRESHOLD)))


def chosen_regions(
    seen: Foreground,
    parts: Sequence[Parts],
    context: int,
    scoring: Scoring = SCORING,
    worth_keeping: float = WORTH_KEEPING,
    persistence: float = PERSISTENCE,
) -> list[Chosen]:
    """The regions of every frame."""
    level = np.log(worth_keeping / (1 - worth_keeping))
    excess = [scoring.log_odds(here.measures) - level for here in parts]
    known = min(context, len(parts))
    result: list[Chosen] = []
    for t in range(len(parts)):
        if t == known:
            result = _again(seen, parts, excess, result, persistence)
        if t and seen.followed[t]:
            led = _pulled(result[-1].labels, seen.flow[t])
            excess[t] = excess[t] + persistence * _inherited(parts[t], led, result[-1].excess)
        result.append(_chosen(parts[t], excess[t]))
    if known == len(parts):
        result = _again(seen, parts, excess, result, persistence)
    return result


def _again(
    seen: Foreground, parts: Sequence[Parts], excess: list[Doubles], forwards: list[Chosen], persistence: float
) -> list[Chosen]:
    """The same frames from the last to the first, with what each has inherited from those before it."""
    result = [forwards[-1]]
    for t in range(len(forwards) - 2, -1, -1):
        here = forwards[t]
        if seen.followed[t + 1]:
            led = _pushed(result[-1].labels, seen.flow[t + 1])
            inherited = _inherited(parts[t], led, result[-1].excess)
            here = _chosen(parts[t], excess[t] + persistence * inherited)
        result.append(here)
    return result[::-1]


def _chosen(here: Parts, excess: Doubles) -> Chosen:
    confidence = chance(excess + np.log(_THRESHOLD / (1 - _THRESHOLD)))
    likely = np.where(confidence >= _UNLIKELY, _FILLER * confidence, -1.0)
    taken = here.tree.best_apart(worth(here, excess, otherwise=likely))
    return Chosen(here.tree.labels(taken), excess[np.searchsorted(here.nodes, taken)])


def worth(parts: Parts, excess: Doubles, otherwise: Doubles | float = -1.0) -> Doubles:
    """Of every node of the tree, `[M]`; `otherwise` is that of candidates not worth keeping.

    The halves of an agent are rival guesses at the same agent as the whole. Odds, unlike chances, go on growing where a
    guess is nearly certain, so that two good guesses do not outweigh a better one.
    """
    result = np.full(len(parts.tree.parent), -1.0)
    result[parts.nodes] = np.where(excess > 0, np.expm1(excess), otherwise)
    return result


def _inherited(here: Parts, led: Integers, excess: Doubles) -> Doubles:
    """The excess of the part of the frame beside that each part continues, by how well it does, `[N]`."""
    if not len(excess) or not len(here.nodes):
        return np.zeros(len(here.nodes))
    shared = here.tree.shared(led, len(excess))
    pixels, shared = shared[-1], shared.take(here.nodes, axis=0)
    overlap = shared / (here.tree.area[here.nodes, None] + pixels - shared)
    best = overlap.argmax(axis=1)
    fit = ((overlap[np.arange(len(best)), best] - _SAME) / (1 - _SAME)).clip(0, 1)
    return np.asarray(fit * np.maximum(excess[best], 0))


def _pulled(labels: Integers, flow: Floats) -> Integers:
    """Labels of the frame before, led to this frame by its flow to that one."""
    x, y, inside = _ends(flow)
    return np.where(inside, labels[y, x], -1)


def _pushed(labels: Integers, flow: Floats) -> Integers:
    """Labels of the frame after, led to this frame by that one's flow to it; gaps of a pixel are closed."""
    x, y, inside = _ends(flow)
    inside = inside & (labels >= 0)
    led = np.full(labels.shape, -1, np.int16)
    led[y[inside], x[inside]] = labels[inside]
    closed = cv2.dilate(led, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_REPLICATE)
    return np.where(led >= 0, led, closed).astype(np.int64)


def _ends(flow: Floats) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Where flow leads each pixel: column, row and whether that is in the picture."""
    side = len(flow)
    line = np.arange(side)
    x, y = (np.rint(place + flow[..., k]).astype(np.int64) for k, place in enumerate((line, line[:, None])))
    within_x, within_y = x.clip(0, side - 1), y.clip(0, side - 1)
    return within_x, within_y, (x == within_x) & (y == within_y)
