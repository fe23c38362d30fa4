"""The scene without its agents, and how far each frame differs from it.

The context's frames are laid over one another with the camera's motion undone; what most of them show at a place is the
scene there. Whoever walks hides each place for less than half of the time. Where the camera has moved on too far, or
parallax puts things beside themselves, a frame differs from this scene though nobody is there: change is evidence,
not proof.

Shapes: T frames, S side of the mask grid.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ..pixels import Frames
from .channels import length
from .regions import Floats
from .trajectories import camera_chain

_MARGIN = 0.5  # sides that the laid-out scene may reach beyond the middle frame on either side
_ENOUGH = 4  # frames of the context that must show a place for it to be known
_BLUR = 1.0  # px: noise and a camera motion that is a little wrong are no change
_SEEN = 4.0  # Lab units that the eye sees at once: change is measured in these, logarithmically


def change(shown: Frames, camera: Floats, known: int) -> Floats:
    """Log of each pixel's colour difference to the scene of the first `known` frames, `[T, S, S]`; 0 where that is
    unknown, and where it is no more than usual in the context.

    `shown` is `uint8 [T, S, S, 3]`, `camera` `[T, 2, 3]`.
    """
    count, side = shown.shape[:2]
    calm = np.stack([cv2.GaussianBlur(frame, (0, 0), _BLUR) for frame in shown]).astype(np.uint8)
    onto, size = _layout(camera, known, side)
    scene, views = _scene(calm[:known], onto[:known], size)
    colours = cv2.cvtColor(scene.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    enough = (views >= min(_ENOUGH, known)).astype(np.uint8)
    difference = np.zeros((count, side, side), np.float32)
    is_known = np.zeros((count, side, side), dtype=bool)
    for t, place in enumerate(onto):
        back = cv2.invertAffineTransform(place)
        expected = cv2.warpAffine(colours, back, (side, side))
        seen = cv2.cvtColor(calm[t].astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
        difference[t] = length(seen - expected)
        is_known[t] = cv2.warpAffine(enough, back, (side, side), flags=cv2.INTER_NEAREST) > 0
    usual = np.median(difference[:known][is_known[:known]]) if is_known[:known].any() else 0.0
    more = np.maximum(difference - np.float32(usual), 0) / np.float32(_SEEN)
    return np.asarray(np.log1p(more) * is_known, np.float32)


def _layout(camera: Floats, known: int, side: int) -> tuple[list[NDArray[np.float64]], tuple[int, int]]:
    """Maps `[2, 3]` in pixels from every frame into a picture of the whole scene, and that picture's size."""
    chain = camera_chain(camera).astype(np.float64)
    pixels = np.diag([side, side, 1.0])
    middle = chain[known // 2]
    maps = [pixels @ middle @ np.linalg.inv(one) @ np.linalg.inv(pixels) for one in chain]
    corners = np.array([[0, 0, 1], [side, 0, 1], [0, side, 1], [side, side, 1]], np.float64).T
    reached = np.concatenate([(one @ corners)[:2] for one in maps[:known]], axis=1)
    low = np.maximum(np.floor(reached.min(axis=1)), -_MARGIN * side)
    high = np.minimum(np.ceil(reached.max(axis=1)), (1 + _MARGIN) * side)
    shift = np.eye(3)
    shift[:2, 2] = -low
    width, height = (int(v) for v in np.maximum(high - low, 1))
    return [(shift @ one)[:2] for one in maps], (width, height)


def _scene(
    frames: Frames, onto: list[NDArray[np.float64]], size: tuple[int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The median of the frames laid out, `uint8 [h, w, 3]`, and how many show each place, `[h, w]`."""
    layers, seen = [], []
    low = np.ones((size[1], size[0]), dtype=bool)
    whole = np.ones(frames.shape[1:3], np.uint8)
    for frame, place in zip(frames, onto, strict=True):
        layer = cv2.warpAffine(frame, place, size)
        inside = cv2.warpAffine(whole, place, size, flags=cv2.INTER_NEAREST) > 0
        layer[~inside] = np.where(low, 0, 255)[~inside, None]  # in turn, so that the middle is that of those who see
        low ^= ~inside
        layers.append(np.asarray(layer, np.uint8))
        seen.append(inside)
    return _median(layers), np.sum(seen, axis=0)


def _median(layers: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """By odd-even transposition: a few hundred passes over bytes are quicker than sorting a column per pixel."""
    count = len(layers)
    for turn in range(count):
        for k in range(turn % 2, count - 1, 2):
            layers[k], layers[k + 1] = np.minimum(layers[k], layers[k + 1]), np.maximum(layers[k], layers[k + 1])
    middle = layers[(count - 1) // 2].astype(np.uint16) + layers[count // 2]
    return np.asarray((middle + 1) // 2, np.uint8)
