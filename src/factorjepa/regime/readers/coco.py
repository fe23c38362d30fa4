"""COCO-format annotations: single pictures, or videos where pictures carry `video_id` and `frame_id` (CocoVID)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...world.taxonomy import Superclass
from ..scene import NOBODY, Scene
from .annotated import Box, field, frame_number, read_json, reading, scene_of_boxes

_LAYOUT = "COCO annotations"
_S = Superclass
CLASSES = {
    "person": _S.PEDESTRIAN, "bicycle": _S.PEDAL_CYCLE, "car": _S.LIGHT_VEHICLE, "motorcycle": _S.TWO_WHEELER,
    "bus": _S.HEAVY_VEHICLE, "truck": _S.HEAVY_VEHICLE, "train": _S.HEAVY_VEHICLE, "cat": _S.ANIMAL, "dog": _S.ANIMAL,
    "horse": _S.ANIMAL, "sheep": _S.ANIMAL, "cow": _S.ANIMAL, "elephant": _S.ANIMAL,
}  # fmt: skip


def read_coco(path: Path, fps: float = 1.0) -> dict[str, Scene]:
    """A scene for every video, or for every picture that belongs to none. Crowd regions are nobody's boxes.

    `frame_id` counts from the video's beginning, `fps` to a second. Videos have the names of `videos`, where listed.
    """
    whole = read_json(path, _LAYOUT)
    with reading(path, _LAYOUT):
        return _scenes(whole, path, fps)


def _scenes(whole: Any, path: Path, fps: float) -> dict[str, Scene]:
    names = {row["id"]: str(row["name"]) for row in field(whole, "categories", path, _LAYOUT)}
    called = {row["id"]: str(row["name"]) for row in whole.get("videos") or []}
    pictures: dict[Any, dict[str, Any]] = {
        field(row, "id", path, _LAYOUT): row for row in field(whole, "images", path, _LAYOUT)
    }
    videos: dict[str, list[dict[str, Any]]] = {}
    for row in pictures.values():
        video = row.get("video_id")
        name = str(row.get("file_name", row["id"])) if video is None else called.get(video, f"video {video}")
        videos.setdefault(name, []).append(row)
    of_picture: dict[Any, list[dict[str, Any]]] = {}
    for row in field(whole, "annotations", path, _LAYOUT):
        if names.get(field(row, "category_id", path, _LAYOUT)) in CLASSES and not row.get("iscrowd"):
            of_picture.setdefault(field(row, "image_id", path, _LAYOUT), []).append(row)
    scenes = {}
    for name, rows in videos.items():
        rows.sort(key=lambda row: frame_number(row.get("frame_id", 0)))
        boxes = []
        for frame, picture in enumerate(rows):
            for one in of_picture.get(picture["id"], []):
                left, top, width, height = map(float, field(one, "bbox", path, _LAYOUT))
                track = one.get("track_id", one.get("instance_id", NOBODY))
                corners = (left, top, left + width, top + height)
                boxes.append(Box(frame, int(track), CLASSES[names[one["category_id"]]], corners))
        size = (float(field(rows[0], key, path, _LAYOUT)) for key in ("width", "height"))
        scenes[name] = scene_of_boxes(boxes, [frame_number(row.get("frame_id", 0)) / fps for row in rows], *size)
    return scenes
