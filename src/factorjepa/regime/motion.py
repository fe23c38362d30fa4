"""Tracks over time: velocities without the camera's motion, gaps, and how steady motion is.

Legend: O observations; S steps, from one sighting of a track to its next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .scene import Array, Bools, Scene


@dataclass(frozen=True)
class Steps:
    """Rows of the two sightings of each step, by track and then by time."""

    before_S: NDArray[np.intp]
    after_S: NDArray[np.intp]
    velocity_S2: Array  # own, units per second

    @classmethod
    def of(cls, scene: Scene) -> Steps:
        rows = np.flatnonzero(scene.track_O >= 0)
        rows = rows[np.lexsort((scene.frame_O[rows], scene.track_O[rows]))]
        same = scene.track_O[rows[1:]] == scene.track_O[rows[:-1]]
        before, after = rows[:-1][same], rows[1:][same]
        seconds = scene.times_T[scene.frame_O[after]] - scene.times_T[scene.frame_O[before]]
        centre = scene.centre_O2
        velocity = (centre[after] - centre[before]) / seconds[:, None] - scene.drift_O2[after]
        return cls(before, after, velocity)


def velocities(scene: Scene, steps: Steps) -> Array:
    """Of each observation, [O, 2]: since the last sighting, or until the next for the first. NaN: seen once only."""
    velocity_O2 = np.full((len(scene.frame_O), 2), np.nan)
    velocity_O2[steps.before_S] = steps.velocity_S2
    velocity_O2[steps.after_S] = steps.velocity_S2
    return velocity_O2


def gaps(scene: Scene, steps: Steps, truncated_O: Bools, longest: float) -> Bools:
    """g: the track is lost right after or right before this sighting and found again within `longest` seconds.

    Interior gaps alone: whoever leaves through the border and comes back was not hidden.
    """
    frame, times = scene.frame_O, scene.times_T
    missing = frame[steps.after_S] - frame[steps.before_S] > 1
    seconds = times[frame[steps.after_S]] - times[frame[steps.before_S]]
    inside = ~truncated_O[steps.before_S] & ~truncated_O[steps.after_S]
    lost_S = missing & inside & (seconds <= longest + 1e-9)
    flags_O = np.zeros(len(frame), bool)
    flags_O[steps.before_S[lost_S]] = True
    flags_O[steps.after_S[lost_S]] = True
    return flags_O


def consistency(scene: Scene, steps: Steps) -> tuple[float, float]:
    """How far each two consecutive displacements of a track in the picture agree: sum of products, sum of lengths.

    Their ratio is a cosine in which long displacements count more: short ones are mostly rounding. The camera's motion
    is part of it, because it must be lost with the order of frames as well.
    """
    way_S2 = scene.centre_O2[steps.after_S] - scene.centre_O2[steps.before_S]
    follow = steps.after_S[:-1] == steps.before_S[1:]
    one, other = way_S2[:-1][follow], way_S2[1:][follow]
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float((one * other).sum()), float(lengths.sum())


def contiguity(scene: Scene, steps: Steps) -> tuple[int, int]:
    """How many steps lead to the very next frame, and how many steps there are."""
    next_frame = scene.frame_O[steps.after_S] - scene.frame_O[steps.before_S] == 1
    return int(next_frame.sum()), len(next_frame)
