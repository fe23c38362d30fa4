"""B_sigma: regions of a frame made unrecognisable, for good.

A Gaussian alone can be undone in part: it weakens fine detail but does not remove it. So a region is first averaged
over a few cells, whatever its size, and then smoothed with OpenCV's GaussianBlur. What is left of a face is a handful
of mean colours: `cells` x `cells` numbers in each channel, and there is nothing else in the picture to sharpen.
"""

from __future__ import annotations

from collections.abc import Iterable

import cv2
import numpy as np
from numpy.typing import NDArray

from ...pixels import Frames
from .regions import Box
from .settings import BlurSettings

_FINE = 8  # px to a cell that the Gaussian is computed with
_SMALLEST = 3  # px that a margin adds at least: boxes of small faces are off by as much


def expanded(box: Box, size: tuple[int, int], settings: BlurSettings) -> tuple[int, int, int, int]:
    """The box with its safety margin, in whole pixels of the picture; may be empty at its border."""
    sides = np.tile(box[2:] - box[:2], 2)
    grown = box + np.maximum(settings.margin * sides, _SMALLEST) * (-1, -1, 1, 1)
    left, top = np.floor(grown[:2]).clip(0).astype(int)
    right, bottom = np.ceil(grown[2:]).clip(0, size[::-1]).astype(int)
    return int(left), int(top), int(right), int(bottom)


def blur(frame: Frames, boxes: Iterable[Box], settings: BlurSettings) -> NDArray[np.bool_]:
    """Blur the boxes of `uint8 [H, W, 3]` in place; which pixels are blurred, `[H, W]`.

    Each region is made from what the frame holds by then, so that the soft edge of one brings nothing back in another.
    """
    size = (frame.shape[0], frame.shape[1])
    covered = np.zeros(size, dtype=bool)
    for box in boxes:
        left, top, right, bottom = expanded(box, size, settings)
        if left >= right or top >= bottom:
            continue
        covered[top:bottom, left:right] = True
        pad = round(settings.feather * max(right - left, bottom - top))
        outer = (max(0, left - pad), max(0, top - pad), min(size[1], right + pad), min(size[0], bottom + pad))
        part = frame[outer[1] : outer[3], outer[0] : outer[2]]
        weight = _weight(outer, (left, top, right, bottom), pad)
        smooth = _smooth(part, settings)
        part[...] = np.rint(part + weight * (smooth.astype(np.float32) - part)).astype(np.uint8)
    return covered


def _smooth(part: Frames, settings: BlurSettings) -> Frames:
    """A few cells' means, enlarged and smoothed: at a fixed number of pixels to a cell, where a Gaussian is cheap."""
    height, width = part.shape[:2]
    cell = max(height, width) / settings.cells
    columns, rows = max(1, round(width / cell)), max(1, round(height / cell))
    means = cv2.resize(part, (columns, rows), interpolation=cv2.INTER_AREA)
    large = cv2.resize(means, (columns * _FINE, rows * _FINE), interpolation=cv2.INTER_LINEAR)
    soft = cv2.GaussianBlur(large, (0, 0), settings.sigma * _FINE, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(cv2.resize(soft, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)


def _weight(outer: tuple[int, int, int, int], inner: tuple[int, int, int, int], pad: int) -> NDArray[np.float32]:
    """1 in the inner box, falling to 0 at `pad` pixels outside it: `[h, w, 1]`."""
    ramps = []
    for axis in (1, 0):
        place = np.arange(outer[axis], outer[axis + 2])
        away = np.maximum(inner[axis] - place, place - (inner[axis + 2] - 1)).clip(0)
        ramps.append((1 - away / (pad + 1)).astype(np.float32))
    return np.minimum(ramps[0][:, None], ramps[1])[..., None]
