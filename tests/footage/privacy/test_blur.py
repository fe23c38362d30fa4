"""A blurred region keeps a few mean colours and nothing else."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factorjepa.footage.privacy.blur import blur, expanded
from factorjepa.footage.privacy.settings import BlurSettings

from .scenes import SIZE, noise

HARD = BlurSettings(feather=0.0)


def test_detail_that_leaves_the_cells_means_alone_changes_nothing() -> None:
    """Irreversible: two faces with the same 5 x 5 means give the same pixels, so nobody can tell them apart."""
    settings = BlurSettings(margin=0.0, feather=0.0)
    one = np.full((*SIZE, 3), 128, np.uint8)
    other = one.copy()
    box = np.array([33.0, 23.0, 77.0, 67.0])  # with the least margin of 3 px: 50 x 50, cells of 10
    pattern = np.random.default_rng(0).integers(-60, 60, (50, 50, 3))
    blocks = pattern.reshape(5, 10, 5, 10, 3)
    flat = (blocks - np.round(blocks.mean(axis=(1, 3), keepdims=True))).reshape(50, 50, 3)
    other[20:70, 30:80] = (other[20:70, 30:80] + flat).astype(np.uint8)
    assert np.abs(one.astype(int) - other)[20:70, 30:80].mean() > 20
    blur(one, [box], settings)
    blur(other, [box], settings)
    assert np.abs(one.astype(int) - other).max() <= 1  # of rounding


def test_sharpening_brings_no_detail_back() -> None:
    frame = noise(1)[0]
    blur(frame, [np.array([30.0, 20.0, 90.0, 90.0])], HARD)
    region = frame[20:90, 30:90].astype(np.float64)
    fine = region - cv2.GaussianBlur(region, (0, 0), 2.0)
    assert np.abs(fine).max() < 3  # raw noise has over 100 here


sides = st.floats(1, 80)
corners = st.floats(-60, 200)


@given(corners, corners, sides, sides, st.sampled_from([0.0, 0.1, 0.5]))
def test_every_pixel_of_the_region_is_blurred_and_none_beyond_its_soft_edge(
    left: float, top: float, width: float, height: float, feather: float
) -> None:
    settings = BlurSettings(feather=feather)
    box = np.array([left, top, left + width, top + height])
    raw = noise(1)[0]
    frame = raw.copy()
    covered = blur(frame, [box], settings)
    x0, y0, x1, y1 = expanded(box, SIZE, settings)
    inside = np.zeros(SIZE, dtype=bool)
    inside[y0 : max(y0, y1), x0 : max(x0, x1)] = True
    assert (covered == inside).all()
    pad = round(feather * max(x1 - x0, y1 - y0, 0))
    reach = np.zeros(SIZE, dtype=bool)
    if inside.any():
        reach[max(0, y0 - pad) : y1 + pad, max(0, x0 - pad) : x1 + pad] = True
    assert (frame[~reach] == raw[~reach]).all()
    if min(x1 - x0, y1 - y0) >= 10:
        assert frame[inside].std() < 0.6 * raw[inside].std()


def test_the_soft_edge_of_one_region_brings_nothing_back_in_another() -> None:
    frame = noise(1)[0]
    first, second = np.array([20.0, 20.0, 60.0, 60.0]), np.array([70.0, 20.0, 110.0, 60.0])
    alone = frame.copy()
    blur(alone, [first], BlurSettings(feather=0.5))
    blur(frame, [first, second], BlurSettings(feather=0.5))
    both = frame[25:55, 50:60].astype(np.float64)
    assert (
        np.abs(np.diff(both, axis=0)).max() <= np.abs(np.diff(alone[25:55, 50:60].astype(np.float64), axis=0)).max() + 8
    )


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_the_blur_scales_with_the_region(scale: int) -> None:
    """The same face twice as large is as little of a face after it."""
    face = noise(1)[0, :40, :40]
    large = np.zeros((60 * scale, 60 * scale, 3), np.uint8)
    large[: 40 * scale, : 40 * scale] = cv2.resize(face, (40 * scale, 40 * scale), interpolation=cv2.INTER_NEAREST)
    blur(large, [np.array([5.0, 5.0, 35.0, 35.0]) * scale], BlurSettings(margin=0.2, feather=0.0))
    small = cv2.resize(large[5 * scale : 35 * scale, 5 * scale : 35 * scale], (30, 30), interpolation=cv2.INTER_AREA)
    fine = small.astype(np.float64) - cv2.GaussianBlur(small.astype(np.float64), (0, 0), 2.0)
    assert np.abs(fine).max() < 8
