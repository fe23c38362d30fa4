"""Regions of agents without labels: parts of each frame that stand out and have an agent's size, shape and place.

`foreground` says where agents may be, `hierarchy` gives every frame's parts at every scale. Here each part is measured,
the measures are weighed into one log-odds, and of parts that contain one another the likeliest is kept, so that a crowd
comes apart where its parts are likelier than their union. Two agents that touch may stay one region.

A stopped agent is found by what it looks like. So is a parked vehicle that looks like the moving ones: from a few
seconds of video nothing tells the two apart.

The constants below, and the weights of the cues, are fitted to simulated ground truth alone, by
`benchmarks/fit_regions.py`; they are the same for all data, and no label is seen when they are used. The offset puts
the best F1 of simulated cities that taught nothing at a confidence of 0.55, the paper's threshold. A confidence is thus
a rank with a sensible operating point, not a probability: far fewer than 55 of 100 such regions are agents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..pixels import Frames
from .foreground import CUES, Foreground, foreground
from .hierarchy import Hierarchy, hierarchy
from .proposals import describe, mask_side
from .regions import Floats, Region, region_of
from .settings import RegionSettings

Doubles = NDArray[np.float64]

_CERTAIN = 3.0  # reference pixels per frame of a flow that is certainly not the camera's
_LARGEST = 0.25  # share of the picture: more is scene
_UNLIKELY = 0.05  # confidence below which a part is not proposed

# Of each measure: its usual value and spread over parts, and the weight of the standardised measure.
MEASURES = {
    "evidence": (0.21, 0.98, 0.45),
    "evidence over surroundings": (0.00, 0.43, 0.36),
    "colour unlike surroundings": (0.75, 0.76, 0.47),
    "motion over surroundings": (0.01, 0.23, 0.25),
    "size": (-5.82, 1.05, 0.57),
    "upright": (0.60, 0.59, -0.32),
    "fills its box": (0.57, 0.16, 0.70),
    "bottom": (0.55, 0.27, 0.31),
    "along the border": (0.23, 0.54, 0.07),
}
# Of two standardised measures' product. The last is perspective: what stands lower in the picture is nearer and larger.
PRODUCTS = {
    ("size", "size"): -0.04,
    ("upright", "upright"): -0.27,
    ("bottom", "bottom"): -0.51,
    ("size", "bottom"): 0.35,
}
OFFSET = -3.30
EXTREME = 3.0  # spreads from the usual beyond which a measure says no more


@dataclass(frozen=True)
class Likeness:
    """What two pixels' distance is made of where parts are joined; evidence is in its own units."""

    colour: float = 15.0  # Lab units of one unit of likeness
    across: float = 20.0  # one side of the picture in units of likeness: agents are upright, and beside one another
    down: float = 6.0
    own_motion: float = 0.5  # a flow that is certainly not the camera's


LIKENESS = Likeness()


@dataclass(frozen=True)
class Parts:
    """The candidates of one frame: N nodes of its tree."""

    tree: Hierarchy
    nodes: NDArray[np.int64]  # [N]
    measures: dict[str, Doubles]  # [N] each
    log_odds: Doubles  # [N]


class UnsupervisedProposals:
    """`Proposals` from feature affinity, motion and what persists over the window."""

    name = "unsupervised v2"

    def __init__(self, settings: RegionSettings) -> None:
        self._settings = settings

    def __call__(self, frames: Frames, features: Floats, camera: Floats, context: int) -> list[list[Region]]:
        seen = foreground(frames, features, camera, mask_side(self._settings, frames.shape[1]), context)
        return [self._regions(seen, t, features[t]) for t in range(len(frames))]

    def _regions(self, seen: Foreground, t: int, features: Floats) -> list[Region]:
        parts = measured(seen, t, self._settings.min_area)
        chosen = select(parts)
        confidence = _confidence(parts.log_odds[chosen])
        masks = parts.tree.masks(parts.nodes[chosen])
        return [
            region_of(mask, describe(mask, features), float(sure)) for mask, sure in zip(masks, confidence, strict=True)
        ]


def measured(seen: Foreground, t: int, min_area: float, likeness: Likeness = LIKENESS) -> Parts:
    """The parts of frame t that are neither too small nor too large, and how likely they are agents."""
    side = seen.evidence.shape[1]
    line = (np.arange(side, dtype=np.float32) + 0.5) / side
    y, x = np.meshgrid(line, line, indexing="ij")
    evidence, motion = seen.evidence[t, ..., None], seen.cues[t, ..., CUES.index("motion"), None]
    lab = seen.lab[t] / np.float32(likeness.colour)
    own = np.tanh(seen.residual[t] / np.float32(_CERTAIN)) * np.float32(likeness.own_motion)
    place = np.stack([x * np.float32(likeness.across), y * np.float32(likeness.down)], axis=-1)
    rim = np.ones((side, side, 1), np.float32)
    rim[1:-1, 1:-1] = 0
    columns = np.concatenate([evidence, lab, motion, rim], axis=-1)
    tree = hierarchy(seen.lab[t], np.concatenate([lab, evidence, own, place], axis=-1), columns)
    smallest = max(min_area * side * side, 1)
    nodes = np.flatnonzero((tree.area >= smallest) & (tree.area <= _LARGEST * side * side) & (tree.parent >= 0))
    area, box = tree.area[nodes], tree.box[nodes]
    inside = tree.sums[nodes] / area[:, None]
    contrast = inside - _around(columns, tree, nodes)
    width, height = (box[:, 2:] - box[:, :2]).astype(np.float64).T
    measures = {
        "evidence": inside[:, 0],
        "evidence over surroundings": contrast[:, 0],
        "colour unlike surroundings": np.linalg.norm(contrast[:, 1:4], axis=1),
        "motion over surroundings": contrast[:, 4],
        "size": np.log(area / side**2),
        "upright": np.log(height / width),
        "fills its box": area / (width * height),
        "bottom": box[:, 3] / side,
        "along the border": tree.sums[nodes, 5] / np.sqrt(area),
    }
    return Parts(tree, nodes, measures, log_odds(measures))


def log_odds(measures: dict[str, Doubles]) -> Doubles:
    """Of each part being an agent, `[N]`."""
    standard = {
        name: ((measures[name] - usual) / spread).clip(-EXTREME, EXTREME)
        for name, (usual, spread, _) in MEASURES.items()
    }
    odds = np.full_like(standard["evidence"], OFFSET)
    for name, (_, _, weight) in MEASURES.items():
        odds += weight * standard[name]
    for (one, other), weight in PRODUCTS.items():
        odds += weight * standard[one] * standard[other]
    return odds


def select(parts: Parts) -> NDArray[np.int64]:
    """Likely parts none of which contains another, by place in `parts`: greedily, the likeliest first."""
    parent = parts.tree.parent
    taken: set[int] = set()
    above: set[int] = set()  # nodes that contain a taken one
    chosen = []
    likely = _confidence(parts.log_odds) >= _UNLIKELY
    for k in np.lexsort((parts.nodes, -parts.log_odds)).tolist():
        node = int(parts.nodes[k])
        if not likely[k] or node in above:
            continue
        path = [node]
        while (up := int(parent[path[-1]])) >= 0:
            path.append(up)
        if taken.isdisjoint(path):
            taken.add(node)
            above.update(path)
            chosen.append(k)
    return np.array(chosen, dtype=np.int64)


def _confidence(log_odds: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-log_odds)))


def _around(columns: Floats, tree: Hierarchy, nodes: NDArray[np.int64]) -> Doubles:
    """Mean of the columns around each node, `[N, K]`: in its box, widened by a third and heightened by a fifth."""
    side, count = columns.shape[0], columns.shape[-1]
    table = np.zeros((side + 1, side + 1, count))
    table[1:, 1:] = columns.astype(np.float64).cumsum(axis=0).cumsum(axis=1)
    left, top, right, bottom = tree.box[nodes].T
    wide, high = np.maximum(2, (right - left) // 3), np.maximum(2, (bottom - top) // 5)
    left, top = np.maximum(left - wide, 0), np.maximum(top - high, 0)
    right, bottom = np.minimum(right + wide, side), np.minimum(bottom + high, side)
    total = table[bottom, right] - table[top, right] - table[bottom, left] + table[top, left]
    pixels = (right - left) * (bottom - top) - tree.area[nodes]
    around: Doubles = (total - tree.sums[nodes]) / np.maximum(pixels, 1)[:, None]
    return around
