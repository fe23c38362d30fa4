"""Where the camera is: three ways of carrying it, and the pinhole projection.

World axes: x along the street, y to the left, z up. Image axes: u to the right, v down, pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .motion import Trajectory
from .population import Population
from .settings import CaptureMode
from .street import LENGTH, Street

Floats = NDArray[np.float64]
NEAR = 0.7  # m in front of the lens where drawing starts


def dot3(a: Floats, b: Floats) -> Floats:
    """Scalar products over the last axis, term by term.

    Matrix products are left to no library here: those choose their order of summation by size, alignment and CPU, and a
    last bit is enough to turn a pixel.
    """
    return np.asarray(a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2])


def rotated(vectors: Floats, axes: Floats) -> Floats:
    """`[..., 3]` in the frame whose unit vectors are the rows of `axes` (`[..., 3, 3]`, broadcast)."""
    return np.stack([dot3(vectors, axes[..., k, :]) for k in range(3)], axis=-1)


@dataclass(frozen=True)
class Pose:
    """One frame's camera. Rows of `axes` are the unit vectors right, down and forward."""

    position: Floats
    axes: Floats
    focal: float
    centre: float

    def view(self, points: Floats) -> Floats:
        """World points `[..., 3]` to camera coordinates (right, down, forward)."""
        return rotated(points - self.position, self.axes)

    def project(self, points: Floats) -> tuple[Floats, Floats]:
        """World points `[..., 3]` to pixels `[..., 2]` and depth `[...]`. Only points in front are meaningful."""
        seen = self.view(points)
        depth = seen[..., 2]
        return seen[..., :2] * (self.focal / np.maximum(depth, 1e-3))[..., None] + self.centre, depth


def clip_polygon(seen: Floats) -> Floats | None:
    """The part of a polygon (camera coordinates `[K, 3]`) in front of the near plane, or None."""
    depth = seen[:, 2]
    if depth.min() >= NEAR:
        return seen
    if depth.max() <= NEAR:
        return None
    kept: list[Floats] = []
    for k in range(len(seen)):
        p, q = seen[k], seen[(k + 1) % len(seen)]
        if p[2] >= NEAR:
            kept.append(p)
        if (p[2] >= NEAR) != (q[2] >= NEAR):
            kept.append(p + (q - p) * ((NEAR - p[2]) / (q[2] - p[2])))
    return np.array(kept) if len(kept) >= 3 else None


def fixed_pixels(outline: Floats, focal: float, centre: float) -> NDArray[np.int32]:
    """Outline in sixteenths of a pixel, as OpenCV's polygon filling takes it."""
    points = outline[:, :2] / outline[:, 2:] * focal + centre
    return np.rint(points * 16).clip(-500_000, 500_000).astype(np.int32)


@dataclass(frozen=True)
class CameraPath:
    """Camera position `[T, 3]` and angles `[T, 3]` (yaw to the left, pitch down, roll) at simulation steps."""

    position: Floats
    angles: Floats
    focal: float  # in units of the frame's side

    def pose(self, position: float, size: int) -> Pose:
        """The pose at a fractional step index."""
        low = min(int(position), len(self.position) - 1)
        high, share = min(low + 1, len(self.position) - 1), position - int(position)
        where = self.position[low] * (1 - share) + self.position[high] * share
        yaw, pitch, roll = (self.angles[low] * (1 - share) + self.angles[high] * share).tolist()
        cy, sy, cp, sp, cr, sr = (f(a) for a in (yaw, pitch, roll) for f in (math.cos, math.sin))
        right, down = (sy, -cy, 0.0), (-cy * sp, -sy * sp, -cp)
        rolled_right = [cr * r + sr * d for r, d in zip(right, down, strict=True)]
        rolled_down = [cr * d - sr * r for r, d in zip(right, down, strict=True)]
        axes = np.array([rolled_right, rolled_down, [cy * cp, sy * cp, -sp]])
        return Pose(where, axes, self.focal * size, size / 2)


def carry(
    street: Street, population: Population, trajectory: Trajectory, mode: CaptureMode, rng: np.random.Generator
) -> CameraPath:
    """The camera's way: on a dashboard, in a walker's hand, or under a drone."""
    steps = len(trajectory)
    shake = _Shake(rng)
    t = np.arange(steps) / 8.0
    if mode == "aerial":
        height = float(rng.uniform(13.0, 22.0))
        tilt = float(rng.uniform(0.55, 0.95))
        view = float(rng.uniform(-0.25, 0.25)) + (np.pi if rng.random() < 0.5 else 0.0)
        x0 = (street.junction if street.junction is not None else LENGTH / 2) - np.cos(view) * height / np.tan(tilt)
        drift = rng.normal(0, 0.5, size=2)
        if street.family.flyover:  # beside the deck, not above it
            height = max(height, 17.0)
        y0 = 0.8 * street.half_way if street.family.flyover else 0.0
        position = np.stack([x0 + drift[0] * t, y0 + 0.4 * drift[1] * t, np.full(steps, height)], axis=1)
        position[:, 1] = np.clip(position[:, 1], 0.5 - street.half_way, street.half_way - 0.5)
        angles = np.stack([view + 0.01 * shake(t, 0.5), tilt + 0.006 * shake(t, 0.7), 0.004 * shake(t, 0.6)], axis=1)
        return CameraPath(position, angles, focal=float(rng.uniform(0.75, 0.95)))

    row = population.camera
    assert row is not None
    heading = np.unwrap(np.arctan2(trajectory.hy[:, row], trajectory.hx[:, row]))
    speed = np.hypot(trajectory.vx[:, row], trajectory.vy[:, row])
    xy = np.stack([trajectory.x[:, row], trajectory.y[:, row]], axis=1)
    if mode == "drive":
        height, base_pitch, rough = (
            float(rng.uniform(1.25, 1.75)),
            float(rng.uniform(0.03, 0.09)),
            np.minimum(speed / 4, 1.0),
        )
        xy = xy + 0.4 * np.stack([np.cos(heading), np.sin(heading)], axis=1)
        bob = 0.02 * rough * shake(t, 3.1)
        pitch = base_pitch + 0.010 * rough * shake(t, 2.3)
        yaw = np.clip(heading, -0.35, 0.35) + 0.02 * shake(t, 0.4)
        roll = 0.008 * rough * shake(t, 1.9)
        focal = float(rng.uniform(0.68, 0.85))
    else:
        height, base_pitch, gait = float(rng.uniform(1.5, 1.75)), float(rng.uniform(0.02, 0.10)), np.minimum(speed, 1.0)
        bob = 0.03 * gait * np.sin(2 * np.pi * 1.9 * t)
        pitch = base_pitch + 0.018 * gait * shake(t, 1.9)
        # A walker looks down the street and around, not at the wall they happen to be pushed towards.
        glance = float(rng.uniform(0.1, 0.35)) * np.sin(0.5 * t + float(rng.uniform(0, 6.28)))
        yaw = np.clip(0.4 * heading + glance, -0.45, 0.45) + 0.02 * shake(t, 1.3)
        roll = 0.02 * gait * shake(t, 1.1)
        focal = float(rng.uniform(0.72, 0.92))
    position = np.concatenate([xy, (height + bob)[:, None]], axis=1)
    return CameraPath(position, np.stack([yaw, pitch, roll], axis=1), focal)


class _Shake:
    """Smooth pseudo-random motion: a few incommensurate sines, new phases for every use."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def __call__(self, t: Floats, rate: float) -> Floats:
        phases = self.rng.uniform(0, 2 * np.pi, size=3)
        rates = 2 * np.pi * rate * np.array([1.0, 0.618, 0.371])
        return dot3(np.sin(t[:, None] * rates + phases), np.array([0.5, 0.3, 0.2]))
