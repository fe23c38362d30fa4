"""Pixels for a backbone: frames `uint8 [T, H, W, 3]` to a normalised clip `float32 [3, T, height, width]`.

Two ways to reach the model's size:

- `released`: what V-JEPA's own evaluation does. Short side to `size * 256 / 224` (438 for 384), plain bilinear, centre
  crop. Use it to compare with published numbers. It throws away an eighth of the short side,
  and aliases when it shrinks much.
- `protocol`: what this project's clips go through (`factorjepa.pixels`): scaled just enough to cover the target,
  averaged over areas when it shrinks. Non-square targets are allowed.
"""

from __future__ import annotations

from typing import Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import pixels
from ..errors import BackboneError

Frames = NDArray[np.uint8]
Resize = Literal["released", "protocol"]


def resize_frames(frames: Frames, height: int, width: int, how: Resize) -> Frames:
    """`[T, height, width, 3]`, by one of the two ways above."""
    if how == "protocol":
        return pixels.resize_to_cover(frames, height, width)
    if height != width:
        raise BackboneError(f"the released preprocessing is square, not {height}x{width}; use the protocol's resize")
    return _released(frames, height)


def normalise(frames: Frames) -> Tensor:
    """`[T, H, W, 3]` bytes to `[3, T, H, W]` with ImageNet statistics."""
    return torch.from_numpy(pixels.normalise(frames))


def _released(frames: Frames, size: int) -> Frames:
    short = int(size * 256 / 224)
    height, width = frames.shape[1:3]
    if min(height, width) != short:
        # The long side is truncated, not rounded: a pixel here moves every crop after it.
        scaled = (short, int(short * height / width)) if width < height else (int(short * width / height), short)
        frames = _scaled(frames, scaled, cv2.INTER_LINEAR)
    return _centre(frames, size, size)


def _centre(frames: Frames, height: int, width: int) -> Frames:
    top = round((frames.shape[1] - height) / 2)
    left = round((frames.shape[2] - width) / 2)
    return frames[:, top : top + height, left : left + width]


def _scaled(frames: Frames, size: tuple[int, int], method: int) -> Frames:
    return np.stack([cv2.resize(frame, size, interpolation=method) for frame in frames]).astype(np.uint8, copy=False)
