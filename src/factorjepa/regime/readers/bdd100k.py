"""BDD100K: `labels/box_track_20/<split>/<video>.json`, one list of frames per video, five a second of 1280 x 720."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...world.taxonomy import Superclass
from ..scene import Scene
from .annotated import Box, field, frame_number, read_json, reading, scene_of_boxes

FPS, WIDTH, HEIGHT = 5.0, 1280, 720
_LAYOUT = "BDD100K tracking labels"
_S = Superclass
# Names of both releases. A rider is on a bicycle or on a motorcycle: nobody says which.
CLASSES: dict[str, Superclass | None] = {
    "pedestrian": _S.PEDESTRIAN, "person": _S.PEDESTRIAN, "other person": _S.PEDESTRIAN, "rider": None,
    "bicycle": _S.PEDAL_CYCLE, "bike": _S.PEDAL_CYCLE, "motorcycle": _S.TWO_WHEELER, "motor": _S.TWO_WHEELER,
    "car": _S.LIGHT_VEHICLE, "truck": _S.HEAVY_VEHICLE, "bus": _S.HEAVY_VEHICLE, "train": _S.HEAVY_VEHICLE,
    "other vehicle": None, "trailer": None,
}  # fmt: skip
# The published words for what strata are made of, in ours; a word that is not here is kept as it is.
ATTRIBUTES = {
    "scene": ("scene_type", {"residential": "residential", "city street": "commercial"}),
    "timeofday": ("illumination", {"daytime": "day", "dawn/dusk": "dusk", "night": "night"}),
    "weather": ("weather", {"clear": "clear", "rainy": "rain", "foggy": "haze"}),
}


def read_video(path: Path) -> Scene:
    """Frames are counted from the video's beginning."""
    rows: list[dict[str, Any]] = read_json(path, _LAYOUT)
    with reading(path, _LAYOUT):
        at = {frame_number(field(row, "frameIndex", path, _LAYOUT)): row for row in rows}
        if len(at) < len(rows):
            raise ValueError("a frame that is there twice")
        boxes: list[Box] = []
        numbers: dict[str, int] = {}
        for frame, row in enumerate(at[index] for index in sorted(at)):
            for label in row.get("labels") or []:
                kind = str(field(label, "category", path, _LAYOUT))
                if kind not in CLASSES or "box2d" not in label or (label.get("attributes") or {}).get("crowd"):
                    continue
                track = numbers.setdefault(str(field(label, "id", path, _LAYOUT)), len(numbers))
                x1, y1, x2, y2 = (float(label["box2d"][key]) for key in ("x1", "y1", "x2", "y2"))
                boxes.append(Box(frame, track, CLASSES[kind], (x1, y1, x2, y2)))
        return scene_of_boxes(boxes, [index / FPS for index in sorted(at)], WIDTH, HEIGHT)


def read_attributes(path: Path) -> dict[str, dict[str, str]]:
    """Stratum fields of every picture of an image-label file, by the name of its video."""
    layout = "BDD100K image labels"
    found: dict[str, dict[str, str]] = {}
    rows = read_json(path, layout)
    with reading(path, layout):
        for row in rows:
            told = row.get("attributes") or {}
            found[Path(str(field(row, "name", path, layout))).stem] = {
                ours: words.get(str(told[theirs]), str(told[theirs]))
                for theirs, (ours, words) in ATTRIBUTES.items()
                if told.get(theirs, "undefined") != "undefined"
            }
    return found
