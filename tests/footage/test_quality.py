"""What is kept: sharp, exposed, moving clips, each piece of footage once."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from factorjepa.footage.duplicates import Catalogue, signature, similarity
from factorjepa.footage.measuring import faults, measure
from factorjepa.footage.settings import QualitySettings
from factorjepa.video import Frames

from .videos import FPS, street


@pytest.fixture(scope="module")
def clip() -> Frames:
    return np.stack(list(street(5, 64, 192, 128)))


def found(frames: Frames) -> list[str]:
    return [word for word, _ in faults(measure(frames, FPS), QualitySettings())]


class TestMeasures:
    def test_a_street_in_daylight_has_no_faults(self, clip: Frames) -> None:
        assert found(clip) == []

    def test_a_blurred_one_is_blurred_whatever_its_contrast(self, clip: Frames) -> None:
        for contrast in (1.0, 0.6):
            blurred = np.stack([cv2.GaussianBlur(frame, (0, 0), 4) for frame in clip])
            assert "blurred" in found((contrast * blurred + 60).clip(0, 255).astype(np.uint8))

    def test_low_contrast_alone_is_not_blur(self, clip: Frames) -> None:
        assert found((0.3 * clip + 80).astype(np.uint8)) == []

    def test_too_dark_too_bright_and_washed_out(self, clip: Frames) -> None:
        assert "dark" in found((0.03 * clip).astype(np.uint8))
        assert "bright" in found((245 + 0.03 * clip).astype(np.uint8))
        assert "clipped" in found(
            np.where(clip.mean(axis=3, keepdims=True) > 128, 255, 0).repeat(3, 3).astype(np.uint8)
        )

    def test_a_frozen_picture_is_static_and_one_walker_is_not(self, clip: Frames) -> None:
        still = np.repeat(clip[:1], len(clip), 0)
        noise = np.random.default_rng(0).normal(0, 2, still.shape)  # what a codec does
        assert "static" in found((still + noise).clip(0, 255).astype(np.uint8))
        walked = still.copy()
        for step, frame in enumerate(walked):
            frame[60:80, 2 * step : 2 * step + 8] = 250
        assert found(walked) == []


class TestDuplicates:
    def altered(self, clip: Frames) -> Frames:
        """Smaller, darker, noisier."""
        small = np.stack([cv2.resize(frame, (96, 64), interpolation=cv2.INTER_AREA) for frame in clip])
        noise = np.random.default_rng(1).normal(0, 6, small.shape)
        return np.asarray((0.8 * small + 10 + noise).clip(0, 255), dtype=np.uint8)

    def test_the_same_footage_is_recognised_re_encoded_and_cut_elsewhere(self, clip: Frames) -> None:
        film = signature(clip, FPS)
        assert similarity(film, film) == pytest.approx(1.0)
        assert similarity(film, signature(self.altered(clip), FPS)) > 0.9
        assert similarity(signature(clip[:52], FPS), signature(self.altered(clip)[11:], FPS)) > 0.65

    def test_other_footage_of_the_same_fixed_camera_is_not(self) -> None:
        background = next(street(8, 1, 192, 128))

        def scene(seed: int) -> Frames:
            rng = np.random.default_rng(seed)
            frames = np.repeat(background[None], 64, 0)
            for x, y, dx in rng.uniform((0, 0, -4), (190, 110, 4), (5, 3)):
                for step, frame in enumerate(frames):
                    left = int(x + dx * step) % 180
                    frame[int(y) : int(y) + 16, left : left + 10] = rng.integers(0, 255)
            return frames

        one, other = signature(scene(1), FPS), signature(scene(2), FPS)
        assert similarity(one, other) < 0.5
        assert similarity(one, signature(self.altered(scene(1)), FPS)) > 0.65

    def test_clouds_over_two_streets_do_not_make_them_one(self) -> None:
        light = 0.7 + 0.3 * np.sin(np.arange(64) / 9)[:, None, None, None]
        films = [signature((light * np.stack(list(street(seed, 64)))).astype(np.uint8), FPS) for seed in (11, 12)]
        assert similarity(*films) < 0.5

    def test_a_catalogue_finds_the_one_among_many(self, clip: Frames) -> None:
        catalogue = Catalogue()
        for seed in range(20, 32):
            catalogue.add(f"other {seed}", signature(np.stack(list(street(seed, 64))), FPS))
        new = catalogue.nearest(signature(clip, FPS))
        assert new is None or new.similarity < 0.5
        catalogue.add("this one", signature(clip, FPS))
        match = catalogue.nearest(signature(self.altered(clip), FPS))
        assert match is not None
        assert match.name == "this one"
        assert match.similarity > 0.9

    def test_a_still_clip_is_like_nothing(self) -> None:
        still = signature(np.full((64, 64, 96, 3), 90, np.uint8), FPS)
        assert similarity(still, still) == 0.0
