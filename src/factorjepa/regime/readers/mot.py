"""MOT-format ground truth: a text file per sequence, `frame, id, left, top, width, height, flag, class, visibility`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...teacher.annotations import MotBoxes
from ...world.taxonomy import Superclass
from ..scene import Scene
from .annotated import Box, scene_of_boxes

# MOT17 classes that are agents. A person on a vehicle (2) and a static person (7) are agents of no one class.
_CLASSES = {
    1: Superclass.PEDESTRIAN, 2: None, 3: Superclass.LIGHT_VEHICLE, 4: Superclass.PEDAL_CYCLE,
    5: Superclass.TWO_WHEELER, 6: Superclass.INTERMEDIATE, 7: None,
}  # fmt: skip


def read_mot(path: Path, width: int, height: int, fps: float, original_width: int | None = None) -> Scene:
    """Every frame up to the last that is annotated, in pixels of a video of `width` x `height`."""
    rows = MotBoxes.read(path, width, original_width)
    agents = np.flatnonzero(np.isin(rows.kinds, list(_CLASSES)))
    boxes = [
        Box(int(rows.frame[r]), int(rows.ids[r]), _CLASSES[int(rows.kinds[r])], tuple(rows.boxes[r].tolist()))
        for r in agents
    ]
    frames = int(rows.frame.max(initial=-1)) + 1
    return scene_of_boxes(boxes, np.arange(frames) / fps, width, height)  # type: ignore[arg-type]
