"""Is a clip worth keeping: sharp, exposed, moving. Cheap measures of a few frames per second, each between 0 and 1.

- `sharpness`: the share of the luma's variation between neighbouring pixels that a blur takes away (after Crete et al.
  2007, in frames narrowed to 320 pixels). A picture that is blurred already has little to lose, whatever its contrast.
- `brightness`, `clipped`: mean luma; share of the picture that is black or white altogether.
- `motion`: share of the picture that changes visibly within half a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from ..video import Frames
from .settings import QualitySettings

_PER_SECOND = 2.0  # frames looked at
_WIDTH = 320  # pixels they are narrowed to
_BLUR = 7  # pixels of that blur
_BLACK, _WHITE = 4, 251  # grey levels that carry no picture
_CHANGED = 12.0  # grey levels: well above what a codec does to a picture at rest


@dataclass(frozen=True)
class Measures:
    """The quality of one clip; the median over its frames."""

    sharpness: float
    brightness: float
    clipped: float
    motion: float


def measure(frames: Frames, fps: float) -> Measures:
    """`frames [T, H, W, 3]` of one clip."""
    step = max(1, round(fps / _PER_SECOND))
    greys = [_grey(frame) for frame in frames[::step]]
    smooth = [cv2.GaussianBlur(grey, (0, 0), 1.5).astype(np.float32) for grey in greys]
    changes = [float((np.abs(b - a) > _CHANGED).mean()) for a, b in pairwise(smooth)]
    return Measures(
        sharpness=float(np.median([_sharpness(grey) for grey in greys])),
        brightness=float(np.median([grey.mean() / 255 for grey in greys])),
        clipped=float(np.median([((grey <= _BLACK) | (grey >= _WHITE)).mean() for grey in greys])),
        motion=float(np.mean(changes)) if changes else 0.0,
    )


def faults(measures: Measures, settings: QualitySettings) -> Iterator[tuple[str, str]]:
    """Why a clip is not kept: a word, and the figures behind it. Where nothing is seen, nothing else is judged."""
    if measures.brightness < settings.min_brightness:
        yield "dark", f"mean brightness {measures.brightness:.3f} is below {settings.min_brightness:g}"
        return
    if measures.brightness > settings.max_brightness:
        yield "bright", f"mean brightness {measures.brightness:.3f} is above {settings.max_brightness:g}"
        return
    if measures.clipped > settings.max_clipped:
        yield "clipped", f"{measures.clipped:.0%} of the picture is black or white altogether"
        return
    if measures.sharpness < settings.min_sharpness:
        yield "blurred", f"sharpness {measures.sharpness:.4f} is below {settings.min_sharpness:g}"
    if measures.motion < settings.min_motion:
        yield "static", f"{measures.motion:.3%} of the picture changes in half a second"


def _grey(frame: Frames) -> NDArray[np.uint8]:
    grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
    height, width = grey.shape
    if width <= _WIDTH:
        return np.asarray(grey)
    return np.asarray(cv2.resize(grey, (_WIDTH, round(height * _WIDTH / width)), interpolation=cv2.INTER_AREA))


def _sharpness(grey: NDArray[np.uint8]) -> float:
    picture = grey.astype(np.float32)
    lost = []
    for axis, kernel in enumerate(((1, _BLUR), (_BLUR, 1))):
        sharp, blurred = (np.abs(np.diff(one, axis=axis)) for one in (picture, cv2.blur(picture, kernel)))
        variation = float(sharp.sum())
        lost.append(float(np.maximum(0, sharp - blurred).sum()) / variation if variation else 0.0)
    return min(lost)
