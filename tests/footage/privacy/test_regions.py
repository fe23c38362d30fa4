"""Regions fill gaps, go on beyond a track's ends, and follow a face out of the picture."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from factorjepa.footage.privacy.association import Association, Found
from factorjepa.footage.privacy.detection import Boxes
from factorjepa.footage.privacy.regions import Followed, Region, follow
from factorjepa.footage.privacy.settings import TrackingSettings

from .scenes import SIZE, boxes, moving

SETTINGS = TrackingSettings(extend_seconds=0.5, border_seconds=1.0)


def followed(answers: list[Boxes], fps: float = 10.0) -> Followed:
    """One track of all boxes, one a frame at most."""
    found = Found.of(answers)
    rows = list(range(len(found)))
    known = Association(set(itertools.pairwise(rows)), [rows])
    return follow(found, known, SIZE, len(answers), fps, SETTINGS)


def in_frame(regions: list[Region], t: int) -> Region:
    (only,) = [region for region in regions if region.frame == t]
    return only


def test_a_gap_is_filled_on_the_straight_way() -> None:
    region = in_frame(followed(moving(12, missing=(4, 5, 6))).regions, 5)
    assert region.origin == "filled"
    np.testing.assert_allclose(region.box, [30, 40, 46, 60])


def test_a_track_goes_on_for_half_a_second_where_it_was_and_where_it_went() -> None:
    regions = followed(moving(20, missing=(*range(6), *range(12, 20)))).regions
    assert {r.frame for r in regions if r.origin == "extended"} == {1, 2, 3, 4, 5, 12, 13, 14, 15, 16}
    np.testing.assert_allclose(in_frame(regions, 14).box, [42, 40, 64, 60])  # 6 px further, and where it was last
    np.testing.assert_allclose(in_frame(regions, 4).box, [28, 40, 48, 60])


def test_one_sighting_is_held() -> None:
    regions = followed(moving(12, missing=[t for t in range(12) if t != 5])).regions
    assert {r.frame for r in regions} == set(range(12)) - {11}
    assert all((r.box == regions[0].box).all() for r in regions)


def leaving(speed: float, seen: int, count: int = 30) -> list[Boxes]:
    """A face that goes out at the left, its box cut off by the border."""
    answers = []
    for t in range(count):
        left, right = 12 - speed * t, 28 - speed * t
        answers.append(boxes((max(0.0, left), 40, right, 60, 0.9)) if t < seen else boxes())
    return answers


def test_a_face_that_leaves_is_followed_until_it_is_out() -> None:
    """The cut box shrinks at half the face's speed; its inner side tells how fast the face goes."""
    result = followed(leaving(speed=2.0, seen=10))
    extended = [r.frame for r in result.regions if r.origin == "extended"]
    assert extended == [10, 11, 12, 13]  # the right side reaches the border in frame 14
    assert result.truncated == []


def test_a_face_that_is_lost_at_the_border_and_stays_is_truncated() -> None:
    assert followed(leaving(speed=0.0, seen=10)).truncated == []  # well inside
    stays = [boxes((0, 40, 10, 60, 0.9)) if t < 10 else boxes() for t in range(30)]
    assert followed(stays).truncated == [0]


def test_a_face_at_the_border_when_the_span_ends_is_not_truncated() -> None:
    stays = [boxes((0, 40, 10, 60, 0.9)) for _ in range(30)]
    assert followed(stays).truncated == []


@pytest.mark.parametrize("fps", [4.0, 12.0, 60.0])
def test_extension_is_in_seconds(fps: float) -> None:
    count = round(3 * fps)
    middle = count // 2
    regions = followed(moving(count, missing=[t for t in range(count) if t != middle], speed=0.0), fps).regions
    assert len(regions) == 1 + 2 * round(0.5 * fps)
