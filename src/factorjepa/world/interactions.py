"""Who matters to whom: interactions by counterfactual effect.

At regular anchors the neighbourhood of each agent j is run again for one second without j, everything else equal.
Whoever ends up elsewhere by more than a threshold interacts with j. Only the surroundings of j are run again; what lies
beyond the reach of its absence follows the recorded trajectories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .crowd import DT, RATE, Floats, State, wrap
from .dynamics import intent, step
from .motion import LIST_STEPS, Edit, Trajectory, conditions
from .neighbours import Everyone, pair_terms
from .population import Population

HORIZON = 1.0  # s after which effects are measured
ANCHOR_EVERY = 1.0  # s between anchors
KINDS_OF_INTERACTION = ("following", "yielding", "avoidance", "jostling", "walking together", "indirect")

_AFFECTED_WITHIN = 9.0  # m around j in which agents are run again, besides those who notice j from farther away
_NOTICED_WITHIN = 28.0  # m around j that those can notice
_STEPS = round(HORIZON * RATE)


@dataclass(frozen=True)
class Interaction:
    """From `start` to `end` seconds, taking `other` out would move `agent` by `effect` metres within a second."""

    agent: int
    other: int
    start: float
    end: float
    kind: str
    effect: float


def threshold(half_length: Floats) -> Floats:
    """Metres of displacement that count: a quarter of the body, at least 15 cm."""
    return np.maximum(0.5 * half_length, 0.15)


def find_interactions(
    population: Population, trajectory: Trajectory, in_view: NDArray[np.bool_], edits: Sequence[Edit] = ()
) -> tuple[list[Interaction], Floats]:
    """Interactions among agents in view, and displacements when alone.

    `in_view` is `[T, N]` at simulation steps. The second result is `[anchors, N]`: by how many body lengths each agent
    in view is, one second later, away from where it would be without neighbours; nan for those out of view.
    """
    stride = round(ANCHOR_EVERY * RATE)
    anchors = range(0, min(len(in_view) - 1, len(trajectory) - _STEPS), stride)
    alone = np.full((len(anchors), len(population.crowd)), np.nan)
    running: dict[tuple[int, int], Interaction] = {}
    found: list[Interaction] = []
    for index, anchor in enumerate(anchors):
        rows = np.flatnonzero(in_view[anchor] & (population.kind >= 0))
        body = 2.0 * population.crowd.half_length[rows]
        alone[index, rows] = _displacement_alone(population, trajectory, anchor, edits)[rows] / body
        now: dict[tuple[int, int], Interaction] = {}
        time = anchor * DT
        for agent, other, effect, kind in _effects(population, trajectory, anchor, rows, edits):
            before = running.get((agent, other))
            start, strongest = (before.start, before.effect) if before and before.kind == kind else (time, 0.0)
            now[agent, other] = Interaction(agent, other, start, time + ANCHOR_EVERY, kind, max(effect, strongest))
        found += [one for pair, one in running.items() if pair not in now or now[pair].start != one.start]
        running = now
    return found + list(running.values()), alone


def removal_effects(
    population: Population,
    trajectory: Trajectory,
    anchor: int,
    removed: NDArray[np.intp],
    edits: Sequence[Edit] = (),
) -> Floats:
    """`[J, N]` metres by which each agent is displaced after one second when j is taken out at step `anchor`."""
    crowd, ground, n = population.crowd, population.ground, len(population.crowd)
    start = trajectory.state(anchor)
    dx = wrap(start.x[None, :] - start.x[removed, None], ground.extent[0])
    dy = wrap(start.y[None, :] - start.y[removed, None], ground.extent[1])
    distance = np.hypot(dx, dy)
    distance[:, ~trajectory.present[anchor]] = np.inf
    distance[np.arange(removed.size), removed] = np.inf  # not there
    world, rows = np.nonzero(distance < _NOTICED_WITHIN)
    notices = crowd.look[rows] + crowd.bulk[removed][world]
    rerun = (distance[world, rows] < np.maximum(notices, _AFFECTED_WITHIN)) & (population.kind[rows] >= 0)
    place = np.full((removed.size, n + 1), -1)
    place[world, rows] = np.arange(rows.size)
    local = crowd.take(rows, place[world, crowd.partner[rows]])
    state, everyone = start.take(rows), Everyone(local, world, rerun)
    for k in range(anchor, anchor + _STEPS):
        now = conditions(edits, k * DT, n)
        if (k - anchor) % LIST_STEPS == 0:
            possible = everyone.within(state, ground, LIST_STEPS)
        pairs = possible.now(state, ground)
        present = now.present[rows] & ((population.kind[rows] < 0) | (not now.alone))
        state = step(state, local, ground, pairs, k * DT, present, now.urge[rows])
        recorded = trajectory.state(k + 1).take(rows)
        columns = (
            np.where(rerun, getattr(state, name), getattr(recorded, name)) for name in State.__dataclass_fields__
        )
        state = State(*columns)
    effect = np.zeros((removed.size, n))
    moved = np.hypot(state.x - trajectory.x[anchor + _STEPS, rows], state.y - trajectory.y[anchor + _STEPS, rows])
    effect[world, rows] = np.where(rerun, moved, 0.0)
    return effect


def _displacement_alone(population: Population, trajectory: Trajectory, anchor: int, edits: Sequence[Edit]) -> Floats:
    """Metres between where everyone is after a second and where they would be without the other agents."""
    crowd, ground, state = population.crowd, population.ground, trajectory.state(anchor)
    things = population.kind < 0  # obstacles and the camera stay
    everyone = Everyone(crowd, np.zeros(len(crowd), dtype=np.intp), crowd.mobile)
    for k in range(anchor, anchor + _STEPS):
        if (k - anchor) % LIST_STEPS == 0:
            possible = everyone.within(state, ground, LIST_STEPS)
        pairs, urge = possible.now(state, ground), conditions(edits, k * DT, len(crowd)).urge
        state = step(state, crowd, ground, pairs, k * DT, things, urge)
        if (camera := population.camera) is not None:  # its way is given
            for name in ("x", "y", "vx", "vy", "hx", "hy"):
                getattr(state, name)[camera] = getattr(trajectory, name)[k + 1, camera]
    return np.asarray(np.hypot(state.x - trajectory.x[anchor + _STEPS], state.y - trajectory.y[anchor + _STEPS]))


def _effects(
    population: Population, trajectory: Trajectory, anchor: int, rows: NDArray[np.intp], edits: Sequence[Edit]
) -> list[tuple[int, int, float, str]]:
    """Pairs (agent, other, metres, kind) above the threshold, both in view."""
    if rows.size < 2:
        return []
    effect = removal_effects(population, trajectory, anchor, rows, edits)
    others, agents = np.nonzero(effect[:, rows] > threshold(population.crowd.half_length[rows])[None, :])
    if others.size == 0:
        return []
    kinds = _mechanisms(population, trajectory, anchor, edits)
    partner = population.crowd.partner
    result = []
    for other, agent in zip(rows[others].tolist(), rows[agents].tolist(), strict=True):
        kind = "walking together" if partner[agent] == other else kinds.get((agent, other), "indirect")
        result.append((agent, other, float(effect[np.searchsorted(rows, other), agent]), kind))
    return result


def _mechanisms(
    population: Population, trajectory: Trajectory, anchor: int, edits: Sequence[Edit]
) -> dict[tuple[int, int], str]:
    """The strongest term of the interaction law between each pair during the second after the anchor."""
    crowd, ground = population.crowd, population.ground
    n = len(crowd)
    everyone = Everyone(crowd, np.zeros(n, dtype=np.intp), crowd.mobile)
    strongest: dict[tuple[int, int], tuple[float, str]] = {}
    for k in range(anchor, anchor + _STEPS, 3):
        state = trajectory.state(k)
        pairs = everyone.within(state, ground, 1).now(state, ground)
        want = intent(state, crowd, ground, k * DT, conditions(edits, k * DT, n).urge)
        terms = pair_terms(state, crowd, ground, pairs, want)
        speed = np.maximum(want.speed[pairs.who], 0.3)
        strength = np.stack(
            [
                (want.speed[pairs.who] - terms.follow) / speed,
                (want.speed[pairs.who] - terms.give_way) / speed,
                np.abs(terms.swerve) / 3.5,
                np.hypot(terms.pushx, terms.pushy) / 9.0,
            ]
        )
        best, kind = strength.max(axis=0), strength.argmax(axis=0)
        for index in np.flatnonzero(best > 0.02).tolist():
            pair = (int(pairs.who[index]), int(pairs.whom[index]))
            if best[index] > strongest.get(pair, (0.0, ""))[0]:
                strongest[pair] = (float(best[index]), KINDS_OF_INTERACTION[kind[index]])
    return {pair: kind for pair, (_, kind) in strongest.items()}
