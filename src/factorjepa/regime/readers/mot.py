"""MOT-format ground truth: a text file per sequence, `frame, id, left, top, width, height, flag, class, visibility`."""

from __future__ import annotations

import configparser
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import RegimeError
from ...teacher.annotations import MotBoxes
from ...world.taxonomy import Superclass
from ..scene import Scene
from .annotated import Box, frame_number, reading, scene_of_boxes

# MOT17 classes that are agents. A person on a vehicle (2) and a static person (7) are agents of no one class.
# The flag is not heeded: it says what a benchmark of pedestrian trackers leaves out, every vehicle among it.
_CLASSES = {
    1: Superclass.PEDESTRIAN, 2: None, 3: Superclass.LIGHT_VEHICLE, 4: Superclass.PEDAL_CYCLE,
    5: Superclass.TWO_WHEELER, 6: Superclass.INTERMEDIATE, 7: None,
}  # fmt: skip


def read_mot(path: Path, width: int, height: int, fps: float, original_width: int | None = None) -> Scene:
    """Every frame up to the last that is annotated, in pixels of a video of `width` x `height`."""
    rows = MotBoxes.read(path, width, original_width)
    agents = np.flatnonzero(np.isin(rows.kinds, list(_CLASSES)))
    with reading(path, "MOT ground truth"):
        boxes = [
            Box(frame_number(rows.frame[r]), int(rows.ids[r]), _CLASSES[int(rows.kinds[r])], tuple(rows.boxes[r]))
            for r in agents
        ]
        frames = frame_number(rows.frame.max(initial=-1) + 1)
        return scene_of_boxes(boxes, np.arange(frames) / fps, width, height)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sequence:
    """What a sequence's `seqinfo.ini` says of its pictures."""

    fps: float
    width: int
    height: int


def read_sequence(path: Path) -> Sequence:
    told = configparser.ConfigParser(interpolation=None)
    try:
        told.read_string(path.read_text(encoding="utf-8"))
        about = told["Sequence"]
        found = Sequence(float(about["frameRate"]), int(about["imWidth"]), int(about["imHeight"]))
    except (OSError, ValueError, KeyError, configparser.Error) as error:
        raise RegimeError(f"{path}: cannot be read as a MOT seqinfo.ini ({error})") from None
    if not (0 < found.fps < float("inf") and found.width > 0 and found.height > 0):
        raise RegimeError(f"{path}: states {found.width} x {found.height} pixels at {found.fps} fps")
    return found
