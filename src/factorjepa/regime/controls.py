"""Two negative controls (appendix B.4): what a measure must lose when its structure is destroyed, and what it keeps.

Spatial: every agent gets the place and the motion of some other agent of the corpus. How many there are, and of which
classes, stays; who stands beside whom does not. Temporal: the frames of a clip change places. Every picture stays as it
is; motion and tracks do not.

Legend: O observations of retained agents; Q agents of the pool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..seeding import stream
from .axes import of_parts, retained
from .motion import Steps, consistency, contiguity, gaps, velocities
from .scene import Array, Scene
from .settings import Thresholds

_PER_CLIP = 256  # observations that a clip gives to the pool


class Control(StrEnum):
    SPATIAL = "spatial permutation"
    TEMPORAL = "temporal permutation"


@dataclass(frozen=True)
class Expectation:
    """What a control does to which measure."""

    control: Control
    attenuates: tuple[str, ...]
    preserves: tuple[str, ...]


EXPECTED = (
    Expectation(Control.SPATIAL, ("interaction",), ("count", "heterogeneity")),
    Expectation(Control.TEMPORAL, ("consistency", "contiguity"), ("count", "occupancy", "heterogeneity")),
)


@dataclass(frozen=True)
class Pool:
    """Where agents of a corpus stand, and how they move. Place and motion are drawn apart from each other."""

    centre_Q2: Array  # shares of the picture's width and height, so that pictures of another shape can be served
    velocity_Q2: Array  # units per second

    @classmethod
    def joined(cls, parts: Iterable[Pool]) -> Pool:
        listed = list(parts)
        empty = [np.empty((0, 2))]
        return cls(
            np.concatenate([part.centre_Q2 for part in listed] or empty),
            np.concatenate([part.velocity_Q2 for part in listed] or empty),
        )


def pool_of(scene: Scene, thresholds: Thresholds, seed: int, clip_id: str) -> Pool:
    """A clip's part of the pool."""
    agents = scene.kept(retained(scene, thresholds))
    chosen = stream(seed, "pool", clip_id).permutation(len(agents.frame_O))[:_PER_CLIP]
    centre = agents.centre_O2[chosen] * agents.unit / np.array([agents.width, agents.height])
    return Pool(centre, velocities(agents, Steps.of(agents))[chosen])


def spatially_permuted(scene: Scene, thresholds: Thresholds, pool: Pool, seed: int, clip_id: str) -> Array:
    """Every measure of every frame, [T, M], with agents at places that others of the corpus have.

    Occupancy is left out (NaN): a mask belongs to its place.
    """
    agents = scene.kept(retained(scene, thresholds))
    count, random = len(agents.frame_O), stream(seed, "spatial", clip_id)
    steps = Steps.of(agents)
    gap_O = gaps(agents, steps, np.zeros(count, bool), thresholds.gap_seconds)
    if not count:
        return of_parts(agents, np.empty((0, 2)), gap_O, thresholds)
    places, motions = (random.integers(len(pool.centre_Q2), size=count) for _ in range(2))
    centre = pool.centre_Q2[places] * np.array([agents.width, agents.height])
    half = (agents.box_O4[:, 2:] - agents.box_O4[:, :2]) / 2
    moved = dataclasses.replace(
        agents, box_O4=np.concatenate([centre - half, centre + half], axis=1), cover=_Unknown(agents.frames)
    )
    return of_parts(moved, pool.velocity_Q2[motions], gap_O, thresholds)


def temporally_permuted(scene: Scene, seed: int, clip_id: str) -> Scene:
    """The clip with its frames in another order."""
    return scene.reordered(stream(seed, "temporal", clip_id).permutation(scene.frames))


def motion_structure(scene: Scene, thresholds: Thresholds) -> dict[str, tuple[float, float]]:
    """Motion consistency and track contiguity, each as a sum and what it is divided by."""
    agents = scene.kept(retained(scene, thresholds))
    steps = Steps.of(agents)
    return {"consistency": consistency(agents, steps), "contiguity": contiguity(agents, steps)}


@dataclass(frozen=True)
class _Unknown:
    frames: int

    def union(self, kept_O: object) -> Array:
        return np.full(self.frames, np.nan)
