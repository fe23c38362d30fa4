"""What one panel of a gallery is made of: an enlarged frame, the contour of the agents, the zoom box, heat.

No panel is stretched by itself: bytes are shown as bytes, and heat has one range for all maps of an example.

Shapes: T frames, H x W pixels; s a whole factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Frame = NDArray[np.uint8]
Box = tuple[int, int, int, int]  # left, top, right, bottom

PANEL = 224  # px a side that a small frame is enlarged to, or nearly
RED = (225, 38, 38)
_HALO = (18, 20, 24)
_STRAIGHT = 0.8  # px that a contour may be off where it is drawn straight
LEAST_SCALE = 0.02  # of the range, five grey levels: no scale of heat ends below
_STRONGEST = 0.85  # of heat over the grey frame: where nothing changes, it is grey
# Viridis in nine steps: brightness rises evenly, so that it reads in grey and to colour-blind eyes.
_VIRIDIS = np.array([
    (68, 1, 84), (71, 44, 122), (59, 81, 139), (44, 113, 142), (33, 144, 141), (39, 173, 129), (92, 200, 99),
    (170, 220, 50), (253, 231, 37),
], np.float64)  # fmt: skip


def common_box(observed_THW3: Frame, methods: Mapping[str, Frame]) -> Box:
    """The square, a third of the picture's shorter side, where methods disagree most.

    With each other and with the observed future, half and half, summed over time and colours. Whole numbers, so that
    the same frames give the same box everywhere; of equal squares the first from the top, then from the left.
    """
    height, width = observed_THW3.shape[1:3]
    futures = [frames.astype(np.int64) for frames in methods.values()]
    observed = observed_THW3.astype(np.int64)
    pairs = list(combinations(futures, 2))
    from_observed = sum((np.abs(one - observed) for one in futures), np.zeros_like(observed))
    from_others = sum((np.abs(one - other) for one, other in pairs), np.zeros_like(observed))
    apart_HW = (max(len(pairs), 1) * from_observed + len(futures) * from_others).sum((0, 3))
    side = max(1, round(min(height, width) / 3))
    summed = np.pad(apart_HW.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    within = summed[side:, side:] - summed[:-side, side:] - summed[side:, :-side] + summed[:-side, :-side]
    top, left = np.unravel_index(int(within.argmax()), within.shape)
    return int(left), int(top), int(left) + side, int(top) + side


def factor_of(frame: Frame, panel: int = PANEL) -> int:
    """The whole factor that brings a small frame near the size of a panel; 1 for a large one."""
    return max(1, round(panel / int(max(frame.shape[:2]))))


def enlarged(frame: Frame, factor: int) -> Frame:
    """By a whole factor, smoothly: blocks would look like an artefact of the decoder, and hide what blur there is."""
    height, width = frame.shape[:2]
    return frame if factor == 1 else _resized(frame, width * factor, height * factor)


def zoomed(frame: Frame, box: Box, width: int) -> Frame:
    """The box's part of a frame, as wide as a panel."""
    left, top, right, bottom = box
    return _resized(frame[top:bottom, left:right], width, round(width * (bottom - top) / (right - left)))


def _resized(frame: Frame, width: int, height: int) -> Frame:
    how = cv2.INTER_AREA if width < frame.shape[1] else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(np.ascontiguousarray(frame), (width, height), interpolation=how), np.uint8)


def contours_of(mask_HW: NDArray[np.bool_], factor: int = 1) -> list[NDArray[np.int32]]:
    """Outlines of the agents on a frame enlarged by `factor`, as polygons `[N, 2]` of x and y."""
    size = (mask_HW.shape[1] * factor, mask_HW.shape[0] * factor)
    smooth = cv2.resize(mask_HW.astype(np.float32), size, interpolation=cv2.INTER_LINEAR)  # no stairs
    traced = cv2.findContours((smooth >= 0.5).astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)[0]
    return [np.asarray(cv2.approxPolyDP(one, _STRAIGHT, True), np.int32).reshape(-1, 2) for one in traced]


def outlined(picture: Frame, polygons: Sequence[NDArray[Any]]) -> Frame:
    """Thin and white, on a faint dark edge that keeps it visible on a white wall."""
    drawn = picture.copy()
    halo = drawn.copy()
    lines = [one.reshape(-1, 1, 2) for one in polygons]
    cv2.polylines(halo, lines, True, _HALO, 3, cv2.LINE_AA)
    drawn = cv2.addWeighted(halo, 0.45, drawn, 0.55, 0).astype(np.uint8, copy=False)
    cv2.polylines(drawn, lines, True, (255, 255, 255), 1, cv2.LINE_AA)
    return drawn


def outlined_zoom(picture: Frame, polygons: Sequence[NDArray[Any]], box: Box, factor: int) -> Frame:
    """A zoomed picture with the outlines, given on the frame enlarged by `factor`, that lie in its box."""
    left, top, right, bottom = box
    scale = np.array([picture.shape[1] / (right - left), picture.shape[0] / (bottom - top)]) / factor
    moved = [((one - factor * np.array([left, top])) * scale).round().astype(np.int32) for one in polygons]
    return outlined(picture, moved)


def boxed(picture: Frame, box: Box, factor: int, colour: tuple[int, int, int] = RED) -> Frame:
    left, top, right, bottom = (factor * side for side in box)
    drawn = picture.copy()
    cv2.rectangle(drawn, (left, top), (right - 1, bottom - 1), colour, 2 if max(picture.shape) >= PANEL / 2 else 1)
    return drawn


def framed(picture: Frame, colour: tuple[int, int, int] = RED) -> Frame:
    """The zoomed part has the frame of the box that it shows."""
    drawn = picture.copy()
    cv2.rectangle(drawn, (0, 0), (drawn.shape[1] - 1, drawn.shape[0] - 1), colour, 2)
    return drawn


def heat_range(maps: Mapping[str, NDArray[Any]]) -> float:
    """The one upper end of all maps of an example: all but the strongest half of a hundredth lie below it.

    Maps are of changes, in shares of the range. A scale that ended below what an eye can see would paint noise.
    """
    values = np.concatenate([np.zeros(1), *(one.ravel() for one in maps.values())])
    return max(float(np.quantile(values, 0.995)), LEAST_SCALE)


def heat(frame: Frame, values_HW: NDArray[Any], high: float) -> Frame:
    """Changes over the grey frame, from 0 to `high`; colour and opacity grow with their square root.

    Changes are concentrated: a linear scale would show a channel that acts everywhere as one that does nothing.
    """
    grey = cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY)[..., None]
    shares = np.sqrt(np.clip(values_HW / high, 0, 1))
    opacity = _STRONGEST * shares[..., None]
    return np.clip(opacity * colours(shares) + (1 - opacity) * grey, 0, 255).astype(np.uint8)


def colours(shares: NDArray[Any]) -> Frame:
    """Viridis of values from 0 to 1."""
    at = np.clip(shares, 0, 1) * (len(_VIRIDIS) - 1)
    below = np.minimum(at.astype(int), len(_VIRIDIS) - 2)
    part = (at - below)[..., None]
    mixed: Frame = (_VIRIDIS[below] * (1 - part) + _VIRIDIS[below + 1] * part).astype(np.uint8)
    return mixed
