"""Outlines in a picture: boxes as masks, edges, and what lies around them.

Shapes: N boxes, T frames, H x W pixels.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .counterparts import Picture
from .metrics.motion import Mask

_AROUND = 0.03  # sides around agents that are not static, and around an edge of X that supports one of P


def pictures_of(frames_T3HW: Tensor) -> list[Picture]:
    return list(frames_T3HW.detach().clamp(0, 1).float().movedim(-3, -1).cpu().contiguous().numpy())


def boxed(boxes_N4: NDArray[np.float64], height: int, width: int) -> Mask:
    """`[H, W]` inside any of the boxes, at least a pixel of each."""
    mask = np.zeros((height, width), bool)
    for left, top, right, bottom in boxes_N4.clip(0, 1) * np.array([width, height, width, height]):
        first_row, first_column = min(int(top), height - 1), min(int(left), width - 1)
        rows = slice(first_row, max(first_row + 1, int(np.ceil(bottom))))
        mask[rows, first_column : max(first_column + 1, int(np.ceil(right)))] = True
    return mask


def gradient(picture: Picture) -> NDArray[np.float32]:
    """Length of the grey picture's gradient per pixel, central differences."""
    return np.asarray(np.hypot(*slopes(picture)), np.float32)


def slopes(picture: Picture) -> NDArray[np.float32]:
    """`[2, H, W]` of the grey picture, across and down."""
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    return np.stack([cv2.Sobel(grey, cv2.CV_32F, *axis, ksize=3, scale=1 / 8) for axis in ((1, 0), (0, 1))])


def strongest_around(values_HW: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(cv2.dilate(values_HW, _disc(values_HW.shape[0])), np.float32)


def grown(mask: Mask) -> Mask:
    return np.asarray(cv2.dilate(mask.astype(np.uint8), _disc(mask.shape[0])) > 0)


def _disc(side: int) -> NDArray[np.uint8]:
    radius = max(2, round(_AROUND * side))
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1)), np.uint8)
