"""Pixel L1 and PSNR.

Legend: B clips, T frames, H x W pixels; pictures in [0, 1].
"""

from __future__ import annotations

from torch import Tensor

from .region import region_mean

MSE_FLOOR = 1e-8  # pictures that agree better count as equal: PSNR ends at 80 dB, beyond the 8 bits of a frame (59 dB)


def pixel_l1(first_BT3HW: Tensor, second_BT3HW: Tensor, region_BTHW: Tensor | None = None) -> Tensor:
    """Mean absolute difference of every frame, `[B, T]`. A metric: E_e2e <= G_visible + E_oracle holds for it."""
    return region_mean((first_BT3HW - second_BT3HW).abs().mean(2), region_BTHW)


def psnr(first_BT3HW: Tensor, second_BT3HW: Tensor, region_BTHW: Tensor | None = None) -> Tensor:
    """Decibels of every frame, `[B, T]`; a clip's PSNR is the mean over its frames."""
    mse_BT = region_mean((first_BT3HW - second_BT3HW).square().mean(2), region_BTHW)
    return -10.0 * mse_BT.clamp(min=MSE_FLOOR).log10()
