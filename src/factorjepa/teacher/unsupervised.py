"""Regions of agents without labels: parts of each frame that stand out and have an agent's size, shape and place.

`foreground` says where agents may be, `parts` gives every frame's parts at every scale and measures them, `scoring`
weighs the measures into the log-odds of being an agent, `choosing` takes those that are agents together.

A stopped agent is found where it looks like those who walk. So is a parked vehicle that looks like the moving ones:
from a few seconds of video nothing tells the two apart.

The constants are fitted by `benchmarks/fit_regions.py`; they are the same for all data, and no label is seen when they
are used. A confidence is a rank with a sensible operating point, not a probability: 0.55, the paper's threshold, is
where a part is worth keeping, and fewer than 55 of 100 such regions are agents.
"""

from __future__ import annotations

import cv2
import numpy as np

from ..pixels import Frames
from .choosing import chosen_regions
from .foreground import foreground
from .parts import measured
from .proposals import describe, mask_side
from .regions import Floats, Region, region_of
from .settings import RegionSettings

WORKING_SIDE = 192  # px: parts are joined and measured on this grid; a finer one holds no more agents


class UnsupervisedProposals:
    """`Proposals` from feature affinity, motion and what persists over the window."""

    name = "unsupervised v4"

    def __init__(self, settings: RegionSettings) -> None:
        self._settings = settings

    def __call__(self, frames: Frames, features: Floats, camera: Floats, context: int) -> list[list[Region]]:
        side = mask_side(self._settings, frames.shape[1])
        seen = foreground(frames, features, camera, min(side, WORKING_SIDE), context)
        parts = list(measured(seen, range(len(frames)), self._settings.min_area))
        result = []
        for chosen, grid in zip(chosen_regions(seen, parts, context), features, strict=True):
            shown = cv2.resize(chosen.labels.astype(np.int16), (side, side), interpolation=cv2.INTER_NEAREST)
            found = ((shown == k, sure) for k, sure in enumerate(chosen.confidence().tolist()))
            result.append([region_of(mask, describe(mask, grid), sure) for mask, sure in found])
        return result
