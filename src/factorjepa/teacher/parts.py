"""The parts of one frame, and what is measured of each: how it stands out, what shape it has, where it is.

`hierarchy` joins pixels that are alike into parts of every scale. A part is compared with what surrounds it (the rest
of its box, made a little larger) by colour, evidence, motion and the look of the frozen features; its outline
says whether it is a thing of its own or a piece of one.

Shapes: S side of the mask grid, N candidate parts of a frame, K columns that are summed over parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .foreground import CUES, Foreground
from .hierarchy import Doubles, Hierarchy, Integers, hierarchy
from .regions import Floats

_CERTAIN = 3.0  # reference pixels per frame of a flow that is certainly not the camera's
_LARGEST = 0.25  # share of the picture: more is scene


@dataclass(frozen=True)
class Likeness:
    """What two pixels' distance is made of where parts are joined."""

    colour: float = 20.0  # Lab units of one unit of likeness
    evidence: float = 2.0  # of one spread of the evidence
    look: float = 3.0  # of one spread of the features' look
    own_motion: float = 1.0  # of a flow that is certainly not the camera's
    across: float = 20.0  # of one side of the picture: agents are upright, and beside one another
    down: float = 6.0


LIKENESS = Likeness()


@dataclass(frozen=True)
class Parts:
    """The candidates of one frame: N nodes of its tree."""

    tree: Hierarchy
    nodes: Integers  # [N]
    measures: dict[str, Doubles]  # [N] each


def measured(seen: Foreground, t: int, min_area: float, likeness: Likeness = LIKENESS) -> Parts:
    """The parts of frame t that are neither too small nor too large."""
    side = seen.evidence.shape[1]
    evidence, motion = seen.evidence[t, ..., None], seen.cues[t, ..., CUES.index("motion"), None]
    lab, look = seen.lab[t] / np.float32(likeness.colour), seen.look[t]
    own = np.tanh(seen.residual[t] / np.float32(_CERTAIN))
    scaled = (lab, evidence * np.float32(likeness.evidence), look * np.float32(likeness.look))
    place = (own * np.float32(likeness.own_motion), _places(side, likeness))
    tree = hierarchy(seen.lab[t], np.concatenate([*scaled, *place], axis=-1))
    smallest = max(min_area * side * side, 1)
    nodes = np.flatnonzero((tree.area >= smallest) & (tree.area <= _LARGEST * side * side) & (tree.parent >= 0))
    columns = np.concatenate([evidence, motion, seen.movers[t, ..., None], _rim(side), lab, own, look], axis=-1)
    inside, contrast = compared(tree, nodes, columns)
    border = {"along the border": inside[:, 3] * np.sqrt(tree.area[nodes])}
    return Parts(tree, nodes, _standing_out(inside, contrast) | border | _shape(tree, nodes))


def compared(tree: Hierarchy, nodes: Integers, columns: Floats) -> tuple[Doubles, Doubles]:
    """Means of columns `[S, S, K]` inside each node, and how far they are above those around it, `[N, K]` each.

    Around it is the rest of its box, widened by a third and heightened by a fifth on either side.
    """
    side, count = columns.shape[0], columns.shape[-1]
    sums, area = tree.summed(columns)[nodes], tree.area[nodes, None]
    table = np.zeros((side + 1, side + 1, count))
    table[1:, 1:] = columns.cumsum(axis=0, dtype=np.float64).cumsum(axis=1)
    left, top, right, bottom = tree.box[nodes].T
    wide, high = np.maximum(2, (right - left) // 3), np.maximum(2, (bottom - top) // 5)
    left, top = np.maximum(left - wide, 0), np.maximum(top - high, 0)
    right, bottom = np.minimum(right + wide, side), np.minimum(bottom + high, side)
    total = table[bottom, right] - table[top, right] - table[bottom, left] + table[top, left]
    rest = ((right - left) * (bottom - top))[:, None] - area
    return sums / area, sums / area - (total - sums) / np.maximum(rest, 1)


def _standing_out(inside: Doubles, contrast: Doubles) -> dict[str, Doubles]:
    """From columns evidence, motion, movers, rim (not used here), colour (3), own motion (2) and look."""
    return {
        "evidence": inside[:, 0],
        "evidence over surroundings": contrast[:, 0],
        "motion over surroundings": contrast[:, 1],
        "looks like what moves": inside[:, 2],
        "looks like what moves over surroundings": contrast[:, 2],
        "colour unlike surroundings": np.linalg.norm(contrast[:, 4:7], axis=1),
        "moves unlike surroundings": np.linalg.norm(contrast[:, 7:9], axis=1),
        "looks unlike surroundings": np.linalg.norm(contrast[:, 9:], axis=1),
    }


def _shape(tree: Hierarchy, nodes: Integers) -> dict[str, Doubles]:
    side, area, box = len(tree.leaves), tree.area[nodes], tree.box[nodes]
    width, height = (box[:, 2:] - box[:, :2]).astype(np.float64).T
    outline = np.maximum(tree.outline[nodes], 1)
    return {
        "size": np.log(area / side**2),
        "upright": np.log(height / width),
        "fills its box": area / (width * height),
        "bottom": box[:, 3] / side,
        "sharp outline": np.log1p(tree.contrast[nodes] / outline),
        "grain": np.log1p(tree.grain[nodes] / area),
        "ragged": np.log(outline / (2 * (width + height))),
    }


def _places(side: int, likeness: Likeness) -> Floats:
    line = (np.arange(side, dtype=np.float32) + 0.5) / side
    y, x = np.meshgrid(line, line, indexing="ij")
    return np.stack([x * np.float32(likeness.across), y * np.float32(likeness.down)], axis=-1)


def _rim(side: int) -> Floats:
    """1 along the picture's border, `[S, S, 1]`."""
    rim = np.ones((side, side, 1), np.float32)
    rim[1:-1, 1:-1] = 0
    return rim
