"""Clip i of seed s is the same alone, in any order, beside its neighbours, and in any process."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from factorjepa.errors import WorldError
from factorjepa.world import SimulatedClip, clip, clips
from factorjepa.world.simulator import CLIPS_PER_SOURCE, clip_spec
from factorjepa.world.windows import source_windows, stream_windows

from .scenes import SEED, annotated, settings

SMALL = settings()
SOURCE = range(CLIPS_PER_SOURCE, 2 * CLIPS_PER_SOURCE)


def fingerprint(made: SimulatedClip) -> str:
    """Every bit of a clip: pixels and ground truth."""
    digest = hashlib.sha256()
    truths = []
    for frame, truth in made.frames_with_truth():
        digest.update(frame.tobytes())
        truths.append(truth)
    digest.update(made.annotate(truths).to_bytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """The clips of one source, each made alone, last one first."""
    backwards = {index: fingerprint(clip(SMALL, SEED, index)) for index in reversed(SOURCE)}
    return [backwards[index] for index in SOURCE]


def test_clips_of_a_source_are_the_same_alone_and_together(alone: list[str]) -> None:
    assert [fingerprint(made) for made in clips(SMALL, SEED, SOURCE)] == alone
    some = [SOURCE[3], SOURCE[1]]
    assert [fingerprint(made) for made in clips(SMALL, SEED, some)] == [alone[3], alone[1]]


def test_clips_of_a_source_differ_from_each_other(alone: list[str]) -> None:
    assert len(set(alone)) == CLIPS_PER_SOURCE


def test_a_fresh_process_with_another_hash_seed_makes_the_same_bytes(alone: list[str]) -> None:
    code = (
        "from factorjepa.world import clip\n"
        "from world.test_determinism import SMALL, SEED, SOURCE, fingerprint\n"
        "print(fingerprint(clip(SMALL, SEED, SOURCE[2])))"
    )
    tests = os.path.dirname(os.path.dirname(__file__))
    paths = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "12345"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert ran.stdout.strip() == alone[2], ran.stderr


def test_making_other_clips_in_between_changes_nothing(alone: list[str]) -> None:
    for index in (0, 40, 60, 80, 100):  # more sources than the cache of scenes holds
        next(iter(clip(SMALL, SEED, index).frames()))
    assert fingerprint(clip(SMALL, SEED, SOURCE[0])) == alone[0]


def test_other_seeds_and_regimes_give_other_clips(alone: list[str]) -> None:
    assert fingerprint(clip(SMALL, SEED + 1, SOURCE[0])) != alone[0]
    assert fingerprint(clip(settings("sparse"), SEED, SOURCE[0])) != alone[0]


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_a_number_from_numpy_names_the_same_clip(kind: type[np.integer]) -> None:
    ours, theirs = clip(SMALL, SEED, 6), clip(SMALL, int(kind(SEED)), kind(6))  # type: ignore[arg-type]
    assert theirs.trajectory.x.shape == ours.trajectory.x.shape
    assert (theirs.trajectory.x == ours.trajectory.x).all()
    assert (clip(SMALL, kind(SEED), 6).trajectory.x == ours.trajectory.x).all()  # type: ignore[arg-type]


def test_size_and_rate_change_the_pictures_and_not_the_world() -> None:
    small, large = clip(SMALL, SEED, 6), clip(settings(size=96, fps=12.0), SEED, 6)
    steps = min(len(small.trajectory), len(large.trajectory))
    assert (small.trajectory.x[:steps] == large.trajectory.x[:steps]).all()
    assert (small.camera.position[:steps] == large.camera.position[:steps]).all()


def test_clips_of_different_sources_are_not_simulated_together() -> None:
    with pytest.raises(WorldError, match="one source"):
        clips(SMALL, SEED, [0, CLIPS_PER_SOURCE])


def test_a_negative_index_is_refused() -> None:
    with pytest.raises(WorldError, match="negative"):
        clip(SMALL, SEED, -1)


def test_clips_of_a_source_follow_each_other_in_time_and_keep_to_the_durations() -> None:
    specs = [clip_spec(SMALL, SEED, index) for index in SOURCE]
    assert specs[0].t_start == 0
    for before, after in itertools.pairwise(specs):
        assert after.t_start == pytest.approx(before.t_end)
    for spec in specs:
        assert spec.t_end - spec.t_start == pytest.approx(spec.frames / SMALL.fps)
        assert 2.0 - 0.5 / SMALL.fps <= spec.t_end - spec.t_start <= 3.0 + 0.5 / SMALL.fps
    assert len({spec.source.source for spec in specs}) == 1
    assert len({spec.clip_id for spec in specs}) == CLIPS_PER_SOURCE


def test_a_frame_does_not_depend_on_the_frames_around_it() -> None:
    made = clip(SMALL, SEED, 6)
    frames = list(made.frames())
    later = made.window(start=7 / SMALL.fps, frames=3, fps=SMALL.fps)
    assert (later == np.stack(frames[7:10])).all()


class TestWindows:
    """The path without video files shows the same scenes."""

    BRIEF = settings(size=32, seconds=(2.0, 4.5))

    def test_windows_equal_the_clip_at_the_same_times(self) -> None:
        windows = source_windows(self.BRIEF, SEED, 1, frames=4, fps=2.0)
        made = {one.spec.clip_id: one for one in (clip(self.BRIEF, SEED, index) for index in SOURCE)}
        expected = {key: int(one.seconds / 2.0) for key, one in made.items()}
        assert {key: sum(w.clip_id == key for w in windows) for key in made} == expected
        assert len(windows) > CLIPS_PER_SOURCE  # some clips hold two
        for window in windows:
            assert (window.video == made[window.clip_id].window(window.start, 4, 2.0)).all()

    def test_several_windows_at_once_are_those_one_by_one(self) -> None:
        made = clip(settings(size=32, seconds=(4.5, 4.5)), SEED, SOURCE[0])
        starts = [1.5, 0.0, 2.25]
        assert (made.windows(starts, 4, 2.0) == np.stack([made.window(start, 4, 2.0) for start in starts])).all()

    def test_frames_on_the_grid_of_the_video_are_the_video_s_frames(self) -> None:
        window = source_windows(self.BRIEF, SEED, 1, frames=4, fps=2.0)[0]
        frames = list(clip(self.BRIEF, SEED, SOURCE[0]).frames())
        assert (window.video == np.stack(frames[0:12:3])).all()

    def test_windows_do_not_overlap_and_stay_in_their_clip(self) -> None:
        for window in source_windows(self.BRIEF, SEED, 2, frames=4, fps=2.0):
            assert window.start % 2.0 == 0
            seconds = clip_spec(self.BRIEF, SEED, 2 * CLIPS_PER_SOURCE + int(window.clip_id[-3])).frames / 6.0
            assert window.start + 2.0 <= seconds + 1e-9

    def test_order_and_content_do_not_depend_on_the_number_of_workers(self) -> None:
        sources = [3, 0]
        here = list(stream_windows(self.BRIEF, SEED, sources, workers=0, frames=4, fps=2.0))
        there = list(stream_windows(self.BRIEF, SEED, sources, workers=2, frames=4, fps=2.0))
        assert [(w.clip_id, w.start) for w in here] == [(w.clip_id, w.start) for w in there]
        assert all((a.video == b.video).all() for a, b in zip(here, there, strict=True))
        first = clip_spec(self.BRIEF, SEED, 3 * CLIPS_PER_SOURCE).source.source
        assert here[0].clip_id.startswith(first)

    def test_workers_do_not_run_far_ahead_of_a_slow_reader(self) -> None:
        """Sources may go on for ever, and training is slower than the simulator: what waits must stay bounded."""
        begun: list[int] = []
        endless = (begun.append(k) or k for k in itertools.count())
        windows = stream_windows(self.BRIEF, SEED, endless, workers=1, frames=4, fps=2.0)
        next(windows)
        time.sleep(1.5)
        windows.close()
        assert len(begun) <= 16

    def test_clips_shorter_than_a_window_give_none(self) -> None:
        assert source_windows(self.BRIEF, SEED, 0, frames=16, fps=2.0) == []

    @pytest.mark.parametrize(("start", "frames"), [(-0.1, 4), (1.5, 4), (0.0, 40)])
    def test_a_window_that_leaves_its_clip_is_refused(self, start: float, frames: int) -> None:
        made = clip(settings(size=32, seconds=(2.0, 2.0)), SEED, 0)
        with pytest.raises(WorldError, match="does not fit"):
            made.window(start, frames, 2.0)


def test_truth_of_the_same_clip_is_the_same_twice() -> None:
    made = clip(SMALL, SEED, 0)
    assert annotated(made).to_bytes() == annotated(made).to_bytes()
