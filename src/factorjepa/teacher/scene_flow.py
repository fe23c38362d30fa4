"""The flow that the scene shows because the camera moves: a quadratic in place, which a plane seen by a camera obeys.

Whoever moves otherwise loses their say in the fit; what remains of a pixel's flow is its own motion, and parallax that
one plane does not explain.

Shapes: S pixels a side.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from .regions import Floats

REFERENCE = 128  # px: lengths of flow are measured in pixels of this side


def scene_flow(flow: Floats, affine: NDArray[np.floating], backwards: bool = False) -> Floats:
    """The scene's flow `[S, S, 2]`: the given motion and what a quadratic in place adds to it, robustly fitted.

    The given motion decides whom the first fit trusts; without depth, a quadratic is as near as one comes to parallax.
    """
    side = len(flow)
    basis = _quadratic(side)
    whole = np.vstack([affine, [0, 0, 1]]).astype(np.float64)
    motion = np.linalg.inv(whole) if backwards else whole
    step = max(1, side // 40)
    picked = np.arange(side * side).reshape(side, side)[step // 2 :: step, step // 2 :: step].ravel()
    few = basis[picked].astype(np.float64)
    seen = flow.reshape(-1, 2)[picked].astype(np.float64)
    place = (few[:, 1:3] + 1) / 2
    expected = (place @ motion[:2, :2].T + motion[:2, 2] - place) * side
    least = 0.3 * side / REFERENCE
    error = np.hypot(*(seen - expected).T)
    for _ in range(6):
        trust = 1 / (1 + (error / max(least, 1.5 * float(np.median(error)))) ** 2) ** 2
        weighed = few * trust[:, None]
        fit = np.linalg.solve(weighed.T @ few + 1e-6 * np.eye(6), weighed.T @ seen)
        error = np.hypot(*(seen - few @ fit).T)
    explained: Floats = (basis @ fit.astype(np.float32)).reshape(side, side, 2)
    return explained


@functools.lru_cache(maxsize=4)
def _quadratic(side: int) -> Floats:
    """1, x, y, x^2, xy, y^2 of every pixel with x and y in [-1, 1], `[S * S, 6]`: a plane seen by a moving camera."""
    line = (np.arange(side, dtype=np.float32) + 0.5) / side * 2 - 1
    y, x = (part.ravel() for part in np.meshgrid(line, line, indexing="ij"))
    return np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1)
