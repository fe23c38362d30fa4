"""The law of motion: local, bounded, and fair to everyone's row number."""

from __future__ import annotations

import dataclasses
import itertools

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.world import motion
from factorjepa.world.crowd import DT, State, wrap
from factorjepa.world.dynamics import intent, step
from factorjepa.world.neighbours import Pairs, pair_terms, pairs_within
from factorjepa.world.population import Population
from factorjepa.world.street import FAMILIES

from .scenes import crowd_on, distances, example, stepped

FIELDS = ("x", "y", "vx", "vy", "hx", "hy", "leg")
SCENES = sorted(FAMILIES)
seeds = st.integers(0, 40)
metres = st.floats(-1e4, 1e4)


def moved_on(population: Population, steps: int = 10) -> State:
    return stepped(population, steps)[-1]


def next_state(population: Population, state: State, present: np.ndarray | None = None) -> State:
    n = len(population.crowd)
    everyone = np.ones(n, dtype=bool) if present is None else present
    pairs = pairs_within(state, population.crowd, population.ground, np.zeros(n, np.intp), population.crowd.mobile)
    return step(state, population.crowd, population.ground, pairs, 0.0, everyone, np.ones(n))


def same(a: State, b: State, rows: np.ndarray) -> bool:
    return all((getattr(a, name)[rows] == getattr(b, name)[rows]).all() for name in FIELDS)


@given(metres, st.floats(1.0, 200.0))
def test_wrap_is_the_shortest_way_around(difference: float, period: float) -> None:
    wrapped = float(wrap(np.array([difference]), period)[0])
    assert abs(wrapped) <= period / 2 + 1e-9 * max(1.0, abs(difference))
    turns = (difference - wrapped) / period
    assert turns == pytest.approx(round(turns), abs=1e-6)
    assert all(abs(wrapped) <= abs(difference - k * period) + 1e-6 for k in range(round(turns) - 2, round(turns) + 3))


@given(metres, metres, st.floats(1.0, 200.0))
def test_wrap_is_antisymmetric_and_periodic(a: float, b: float, period: float) -> None:
    there, back = wrap(np.array([b - a]), period), wrap(np.array([a - b]), period)
    assert there == -back
    shifted = wrap(np.array([b - a + 3 * period]), period)
    assert abs(abs(shifted - there) % period) == pytest.approx(0, abs=1e-6) or abs(
        abs(shifted - there) % period
    ) == pytest.approx(period, abs=1e-6)


@settings(max_examples=15)
@given(seeds, st.sampled_from(SCENES), st.randoms(use_true_random=False))
def test_pairs_are_found_as_by_looking_at_everyone(seed: int, scene: str, random: object) -> None:
    population = crowd_on(seed, scene)  # type: ignore[arg-type]
    crowd, state = population.crowd, moved_on(population)
    n = len(crowd)
    pairs = pairs_within(state, crowd, population.ground, np.zeros(n, np.intp), crowd.mobile)
    reach = crowd.look[:, None] + crowd.bulk[None, :]
    apart = distances(state.x, state.y, population.ground.extent)
    near = (apart < reach - 1e-9) & crowd.mobile[:, None] & ~np.eye(n, dtype=bool)
    listed = np.zeros((n, n), dtype=bool)
    listed[pairs.who, pairs.whom] = True
    assert pairs.who.size == listed.sum()  # nobody twice
    assert not (listed & (apart > reach + 1e-9)).any()
    assert (np.diff(pairs.who) >= 0).all()
    # Whoever is left out although near stands behind, out of contact: the law says nothing about them.
    everyone = Pairs.of(crowd, *np.nonzero(near))
    want = intent(state, crowd, population.ground, 0.0, np.ones(n))
    terms = pair_terms(state, crowd, population.ground, everyone, want)
    silent = ~listed[everyone.who, everyone.whom]
    assert (terms.follow[silent] >= want.speed[everyone.who[silent]]).all()
    assert (terms.give_way[silent] >= want.speed[everyone.who[silent]]).all()
    for force in (terms.swerve, terms.pushx, terms.pushy):
        assert np.abs(force[silent]).max(initial=0.0) == 0.0


@pytest.mark.parametrize("scene", SCENES)
def test_a_list_of_neighbours_that_serves_several_steps_changes_no_bit(
    scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    population = crowd_on(3, scene)  # type: ignore[arg-type]
    runs = []
    for steps in (1, 6, 11):
        monkeypatch.setattr(motion, "LIST_STEPS", steps)
        runs.append(motion.simulate(population, 30))
    assert all((getattr(runs[0], name) == getattr(run, name)).all() for run in runs[1:] for name in FIELDS)


@settings(max_examples=15)
@given(seeds, st.sampled_from(SCENES), st.data())
def test_moving_someone_out_of_reach_changes_no_bit(seed: int, scene: str, data: st.DataObject) -> None:
    population = crowd_on(seed, scene)  # type: ignore[arg-type]
    crowd, state = population.crowd, moved_on(population)
    row = data.draw(st.sampled_from(population.agents.tolist()))
    elsewhere = state.copy()
    elsewhere.x[row] += data.draw(st.floats(-1.0, 1.0))
    elsewhere.y[row] += data.draw(st.floats(-1.0, 1.0))
    elsewhere.vx[row] += data.draw(st.floats(-3.0, 3.0))
    reach = crowd.look + crowd.bulk[row]
    apart = np.minimum(*(distances(s.x, s.y, population.ground.extent)[:, row] for s in (state, elsewhere)))
    beyond = (apart > reach + 1e-9) & (crowd.partner != row)
    beyond[row] = False
    before, after = next_state(population, state), next_state(population, elsewhere)
    assert beyond.any()
    assert same(before, after, beyond)


@settings(max_examples=15)
@given(seeds, st.sampled_from(SCENES), st.data())
def test_an_absent_agent_influences_nobody(seed: int, scene: str, data: st.DataObject) -> None:
    """Taken out, it may stand anywhere."""
    population = crowd_on(seed, scene)  # type: ignore[arg-type]
    state = moved_on(population)
    row = data.draw(st.sampled_from(population.agents.tolist()))
    victim = data.draw(st.sampled_from(population.agents.tolist()))
    present = np.ones(len(population.crowd), dtype=bool)
    present[row] = False
    elsewhere = state.copy()
    elsewhere.x[row], elsewhere.y[row] = state.x[victim] + 0.3, state.y[victim]
    others = present.copy()
    assert same(next_state(population, state, present), next_state(population, elsewhere, present), others)


@settings(max_examples=10)
@given(seeds, st.sampled_from(SCENES), st.data())
def test_renumbering_everybody_renumbers_the_result(seed: int, scene: str, data: st.DataObject) -> None:
    population = crowd_on(seed, scene)  # type: ignore[arg-type]
    state = moved_on(population)
    n = len(population.crowd)
    order = np.array(data.draw(st.permutations(range(n))), dtype=np.intp)
    place = np.empty(n + 1, dtype=np.intp)
    place[order], place[n] = np.arange(n), -1
    partner = place[population.crowd.partner[order]]
    shuffled = dataclasses.replace(population, crowd=population.crowd.take(order, partner), start=state.take(order))
    plain, mixed = next_state(population, state), next_state(shuffled, state.take(order))
    for name in FIELDS:
        np.testing.assert_allclose(getattr(mixed, name), getattr(plain, name)[order], atol=1e-9, rtol=0)


@settings(max_examples=8)
@given(seeds, st.sampled_from(SCENES), st.sampled_from(["dense", "sparse"]))
def test_speeds_are_bounded_wheels_roll_forwards_and_obstacles_stay(seed: int, scene: str, regime: str) -> None:
    population = crowd_on(seed, scene, regime)  # type: ignore[arg-type]
    crowd = population.crowd
    states = stepped(population, 40)
    for before, after in itertools.pairwise(states):
        speed = np.hypot(after.vx, after.vy)
        assert (speed <= (1.35 * crowd.speed + 0.2) * crowd.mobile + 1e-9).all()
        forward = after.vx * before.hx + after.vy * before.hy
        assert (forward[crowd.wheels] >= -1e-9).all()
        np.testing.assert_allclose(np.hypot(after.hx, after.hy)[crowd.mobile], 1.0, atol=1e-6)
        np.testing.assert_allclose(after.x, before.x + DT * after.vx, atol=1e-12)
        assert np.isfinite(after.x).all()
        turned = np.abs(
            np.arctan2(before.hx * after.hy - before.hy * after.hx, before.hx * after.hx + before.hy * after.hy)
        )
        assert (turned[crowd.wheels] < 0.75).all()  # radians in an eighth of a second
    assert (states[-1].x[~crowd.mobile] == states[0].x[~crowd.mobile]).all()
    assert (states[-1].y[~crowd.mobile] == states[0].y[~crowd.mobile]).all()


@settings(max_examples=6)
@given(seeds, st.sampled_from([s for s in SCENES if s != "junction"]))
def test_nobody_leaves_the_street(seed: int, scene: str) -> None:
    population = crowd_on(seed, scene)  # type: ignore[arg-type]
    last = stepped(population, 60)[-1]
    beyond = np.abs(last.y) - population.crowd.room[:, 0]
    assert beyond[population.crowd.mobile].max() < 2.5  # in the narrowest squeeze of all these streets 2.03


def overlap(state: State, population: Population, i: int, j: int) -> float:
    """Shared area of two footprints, as a share of the smaller one."""
    crowd, extent = population.crowd, population.ground.extent
    dx = float(wrap(state.x[j : j + 1] - state.x[i], extent[0])[0])
    dy = float(wrap(state.y[j : j + 1] - state.y[i], extent[1])[0])
    boxes = []
    for row, (x, y) in ((i, (0.0, 0.0)), (j, (dx, dy))):
        angle = float(np.degrees(np.arctan2(state.hy[row], state.hx[row])))
        boxes.append(((x, y), (2 * crowd.half_length[row], 2 * crowd.half_width[row]), angle))
    kind, points = cv2.rotatedRectangleIntersection(*boxes)
    if kind == cv2.INTERSECT_NONE or points is None:
        return 0.0
    smaller = min(box[1][0] * box[1][1] for box in boxes)
    return float(cv2.contourArea(cv2.convexHull(points))) / smaller


@pytest.mark.parametrize("regime", ["dense", "sparse"])
def test_bodies_hardly_overlap(regime: str) -> None:
    """Nobody walks through anybody: of the neighbours that almost touch, few share ground, and little of it."""
    shared, agents = [], 0
    for index in (0, 5, 10):
        clip = example(index, regime)
        crowd, population = clip.population.crowd, clip.population
        for k in range(0, len(clip.trajectory), 8):
            state = clip.trajectory.state(k)
            apart = distances(state.x, state.y, population.ground.extent)
            close = np.triu(apart < crowd.bulk[:, None] + crowd.bulk[None, :], 1) & crowd.mobile[:, None]
            shared += [overlap(state, population, int(i), int(j)) for i, j in np.argwhere(close)]
            agents += int(crowd.mobile.sum())
    per_agent = sum(shared) / agents
    assert per_agent < 0.03
    assert np.mean(np.array(shared) > 0.5) < 0.02


def test_a_car_does_not_drive_through_a_standing_one() -> None:
    clip = example(0, "sparse")
    rows = clip.population.agents
    row = next(int(r) for r in rows if clip.population.crowd.wheels[r] and clip.population.crowd.half_length[r] > 1.5)
    crowd = dataclasses.replace(
        clip.population.crowd.take(np.array([row, row]), np.array([-1, -1])),
        leg_axis=np.zeros((2, 2), np.intp),
        leg_sign=np.ones((2, 2)),
        leg_lateral=np.zeros((2, 2)),
        wander=np.array([[0.0, 1.0, 0.0]] * 2),
    )
    ground = dataclasses.replace(clip.population.ground, junction=None, cycle=0.0)
    pair = dataclasses.replace(clip.population, crowd=crowd, ground=ground)
    zeros = np.zeros(2)
    state = State(np.array([0.0, 25.0]), zeros, np.array([5.0, 0.0]), zeros, np.ones(2), zeros, np.zeros(2, np.intp))
    worst = 0.0
    for k in range(160):
        pairs = pairs_within(state, crowd, ground, np.zeros(2, np.intp), np.array([True, False]))
        state = step(state, crowd, ground, pairs, k * DT, np.ones(2, bool), np.array([1.0, 0.0]))
        worst = max(worst, overlap(state, pair, 0, 1))
    assert state.x[0] > 12.0  # it did come up to the other
    assert worst < 0.05
