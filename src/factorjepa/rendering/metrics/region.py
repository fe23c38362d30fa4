"""Means over the picture or over a part of it. A frame in which the part is empty has no value: NaN, never 0.

Every metric gives one number per frame; a clip's number is the mean of its frames that have one.

Legend: B clips, T frames, H x W pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def region_mean(map_BTHW: Tensor, region_BTHW: Tensor | None = None) -> Tensor:
    """`[B, T]`."""
    if region_BTHW is None:
        return map_BTHW.mean((-2, -1))
    inside = region_BTHW.to(map_BTHW.dtype)
    pixels = inside.sum((-2, -1))
    total = torch.where(region_BTHW, map_BTHW, 0.0).sum((-2, -1))
    return torch.where(pixels > 0, total / pixels.clamp(min=1), torch.nan)


def over_clip(values_BT: Tensor) -> Tensor:
    """`[B]`: the mean over the frames that have a value; NaN where none has."""
    return values_BT.nanmean(1)
