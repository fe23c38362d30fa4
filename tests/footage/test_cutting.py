"""Shots are found where PySceneDetect finds them, and divided wholly into clips that never cross one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scenedetect import AdaptiveDetector, detect

from factorjepa.footage.cutting import ClipCutter, Sampled, ShortShot, Span
from factorjepa.footage.settings import ClipSettings, ShotSettings
from factorjepa.footage.shots import ShotDetector

from .videos import encode, street

PICTURE = np.zeros((2, 2, 3), np.uint8)


def cut(settings: ClipSettings, shots: list[int], late: int) -> Iterator[Span | ShortShot]:
    """Push shots of so many pictures; each boundary is told `late` pictures after it."""
    cutter = ClipCutter(settings)
    starts = list(itertools.accumulate(shots))[:-1]
    for number in range(sum(shots)):
        yield from cutter.push(Sampled(number, number, PICTURE))
        if number - late in starts:
            yield from cutter.boundary(number - late)
    for start in starts:
        if start > sum(shots) - 1 - late:
            yield from cutter.boundary(start)
    yield from cutter.end()


@given(
    shots=st.lists(st.integers(1, 400), min_size=1, max_size=5),
    late=st.integers(0, 3),
    fps=st.sampled_from([4.0, 8.0, 12.0]),
)
def test_every_shot_is_divided_wholly_and_no_clip_crosses_a_boundary(shots: list[int], late: int, fps: float) -> None:
    shots = [max(length, late + 1) for length in shots]
    settings = ClipSettings(fps=fps)
    parts = list(cut(settings, shots, late))
    least, most = 6 * fps, 13 * fps
    bounds = [0, *itertools.accumulate(shots)]
    assert [part.first for part in parts] == [0, *(part.last for part in parts)][:-1]  # nothing lost, nothing twice
    assert parts[-1].last == sum(shots)
    for part in parts:
        first, last = bounds[part.shot], bounds[part.shot + 1]
        assert first <= part.first < part.last <= last
        if isinstance(part, ShortShot):
            assert part.length == last - first < least
        else:
            assert least <= part.length <= most
            shown = [one.number for one in part.frames]
            assert shown == list(range(shown[0], shown[-1] + 1))
            assert shown[part.before] == part.first
            assert first <= shown[0]
            assert shown[-1] < last  # what privacy sees around a clip is of the same shot, as far as is known
            assert part.first - shown[0] == min(part.first - first, round(fps))


def test_a_long_shot_is_let_go_as_it_comes() -> None:
    cutter = ClipCutter(ClipSettings(fps=4.0))
    given_out = [len(list(cutter.push(Sampled(number, number, PICTURE)))) for number in range(4000)]
    assert sum(given_out) > 90
    assert len(cutter._held) < 4 * 20


def test_settings_that_could_not_divide_every_shot_are_refused() -> None:
    with pytest.raises(ValidationError, match="twice min_seconds"):
        ClipSettings(min_seconds=6, seconds=8, max_seconds=11)
    with pytest.raises(ValidationError, match="min_seconds <= seconds"):
        ClipSettings(seconds=20)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three streets on which little happens; larger than 256 px, so that frames are made small."""
    streets = [cv2.GaussianBlur(next(street(seed, 1, 384, 128)), (0, 0), 8) for seed in (1, 2, 3)]
    frames = [np.roll(one, step, 1) for one in streets for step in range(30)]
    return encode(tmp_path_factory.mktemp("film") / "film.mp4", frames, fps=15)


class TestShots:
    def found(self, film: Path, settings: ShotSettings | None = None) -> list[int]:
        detector = ShotDetector(settings or ShotSettings())
        with av.open(str(film)) as container:
            frames = enumerate(container.decode(video=0))
            return [cut for index, frame in frames for cut in detector.feed(index, frame)]

    def test_boundaries_are_those_of_pyscenedetects_own_loop(self, film: Path) -> None:
        theirs = [start.frame_num for start, _ in detect(str(film), AdaptiveDetector(3.0, 15, 2, 15.0))][1:]
        assert theirs == [30, 60]
        assert self.found(film) == theirs

    def test_settings_reach_the_detector(self, film: Path) -> None:
        assert self.found(film, ShotSettings(min_content_val=250)) == []
        assert self.found(film, ShotSettings(min_scene_len=40)) == [60]

    def test_a_gap_is_a_boundary_whatever_the_pictures_say(self, film: Path) -> None:
        detector = ShotDetector(ShotSettings())
        with av.open(str(film)) as container:
            frames = itertools.islice(enumerate(container.decode(video=0)), 25)
            found = [cut for index, frame in frames for cut in detector.feed(index, frame, broken=index == 17)]
        assert found == [17]
