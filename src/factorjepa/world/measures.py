"""How dense a clip is, measured from its ground truth.

Count, occupancy, interaction graph and heterogeneity follow the paper's definitions (appendix B.2) with true masks in
place of the teacher's; the counterfactual measures have no counterpart there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .taxonomy import KINDS, SUPERCLASSES, Superclass
from .truth import ClipTruth

SMALLEST_SHARE = 0.001  # of the frame that an agent must show to count
NEAR = 0.15  # of the frame's side: pairs closer than this interact
APPROACH_SECONDS, APPROACH_DISTANCE = 2.0, 0.05  # or pairs about to come this close


@dataclass(frozen=True)
class ClipMeasures:
    """Means over the frames of one clip (over those with two agents for the last two of the paper's axes)."""

    agents_per_frame: float
    occupancy: float  # share of the frame covered by agents
    hidden: float  # share of agents in the frame of which others cover more than half
    interaction_degree: float  # mean degree of the paper's image-plane interaction graph
    heterogeneity: float  # probability that two agents of a frame are of different superclasses
    counterfactual_degree: float  # agents whose absence would move an agent, per agent in view
    displaced: float  # share of agents that neighbours move by more than half a body length within a second


def measure(truth: ClipTruth, every: int = 3) -> ClipMeasures:
    """Measure every `every`-th frame."""
    groups = np.array([SUPERCLASSES.index(KINDS[str(name)].superclass) for name in truth.agent_kinds], dtype=int)
    area = truth.size * truth.size
    counts, covered, hidden, degrees, mixed = [], [], [], [], []
    for frame in range(0, truth.frames, every):
        everyone = truth.observations(frame)
        whole = everyone[truth.amodal_pixels[everyone] >= SMALLEST_SHARE * area]
        rows = everyone[truth.visible_pixels[everyone] >= SMALLEST_SHARE * area]
        counts.append(rows.size)
        covered.append(float(truth.visible_pixels[everyone].sum()) / area)
        if whole.size:
            hidden.append(float(np.mean(truth.visible_fraction[whole] < 0.5)))
        if rows.size >= 2:
            degrees.append(_degree(truth, rows))
            sizes = np.bincount(groups[truth.agent[rows]])
            mixed.append(1.0 - float((sizes * (sizes - 1)).sum()) / (rows.size * (rows.size - 1)))
    known = truth.alone[~np.isnan(truth.alone)]
    seconds = truth.frames / truth.fps
    active = sum(one.end - one.start for one in truth.interactions)
    present = max(float(np.isfinite(truth.alone).sum(axis=1).mean()) if truth.alone.size else 0.0, 1.0)
    return ClipMeasures(
        agents_per_frame=float(np.mean(counts)) if counts else 0.0,
        occupancy=float(np.mean(covered)) if covered else 0.0,
        hidden=_mean(hidden),
        interaction_degree=_mean(degrees),
        heterogeneity=_mean(mixed),
        counterfactual_degree=active / seconds / present,
        displaced=float(np.mean(known > 0.5)) if known.size else 0.0,
    )


def superclasses_seen(truth: ClipTruth, every: int = 3) -> list[Superclass]:
    """Superclasses of the agents that show enough to count in some frame, in the taxonomy's order."""
    frames = [truth.observations(frame) for frame in range(0, truth.frames, every)]
    large = [rows[truth.visible_pixels[rows] >= SMALLEST_SHARE * truth.size * truth.size] for rows in frames]
    kinds = {str(truth.agent_kinds[agent]) for rows in large for agent in truth.agent[rows]}
    seen = {KINDS[kind].superclass for kind in kinds}
    return [superclass for superclass in SUPERCLASSES if superclass in seen]


def _degree(truth: ClipTruth, rows: np.ndarray) -> float:
    """Mean degree of the frame's interaction graph: near each other, or about to be."""
    box = truth.box[rows].astype(float)
    centre = np.stack([box[:, 0] + box[:, 2], box[:, 1] + box[:, 3]], axis=1) / (2 * truth.size)
    velocity = (truth.image_velocity[rows] - truth.camera_velocity[rows]).astype(float) / truth.size
    r, w = centre[None] - centre[:, None], velocity[None] - velocity[:, None]
    time = -(r * w).sum(axis=2) / ((w * w).sum(axis=2) + 1e-9)
    miss = np.sqrt(((r + time[..., None] * w) ** 2).sum(axis=2))
    near = np.sqrt((r * r).sum(axis=2)) <= NEAR
    edges = near | ((time > 0) & (time <= APPROACH_SECONDS) & (miss <= APPROACH_DISTANCE))
    np.fill_diagonal(edges, False)
    return float(edges.sum()) / rows.size


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0
