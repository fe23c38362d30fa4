"""From pixels to evidence: the future stays unknown, and hostile windows give finite evidence."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from factorjepa.errors import TeacherError
from factorjepa.teacher.camera import moved
from factorjepa.teacher.features import FrameFeatures, open_features
from factorjepa.teacher.observe import observe, open_proposals
from factorjepa.teacher.proposals import Proposals, describe
from factorjepa.teacher.regions import Evidence, Floats, Region, region_of
from factorjepa.teacher.settings import FeatureSettings, RegionSettings, TeacherSettings

SIZE = 128
SETTINGS = TeacherSettings(regions=RegionSettings(side=96))


class BrightThings:
    """Connected bright pixels: stands in for whoever proposes regions."""

    name = "bright things"

    def __call__(self, frames: NDArray[np.uint8], features: Floats, camera: Floats, context: int) -> list[list[Region]]:
        return [self._of(frame, grid) for frame, grid in zip(frames, features, strict=True)]

    def _of(self, frame: NDArray[np.uint8], grid: Floats) -> list[Region]:
        small = cv2.resize(frame, (96, 96), interpolation=cv2.INTER_AREA)
        count, labels = cv2.connectedComponents((small.min(axis=2) > 200).astype(np.uint8))
        return [region_of(labels == k, describe(labels == k, grid), 0.9) for k in range(1, count)]


@pytest.fixture(scope="module")
def features() -> FrameFeatures:
    return open_features(FeatureSettings())


def street(frames: int = 16, walkers: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    ground = cv2.GaussianBlur(rng.integers(0, 160, (SIZE, SIZE * 2, 3), dtype=np.uint8), (0, 0), 1.5)
    shown = []
    for t in range(frames):
        frame = ground[:, 2 * t : 2 * t + SIZE].copy()
        for k in range(walkers):
            left = 8 + 30 * k + t * (2 if k % 2 else -1)
            frame[20 + 25 * k : 44 + 25 * k, max(left, 0) : left + 12] = 255
        shown.append(frame)
    return np.stack(shown)


def seen(frames: NDArray[np.uint8], features: FrameFeatures, proposals: Proposals | None = None) -> Evidence:
    return observe(frames, SETTINGS, features, proposals or BrightThings())


def about_the_context(evidence: Evidence) -> list[object]:
    """Every byte about the context."""
    context = evidence.context

    def of(region: Region) -> tuple[object, ...]:
        return region.left, region.top, region.mask.tobytes(), region.descriptor.tobytes(), region.confidence

    cut = [track.until(context) for track in evidence.tracklets if track.frames[0] < context]
    return [
        evidence.features[:context].tobytes(),
        evidence.camera[:context].tobytes(),
        [[of(region) for region in regions] for regions in evidence.regions[:context]],
        [(track.frames, [of(region) for region in track.regions]) for track in cut],
    ]


def test_walkers_become_tracklets(features: FrameFeatures) -> None:
    evidence = seen(street(), features)
    assert evidence.frames == 16
    assert evidence.side == 96
    assert sorted(len(track.frames) for track in evidence.tracklets) == [16, 16, 16]
    middle = np.array([0.5, 0.5])
    shifts = [moved(middle, motion) - middle for motion in evidence.camera[1:]]
    np.testing.assert_allclose(shifts, np.tile([-2 / SIZE, 0], (15, 1)), atol=0.002)


@pytest.mark.parametrize("change", ["noise", "black", "cut", "fewer walkers"])
def test_perturbing_later_frames_leaves_every_byte_about_the_context(features: FrameFeatures, change: str) -> None:
    frames = street()
    # Two walkers come late, so that their tracklets are not confirmed when the context ends.
    frames[10:, 100:120, 100:112] = 255
    frames[11:, 2:22, 60:72] = 255
    changed = frames.copy()
    changed[12:] = {
        "noise": np.random.default_rng(1).integers(0, 256, frames[12:].shape, dtype=np.uint8),
        "black": np.zeros_like(frames[12:]),
        "cut": 255 - street(4, 2, seed=9),
        "fewer walkers": street(16, 1)[12:],
    }[change]
    assert about_the_context(seen(frames, features)) == about_the_context(seen(changed, features))


def test_the_unsupervised_proposals_know_nothing_of_later_frames_either(features: FrameFeatures) -> None:
    frames = street()
    changed = frames.copy()
    changed[12:] = 255 - street(4, 2, seed=9)
    proposals = open_proposals(SETTINGS.regions)
    once, again = (seen(shown, features, proposals) for shown in (frames, changed))
    assert any(once.regions[:12])
    assert about_the_context(once) == about_the_context(again)


def hostile(kind: str) -> NDArray[np.uint8]:
    rng = np.random.default_rng(2)
    if kind == "one frame":
        return street(1)
    if kind == "black":
        return np.zeros((16, SIZE, SIZE, 3), np.uint8)
    if kind == "white":
        return np.full((16, SIZE, SIZE, 3), 255, np.uint8)
    if kind == "noise":
        return rng.integers(0, 256, (16, SIZE, SIZE, 3), dtype=np.uint8)
    if kind == "cuts":
        return np.concatenate([street(2, 3, seed) for seed in range(8)])
    if kind == "nobody":
        return street(16, 0)
    crowd = street(16, 0)
    for k in range(200):
        top, left = 2 + 9 * (k // 14), 2 + 9 * (k % 14)
        crowd[:, top : top + 6, left : left + 6] = 255
    return crowd


@pytest.mark.parametrize("kind", ["one frame", "black", "white", "noise", "cuts", "nobody", "two hundred"])
def test_hostile_windows_give_finite_evidence(features: FrameFeatures, kind: str) -> None:
    frames = hostile(kind)
    evidence = seen(frames, features)
    assert len(evidence.regions) == len(evidence.camera) == len(frames)
    assert np.isfinite(evidence.camera).all()
    assert np.isfinite(evidence.features).all()
    for track in evidence.tracklets:
        assert len(track.frames) >= 3
        assert list(track.frames) == sorted(set(track.frames))
        for region in track.regions:
            left, top, right, bottom = region.box(evidence.side)
            assert 0 <= left < right <= 1
            assert 0 <= top < bottom <= 1
            assert np.isfinite(region.descriptor).all()
    expected = {"black": 0, "nobody": 0, "one frame": 0, "white": 1}
    assert len(evidence.tracklets) == expected.get(kind, len(evidence.tracklets))
    if kind == "two hundred":
        assert len(evidence.tracklets) == 14 * 14


def test_ground_truth_cannot_be_opened_without_a_clip() -> None:
    with pytest.raises(TeacherError, match="ground truth of one simulated clip"):
        open_proposals(RegionSettings(kind="truth"))
