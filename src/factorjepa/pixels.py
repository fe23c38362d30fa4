"""How frames become what a network sees: this project's resize, and ImageNet normalisation.

The largest centred part of the picture that has the target's shape is kept and resized: the same view as resizing the
short side and cropping the centre, without the rounding of the long side and without resizing what is cut away. Nothing
is lost along the tighter side, where street scenes have their agents. Shrinking averages over areas, so that fine
texture does not alias and small agents do not flicker; enlarging is bilinear.
"""

from __future__ import annotations

import typing

import cv2
import numpy as np
from numpy.typing import NDArray

if typing.TYPE_CHECKING:
    from torch import Tensor

Frames = NDArray[np.uint8]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def centre_part(width: int, height: int, aspect: float = 1.0) -> tuple[int, int, int, int]:
    """Left, top, width and height of the largest centred part with this aspect (width over height)."""
    part_w, part_h = min(width, round(height * aspect)), min(height, round(width / aspect))
    return (width - part_w) // 2, (height - part_h) // 2, part_w, part_h


def resize_to_cover(frames: Frames, height: int, width: int) -> Frames:
    """`[T, H, W, 3]` -> `[T, height, width, 3]` by the rule above."""
    left, top, part_w, part_h = centre_part(frames.shape[2], frames.shape[1], width / height)
    part = frames[:, top : top + part_h, left : left + part_w]
    if (part_h, part_w) == (height, width):
        return part
    how = cv2.INTER_AREA if part_h > height else cv2.INTER_LINEAR
    return np.stack([cv2.resize(frame, (width, height), interpolation=how) for frame in part]).astype(
        np.uint8, copy=False
    )


def normalise(frames: Frames) -> NDArray[np.float32]:
    """Bytes `[T, H, W, 3]` to `float32 [3, T, H, W]` with ImageNet statistics."""
    video = np.empty((3, *frames.shape[:3]), np.float32)
    for channel, (mean, std) in enumerate(zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)):
        np.multiply(frames[..., channel], np.float32(1 / (255 * std)), out=video[channel])
        video[channel] -= np.float32(mean / std)
    return video


def to_video(frames: Tensor) -> Tensor:
    """Bytes `[B, T, H, W, 3]` to `float32 [B, 3, T, H, W]` with ImageNet statistics, where they are; as `normalise`."""
    import torch  # here: what only reads a corpus needs none

    from .transfer import sent

    mean, std = (torch.tensor(values, dtype=torch.float64) for values in (IMAGENET_MEAN, IMAGENET_STD))
    scale, shift = sent(torch.stack((1 / (255 * std), mean / std)).float(), frames.device).view(2, 3, 1, 1, 1)
    video = frames.permute(0, 4, 1, 2, 3).to(torch.float32, memory_format=torch.contiguous_format)
    return video.mul_(scale).sub_(shift)
