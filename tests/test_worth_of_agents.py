"""What agents are worth, as two benchmarks ask it: on streets whose answer is known."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import agents_ceiling
import agents_motion
import plot_ceiling
import velocity_fades
from factorjepa.teacher.batch import collate
from factorjepa.teacher.packet import build_packet, projections_for
from factorjepa.teacher.regions import Tracklet
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.verbs.data import simulate
from factorjepa.verbs.teacher import targets
from teacher.evidence import evidence_of, rectangle

NUMBERS = list(range(16))


@pytest.mark.parametrize("frames", [12, 8])
def test_the_ladder_of_what_agents_are_worth_is_climbed(
    frames: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streets, log = tmp_path / "dense", tmp_path / "log.json"
    simulate(streets, ["seconds=[6,7]", "fps=4"], clips=40, seed=3, preset="dense")
    short = ["--steps", "2", "--seeds", "0", "--clips", "16", "--context", str(frames), "--json", str(log)]
    if frames == 12:  # with a teacher's rung, too
        targets(streets, ["regions.kind=street"], split=["train"], workers=1)
        with pytest.raises(SystemExit, match="the teacher saw 12 frames"):
            agents_ceiling.main([str(streets), *short, "--context", "8", "--packets", str(streets / "targets")])
        short += ["--packets", str(streets / "targets")]
    capsys.readouterr()
    assert agents_ceiling.main([str(streets), *short]) == 0
    rungs = json.loads(log.read_text())["rungs"]
    assert [rung["rung"] for rung in rungs] == [
        one for one in agents_ceiling.RUNGS if one not in agents_ceiling.OF_TEACHER or frames == 12
    ]
    assert len({rung["l1"][place] for rung in rungs for place in (0, 1)}) == 2 * len(rungs)  # each tells something else
    assert np.isfinite([rung["l1"] for rung in rungs]).all()
    errors = {rung["rung"]: rung["l1"][0] for rung in rungs}
    for rung in rungs[1:]:
        assert rung["gain"][0] == pytest.approx(errors[agents_ceiling.RUNGS[rung["rung"]][1]] - rung["l1"][0], abs=1e-5)
    told = capsys.readouterr().out
    assert told.count("\n| ") == 1 + len(rungs) + len(rungs)  # all clips, and by how they were filmed
    modes = rungs[1]["modes"]
    assert set(modes) <= {"walk", "drive", "aerial"}
    assert len(modes) > 1
    assert (
        min(one["gain"][0] for one in modes.values())
        <= rungs[1]["gain"][0]
        <= max(one["gain"][0] for one in modes.values())
    )
    assert plot_ceiling.main([str(log), "--out", str(tmp_path / "ladders.png")]) == 0
    drawn = capsys.readouterr().out
    first = (rungs[0]["l1"][0] - rungs[1]["l1"][0]) / rungs[0]["l1"][0]
    assert f"| look back | {100 * first:+.2f} % [" in drawn
    assert ("the teacher sees" in drawn) == (frames == 12)
    assert f"{(16 - frames) // 4} s |" in drawn
    assert (tmp_path / "ladders.png").stat().st_size > 5000


def one_agent(speed: int, turns_back: bool = False, hidden_at: tuple[int, ...] = ()) -> Any:
    """16 frames of 64 pixels with a square of 8 on row 8, `speed` pixels to the right a frame, which may turn back."""
    left = [speed * min(t, 22 - t if turns_back else t) for t in range(16)]

    def instances(frame: int) -> Any:
        picture = np.zeros((64, 64), np.int32)
        if frame not in hidden_at:
            picture[8:16, left[frame] : left[frame] + 8] = 1
        return picture

    return SimpleNamespace(
        size=64, fps=4.0, instances=instances, agent=np.zeros(16, np.int64),
        observations=lambda frame: np.array([frame]),
        visible_pixels=np.array([0 if t in hidden_at else 64 for t in range(16)]), amodal_pixels=np.full(16, 64),
        box=np.array([[x, 8, x + 8, 16] for x in left]), truncated=np.zeros(16, bool),
        image_velocity=np.array([[4.0 * speed, 0.0]] * 16), camera_velocity=np.zeros((16, 2)), alone=np.zeros((4, 1)),
    )  # fmt: skip


def street(truth: Any) -> agents_ceiling.Street:
    told = {"steady": agents_motion.moving(truth, NUMBERS, 12).steady_AK2}
    return agents_ceiling.street(truth, NUMBERS, 12, 8, told)


def test_rungs_say_where_an_agent_goes_steadily_truly_and_what_is_seen_of_it() -> None:
    steady = street(one_agent(2))
    assert all(one.who_t.max() == 0 for one in steady.rungs.values())
    for one in steady.rungs.values():  # it never turns: all know the same, 4 pixels a tubelet
        covered = one.fields_t7[:, 0].reshape(2, 8, 8)
        assert covered.sum((1, 2)).tolist() == pytest.approx([1.0, 1.0], abs=0.02)
        assert covered.nonzero()[1].tolist() == [1] * len(covered.nonzero()[1])
        moved = one.fields_t7[one.who_t >= 0, 2].reshape(2, -1)
        assert moved.mean(1).tolist() == pytest.approx([4 / 64, 8 / 64])
    at_first = steady.rungs["steady"].fields_t7[:64, 0].reshape(8, 8)[1]
    assert at_first[3:5].tolist() == pytest.approx([7 / 8, 1 / 8])  # pixels 25 to 33 between the tubelet's two frames
    turned = street(one_agent(2, turns_back=True))
    ahead, true = (turned.rungs[name].fields_t7[:, 2].reshape(2, 64) for name in ("steady", "moved"))
    assert ahead.max(1).tolist() == pytest.approx([4 / 64, 8 / 64])
    assert true.min(1).tolist() == pytest.approx([-2 / 64, -6 / 64])
    gone = street(one_agent(2, hidden_at=(14, 15)))
    assert gone.rungs["moved"].fields_t7[64:, 0].sum() == pytest.approx(
        1.0
    )  # only the last rung knows that it is hidden
    assert gone.rungs["seen"].fields_t7[64:, 0].sum() == gone.covered_t[64:].sum() == 0.0


def test_who_is_covered_by_half_is_found_and_told_exactly() -> None:
    truth = cast(Any, one_agent(2))
    told = {"steady": agents_motion.moving(truth, NUMBERS, 12).steady_AK2}
    left = np.zeros((32, 32), np.float32)  # at the context's end the square is at 22 to 30, cells 11 to 14
    left[:, :13] = 1.0
    for cover, found in ((left, True), (np.roll(left, -1, 1) * (np.arange(32) < 12), False)):
        for speed in (4 / 64, 0.0):  # a tubelet: as it goes, and not at all
            saw = agents_ceiling.Watched(np.stack((0 * cover, cover)).reshape(2, -1), np.array([[1, 1], [speed, 0]]))
            rungs = agents_ceiling.street(truth, NUMBERS, 12, 8, told, saw).rungs
            assert (rungs["found"].who_t >= 0).any() == (rungs["shaped"].who_t >= 0).any() == found
            if found:
                for exact in ("found", "lately"):
                    assert rungs[exact].fields_t7 == pytest.approx(rungs["steady"].fields_t7, abs=1e-6)
                same = rungs["shaped"].fields_t7 == pytest.approx(rungs["steady"].fields_t7, abs=1e-6)
                assert same == (speed > 0)
    nobody = agents_ceiling.Watched(np.zeros((0, 1024), np.float32), np.zeros((0, 2), np.float32))
    assert (agents_ceiling.street(truth, NUMBERS, 12, 8, told, nobody).rungs["found"].who_t == -1).all()


def taught(frames: range, agents: int = 1) -> agents_ceiling.Agents:
    """What a teacher makes of the square of `one_agent(2)`, seen in these frames."""
    seen = Tracklet(tuple(frames), tuple(rectangle(2 * t, 8, 8, 8, 64) for t in frames))
    settings = TeacherSettings()
    times = np.arange(16) / 4
    packet = build_packet(evidence_of([seen] * agents), times, settings, projections_for(12, settings))
    packets = SimpleNamespace(of=lambda clip: packet, collate=lambda clips: collate([packet], settings))
    return agents_ceiling.taught(agents_ceiling.Tracks.of(cast(Any, packets), cast(Any, None)), 8)


def test_a_flawless_teacher_is_the_rung_of_steady_truth_where_agents_go_on_as_they_went() -> None:
    true = street(one_agent(2)).rungs["steady"]
    found = taught(range(16))
    assert found.fields_t7 == pytest.approx(true.fields_t7, abs=1e-6)
    assert found.who_t.tolist() == true.who_t.tolist()
    assert found.last_An == pytest.approx(true.last_An)
    lost = taught(range(10))  # hidden in the context's last two frames: it goes on as it was last seen to go
    assert lost.fields_t7[:, :2] == pytest.approx(true.fields_t7[:, :2], abs=1e-6)
    assert lost.last_An == pytest.approx(true.last_An)
    nobody = taught(range(0), agents=0)
    assert (nobody.who_t == -1).all()
    assert not nobody.fields_t7.any()


def test_steady_agents_go_where_their_velocity_leads_and_the_truth_is_told_beside_it() -> None:
    steady = agents_motion.moving(cast(Any, one_agent(2)), NUMBERS, 12)
    assert steady.true_AK2 == pytest.approx(steady.steady_AK2)
    assert steady.true_AK2[0, :, 0].tolist() == pytest.approx([4 / 64, 8 / 64])
    turned = agents_motion.moving(cast(Any, one_agent(2, turns_back=True)), NUMBERS, 12)
    assert turned.own_AX == pytest.approx(steady.own_AX)  # it turns after the context
    assert turned.true_AK2[0, :, 0].tolist() == pytest.approx([-2 / 64, -6 / 64])


def test_neighbours_are_the_nearest_and_told_relative_to_the_agent() -> None:
    """Three squares stand in a row at 0, 40 and 16 pixels; the last one would be elsewhere without the others."""
    left = [0, 40, 16]
    truth = one_agent(0)
    truth.agent, truth.box = np.tile(np.arange(3), 16), np.array([[x, 8, x + 8, 16] for x in left] * 16)
    truth.observations = lambda frame: np.arange(3 * frame, 3 * frame + 3)
    for name, value in {"visible_pixels": 64, "amodal_pixels": 64, "truncated": False}.items():
        setattr(truth, name, np.full(48, value))
    truth.image_velocity = truth.camera_velocity = np.zeros((48, 2))
    truth.alone = np.array([[0, 0, 0]] * 3 + [[0, 0.4, 0.9]])
    found = agents_motion.moving(truth, NUMBERS, 12)
    apart = (64 * found.pairs_APX[:, :3, 0]).tolist()
    assert apart == [[16, 40, 0], [-24, -40, 0], [-16, 24, 0]]
    assert found.pairs_APX[:, :, -1].sum(1).tolist() == [2, 2, 2]
    assert found.reacts_A.tolist() == [False, False, True]


def crowd(streets: int, driven_by: str) -> list[agents_motion.Moving]:
    """One clip a street of 16 agents that end up where one known thing drives them, off from where they steadily go."""
    random = np.random.default_rng(0)
    clips = []
    for _ in range(streets):
        own = random.normal(size=(16, agents_motion._OWN)).astype(np.float32)
        pairs = random.normal(size=(16, agents_motion.NEIGHBOURS, agents_motion._OWN + 1)).astype(np.float32)
        pairs[..., -1] = np.arange(agents_motion.NEIGHBOURS) < 2
        cause = own[:, 0] if driven_by == "itself" else pairs[:, :2, 0].sum(1)
        steady = random.normal(size=(16, 2, 2)).astype(np.float32)
        true = steady + 0.1 * cause[:, None, None] * np.array([1, 2], np.float32)[:, None]
        true[0] = np.nan  # one leaves
        clips.append(agents_motion.Moving(own, pairs, steady, true, cause > 0))
    return clips


@pytest.mark.parametrize("driven_by", ["itself", "others"])
def test_who_knows_the_others_tells_what_they_make_of_an_agent_and_who_does_not_cannot(driven_by: str) -> None:
    clips, streets = crowd(60, driven_by), [f"s{number:02d}" for number in range(60)]
    out = agents_motion.held_out(streets)
    assert out.sum() == 20
    alone, together = (agents_motion.foretold(clips, streets, out, others) for others in (False, True))
    for measured in (out, ~out):
        steady, own, pairs = (
            np.nanmean(agents_motion.errors(clips, told)[measured, 0])
            for told in ([clip.steady_AK2 for clip in clips], alone, together)
        )
        assert pairs < 0.5 * steady
        assert (own < 0.5 * steady) if driven_by == "itself" else (own > 0.9 * steady)


@pytest.mark.parametrize("street", [0, 1, 2])  # measured on; of either half of the others
def test_nobody_is_foretold_by_a_network_that_learned_from_its_own_street(street: int) -> None:
    clips, streets = crowd(9, "others"), [f"s{number}" for number in range(9)]
    out = agents_motion.held_out(streets)
    before = agents_motion.foretold(clips, streets, out, True)
    clips[street] = clips[street]._replace(true_AK2=clips[street].true_AK2 + 5)
    after = agents_motion.foretold(clips, streets, out, True)
    assert np.array_equal(before[street], after[street])
    assert any(not np.array_equal(*both) for both in zip(before, after, strict=True)) == (street != 0)


def test_the_benchmark_of_motion_tells_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    streets, log = tmp_path / "dense", tmp_path / "log.json"
    simulate(streets, ["seconds=[6,7]", "fps=4"], clips=40, seed=3, preset="dense")
    capsys.readouterr()
    assert agents_motion.main([str(streets), "--context", "8", "--json", str(log)]) == 0
    assert "2 s ahead: " in capsys.readouterr().out
    who = {row["told_by"]: row for row in json.loads(log.read_text())["who"]}
    order = [*who]
    assert order[-2:] == [*agents_motion.FORETOLD]
    assert order[1] == "constant velocity"
    assert np.isfinite([row["off"] for row in who.values()]).all()
    lost = [who[a]["off"][0] - who[b]["off"][0] for a, b in itertools.pairwise(order)]
    assert [who[name]["gain"][0] for name in order[1:]] == pytest.approx(lost, abs=1e-4)


def test_a_velocity_that_fades_leads_less_and_less_far() -> None:
    speed = np.ones((3, 6, 2), np.float32) * np.arange(1, 7, dtype=np.float32)[:, None]  # 1 a tubelet
    went = agents_motion.fading(speed)[0, :, 0]
    steps = np.diff(went, prepend=0)
    assert steps[1:] / steps[:-1] == pytest.approx(np.exp(-2 / agents_motion.LASTS), rel=1e-2)
    assert went[-1] == pytest.approx(agents_motion.LASTS / 2, rel=1e-2)  # tubelets of two frames


def walker(folder: Path, step: float) -> str:
    """Somebody walks to the right for ten seconds at 8 frames a second, `step` less far in each frame than before."""
    speed = 8.0 * step ** np.arange(80)
    left = 100 + np.concatenate(([0.0], speed.cumsum()[:-1]))
    rows = [f"{t + 1},1,{x:.3f},200,20,60,1,1,1" for t, x in enumerate(left)]
    rows += [f"{t + 1},2,{9 * t},200,20,60,0,1,1" for t in range(80)]  # not asked for
    path = folder / f"gt_{step}.txt"
    path.write_text("\n".join(rows))
    return f"{path}:8:1920x1080"


def test_how_long_a_velocity_lasts_is_told_from_tracks(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    slower = float(np.exp(-0.5 / 4))  # two frames of the video are one of the window: it fades in four of those
    assert velocity_fades.main([walker(tmp_path, 1.0), walker(tmp_path, slower), "--json", str(log)]) == 0
    steady, _, fading, _ = (row["off"] for row in json.loads(log.read_text())["sequences"])
    assert steady["constant"] == pytest.approx(0, abs=1e-3)
    assert steady["stays"] == pytest.approx(100 * 8 * 8 / 1080, rel=1e-3)
    assert min(fading, key=fading.get) in ("fades in 2", "fades in 4")  # the slope of a second is of its middle
