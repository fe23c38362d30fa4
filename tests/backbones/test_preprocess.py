"""Preprocessing on a real frame, against an independent resize."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from factorjepa.backbones.preprocess import normalise, resize_frames
from factorjepa.errors import BackboneError
from factorjepa.pixels import IMAGENET_MEAN as MEAN
from factorjepa.pixels import IMAGENET_STD as STD
from factorjepa.video import read_frames


@pytest.fixture(scope="module")
def street(asset: Any) -> np.ndarray:
    return read_frames(asset("video/supertracker_pexels853889_crowd.mp4"), np.array([0.0, 1.0]))


def plain_bilinear(frames: np.ndarray, height: int, width: int) -> torch.Tensor:
    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2).float()
    return torch.nn.functional.interpolate(pixels, (height, width), mode="bilinear", align_corners=False)


def test_released_preprocessing_of_a_real_frame_is_short_side_438_then_centre_384(street: np.ndarray) -> None:
    height, width = street.shape[1:3]
    assert (height, width) == (1080, 1920)
    wide = int(438 * width / height)
    top, left = (438 - 384) // 2, round((wide - 384) / 2)
    expected = plain_bilinear(street, 438, wide)[:, :, top : top + 384, left : left + 384]
    actual = resize_frames(street, 384, 384, "released")
    difference = (torch.from_numpy(actual).permute(0, 3, 1, 2).float() - expected).abs()
    assert difference.max() <= 1.0  # a rounding of bytes
    assert normalise(actual).shape == (3, 2, 384, 384)


def test_portrait_frames_scale_by_their_width(street: np.ndarray) -> None:
    portrait = np.ascontiguousarray(street.transpose(0, 2, 1, 3))
    upright = resize_frames(street, 384, 384, "released").transpose(0, 2, 1, 3)
    difference = np.abs(resize_frames(portrait, 384, 384, "released").astype(int) - upright)
    assert difference.max() <= 1


def test_the_protocols_resize_keeps_the_whole_short_side_and_averages_areas(street: np.ndarray) -> None:
    ours = resize_frames(street, 384, 384, "protocol")
    middle = street[:, :, 420:1500].reshape(2, 1080, 1080, 3)
    blocks = middle[:, :1080, :1080].reshape(2, 8, 135, 8, 135, 3).mean(axis=(2, 4))
    small = ours.reshape(2, 8, 48, 8, 48, 3).mean(axis=(2, 4))
    assert np.abs(small - blocks).max() < 2.0  # the same picture, corner to corner
    aliased = plain_bilinear(middle, 384, 384).diff(dim=-1).abs().mean()
    smooth = torch.from_numpy(ours).permute(0, 3, 1, 2).float().diff(dim=-1).abs().mean()
    assert smooth < aliased


@pytest.mark.parametrize(("height", "width"), [(128, 128), (96, 160), (1200, 64)])
def test_the_protocols_resize_reaches_any_size(street: np.ndarray, height: int, width: int) -> None:
    assert resize_frames(street, height, width, "protocol").shape == (2, height, width, 3)


def test_normalisation_is_imagenets() -> None:
    frames = np.zeros((1, 2, 2, 3), dtype=np.uint8)
    frames[..., 0], frames[..., 1], frames[..., 2] = 255, 128, 0
    clip = normalise(frames)
    for channel, value in enumerate((1.0, 128 / 255, 0.0)):
        expected = torch.full((1, 2, 2), (value - MEAN[channel]) / STD[channel])
        torch.testing.assert_close(clip[channel], expected)


def test_the_released_way_refuses_a_shape_it_never_had() -> None:
    with pytest.raises(BackboneError, match="square"):
        resize_frames(np.zeros((1, 64, 64, 3), dtype=np.uint8), 32, 64, "released")
