"""The motion estimator: dense inverse-search flow (OpenCV's DIS) with the camera's motion taken out. It never learns.

Shapes: T frames, s pixels a side, K pairs of consecutive frames.
"""

from __future__ import annotations

import itertools

import cv2
import numpy as np
from numpy.typing import NDArray

from ..pixels import Frames
from .scene import Scene
from .settings import MotionSettings

Floats = NDArray[np.float32]

_ROUNDS = 6  # of reweighting: agents must lose their say in the camera's motion
_SCALE = 0.002  # sides per frame: a residual of this size halves a point's weight
_STRIDE = 3  # every third pixel votes


def flows(frames: Frames, side: int) -> Floats:
    """Flow between consecutive frames of `uint8 [T, H, W, 3]`: `[T - 1, s, s, 2]` in sides per frame, x first.

    One thread: the estimator spreads what it finds along stripes, one for each thread.
    """
    how = cv2.INTER_AREA if frames.shape[1] > side else cv2.INTER_LINEAR
    grey = [cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (side, side), interpolation=how) for frame in frames]
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        found = []
        for before, after in itertools.pairwise(grey):
            estimator = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)  # it remembers the last flow
            found.append(estimator.calc(before, after, np.zeros((side, side, 2), np.float32)))
    finally:
        cv2.setNumThreads(threads)
    return (np.stack(found) / side).astype(np.float32)


def without_camera(flow_ss2: Floats) -> Floats:
    """Flow less the similarity (shift, zoom, roll) that most of the picture shares."""
    return np.asarray(flow_ss2 - _basis(len(flow_ss2)) @ _similarity(flow_ss2), np.float32)


def camera_affine(flow_ss2: Floats) -> NDArray[np.float64]:
    """That similarity as a map `[2, 3]` of places in [0, 1]."""
    a, b, c, d = _similarity(flow_ss2)
    return np.array([[1 + c, -d, a + (d - c) / 2], [d, 1 + c, b - (d + c) / 2]])


def _similarity(flow_ss2: Floats) -> NDArray[np.float64]:
    """a, b, c and d of `_basis`, by reweighted least squares."""
    basis_ss24 = _basis(len(flow_ss2))
    votes = (slice(None, None, _STRIDE), slice(None, None, _STRIDE))
    rows_m4, seen_m = basis_ss24[votes].reshape(-1, 4), flow_ss2[votes].ravel().astype(np.float64)  # two rows a point
    weighted_m4 = rows_m4
    for _ in range(_ROUNDS):
        motion = np.linalg.solve(weighted_m4.T @ rows_m4, weighted_m4.T @ seen_m)
        apart_n2 = (rows_m4 @ motion - seen_m).reshape(-1, 2)
        weight_n = 1.0 / (1.0 + np.square(apart_n2).sum(1) / _SCALE**2)
        weighted_m4 = rows_m4 * np.repeat(weight_n, 2)[:, None]
    return np.asarray(motion)


def _basis(side: int) -> NDArray[np.float64]:
    """`[s, s, 2, 4]` of u = a + c x - d y and v = b + c y + d x, with the picture's middle at 0."""
    y, x = (np.mgrid[0:side, 0:side] + 0.5) / side - 0.5
    one, zero = np.ones_like(x), np.zeros_like(x)
    return np.stack([np.stack([one, zero, x, -y], -1), np.stack([zero, one, y, x], -1)], -2)


def own_motion(scene: Scene, first: int, last: int) -> Floats:
    """`[B, last - first, s, s, 2]` of a batch from frame `first` to frame `last`. Too large to keep."""
    side, some = scene.settings.motion.side, scene.frames_BTHW3[:, first : last + 1]
    return np.stack([[without_camera(flow) for flow in flows(frames, side)] for frames in some])


def descriptor(motion_Kss2: Floats, settings: MotionSettings) -> NDArray[np.float64]:
    """`u*`: for each cell of a grid, how much moves in which direction, the mean motion and the mean speed.

    `[grid * grid, bins + 3]`, cells in raster order, sides per frame.
    """
    grid, bins = settings.grid, settings.bins
    speed = np.hypot(motion_Kss2[..., 0], motion_Kss2[..., 1])
    angle = np.arctan2(motion_Kss2[..., 1], motion_Kss2[..., 0])
    place = np.floor((angle / (2 * np.pi) + 0.5) * bins).astype(int) % bins
    parts = []
    for rows in np.array_split(np.arange(speed.shape[1]), grid):
        for columns in np.array_split(np.arange(speed.shape[2]), grid):
            cell = (slice(None), slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
            size = speed[cell].size
            directions = np.bincount(place[cell].ravel(), speed[cell].ravel(), bins) / size
            parts.append([*directions, *motion_Kss2[cell].reshape(-1, 2).mean(0), speed[cell].mean()])
    return np.array(parts, np.float64)


def future_descriptors(scene: Scene) -> NDArray[np.float64]:
    """`[B, cells, bins + 3]` of the motion from the last context frame to the end of the window."""

    def make() -> NDArray[np.float64]:
        motion = own_motion(scene, scene.context - 1, scene.frames_BTHW3.shape[1] - 1)
        return np.stack([descriptor(one, scene.settings.motion) for one in motion])

    return scene.kept("future descriptors", make)
