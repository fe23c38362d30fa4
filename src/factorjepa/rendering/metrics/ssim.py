"""SSIM (Wang et al. 2004): local luminance, contrast and structure under an 11 x 11 Gaussian window, data range 1.

Pictures are continued by reflection, so that every pixel has a value and regions at the border count (torchmetrics'
rule and number; Wang et al. leave out 5 px). Pictures with a side below 11 px get the largest odd window that fits.

Legend: B clips, T frames, H x W pixels, N pictures, C colours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .region import region_mean

WINDOW, SIGMA = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2  # the paper's K1 and K2 for a range of 1


def ssim(first_BT3HW: Tensor, second_BT3HW: Tensor, region_BTHW: Tensor | None = None) -> Tensor:
    """Of every frame, mean over the colours, `[B, T]`; differentiable."""
    map_NHW = ssim_map(first_BT3HW.flatten(0, 1), second_BT3HW.flatten(0, 1)).mean(1)
    return region_mean(map_NHW.reshape(*first_BT3HW.shape[:2], *map_NHW.shape[1:]), region_BTHW)


def ssim_map(first_N3HW: Tensor, second_N3HW: Tensor) -> Tensor:
    """`[N, 3, H, W]`, a value for every pixel and colour."""
    N, C, H, W = first_N3HW.shape
    side = min(WINDOW, (min(H, W) - 1) // 2 * 2 + 1)
    place = torch.arange(side, device=first_N3HW.device, dtype=first_N3HW.dtype) - side // 2
    bell = torch.exp(-0.5 * (place / SIGMA) ** 2)
    bell = bell / bell.sum()
    moments = torch.stack(
        [first_N3HW, second_N3HW, first_N3HW * first_N3HW, second_N3HW * second_N3HW, first_N3HW * second_N3HW]
    ).reshape(5 * N * C, 1, H, W)
    moments = F.pad(moments, (side // 2,) * 4, mode="reflect")
    blurred = F.conv2d(F.conv2d(moments, bell.view(1, 1, -1, 1)), bell.view(1, 1, 1, -1))
    mean_a, mean_b, square_a, square_b, product = blurred.view(5, N, C, H, W)
    variance_a, variance_b = (square_a - mean_a * mean_a).clamp(min=0), (square_b - mean_b * mean_b).clamp(min=0)
    shared = product - mean_a * mean_b
    likeness: Tensor = (2 * mean_a * mean_b + _C1) * (2 * shared + _C2)
    most: Tensor = (mean_a * mean_a + mean_b * mean_b + _C1) * (variance_a + variance_b + _C2)
    return likeness / most
