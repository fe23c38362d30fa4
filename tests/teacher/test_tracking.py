"""Association: identities survive crossings, gaps, speed and the camera, and nothing is decided with hindsight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.teacher.regions import Region, Tracklet
from factorjepa.teacher.settings import TrackSettings
from factorjepa.teacher.tracking import associate

from .patches import SIDE, patch, still

TRACKS = TrackSettings()


def looks(track: Tracklet) -> set[int]:
    return {int(region.descriptor.argmax()) for region in track.regions}


def tracked(regions: Sequence[Sequence[Region]], cuts: Sequence[int] = ()) -> tuple[Tracklet, ...]:
    return associate(regions, still(len(regions)), TRACKS, SIDE, cuts)


def walk(frames: int, x: float, speed: float, y: float = 0.5, look: int = 0) -> list[Region]:
    return [patch(x + speed * t, y, 0.06, 0.16, look) for t in range(frames)]


def test_two_who_cross_keep_their_identities() -> None:
    left, right = walk(9, 0.26, 0.06, look=0), walk(9, 0.74, -0.06, y=0.52, look=3)
    found = tracked([list(pair) for pair in zip(left, right, strict=True)])
    assert [looks(track) for track in found] == [{0}, {3}]
    assert all(track.frames == tuple(range(9)) for track in found)


def test_twins_who_cross_are_told_apart_by_where_they_were_going() -> None:
    left, right = walk(9, 0.26, 0.06), walk(9, 0.74, -0.06, y=0.53)
    found = tracked([list(pair) for pair in zip(left, right, strict=True)])
    ends = [(track.regions[0].left < track.regions[-1].left) for track in found]
    assert len(found) == 2
    assert ends == [True, False]


def test_an_agent_that_moves_by_its_own_width_is_followed() -> None:
    found = tracked([[region] for region in walk(10, 0.1, 0.075)])
    assert [track.frames for track in found] == [tuple(range(10))]


def test_a_turning_camera_does_not_break_tracks() -> None:
    pan = 0.12
    people = [walk(6, 0.9, 0.01 - pan, look=0), walk(6, 0.7, -0.01 - pan, y=0.3, look=1)]
    camera = still(6)
    camera[1:, 0, 2] = -pan
    frames = [list(both) for both in zip(*people, strict=True)]
    found = associate(frames, camera, TRACKS, SIDE)
    assert [looks(track) for track in found] == [{1}, {0}]
    assert all(len(track.frames) == 6 for track in found)


def test_a_gap_of_four_frames_is_bridged_and_one_of_five_is_not() -> None:
    path = walk(14, 0.1, 0.04)
    for gap, count in ((4, 1), (5, 2)):
        frames = [[] if 4 <= t < 4 + gap else [region] for t, region in enumerate(path)]
        assert len(tracked(frames)) == count


def test_no_track_crosses_a_cut() -> None:
    found = tracked([[region] for region in walk(8, 0.3, 0.0)], cuts=[4])
    assert [track.frames for track in found] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_two_sightings_are_no_track() -> None:
    frames = [[region] for region in walk(2, 0.3, 0.0)] + [[] for _ in range(6)]
    assert tracked(frames) == ()


def test_who_is_not_confirmed_in_the_context_begins_after_it() -> None:
    """Else the existence of an agent of the context would tell of the future."""
    path = walk(16, 0.2, 0.02)
    frames = [[] if t < 10 else [region] for t, region in enumerate(path)]
    found = associate(frames, still(16), TRACKS, SIDE, context=12)
    assert [track.frames for track in found] == [(12, 13, 14, 15)]
    frames = [[] if t < 9 else [region] for t, region in enumerate(path)]
    found = associate(frames, still(16), TRACKS, SIDE, context=12)
    assert [track.frames for track in found] == [tuple(range(9, 16))]


crowds = st.lists(
    st.lists(
        st.tuples(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.floats(0.03, 0.3), st.floats(0.03, 0.3),
                  st.integers(0, 7)),
        max_size=6,
    ),
    min_size=1, max_size=10,
)  # fmt: skip


@given(crowds, st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_the_order_of_regions_in_a_frame_does_not_matter(
    crowd: list[list[tuple[float, float, float, float, int]]], random: object
) -> None:
    frames = [[patch(*one) for one in frame] for frame in crowd]
    shuffled = [random.sample(frame, len(frame)) for frame in frames]  # type: ignore[attr-defined]
    assert same(tracked(frames), tracked(shuffled))


@given(crowds, st.integers(1, 9))
@settings(max_examples=25)
def test_later_frames_change_nothing_about_the_context(
    crowd: list[list[tuple[float, float, float, float, int]]], context: int
) -> None:
    frames = [[patch(*one) for one in frame] for frame in crowd]

    def known(regions: list[list[Region]]) -> list[Tracklet]:
        found = associate(regions, still(len(regions)), TRACKS, SIDE, context=context)
        return [track.until(context) for track in found if track.frames[0] < context]

    assert same(known(frames), known(frames[:context]))


def test_every_region_is_in_one_track_at_most() -> None:
    rng = np.random.default_rng(0)
    frames = [[patch(*rng.uniform(0.1, 0.9, 2), 0.1, 0.2, int(rng.integers(8))) for _ in range(12)] for _ in range(8)]
    found = tracked(frames)
    used = [id(region) for track in found for region in track.regions]
    assert len(used) == len(set(used))
    assert all(len(set(track.frames)) == len(track.frames) >= 3 for track in found)


def test_two_hundred_agents_keep_their_identities() -> None:
    rng = np.random.default_rng(1)
    places, speeds = rng.uniform(0.05, 0.95, (200, 2)), rng.normal(0, 0.004, (200, 2))
    frames = [
        [
            patch(*(place + speed * t), 0.03, 0.06, k % 8)
            for k, (place, speed) in enumerate(zip(places, speeds, strict=True))
        ]
        for t in range(16)
    ]
    found = tracked(frames)
    assert 190 <= len(found) <= 210
    assert np.mean([len(track.frames) for track in found]) > 15


def same(first: Sequence[Tracklet], second: Sequence[Tracklet]) -> bool:
    def content(tracks: Sequence[Tracklet]) -> list[tuple[object, ...]]:
        return [
            (t.frames, [(r.left, r.top, r.mask.tobytes(), r.descriptor.tobytes()) for r in t.regions]) for t in tracks
        ]

    return content(first) == content(second)
