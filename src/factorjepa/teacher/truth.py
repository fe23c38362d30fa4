"""Ground truth as proposals: what the rest of the teacher would make of perfect regions. Simulated clips only."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ..errors import TeacherError
from ..pixels import Frames
from ..video import frame_index
from ..world import ClipTruth
from .proposals import describe, mask_side
from .regions import Floats, Region, region_of
from .settings import RegionSettings


class TruthProposals:
    """The visible masks of the true agents of one window, each with full confidence."""

    name = "ground truth"

    def __init__(self, truth: ClipTruth, times: NDArray[np.float64], settings: RegionSettings) -> None:
        """`times` are the window's frames in seconds of the clip."""
        self._truth, self._settings = truth, settings
        self._numbers = np.minimum(frame_index(times, truth.fps), truth.frames - 1)

    def __call__(self, frames: Frames, features: Floats, camera: Floats, context: int) -> list[list[Region]]:
        if len(frames) != len(self._numbers):
            raise TeacherError(
                f"ground truth was asked for {len(self._numbers)} frames and the window has {len(frames)}: "
                "give both the same times"
            )
        side = mask_side(self._settings, frames.shape[1])
        result = []
        for number, grid in zip(self._numbers.tolist(), features, strict=True):
            shown = cv2.resize(self._truth.instances(number), (side, side), interpolation=cv2.INTER_NEAREST)
            masks = [shown == agent for agent in np.unique(shown[shown > 0])]
            result.append([region_of(mask, describe(mask, grid), 1.0) for mask in masks])
        return result
