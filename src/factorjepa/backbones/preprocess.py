"""Pixels for a backbone: frames `uint8 [T, H, W, 3]` to a normalised clip `float32 [3, T, height, width]`.

Two ways to reach the model's size:

- `released`: what V-JEPA's own evaluation does. Short side to `size * 256 / 224` (438 for 384), plain bilinear, centre
  crop. Use it to compare with published numbers. It throws away an eighth of the short side,
  and aliases when it shrinks much.
- `protocol`: what this project's clips go through. The frame is scaled just enough to cover the target and cropped at
  its centre, so nothing is lost along the tighter side, where street scenes have their agents; shrinking averages
  areas, so that small agents do not flicker. Non-square targets are allowed.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import BackboneError

Frames = NDArray[np.uint8]
Resize = Literal["released", "protocol"]

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def resize_frames(frames: Frames, height: int, width: int, how: Resize) -> Frames:
    """`[T, height, width, 3]`, by one of the two ways above."""
    if how == "protocol":
        return _cover(frames, height, width)
    if height != width:
        raise BackboneError(f"the released preprocessing is square, not {height}x{width}; use the protocol's resize")
    return _released(frames, height)


def normalise(frames: Frames) -> Tensor:
    """`[T, H, W, 3]` bytes to `[3, T, H, W]` with ImageNet statistics."""
    clip = torch.from_numpy(np.ascontiguousarray(frames)).permute(3, 0, 1, 2).float() / 255.0
    return (clip - torch.tensor(MEAN).view(3, 1, 1, 1)) / torch.tensor(STD).view(3, 1, 1, 1)


def preprocess(frames: Frames, height: int, width: int, how: Resize = "protocol") -> Tensor:
    return normalise(resize_frames(frames, height, width, how))


def _released(frames: Frames, size: int) -> Frames:
    import cv2

    short = int(size * 256 / 224)
    height, width = frames.shape[1:3]
    if min(height, width) != short:
        # The long side is truncated, not rounded: a pixel here moves every crop after it.
        scaled = (short, int(short * height / width)) if width < height else (int(short * width / height), short)
        frames = _scaled(frames, scaled, cv2.INTER_LINEAR)
    return _centre(frames, size, size)


def _cover(frames: Frames, height: int, width: int) -> Frames:
    import cv2

    factor = max(height / frames.shape[1], width / frames.shape[2])
    scaled = (max(width, round(frames.shape[2] * factor)), max(height, round(frames.shape[1] * factor)))
    if scaled != (frames.shape[2], frames.shape[1]):
        frames = _scaled(frames, scaled, cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR)
    return _centre(frames, height, width)


def _centre(frames: Frames, height: int, width: int) -> Frames:
    top = round((frames.shape[1] - height) / 2)
    left = round((frames.shape[2] - width) / 2)
    return frames[:, top : top + height, left : left + width]


def _scaled(frames: Frames, size: tuple[int, int], method: int) -> Frames:
    import cv2

    return np.stack([cv2.resize(frame, size, interpolation=method) for frame in frames]).astype(np.uint8, copy=False)
