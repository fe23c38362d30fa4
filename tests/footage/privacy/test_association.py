"""Boxes of one face hang together through gaps and faint moments, in both directions of time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factorjepa.footage.privacy.association import Association, Found, associate
from factorjepa.footage.privacy.detection import Boxes
from factorjepa.footage.privacy.settings import TrackingSettings

from .scenes import boxes, moving

pytest.importorskip("trackers")
pytest.importorskip("supervision")


def associated(answers: list[Boxes], gap: int = 10) -> tuple[Found, Association]:
    found = Found.of(answers)
    return found, associate(found, len(answers), 0.5, gap, TrackingSettings())


def test_a_face_is_one_track_through_a_gap() -> None:
    found, known = associated(moving(20, missing=range(8, 13)))
    assert len(known.tracks) == 1
    assert found.frame_N[known.tracks[0]].tolist() == [*range(8), *range(13, 20)]


def test_a_gap_longer_than_allowed_ends_the_track() -> None:
    _, known = associated(moving(30, missing=range(8, 20)), gap=5)
    assert [len(rows) for rows in known.tracks] == [8, 10]
    assert all(b - a == 1 for a, b in known.links)


def test_the_first_box_of_a_track_belongs_to_it() -> None:
    """ByteTrack gives a track its name at the second box."""
    _, known = associated(moving(2))
    assert known.tracks == [[0, 1]]


def test_a_face_that_is_faint_at_first_is_found_backwards_in_time() -> None:
    found, known = associated(moving(12, faint=range(5)))
    assert found.frame_N[known.tracks[0]].tolist() == list(range(12))


def test_what_is_faint_throughout_is_no_track() -> None:
    _, known = associated(moving(12, faint=range(12)))
    assert known.tracks == []
    assert known.links == set()


def test_a_sure_box_that_nothing_follows_is_a_track_of_its_own() -> None:
    answers = moving(12)
    answers[6] = boxes((26, 40, 42, 60, 0.9), (120, 10, 140, 30, 0.8))
    _found, known = associated(answers)
    assert sorted(map(len, known.tracks)) == [1, 12]


def test_frames_without_anything_are_fine() -> None:
    assert associated([boxes() for _ in range(5)])[1] == Association(set(), [])


@st.composite
def crowds(draw: st.DrawFn) -> list[Boxes]:
    """A few walkers with boxes that come, go, cross and jitter."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    people = random.integers(1, 5)
    start, speed = random.uniform(0, 120, (people, 2)), random.uniform(-6, 6, (people, 2))
    answers = []
    for t in range(draw(st.integers(1, 12))):
        corner = start + t * speed + random.normal(0, 1, (people, 2))
        kept = random.random(people) > 0.3
        here = np.concatenate([corner, corner + random.uniform(8, 20, (people, 2))], axis=1)[kept]
        answers.append((here, random.choice([0.3, 0.9], kept.sum())))
    return answers


@given(crowds(), st.integers(0, 6))
def test_tracks_are_chains_and_leave_no_sure_box_out(answers: list[Boxes], gap: int) -> None:
    found, known = associated(answers, gap)
    rows = [row for track in known.tracks for row in track]
    assert len(rows) == len(set(rows))
    assert {row for link in known.links for row in link} <= set(rows)
    assert set(np.flatnonzero(found.score_N >= 0.5).tolist()) <= set(rows)
    for track in known.tracks:
        assert (np.diff(found.frame_N[track]) > 0).all()
    assert all(1 <= found.frame_N[b] - found.frame_N[a] <= gap + 1 for a, b in known.links)
