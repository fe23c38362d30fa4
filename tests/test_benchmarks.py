"""Benchmarks are run by hand, now and then: that they still run is seen to here, on next to nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

import agents_ceiling
import bench_predictor
import look_back
import plot_ceiling
import seen_before
from factorjepa.scores import Scores
from factorjepa.teacher.batch import collate
from factorjepa.teacher.packet import build_packet, projections_for
from factorjepa.teacher.regions import Tracklet
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.verbs.data import simulate
from factorjepa.verbs.teacher import targets
from teacher.evidence import evidence_of, rectangle


def test_the_predictors_benchmark_measures_variants_beside_the_plain_one(tmp_path: Path) -> None:
    small = ["--batch", "1", "--agents", "2", "--neighbours", "1", "--warmup", "0", "--runs", "1"]
    log = tmp_path / "log.json"
    assert bench_predictor.main([*small, "--variants", "factorized carried", "--json", str(log)]) == 0
    rows = json.loads(log.read_text())["rows"]
    assert [row["variant"] for row in rows] == ["monolithic", "factorized carried"]
    assert all(row["median_ms"] > 0 for row in rows)


def test_heads_on_frozen_features_are_told_what_they_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(tmp_path / "dense", ["seconds=[6,7]", "fps=4"], clips=40, seed=3, preset="dense")
    assert look_back.main([str(tmp_path / "dense"), "--epochs", "1", "--hidden", "8"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" |") and "0." in line]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [
        "nothing", "last tubelet", *look_back.SEEN[1:], "last tubelet",
    ]  # fmt: skip
    assert len({row.split()[-2] for row in rows}) > 4  # what is shown counts


@pytest.mark.parametrize("what", look_back.SEEN)
def test_what_a_head_is_shown_is_of_its_own_place(what: str) -> None:
    """Cells hold their number, tubelets a hundred times theirs, levels a thousandth."""
    tubelet, cell, level = torch.arange(6.0), torch.arange(16.0), torch.arange(2.0)
    levels = (100 * tubelet[:, None, None] + cell[:, None] + level / 1000)[None, ..., None]
    found = look_back.Features(levels, torch.zeros(1, 32, 3), torch.zeros(1, 32, 1), torch.ones(1).bool())
    shown = look_back.seen(found, what)
    assert shown[:, :16].equal(shown[:, 16:])
    expected = {
        "nothing": [0.0], "last tubelet": [505.001], "last two": [405.001, 505.001],
        "all six": [100 * t + 5.001 for t in range(6)], "all levels": [505.0, 505.001],
        "3 x 3 places": [500 + c + 0.001 for c in (0, 1, 2, 4, 5, 6, 8, 9, 10)],
    }[what]  # fmt: skip
    assert shown[0, 5].tolist() == pytest.approx(expected)


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
    assert [rung["rung"] for rung in rungs] == [one for one in agents_ceiling.RUNGS if one != "taught" or frames == 12]
    assert len({rung["l1"][place] for rung in rungs for place in (0, 1)}) == 2 * len(rungs)  # each tells something else
    assert np.isfinite([rung["l1"] for rung in rungs]).all()
    errors = {rung["rung"]: rung["l1"][0] for rung in rungs}
    for rung in rungs[1:]:
        assert rung["gain"][0] == pytest.approx(errors[agents_ceiling.RUNGS[rung["rung"]][1]] - rung["l1"][0], abs=1e-5)
    assert capsys.readouterr().out.count("\n| ") == 1 + len(rungs)
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
        visible_pixels=np.array([0 if t in hidden_at else 64 for t in range(16)]),
        box=np.array([[x, 8, x + 8, 16] for x in left]), image_velocity=np.array([[4.0 * speed, 0.0]] * 16),
    )  # fmt: skip


def test_rungs_say_where_an_agent_goes_steadily_truly_and_what_is_seen_of_it() -> None:
    steady = agents_ceiling.street(cast(Any, one_agent(2)), list(range(16)), 12, 8)
    assert all(one.who_t.max() == 0 for one in steady.rungs.values())
    for one in steady.rungs.values():  # it never turns: all know the same, 4 pixels a tubelet
        covered = one.fields_t5[:, 0].reshape(2, 8, 8)
        assert covered.sum((1, 2)).tolist() == pytest.approx([1.0, 1.0], abs=0.02)
        assert covered.nonzero()[1].tolist() == [1] * len(covered.nonzero()[1])
        moved = one.fields_t5[one.who_t >= 0, 2].reshape(2, -1)
        assert moved.mean(1).tolist() == pytest.approx([4 / 64, 8 / 64])
    at_first = steady.rungs["steady"].fields_t5[:64, 0].reshape(8, 8)[1]
    assert at_first[3:5].tolist() == pytest.approx([7 / 8, 1 / 8])  # pixels 25 to 33 between the tubelet's two frames
    turned = agents_ceiling.street(cast(Any, one_agent(2, turns_back=True)), list(range(16)), 12, 8)
    ahead, true = (turned.rungs[name].fields_t5[:, 2].reshape(2, 64) for name in ("steady", "moved"))
    assert ahead.max(1).tolist() == pytest.approx([4 / 64, 8 / 64])
    assert true.min(1).tolist() == pytest.approx([-2 / 64, -6 / 64])
    gone = agents_ceiling.street(cast(Any, one_agent(2, hidden_at=(14, 15))), list(range(16)), 12, 8)
    assert gone.rungs["moved"].fields_t5[64:, 0].sum() == pytest.approx(
        1.0
    )  # only the last rung knows that it is hidden
    assert gone.rungs["seen"].fields_t5[64:, 0].sum() == gone.covered_t[64:].sum() == 0.0


def taught(frames: range, agents: int = 1) -> agents_ceiling.Agents:
    """What a teacher makes of the square of `one_agent(2)`, seen in these frames."""
    seen = Tracklet(tuple(frames), tuple(rectangle(2 * t, 8, 8, 8, 64) for t in frames))
    settings = TeacherSettings()
    times = np.arange(16) / 4
    packet = build_packet(evidence_of([seen] * agents), times, settings, projections_for(12, settings))
    packets = SimpleNamespace(of=lambda clip: packet, collate=lambda clips: collate([packet], settings))
    return agents_ceiling.taught(cast(Any, packets), cast(Any, None), 8)


def test_a_flawless_teacher_is_the_rung_of_steady_truth_where_agents_go_on_as_they_went() -> None:
    true = agents_ceiling.street(cast(Any, one_agent(2)), list(range(16)), 12, 8).rungs["steady"]
    found = taught(range(16))
    assert found.fields_t5 == pytest.approx(true.fields_t5, abs=1e-6)
    assert found.who_t.tolist() == true.who_t.tolist()
    assert found.last_An == pytest.approx(true.last_An)
    lost = taught(range(10))  # hidden in the context's last two frames: it goes on as it was last seen to go
    assert lost.fields_t5[:, :2] == pytest.approx(true.fields_t5[:, :2], abs=1e-6)
    assert lost.last_An == pytest.approx(true.last_An)
    nobody = taught(range(0), agents=0)
    assert (nobody.who_t == -1).all()
    assert not nobody.fields_t5.any()


def test_streets_of_a_corpus_that_another_has_looked_at_are_told_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    look = Path(__file__).parents[1] / "docs" / "results" / "nano_look" / "scores"
    words = ["--clips", "3000", "--before", "6200", "--scores", str(look), "--out", str(tmp_path)]
    assert seen_before.main(words) == 0
    told = capsys.readouterr().out
    assert "62 test streets of 3000 clips; of 6200 clips they were: 54 train, 2 validation, 6 test" in told
    kept = set(Scores.read(tmp_path).table["source"].to_pylist())
    assert len(kept) == 54
    assert not any(street in told.splitlines()[1] for street in kept)
    assert seen_before.main(["--clips", "3000", "--before", "3000"]) == 0  # the same corpus: every one of them
    assert "they were: 62 test" in capsys.readouterr().out
