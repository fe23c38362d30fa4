"""Pixel L1, PSNR and SSIM: known answers, a literal SSIM, regions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from factorjepa.rendering.metrics.pixel import MSE_FLOOR, pixel_l1, psnr
from factorjepa.rendering.metrics.region import over_clip
from factorjepa.rendering.metrics.ssim import ssim

METRICS = [pixel_l1, psnr, ssim]


def noise(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def test_pixel_l1_and_psnr_of_a_constant_difference() -> None:
    black, grey = torch.zeros(1, 2, 3, 8, 8), torch.full((1, 2, 3, 8, 8), 0.1)
    assert torch.allclose(pixel_l1(black, grey), torch.full((1, 2), 0.1))
    assert torch.allclose(psnr(black, grey), torch.full((1, 2), 20.0))


def test_equal_frames_have_the_declared_largest_psnr_and_ssim_one() -> None:
    frames = noise(0, 1, 2, 3, 16, 16)
    assert torch.allclose(psnr(frames, frames), torch.full((1, 2), -10 * math.log10(MSE_FLOOR)))
    assert torch.allclose(ssim(frames, frames), torch.ones(1, 2))


def literal_ssim(first: np.ndarray, second: np.ndarray) -> float:
    """Wang et al. 2004, window by window, on pictures `[H, W]` continued by reflection."""
    place = np.arange(11) - 5
    bell = np.exp(-0.5 * (place / 1.5) ** 2)
    window = np.outer(bell, bell) / bell.sum() ** 2
    a, b = np.pad(first, 5, mode="reflect"), np.pad(second, 5, mode="reflect")
    values = []
    for y in range(first.shape[0]):
        for x in range(first.shape[1]):
            p, q = a[y : y + 11, x : x + 11], b[y : y + 11, x : x + 11]
            mu_p, mu_q = (window * p).sum(), (window * q).sum()
            var_p, var_q = (window * (p - mu_p) ** 2).sum(), (window * (q - mu_q) ** 2).sum()
            cov = (window * (p - mu_p) * (q - mu_q)).sum()
            top = (2 * mu_p * mu_q + 0.01**2) * (2 * cov + 0.03**2)
            values.append(top / ((mu_p**2 + mu_q**2 + 0.01**2) * (var_p + var_q + 0.03**2)))
    return float(np.mean(values))


def test_ssim_equals_a_literal_transcription() -> None:
    first = noise(1, 1, 1, 3, 14, 17)
    second = (first + 0.3 * noise(2, 1, 1, 3, 14, 17)).clamp(0, 1)
    wanted = np.mean([literal_ssim(*(x[0, 0, c].double().numpy() for x in (first, second))) for c in range(3)])
    assert ssim(first, second).item() == pytest.approx(wanted, abs=1e-5)


def test_ssim_of_a_picture_smaller_than_its_window_is_defined() -> None:
    first, second = noise(3, 1, 1, 3, 6, 9), noise(4, 1, 1, 3, 6, 9)
    assert -1 <= ssim(first, second).item() < 1


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(METRICS))
def test_the_whole_picture_as_region_changes_nothing_and_what_lies_outside_has_no_say(seed: int, metric) -> None:  # type: ignore[no-untyped-def]
    first, second = noise(seed, 2, 2, 3, 24, 24), noise(seed + 1, 2, 2, 3, 24, 24)
    everywhere = torch.ones(2, 2, 24, 24, dtype=torch.bool)
    assert torch.allclose(metric(first, second, everywhere), metric(first, second), atol=1e-4)
    corner = torch.zeros_like(everywhere)
    corner[..., :8, :8] = True
    altered = second.clone()
    altered[..., 16:, 16:] = 0  # farther away than SSIM's window reaches
    assert torch.equal(metric(first, second, corner), metric(first, altered, corner))


@pytest.mark.parametrize("metric", METRICS)
def test_a_frame_without_region_has_no_value_and_the_clip_is_the_mean_of_the_others(metric) -> None:  # type: ignore[no-untyped-def]
    first, second = noise(5, 1, 3, 3, 16, 16), noise(6, 1, 3, 3, 16, 16)
    region = torch.ones(1, 3, 16, 16, dtype=torch.bool)
    region[0, 1] = False
    values = metric(first, second, region)
    assert values.isnan().tolist() == [[False, True, False]]
    assert over_clip(values).item() == pytest.approx((values[0, 0] + values[0, 2]).item() / 2)


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_pixel_l1_obeys_the_triangle_in_every_region(seed: int) -> None:
    x, o, p = (noise(seed + k, 1, 2, 3, 12, 12) for k in range(3))
    region = noise(seed + 3, 1, 2, 12, 12) > 0.5
    assert (pixel_l1(p, x, region) <= pixel_l1(p, o, region) + pixel_l1(o, x, region) + 1e-6).all()


def test_ssim_teaches_a_picture_to_look_like_another() -> None:
    target = noise(7, 1, 1, 3, 16, 16)
    drawn = torch.full_like(target, 0.5).requires_grad_()
    before = ssim(drawn, target).mean()
    before.backward()
    assert drawn.grad is not None
    stepped = drawn.detach() + 0.5 * drawn.grad / drawn.grad.abs().max()
    assert ssim(stepped, target).mean() > before
