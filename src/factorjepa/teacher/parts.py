"""The parts of one frame, and what is measured of each: how it stands out, what shape it has, where it is.

`hierarchy` joins pixels that are alike into parts of every scale. A part is compared with what surrounds it (the rest
of its box, made a little larger) by colour, evidence, motion and the look of the frozen features; its outline
says whether it is a thing of its own or a piece of one.

Shapes: S side of the mask grid, N candidate parts of a frame, K columns that are summed over parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np

from .foreground import CUES, Foreground
from .hierarchy import Doubles, Hierarchy, Integers, hierarchies
from .regions import Floats

_AT_ONCE = 8  # frames whose parts are joined together: more take more memory and no less time
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


def measured(
    seen: Foreground, frames: Sequence[int], min_area: float, likeness: Likeness = LIKENESS
) -> Iterator[Parts]:
    """The parts of each of the frames that are neither too small nor too large."""
    for begin in range(0, len(frames), _AT_ONCE):
        some = frames[begin : begin + _AT_ONCE]
        colours = [seen.lab[t] / np.float32(likeness.colour) for t in some]
        owns = [np.tanh(seen.residual[t] / np.float32(_CERTAIN)) for t in some]
        places = [_place(seen, *one, likeness) for one in zip(some, colours, owns, strict=True)]
        trees = hierarchies([seen.lab[t] for t in some], places)
        for t, lab, own, tree in zip(some, colours, owns, trees, strict=True):
            yield _measured(seen, t, lab, own, tree, min_area)


def _place(seen: Foreground, t: int, lab: Floats, own: Floats, likeness: Likeness) -> Floats:
    """Where the pixels of frame t lie: near is alike. `lab` and `own` as in `_measured`."""
    evidence = seen.evidence[t, ..., None] * np.float32(likeness.evidence)
    look = seen.look[t] * np.float32(likeness.look)
    here = _places(seen.evidence.shape[1], likeness)
    return np.concatenate([lab, evidence, look, own * np.float32(likeness.own_motion), here], axis=-1)


def _measured(seen: Foreground, t: int, lab: Floats, own: Floats, tree: Hierarchy, min_area: float) -> Parts:
    """The parts of frame t: nodes of its tree.

    `lab` `[S, S, 3]` are its colours in units of likeness, `own` `[S, S, 2]` says how surely and whereto pixels move
    otherwise than the camera.
    """
    side = seen.evidence.shape[1]
    evidence, motion = seen.evidence[t, ..., None], seen.cues[t, ..., CUES.index("motion"), None]
    look = seen.look[t]
    change, movers = seen.cues[t, ..., CUES.index("change"), None], seen.movers[t, ..., None]
    smallest = max(min_area * side * side, 1)
    nodes = np.flatnonzero((tree.area >= smallest) & (tree.area <= _LARGEST * side * side) & (tree.parent >= 0))
    scattered = (evidence**2, change**2, movers**2)
    columns = np.concatenate([evidence, change, movers, motion, *scattered, _rim(side), lab, own, look], axis=-1)
    means, sums = tree.summed(columns).take(nodes, axis=0) / tree.area[nodes, None], _summed_area(columns)
    contrast = means - around(tree, nodes, means, sums)
    border = {"along the border": means[:, 7] * np.sqrt(tree.area[nodes])}
    ends = beside(tree.box[nodes], means[:, :3], np.ascontiguousarray(sums[..., :3]))
    shape = _shape(tree, nodes) | _joined(tree, nodes)
    return Parts(tree, nodes, _standing_out(means, contrast) | border | ends | shape)


def around(tree: Hierarchy, nodes: Integers, means: Doubles, sums: Doubles) -> Doubles:
    """Means around each node, `[N, K]`: in the rest of its box, widened by a third and heightened by a fifth on either
    side."""
    left, top, right, bottom = tree.box[nodes].T
    wide, high = np.maximum(2, (right - left) // 3), np.maximum(2, (bottom - top) // 5)
    total, pixels = _in_boxes(sums, left - wide, top - high, right + wide, bottom + high)
    area = tree.area[nodes, None]
    return np.asarray((total - means * area) / np.maximum(pixels - area, 1))


def beside(box: Integers, means: Doubles, sums: Doubles) -> dict[str, Doubles]:
    """By how much evidence, change and what looks like movers fall off above, below and on the two sides of a box: the
    head goes on below, the legs above, a whole body nowhere."""
    left, top, right, bottom = box.T
    wide, high = np.maximum(2, (right - left) // 3), np.maximum(2, (bottom - top) // 5)
    bands = {
        "above": (left, top - high, right, top),
        "below": (left, bottom, right, bottom + high),
        "to the left": (left - wide, top, left, bottom),
        "to the right": (right, top, right + wide, bottom),
    }
    falls = {}
    for where, edges in bands.items():
        total, pixels = _in_boxes(sums, *edges)
        falls[where] = means - total / np.maximum(pixels, 1)
        falls[where][pixels[:, 0] == 0] = 0  # the picture ends there
    least = np.minimum(falls["to the left"], falls["to the right"])
    sides = {"above": falls["above"], "below": falls["below"], "beside": least}
    names = ("evidence", "change", "looks like what moves")
    return {f"{name} ends {where}": fall[:, k] for k, name in enumerate(names) for where, fall in sides.items()}


def _summed_area(columns: Floats) -> Doubles:
    """Sums over everything above and to the left, `[S + 1, S + 1, K]`."""
    side, count = columns.shape[0], columns.shape[-1]
    sums = np.asarray(cv2.integral(np.ascontiguousarray(columns, np.float32)), np.float64)
    return sums.reshape(side + 1, side + 1, count)


def _in_boxes(
    sums: Doubles, left: Integers, top: Integers, right: Integers, bottom: Integers
) -> tuple[Doubles, Doubles]:
    """Sums `[N, K]` and pixels `[N, 1]` in boxes, as far as they lie in the picture."""
    side = len(sums) - 1
    left, top, right, bottom = (edge.clip(0, side) for edge in (left, top, right, bottom))
    pixels = ((right - left) * (bottom - top)).astype(np.float64)[:, None]
    rows = sums.reshape(-1, sums.shape[-1])
    top, bottom = top * (side + 1), bottom * (side + 1)
    total = rows.take(bottom + right, axis=0) - rows.take(top + right, axis=0)
    total -= rows.take(bottom + left, axis=0)
    total += rows.take(top + left, axis=0)
    return total, pixels


def _standing_out(inside: Doubles, contrast: Doubles) -> dict[str, Doubles]:
    """From columns evidence, change, movers, motion, squares of the first three, rim (not used here), colour (3), own
    motion (2) and look."""
    spread = np.sqrt((inside[:, 4:7] - inside[:, :3] ** 2).clip(0))
    return {
        "evidence": inside[:, 0],
        "evidence over surroundings": contrast[:, 0],
        "evidence is uneven": spread[:, 0],
        "motion": inside[:, 3],
        "motion over surroundings": contrast[:, 3],
        "change": inside[:, 1],
        "change over surroundings": contrast[:, 1],
        "change is uneven": spread[:, 1],
        "looks like what moves": inside[:, 2],
        "looks like what moves over surroundings": contrast[:, 2],
        "looks like what moves unevenly": spread[:, 2],
        "colour unlike surroundings": np.linalg.norm(contrast[:, 8:11], axis=1),
        "moves unlike surroundings": np.linalg.norm(contrast[:, 11:13], axis=1),
        "looks unlike surroundings": np.linalg.norm(contrast[:, 13:], axis=1),
    }


def _joined(tree: Hierarchy, nodes: Integers) -> dict[str, Doubles]:
    """How unlike a part's halves are, and how unlike it is what it is joined with."""

    def apart(some: Integers) -> Doubles:
        one, other = tree.area[tree.children[some]].T
        return np.asarray(np.log1p(tree.price[some] * (one + other) / (one * other)))

    made = tree.children[nodes, 0] >= 0
    own = np.zeros(len(nodes))
    own[made] = apart(nodes[made])
    return {"halves differ": own, "differs from its other half": apart(tree.parent[nodes])}


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


@cache
def _places(side: int, likeness: Likeness) -> Floats:
    line = (np.arange(side, dtype=np.float32) + 0.5) / side
    y, x = np.meshgrid(line, line, indexing="ij")
    return np.stack([x * np.float32(likeness.across), y * np.float32(likeness.down)], axis=-1)


@cache
def _rim(side: int) -> Floats:
    """1 along the picture's border, `[S, S, 1]`."""
    rim = np.ones((side, side, 1), np.float32)
    rim[1:-1, 1:-1] = 0
    return rim
