"""A detector's boxes turned into masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from factorjepa.backbones.packaged import packaged_weights
from factorjepa.config import resolve
from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.corpus.splits import Split
from factorjepa.detectors.boxes import box_iou
from factorjepa.errors import TeacherError
from factorjepa.teacher.detected import DetectorProposals, StreetProposals, refined
from factorjepa.teacher.making import make_packets
from factorjepa.teacher.settings import RegionSettings, TeacherSettings
from factorjepa.teacher.street_detector import JUDGE, REGIONS
from factorjepa.teacher.truth import TruthProposals
from factorjepa.world import WorldSettings, clip


def test_a_detector_must_be_named() -> None:
    with pytest.raises(TeacherError, match=r"regions\.detector does not say"):
        DetectorProposals(RegionSettings(kind="detector"))


def test_features_tell_the_agent_from_its_box() -> None:
    """A disc off the box's centre: the mask follows it, without features the rounded shape is taken."""
    place = (np.arange(32) + 0.5) / 32
    disc = (place - 0.5) ** 2 + ((place - 0.5) ** 2)[:, None] < 0.22**2
    disc[:, place > 0.6] = False
    features = np.stack([disc, ~disc], axis=-1).astype(np.float32)
    box = np.array([[0.28, 0.28, 0.72, 0.72]])
    fine = np.repeat(np.repeat(disc, 4, axis=0), 4, axis=1)

    def agreement(mask: NDArray[np.bool_]) -> float:
        return float((mask & fine).sum() / (mask | fine).sum())

    told = refined(box, features, 128)[0]
    untold = refined(box, np.ones_like(features) / np.sqrt(2), 128)[0]
    assert agreement(told) > agreement(untold) + 0.05
    assert 0.79 < untold.sum() / (0.44 * 128) ** 2 < 0.95  # between an ellipse and the box


def test_the_nearer_of_two_hides_the_other() -> None:
    features = np.ones((16, 16, 1), np.float32)
    near, far = (0.3, 0.3, 0.5, 0.9), (0.4, 0.25, 0.6, 0.7)
    masks = refined(np.array([near, far]), features, 128)
    alone = refined(np.array([far]), features, 128)[0]
    assert masks[0].sum() == refined(np.array([near]), features, 128)[0].sum()
    assert masks[1].sum() < 0.8 * alone.sum()


@pytest.mark.parametrize("box", [(0.0, 0.0, 1.0, 1.0), (0.999, 0.999, 1.0, 1.0), (0.5, 0.2, 0.5001, 0.9)])
def test_a_box_of_any_size_gives_a_mask_inside_it(box: tuple[float, float, float, float]) -> None:
    features = np.random.default_rng(0).normal(size=(9, 9, 4)).astype(np.float32)
    mask = refined(np.array([box]), features, 64)[0]
    rows, columns = np.nonzero(mask)
    assert rows.size
    assert columns.min() >= round(box[0] * 64) - 1
    assert rows.max() <= round(box[3] * 64)


def test_the_street_detector_finds_most_agents_that_can_be_seen_and_few_others() -> None:
    settings = RegionSettings(kind="street", side=128)
    found = fitting = meant = right = 0
    proposals = StreetProposals(settings)
    for source in range(4):
        made = clip(resolve(WorldSettings, "dense", ["seconds=[1, 1]"], fps=2), 515_151, source * 5)
        frames, truths = zip(*((frame.copy(), truth) for frame, truth in made.frames_with_truth()), strict=True)
        features = np.ones((len(frames), 16, 16, 1), np.float32)
        times = np.arange(len(frames)) / 2
        true = TruthProposals(made.annotate(list(truths)), times, settings)
        asked = np.stack(frames), features, np.zeros((len(frames), 2, 3), np.float32), len(frames)
        for seen, there in zip(proposals(*asked), true(*asked), strict=True):
            overlap = box_iou(*(np.array([one.box(128) for one in some]).reshape(-1, 4) for some in (there, seen)))
            large = np.array([one.pixels >= 0.004 * 128**2 for one in there], bool)
            meant, right = meant + large.sum(), right + (overlap[large].max(axis=1, initial=0.0) >= 0.5).sum()
            found, fitting = found + len(seen), fitting + (overlap.max(axis=0, initial=0.0) >= 0.5).sum()
            assert all(settings.min_confidence <= one.confidence <= 1 for one in seen)
    assert right > 0.5 * meant
    assert fitting > 0.5 * found


def test_who_finds_the_teachers_regions_does_not_judge_decoded_pictures() -> None:
    teacher, judge = packaged_weights(REGIONS), packaged_weights(JUDGE)
    assert teacher is not None
    assert judge is not None
    assert teacher.read_bytes() != judge.read_bytes()
    assert REGIONS in StreetProposals(RegionSettings(kind="street")).name


def test_footage_is_none_of_the_street_detectors_business(tmp_path: Path) -> None:
    here = Clip("a#0", "town", "s0", "a", 0, "drive", 0.0, 6.0, 12.0, 128, 128, "clips/a.mp4", Split.TRAIN, {})
    Manifest([here]).write(tmp_path / "filmed")
    with pytest.raises(TeacherError, match="knows simulated streets alone"):
        make_packets(tmp_path / "filmed", tmp_path / "out", TeacherSettings(regions=RegionSettings(kind="street")))
    assert not (tmp_path / "out").exists()
