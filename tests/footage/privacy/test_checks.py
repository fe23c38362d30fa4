"""Every automated check can fail, says so in words, and can be told what is too much."""

from __future__ import annotations

import itertools

import numpy as np

from factorjepa.footage.privacy.association import Association, Found
from factorjepa.footage.privacy.checks import Again, judge_again, judge_followed, look_again
from factorjepa.footage.privacy.detection import Boxes
from factorjepa.footage.privacy.regions import Region
from factorjepa.footage.privacy.settings import CheckSettings

from .scenes import SIZE, boxes, moving


def judged(
    answers: list[Boxes], tracks: list[list[int]], truncated: tuple[int, ...] = (), **limits: float
) -> list[str]:
    links = {pair for rows in tracks for pair in itertools.pairwise(rows)}
    found = Found.of(answers)
    settings = CheckSettings.model_validate(limits)
    return list(judge_followed("face", found, Association(links, tracks), truncated, 0.5, settings))


def test_a_steady_track_passes() -> None:
    assert judged(moving(20), [list(range(20))]) == []


def test_a_track_that_jumps_is_discontinuous() -> None:
    answers = moving(20)
    for t in (5, 10):
        answers[t] = boxes((120, 90, 136, 110, 0.9))
    (words,) = judged(answers, [list(range(20))])
    assert words.startswith("face tracks are discontinuous: 4 of 19 steps move by more than 1 sides a frame")
    assert judged(answers, [list(range(20))], max_broken=0.3) == []


def test_a_track_that_doubles_in_size_is_discontinuous() -> None:
    answers = moving(20, speed=0)
    answers[7] = boxes((0, 20, 56, 80, 0.9))
    (words,) = judged(answers, [list(range(20))])
    assert "2 of 19 steps" in words


def test_boxes_without_a_track_are_unmatched() -> None:
    (words,) = judged(moving(20), [[t] for t in range(8)] + [list(range(8, 20))])
    assert words == "face detections are unmatched: 8 of 20 belong to no track (checks.max_unmatched 0.25)"


def test_shares_of_a_few_boxes_are_not_judged() -> None:
    assert judged(moving(9), [[t] for t in range(9)]) == []
    assert judged(moving(9), [[t] for t in range(9)], few=9) != []


def test_one_truncated_track_is_too_many() -> None:
    (words,) = judged(moving(20), [list(range(20))], truncated=(0,))
    assert "1 of 1 track lost at the picture's border and not seen to leave it" in words


def test_what_is_found_again_is_told_from_what_was_missed() -> None:
    covered = np.zeros((8, *SIZE), dtype=bool)
    covered[4, 20:60, 20:60] = True
    covered[4, 80:119, 20:60] = True  # the blur of another kind
    found = [
        boxes(),
        boxes((22, 22, 50, 50, 0.9), (100, 80, 120, 100, 0.8), (90, 10, 99, 19, 0.3), (22, 85, 50, 110, 0.9)),
    ]
    regions = [Region(t, np.array([20.0, 20.0, 60.0, 60.0]), 0, "seen") for t in range(8)]
    again = look_again(found, range(0, 8, 4), covered, regions, threshold=0.5)
    assert (again.blurred, again.redetected) == (2, 1)  # what lies in the blur of another kind counts neither way
    ((frame, box, score),) = again.uncovered
    assert (frame, box.tolist(), score) == (4, [100, 80, 120, 100], 0.8)


def test_blurred_faces_that_look_like_one_large_face_are_not_blurred_as_one() -> None:
    covered = np.zeros((1, *SIZE), dtype=bool)
    covered[0, 40:60, 40:60] = True
    again = look_again(
        [boxes((10, 10, 110, 110, 0.9))], [0], covered, [Region(0, np.array([40.0, 40.0, 60.0, 60.0]), 0, "seen")], 0.5
    )
    assert again == Again(1, 1, [])


def test_faces_that_survive_the_blur_fail_the_span() -> None:
    settings = CheckSettings()
    assert list(judge_again("face", Again(20, 1, []), settings)) == []
    (words,) = judge_again("face", Again(20, 2, []), settings)
    assert words == "faces are still found after blurring: 2 in 20 regions (checks.max_redetected 0.05)"
    (words,) = judge_again("plate", Again(20, 0, [(3, np.zeros(4), 0.7)]), settings)
    assert words.startswith("plates are found after blurring where nothing was blurred: 1 box")
