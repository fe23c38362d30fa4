"""What would have happened: edits change what depends on them, and not a bit of the rest."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from factorjepa.errors import WorldError
from factorjepa.world import SimulatedClip, resimulate
from factorjepa.world.crowd import DT, RATE
from factorjepa.world.dynamics import step
from factorjepa.world.interactions import find_interactions, removal_effects, threshold
from factorjepa.world.motion import Edit, Trajectory, simulate
from factorjepa.world.neighbours import pairs_within
from factorjepa.world.population import Population
from factorjepa.world.simulator import LAP

from .scenes import Floats, annotated, crowd_on, distances, example, example_truth, lonely

TRACK = ("x", "y", "vx", "vy", "hx", "hy")
SECOND = round(RATE)


def changed(before: SimulatedClip, after: SimulatedClip) -> NDArray[np.bool_]:
    """Which rows differ in any bit of their way."""
    return np.array(
        [getattr(before.trajectory, name) != getattr(after.trajectory, name) for name in TRACK], dtype=bool
    ).any(axis=(0, 1))


def unnoticed(population: Population, trajectory: Trajectory) -> list[int]:
    """Agents whom, all the time, nobody could notice: always farther away than anyone's reach."""
    crowd = population.crowd
    reach = crowd.look[:, None] + crowd.bulk[None, :]
    apart = distances(trajectory.x, trajectory.y, population.ground.extent).min(axis=0)
    notices = (apart < reach) & crowd.mobile[:, None]  # [who, whom]
    np.fill_diagonal(notices, False)
    return [int(row) for row in population.agents if not notices[:, row].any() and crowd.partner[row] < 0]


def rerun(clip: SimulatedClip, anchor: int, gone: set[int], steps: int = SECOND) -> tuple[Floats, Floats]:
    """Positions after `steps` steps of the whole street without `gone`, the camera's carrier as recorded."""
    crowd, ground, camera = clip.population.crowd, clip.population.ground, clip.population.camera
    n = len(crowd)
    present, urge, world = np.ones(n, dtype=bool), np.ones(n), np.zeros(n, dtype=np.intp)
    present[list(gone)] = False
    for edit in clip.edits:
        if edit.brake is not None:
            urge[edit.brake] = 0.0
    state = clip.trajectory.state(anchor)
    for k in range(anchor, anchor + steps):
        if camera is not None:
            for name in TRACK:
                getattr(state, name)[camera] = getattr(clip.trajectory, name)[k, camera]
        pairs = pairs_within(state, crowd, ground, world, crowd.mobile)
        state = step(state, crowd, ground, pairs, k * DT, present, urge)
    return state.x, state.y


@pytest.fixture(scope="module")
def dense() -> SimulatedClip:
    return example(0)


def leader(clip: SimulatedClip) -> int:
    """The agent whose absence would move most others."""
    rows = clip.population.agents
    effects = removal_effects(clip.population, clip.trajectory, 0, rows)
    return int(rows[(effects > 0.3).sum(axis=1).argmax()])


def fastest(clip: SimulatedClip) -> int:
    """The agent that is fastest two seconds into the clip."""
    rows, now = clip.population.agents, 2 * SECOND
    return int(rows[np.hypot(clip.trajectory.vx[now], clip.trajectory.vy[now])[rows].argmax()])


@pytest.fixture(scope="module")
def busy(dense: SimulatedClip) -> int:
    return leader(dense)


@pytest.fixture(scope="module")
def fast(dense: SimulatedClip) -> int:
    return fastest(dense)


class TestRemoval:
    def test_reaches_some_agents_and_leaves_the_others_unchanged_to_the_bit(
        self, dense: SimulatedClip, busy: int
    ) -> None:
        edited = resimulate(dense, without=busy)
        differs = changed(dense, edited)[dense.population.agents]
        assert differs.any()
        assert not differs.all()
        # What changed lies near the one taken out; a clip of four seconds is too short for more.
        early = np.flatnonzero(
            (dense.trajectory.x[:2] != edited.trajectory.x[:2]).any(axis=0) & (dense.population.kind >= 0)
        )
        crowd = dense.population.crowd
        apart = distances(dense.trajectory.x[0], dense.trajectory.y[0], dense.population.ground.extent)[early, busy]
        assert early.size > 0
        assert ((apart < crowd.look[early] + crowd.bulk[busy]) | (crowd.partner[early] == busy)).all()

    def test_of_someone_out_of_everybody_s_reach_changes_nobody_else(self) -> None:
        tried = 0
        for seed in range(40):
            population = crowd_on(seed, "commercial", "sparse", "aerial", density=0.05)
            whole = simulate(population, 2 * SECOND)
            for row in unnoticed(population, whole):
                tried += 1
                rest = simulate(population, 2 * SECOND, [Edit(without=row)])
                others = np.arange(len(population.crowd)) != row
                for name in TRACK:
                    assert (getattr(whole, name)[:, others] == getattr(rest, name)[:, others]).all()
        assert tried >= 3

    def test_takes_the_agent_out_of_picture_and_truth(self, dense: SimulatedClip, busy: int) -> None:
        truth = example_truth(0)
        seen = [int(a) for a in truth.agent_ids if a < LAP]
        shown = max(seen, key=lambda a: int(truth.visible_pixels[truth.agent_ids[truth.agent] == a].sum()))
        edited = resimulate(dense, without=shown)
        after = annotated(edited)
        assert shown not in after.agent_ids % LAP
        assert any((a != b).any() for a, b in zip(dense.frames(), edited.frames(), strict=True))

    @pytest.mark.parametrize("option", ["without", "brake", "hurry"])
    def test_frames_before_the_edit_keep_every_pixel(self, dense: SimulatedClip, fast: int, option: str) -> None:
        start = 2.0
        edited = resimulate(dense, **{option: fast}, start=start)  # type: ignore[arg-type]
        before = [time < start for time in dense.times()]
        same = [(a == b).all() for a, b in zip(dense.frames(), edited.frames(), strict=True)]
        assert all(kept for kept, early in zip(same, before, strict=True) if early)
        assert (dense.trajectory.x[: int(start * RATE) + 1] == edited.trajectory.x[: int(start * RATE) + 1]).all()
        after = edited.trajectory.present[-1, fast], edited.trajectory.x[-1, fast]
        assert after != (True, dense.trajectory.x[-1, fast])

    def test_the_same_edit_twice_is_the_same_clip(self, dense: SimulatedClip, busy: int) -> None:
        assert not changed(resimulate(dense, without=busy), resimulate(dense, without=busy)).any()

    def test_a_second_edit_keeps_the_first_or_is_refused(self, dense: SimulatedClip, busy: int) -> None:
        other = next(int(row) for row in dense.population.agents if row != busy)
        first = resimulate(dense, without=busy)
        try:
            both = resimulate(first, without=other)
        except WorldError:
            return
        assert not both.trajectory.present[-1, busy]
        assert not both.trajectory.present[-1, other]


class TestOtherEdits:
    def test_who_brakes_on_a_free_road_stops_and_stays(self) -> None:
        tried = 0
        for clip in map(lonely, range(16)):
            for row in clip.population.agents.tolist():
                speed = np.hypot(clip.trajectory.vx[0, row], clip.trajectory.vy[0, row])
                edited = resimulate(clip, brake=row).trajectory
                apart = distances(edited.x, edited.y, clip.population.ground.extent)[:, row]
                apart[:, row] = np.inf
                if speed > 1.0 and (apart[:, clip.population.crowd.mobile] > 10.0).all():
                    tried += 1
                    assert np.hypot(edited.vx[-SECOND:, row], edited.vy[-SECOND:, row]).max() < 0.05
                    way = np.hypot(np.diff(edited.x[:, row]), np.diff(edited.y[:, row])).sum()
                    assert way < 1.5 * speed
        assert tried >= 3

    def test_a_car_that_brakes_is_not_run_into_and_pushed_on(self) -> None:
        """Where lanes are kept there is time to stop behind it."""
        late = []
        for index in range(0, 10, 2):
            clip = example(index, "sparse")
            speed = np.hypot(clip.trajectory.vx[0], clip.trajectory.vy[0])
            for row in clip.population.agents[speed[clip.population.agents] > 3.0].tolist():
                edited = resimulate(clip, brake=row).trajectory
                late.append(np.hypot(edited.vx[-SECOND:, row], edited.vy[-SECOND:, row]).max())
        assert len(late) >= 8
        assert np.mean(np.array(late) > 0.3) <= 0.05, np.round(late, 1)

    def test_who_brakes_in_a_crowd_stands_still_too(self) -> None:
        creeping = []
        for clip in (example(0), example(1)):
            speed = np.hypot(clip.trajectory.vx[0], clip.trajectory.vy[0])
            for row in [int(r) for r in clip.population.agents if speed[r] > 1.0][:8]:
                edited = resimulate(clip, brake=row).trajectory
                late = slice(5 * SECOND // 2, 4 * SECOND)
                creeping.append(np.hypot(edited.vx[late, row], edited.vy[late, row]).mean())
        assert len(creeping) >= 12
        assert np.mean(np.array(creeping) > 0.3) < 0.1, np.round(creeping, 2)

    def test_who_hurries_gets_farther(self) -> None:
        gains = []
        for index in range(6):
            clip = example(index, "sparse")
            free = resimulate(clip, alone=True).trajectory
            for row in clip.population.agents.tolist():
                if (free.x[:, row] == clip.trajectory.x[:, row]).all():  # nobody is in its way
                    quick = resimulate(clip, hurry=row).trajectory
                    way, quicker = (np.hypot(np.diff(t.x[:, row]), np.diff(t.y[:, row])).sum() for t in
                                    (clip.trajectory, quick))  # fmt: skip
                    if way > 3:
                        gains.append(quicker / way)
        assert len(gains) >= 3
        assert min(gains) > 1.0
        assert 1.15 < np.median(gains) < 1.6

    def test_alone_nobody_reacts_to_anybody(self) -> None:
        """The same displacement as the ground truth states for those without neighbours; companions are neighbours."""
        compared = together = 0
        for index in (0, 1, 3, 5, 8):
            clip, truth = example(index), example_truth(index)
            now, then = clip.trajectory, resimulate(clip, alone=True).trajectory
            moved = np.hypot(then.x[SECOND] - now.x[SECOND], then.y[SECOND] - now.y[SECOND])
            moved /= 2 * clip.population.crowd.half_length
            for column, agent in enumerate(truth.agent_ids.tolist()):
                stated = truth.alone[0, column] if len(truth.alone) else np.nan
                if agent < LAP and np.isfinite(stated):
                    compared += 1
                    together += int(clip.population.crowd.partner[agent] >= 0)
                    assert moved[agent] == pytest.approx(stated, abs=1e-4), f"agent {agent} of clip {index}"
        assert compared >= 20
        assert together >= 2

    def test_alone_moves_many_of_a_crowd(self, dense: SimulatedClip) -> None:
        assert changed(dense, resimulate(dense, alone=True))[dense.population.agents].mean() > 0.5


class TestCamera:
    @pytest.mark.parametrize("mode", ["drive", "walk"])
    def test_recorded_keeps_every_bit_of_the_viewpoint(self, mode: str) -> None:
        clip = example(2, mode=mode)
        edited = resimulate(clip, alone=True)
        row = clip.population.camera
        assert edited.camera is clip.camera or (edited.camera.position == clip.camera.position).all()
        for name in TRACK:
            assert (getattr(edited.trajectory, name)[:, row] == getattr(clip.trajectory, name)[:, row]).all()
        for (_, a), (_, b) in zip(clip.frames_with_truth(), edited.frames_with_truth(), strict=True):
            assert (a.position == b.position).all()
            assert (a.axes == b.axes).all()

    def test_reactive_lets_the_carrier_respond(self) -> None:
        clip = example(2, mode="drive")
        edited = resimulate(clip, alone=True, camera="reactive")
        assert (edited.camera.position != clip.camera.position).any()
        assert (edited.camera.position[0] == clip.camera.position[0]).all()

    def test_reactive_stays_where_it_was_if_the_edit_does_not_reach_it(self) -> None:
        def behind(clip: SimulatedClip) -> list[int]:
            return [] if clip.population.camera is None else unnoticed(clip.population, clip.trajectory)

        clip = next(one for one in map(lonely, range(60)) if behind(one))
        edited = resimulate(clip, without=behind(clip)[0], camera="reactive")
        assert (edited.camera.position == clip.camera.position).all()
        assert (edited.camera.angles == clip.camera.angles).all()


class TestRefusals:
    @pytest.mark.parametrize("agent", [-1, 999, 5 * LAP + 999])
    def test_an_unknown_agent(self, dense: SimulatedClip, agent: int) -> None:
        with pytest.raises(WorldError, match=f"no agent {agent}"):
            resimulate(dense, without=agent)

    def test_the_camera_s_carrier_and_obstacles_are_not_agents(self) -> None:
        clip = example(2, mode="drive")
        for row in (clip.population.camera, len(clip.population.crowd) - 1):
            assert row is not None
            with pytest.raises(WorldError, match="no agent"):
                resimulate(clip, brake=row)

    def test_two_edits_at_once_or_none(self, dense: SimulatedClip, busy: int) -> None:
        for options in ({}, {"without": busy, "brake": busy}, {"hurry": busy, "alone": True}):
            with pytest.raises(WorldError, match="exactly one"):
                resimulate(dense, **options)  # type: ignore[arg-type]

    def test_an_unknown_camera(self, dense: SimulatedClip) -> None:
        with pytest.raises(WorldError, match="camera must be"):
            resimulate(dense, alone=True, camera="drone")

    @pytest.mark.parametrize("start", [99.0, float("nan")])
    def test_an_edit_outside_the_clip(self, dense: SimulatedClip, busy: int, start: float) -> None:
        with pytest.raises(WorldError, match="start"):
            resimulate(dense, without=busy, start=start)


class TestInteractions:
    """The pairs in the ground truth are what running the whole street again would give."""

    @pytest.mark.parametrize("index", [0, 3])
    def test_local_reruns_agree_with_running_the_whole_street_again(self, index: int) -> None:
        clip, anchor = example(index), SECOND
        rows = clip.population.agents[::3]
        effects = removal_effects(clip.population, clip.trajectory, anchor, rows)
        limit = threshold(clip.population.crowd.half_length)
        apart = distances(clip.trajectory.x[anchor], clip.trajectory.y[anchor], clip.population.ground.extent)
        found = missed = invented = 0
        errors = []
        for number, row in enumerate(rows.tolist()):
            edited = resimulate(clip, without=row, start=anchor * DT).trajectory
            end = anchor + SECOND
            moved = np.hypot(edited.x[end] - clip.trajectory.x[end], edited.y[end] - clip.trajectory.y[end])
            other = (clip.population.kind >= 0) & (np.arange(moved.size) != row)
            really, stated = other & (moved > limit), other & (effects[number] > limit)
            found += int((really & stated).sum())
            missed += int((really & ~stated).sum())
            invented += int((stated & ~really).sum())
            errors += np.abs(effects[number] - moved)[other & (apart[row] < 8.9)].tolist()
        assert found >= 8
        assert invented == 0
        assert missed <= 0.1 * found
        assert np.mean(np.array(errors) > 1e-6) < 0.10  # what comes back from beyond the neighbourhood
        assert np.mean(np.array(errors) > 0.02) < 0.03

    def test_every_interaction_of_the_truth_is_an_effect_above_the_threshold(self, dense: SimulatedClip) -> None:
        truth = example_truth(0)
        limit = threshold(dense.population.crowd.half_length)
        assert len(truth.interactions) >= 10
        for one in truth.interactions[::4]:
            effects = []
            for anchor in range(round(one.start * RATE), round(one.end * RATE), SECOND):
                x, y = rerun(dense, anchor, {one.other})
                there = dense.trajectory.x[anchor + SECOND], dense.trajectory.y[anchor + SECOND]
                effects.append(float(np.hypot(x - there[0], y - there[1])[one.agent]))
            assert min(effects) > limit[one.agent] - 0.02
            assert max(effects) == pytest.approx(one.effect, abs=0.02)

    def test_who_is_out_of_reach_interacts_with_nobody(self) -> None:
        tried = 0
        for seed in range(40):
            population = crowd_on(seed, "commercial", "sparse", "aerial", density=0.05)
            whole = simulate(population, 2 * SECOND)
            found, alone = find_interactions(population, whole, np.ones_like(whole.present))
            for row in unnoticed(population, whole):
                tried += 1
                assert all(row != one.other for one in found)
            assert np.isfinite(alone[:, population.agents]).all()
        assert tried >= 3

    @pytest.mark.parametrize("option", ["without", "brake"])
    def test_of_an_edited_clip_are_those_of_the_edited_world(self, option: str) -> None:
        """Told by running the edited street again: the absent one stays absent, the braking one brakes."""
        wrong, total = [], 0
        for index in (0, 1, 3):
            clip = example(index)
            chosen = leader(clip) if option == "without" else fastest(clip)
            edited = resimulate(clip, **{option: chosen})  # type: ignore[arg-type]
            gone = {chosen} if option == "without" else set()
            x, _ = rerun(edited, SECOND, gone)
            assert np.abs(x - edited.trajectory.x[2 * SECOND]).max() < 1e-9  # the second opinion is of this world
            limit = threshold(clip.population.crowd.half_length)
            found = annotated(edited).interactions
            total += len(found)
            for one in found:
                anchor = round(one.start * RATE)
                x, y = rerun(edited, anchor, gone | {one.other})
                end = anchor + SECOND
                effect = np.hypot(x - edited.trajectory.x[end], y - edited.trajectory.y[end])[one.agent]
                if effect < limit[one.agent] - 0.05:
                    wrong.append((index, one, round(float(effect), 3)))
        assert len(wrong) <= 0.05 * total, f"{len(wrong)} of {total} have no such effect, as {wrong[0]}"
