"""The measures against counts made by hand, and the two kinds of ground truth they are fed with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factorjepa.config import resolve
from factorjepa.errors import TeacherError
from factorjepa.teacher.annotations import MotBoxes, TrueFrame, mot_frames, simulated_frames, true_interactions
from factorjepa.teacher.quality import Rates, edge_rates, identities, match, overlaps, rank_correlation, region_rates
from factorjepa.teacher.settings import RegionSettings
from factorjepa.teacher.truth import TruthProposals
from factorjepa.world import ClipTruth, WorldSettings, clip

from .patches import SIDE, patch


@pytest.fixture(scope="module")
def truth() -> ClipTruth:
    made = clip(resolve(WorldSettings, "dense", ["size=128", "seconds=[5, 5]"]), seed=3, index=0)
    return made.annotate([truth for _, truth in made.frames_with_truth()])


def boxes_only(*boxes: tuple[float, float, float, float], ignored: tuple[int, ...] = ()) -> TrueFrame:
    count = len(boxes)
    return TrueFrame(
        np.arange(count), np.array(boxes).reshape(-1, 4), None, np.ones(count), np.isin(np.arange(count), ignored)
    )


def test_regions_are_counted_by_hand() -> None:
    found = [patch(0.25, 0.25, 0.2, 0.2), patch(0.75, 0.75, 0.2, 0.2), patch(0.25, 0.75, 0.2, 0.2)]
    true = boxes_only((0.15, 0.15, 0.35, 0.35), (0.65, 0.65, 0.85, 0.85), (0.6, 0.1, 0.8, 0.3), ignored=(1,))
    iou, share = overlaps(found, true, SIDE)
    matches = match(iou, share, true.ignored)
    assert matches.pairs.tolist() == [[0, 0]]
    assert matches.excused.tolist() == [False, True, False]
    assert region_rates(matches, true.ignored) == Rates(hits=1, false=1, missed=1)


def test_an_agent_is_found_once_however_many_regions_lie_on_it() -> None:
    true = boxes_only((0.4, 0.4, 0.6, 0.6))
    iou, share = overlaps([patch(0.5, 0.5, 0.2, 0.2), patch(0.5, 0.5, 0.18, 0.2)], true, SIDE)
    assert region_rates(match(iou, share, true.ignored), true.ignored) == Rates(1, 1, 0)


def test_rates_of_nothing_are_no_number_and_of_all_are_one() -> None:
    assert np.isnan(Rates().f1)
    assert (Rates(3, 0, 0) + Rates(1, 0, 0)).f1 == 1.0
    assert Rates(2, 2, 0).precision == 0.5
    assert Rates(2, 0, 6).recall == 0.25


def test_a_swapped_identity_costs_half_of_idf1() -> None:
    iou = np.eye(2)
    frames = [([10, 11], [0, 1], iou)] * 4 + [([11, 10], [0, 1], iou)] * 4
    found = identities(frames)
    assert found.rates.f1 == pytest.approx(0.5)
    assert found.switches == 2
    assert found.tracks == 2
    assert identities([([10, 11], [0, 1], iou)] * 8).rates.f1 == 1.0


def test_a_track_that_is_lost_in_between_is_fragmented() -> None:
    seen, lost = ([5], [0], np.ones((1, 1))), ([], [0], np.ones((0, 1)))
    found = identities([seen, seen, lost, seen])
    assert found.fragmentations == 1
    assert found.rates == Rates(3, 0, 1)


def test_windows_without_agents_or_tracks_are_scored() -> None:
    assert identities([([], [], np.ones((0, 0)))] * 3).rates == Rates(0, 0, 0)
    assert identities([([1], [], np.ones((1, 0)))] * 3).rates == Rates(0, 3, 0)


def test_rank_correlation_sees_order_only() -> None:
    assert rank_correlation([0.1, 0.2, 0.9], [0.5, 0.6, 0.61]) == pytest.approx(1.0)
    assert np.isnan(rank_correlation([0.5, 0.5], [0.1, 0.9]))


def test_edges_are_sets() -> None:
    assert edge_rates({frozenset((1, 2)), frozenset((2, 3))}, {frozenset((2, 1)), frozenset((4, 5))}) == Rates(1, 1, 1)


def test_perfect_regions_are_perfect(truth: ClipTruth) -> None:
    settings = RegionSettings(side=128)
    times = np.arange(8) / 4
    features = np.ones((8, 4, 4, 1), np.float32)
    proposed = TruthProposals(truth, times, settings)(np.zeros((8, 128, 128, 3), np.uint8), features, np.zeros(0), 6)
    rates = Rates()
    for found, true in zip(proposed, simulated_frames(truth, times, 128, settings.min_area), strict=True):
        iou, share = overlaps(found, true, 128)
        rates += region_rates(match(iou, share, true.ignored), true.ignored)
    assert rates.hits > 10
    assert (rates.false, rates.missed) == (0, 0)


def test_truth_of_another_window_is_refused(truth: ClipTruth) -> None:
    proposals = TruthProposals(truth, np.arange(8) / 4, RegionSettings())
    with pytest.raises(TeacherError, match="8 frames and the window has 4"):
        proposals(np.zeros((4, 128, 128, 3), np.uint8), np.ones((4, 4, 4, 1), np.float32), np.zeros(0), 3)


def test_true_frames_say_who_is_hidden(truth: ClipTruth) -> None:
    frames = simulated_frames(truth, np.arange(12) / 4, 128, 0.001, min_visible=0.5)
    for true in frames:
        assert true.masks is not None
        assert not (true.masks.sum(axis=0) > 1).any()  # visible supports do not overlap
        assert true.ignored[true.visible < 0.5].all()
        assert true.ignored[true.masks.sum(axis=(1, 2)) < 0.001 * 128 * 128].all()


def test_interactions_of_a_window_are_those_during_it(truth: ClipTruth) -> None:
    always = true_interactions(truth, 0.0, 100.0)
    assert always == {frozenset((i.agent, i.other)) for i in truth.interactions if i.kind != "indirect"}
    assert true_interactions(truth, 90.0, 100.0) == set()


def test_mot_boxes_are_scaled_cut_and_sorted_into_asked_and_ignored(tmp_path: Path) -> None:
    rows = [
        "1,7,480,200,100,300,1,1,1.0",  # a pedestrian in the square
        "1,8,900,200,100,300,1,1,0.1",  # hardly seen
        "1,9,1000,200,100,300,1,7,1.0",  # sits
        "1,10,1300,200,100,300,0,11,1.0",  # an occluder: nobody
        "1,11,1420,100,200,200,1,1,1.0",  # most of it outside the square
        "1,12,10,10,100,300,1,1,1.0",  # outside
        "5,7,490,200,100,300,1,1,1.0",
    ]
    path = tmp_path / "gt.txt"
    path.write_text("\n".join(rows))
    read = MotBoxes.read(path, width=960, original_width=1920)
    first, second = mot_frames(read, np.array([0.0, 0.25]), fps=16.0, square=(210, 0, 540), min_area=0.001)
    assert first.ids.tolist() == [7, 8, 9, 11]
    assert first.ignored.tolist() == [False, True, True, True]
    np.testing.assert_allclose(first.boxes[0], [30 / 540, 100 / 540, 80 / 540, 250 / 540])
    assert second.ids.tolist() == [7]
    assert second.boxes[0, 0] == pytest.approx(35 / 540)


def test_boxes_that_do_not_fit_the_video_are_of_the_original(tmp_path: Path) -> None:
    path = tmp_path / "gt.txt"
    path.write_text("1,1,1500,100,100,300,1,1,1.0\n2,1,500,100,100,300,1,1,1.0")
    assert MotBoxes.read(path, width=960).boxes[0, 0] == 750
    path.write_text("1,1,500,100,100,300,1,1,1.0")
    assert MotBoxes.read(path, width=640).boxes[0, 0] == 500


def test_other_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gt.txt"
    path.write_text("1,2,3\n4,5,6")
    with pytest.raises(TeacherError, match="3 columns, not the 9"):
        MotBoxes.read(path, width=640)
    with pytest.raises(TeacherError, match="cannot be read"):
        MotBoxes.read(tmp_path / "absent.txt", width=640)
