"""nuScenes tables (`v1.0-*/`): 3-D boxes of key frames, projected into the front camera as the devkit does.

A box counts if its centre lies before the camera and a part of its corners' hull lies in the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...world.taxonomy import Superclass
from ..scene import Array, Scene
from .annotated import Box, field, read_json, scene_of_boxes

_LAYOUT = "a nuScenes table"
_NEAREST = 0.1  # m before the camera; corners behind it have no place in the picture
_S = Superclass
CLASSES: dict[str, Superclass | None] = {  # by the longest name that a category starts with
    "human.pedestrian": _S.PEDESTRIAN, "human.pedestrian.personal_mobility": None, "human.pedestrian.stroller": None,
    "human.pedestrian.wheelchair": None, "vehicle.bicycle": _S.PEDAL_CYCLE, "vehicle.motorcycle": _S.TWO_WHEELER,
    "vehicle.car": _S.LIGHT_VEHICLE, "vehicle.emergency.police": _S.LIGHT_VEHICLE,
    "vehicle.emergency.ambulance": _S.HEAVY_VEHICLE, "vehicle.bus": _S.HEAVY_VEHICLE,
    "vehicle.truck": _S.HEAVY_VEHICLE, "vehicle.construction": _S.HEAVY_VEHICLE, "vehicle.trailer": None,
    "animal": _S.ANIMAL,
}  # fmt: skip


@dataclass(frozen=True)
class NuScene:
    """One scene with what it is grouped by: bootstrap draws logs, then scenes."""

    name: str
    log: str
    location: str
    scene: Scene


class _Tables:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, dict[str, dict[str, Any]]] = {}

    def __getitem__(self, name: str) -> dict[str, dict[str, Any]]:
        """A table by token."""
        if name not in self._read:
            path = self._folder / f"{name}.json"
            self._read[name] = {str(field(row, "token", path, _LAYOUT)): row for row in read_json(path, _LAYOUT)}
        return self._read[name]


def read_nuscenes(folder: Path, camera: str = "CAM_FRONT") -> list[NuScene]:
    """Every scene of a folder of tables, its key frames (2 a second) as seen by one camera."""
    tables = _Tables(folder)
    sensors = {t for t, row in tables["calibrated_sensor"].items()
               if tables["sensor"][row["sensor_token"]]["channel"] == camera}  # fmt: skip
    shown = {row["sample_token"]: row for row in tables["sample_data"].values()
             if row["is_key_frame"] and row["calibrated_sensor_token"] in sensors}  # fmt: skip
    annotated: dict[str, list[dict[str, Any]]] = {}
    for row in tables["sample_annotation"].values():
        annotated.setdefault(row["sample_token"], []).append(row)
    numbers = {token: number for number, token in enumerate(tables["instance"])}
    samples: dict[str, list[dict[str, Any]]] = {}
    for row in tables["sample"].values():
        samples.setdefault(row["scene_token"], []).append(row)
    found = []
    for token, about in tables["scene"].items():
        frames = sorted((s for s in samples.get(token, []) if s["token"] in shown), key=lambda s: s["timestamp"])
        if not frames:
            continue
        boxes = [
            box for frame, sample in enumerate(frames)
            for box in _boxes(frame, shown[sample["token"]], annotated.get(sample["token"], []), numbers, tables)
        ]  # fmt: skip
        view = shown[frames[0]["token"]]
        times = [(sample["timestamp"] - frames[0]["timestamp"]) / 1e6 for sample in frames]
        log = tables["log"][about["log_token"]]
        scene = scene_of_boxes(boxes, times, view["width"], view["height"])
        found.append(NuScene(about["name"], log["logfile"], log["location"], scene))
    return found


def _boxes(
    frame: int, view: dict[str, Any], rows: list[dict[str, Any]], numbers: dict[str, int], tables: _Tables
) -> list[Box]:
    sensor, ego = (
        tables["calibrated_sensor"][view["calibrated_sensor_token"]],
        tables["ego_pose"][view["ego_pose_token"]],
    )
    intrinsic = np.array(sensor["camera_intrinsic"], np.float64)
    found = []
    for row in rows:
        instance = tables["instance"][row["instance_token"]]
        known, superclass = _class_of(tables["category"][instance["category_token"]]["name"])
        corners = _corners(row)
        for pose in (ego, sensor):  # world to vehicle, vehicle to camera
            corners = (corners - np.array(pose["translation"])) @ rotation(pose["rotation"])
        ahead = corners[corners[:, 2] > _NEAREST]
        if not known or corners[:, 2].mean() <= _NEAREST or not len(ahead):
            continue
        pixels = ahead @ intrinsic.T
        pixels = pixels[:, :2] / pixels[:, 2:]
        (left, top), (right, bottom) = pixels.min(0), pixels.max(0)
        if left < view["width"] and top < view["height"] and right > 0 and bottom > 0:
            box = (float(left), float(top), float(right), float(bottom))
            found.append(Box(frame, numbers[row["instance_token"]], superclass, box))
    return found


def _class_of(category: str) -> tuple[bool, Superclass | None]:
    """Whether it is an agent, and of which superclass."""
    parts = category.split(".")
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in CLASSES:
            return True, CLASSES[name]
    return False, None


def _corners(row: dict[str, Any]) -> Array:
    """[8, 3] in the world. `size` is width, length, height; x points ahead, y to the left."""
    width, length, height = row["size"]
    signs = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
    local = signs * np.array([length, width, height]) / 2
    return np.asarray(local @ rotation(row["rotation"]).T + np.array(row["translation"]))


def rotation(quaternion: list[float]) -> Array:
    """[3, 3] of w, x, y, z."""
    w, x, y, z = np.asarray(quaternion, np.float64) / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
