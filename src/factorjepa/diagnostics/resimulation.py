"""Simulated clips run again with an agent taken out: the counterfactual future that footage never shows.

The window is drawn twice, as it was and without the agent, by the same renderer: a stored clip has gone through a video
codec, and the difference would be counted as the agent's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..config import resolve
from ..corpus.manifest import Clip
from ..corpus.simulated import PLAN, SimulationPlan
from ..pixels import Frames, resize_to_cover
from ..teacher.states import EvidenceCells
from ..world import SimulatedClip, resimulate
from ..world import clip as simulate
from ..world.interactions import ANCHOR_EVERY
from .altered import hidden_evidence
from .scene import Scene
from .truth import agent_masks, seen_agents, truth_of
from .views import View


class Worlds:
    """The simulated clips of a corpus, by clip."""

    def __init__(self, plan: SimulationPlan) -> None:
        self._plan = plan
        self._index = {spec.clip_id: spec.index for spec in plan.specs()}

    @classmethod
    def beside(cls, corpus: Path) -> Worlds | None:
        """Of the plan that lies in a simulated corpus; None where there is none."""
        path = corpus / PLAN
        return cls(resolve(SimulationPlan, path)) if path.is_file() else None

    def of(self, clip: Clip) -> SimulatedClip:
        return simulate(self._plan.world, self._plan.seed, self._index[clip.clip_id])


@dataclass(frozen=True)
class Rendered(View):
    """The window drawn again as it was."""

    def frames(self, scene: Scene) -> Frames:
        return scene.kept(self, lambda: _drawn(scene, [None] * len(scene)))


@dataclass(frozen=True)
class Counterfactual(View):
    """The window as it would have been without one agent: the one that others depended on most in the context."""

    def frames(self, scene: Scene) -> Frames:
        return scene.kept(self, lambda: _drawn(scene, removed_agents(scene)))

    def evidence(self, scene: Scene, cells: EvidenceCells) -> EvidenceCells:
        """Without what was seen of the agent."""
        removed = [set() if agent is None else {agent} for agent in removed_agents(scene)]
        gone = [agent_masks(scene, b, agents) for b, agents in enumerate(removed)]
        return hidden_evidence(scene, cells, gone)


RENDERED, COUNTERFACTUAL = Rendered(), Counterfactual()


def removed_agents(scene: Scene) -> list[int | None]:
    """For each clip the agent that others depended on most while the context was filmed, of those seen at its end.

    Where nobody depended on anybody, the one seen largest; None where nobody is seen. What comes after the context has
    no say in it: an agent chosen by what its absence will do would tell where the future has its surprises.
    """
    return scene.kept("removed agents", lambda: [_matters_most(scene, b) for b in range(len(scene))])


def _matters_most(scene: Scene, b: int) -> int | None:
    seen = seen_agents(scene, b)
    if not seen:
        return None
    start, end = float(scene.times_BT[b, 0]), float(scene.times_BT[b, scene.context - 1])
    depended = dict.fromkeys(seen, 0)
    for one in truth_of(scene, b).interactions:
        if one.other in depended:
            depended[one.other] += _anchors(max(one.start, start), min(one.end, end))
    return max(seen, key=lambda agent: (depended[agent], seen[agent]))


def _anchors(start: float, end: float) -> int:
    """Of the stretches in which effects were measured, how many lie wholly between two moments.

    An interaction goes on from one to the next, and its effect is the largest of all: only their number is the past's.
    """
    return max(0, math.floor(end / ANCHOR_EVERY) - math.ceil(start / ANCHOR_EVERY))


def _drawn(scene: Scene, removed: list[int | None]) -> Frames:
    assert scene.known.worlds is not None
    _, frames, height, width, _ = scene.frames_BTHW3.shape
    shown = []
    for b, (world, agent) in enumerate(zip(scene.known.worlds, removed, strict=True)):
        times = scene.times_BT[b]
        start, fps = float(times[0]), 1.0 / float(times[1] - times[0])
        if agent is not None:
            world = resimulate(world, without=agent, start=start)
        shown.append(resize_to_cover(world.window(start, frames, fps), height, width))
    return np.stack(shown)
