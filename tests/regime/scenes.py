"""Tiny scenes by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from factorjepa.regime.scene import BoxMasks, Scene, clipped


@dataclass(frozen=True)
class Agent:
    """One agent in one frame, its box in pixels of the picture."""

    frame: int
    box: tuple[float, float, float, float]
    track: int = -1
    superclass: int = 0
    confidence: float = 1.0


def scene(
    agents: Sequence[Agent],
    frames: int = 1,
    size: tuple[float, float] = (100.0, 100.0),
    valid: tuple[float, float, float, float] | None = None,
    classes: bool = True,
    drift: tuple[float, float] = (0.0, 0.0),
    fps: float = 4.0,
) -> Scene:
    """Boxes stand for masks. `valid` is the part of a padded picture of `size` that is real."""
    left, top, right, bottom = valid or (0.0, 0.0, *size)
    ordered = sorted(agents, key=lambda agent: agent.frame)
    box = clipped(np.array([agent.box for agent in ordered], float).reshape(-1, 4), (left, top, right, bottom))
    frame = np.array([agent.frame for agent in ordered], np.int64)
    return Scene(
        times_T=np.arange(frames) / fps,
        width=right - left,
        height=bottom - top,
        frame_O=frame,
        track_O=np.array([agent.track for agent in ordered], np.int64),
        superclass_O=np.array([agent.superclass for agent in ordered], np.int64) if classes else None,
        confidence_O=np.array([agent.confidence for agent in ordered], float),
        box_O4=box,
        area_O=(box[:, 2:] - box[:, :2]).prod(1),
        drift_O2=np.tile(np.array(drift, float), (len(ordered), 1)),
        cover=BoxMasks(frame, box, frames),
    )
