"""nuScenes tables (`v1.0-*/`): what a camera took, and the 3-D boxes of key frames projected into its pictures.

A box counts if its centre lies before the camera and a part of its corners' hull lies in the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RegimeError
from ...world.taxonomy import Superclass
from ..scene import Array, Scene
from .annotated import Box, field, read_json, reading, scene_of_boxes

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


@dataclass(frozen=True)
class Filmed:
    """One scene as a camera took it, key frames and sweeps."""

    name: str
    log: str
    location: str
    description: str
    width: int
    height: int
    pictures: tuple[tuple[str, float], ...]  # file under the dataset's folder, seconds from the first


class _Tables:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, dict[str, dict[str, Any]]] = {}

    def __getitem__(self, name: str) -> dict[str, dict[str, Any]]:
        """A table by token."""
        if name not in self._read:
            path = self._folder / f"{name}.json"
            rows = read_json(path, _LAYOUT)
            with reading(path, _LAYOUT):
                self._read[name] = {str(field(row, "token", path, _LAYOUT)): row for row in rows}
        return self._read[name]

    def views(self, camera: str) -> dict[str, list[dict[str, Any]]]:
        """What the camera took, by scene, in order of time."""
        sensors = {t for t, row in self["calibrated_sensor"].items()
                   if self["sensor"][row["sensor_token"]]["channel"] == camera}  # fmt: skip
        if not sensors:
            known = sorted({str(row["channel"]) for row in self["sensor"].values()})
            raise RegimeError(f"{self._folder}: has no {camera}; it has: {', '.join(known)}")
        found: dict[str, list[dict[str, Any]]] = {}
        for row in self["sample_data"].values():
            if row["calibrated_sensor_token"] in sensors:
                found.setdefault(self["sample"][row["sample_token"]]["scene_token"], []).append(row)
        for rows in found.values():
            rows.sort(key=lambda row: int(row["timestamp"]))
        return found

    def log_of(self, scene: dict[str, Any]) -> tuple[str, str]:
        """Its log and where that was driven."""
        log = self["log"][scene["log_token"]]
        return str(log["logfile"]), str(log["location"])


def read_nuscenes(folder: Path, camera: str = "CAM_FRONT") -> list[NuScene]:
    """Every scene of a folder of tables, its key frames (2 a second) as one camera sees them.

    Times are from the camera's first picture of the scene, key frame or not.
    """
    tables = _Tables(folder)
    with reading(folder, "the nuScenes tables"):
        views = tables.views(camera)
        annotated: dict[str, list[dict[str, Any]]] = {}
        for row in tables["sample_annotation"].values():
            annotated.setdefault(row["sample_token"], []).append(row)
        numbers = {token: number for number, token in enumerate(tables["instance"])}
        found = []
        for token, about in tables["scene"].items():
            shown = [row for row in views.get(token, []) if row["is_key_frame"]]
            if not shown:
                continue
            boxes = [
                box for frame, view in enumerate(shown)
                for box in _boxes(frame, view, annotated.get(view["sample_token"], []), numbers, tables)
            ]  # fmt: skip
            times = _seconds(shown, views[token][0])
            scene = scene_of_boxes(boxes, times, float(shown[0]["width"]), float(shown[0]["height"]))
            found.append(NuScene(str(about["name"]), *tables.log_of(about), scene))
        return found


def read_filmed(folder: Path, camera: str = "CAM_FRONT") -> list[Filmed]:
    """Every scene of a folder of tables as the list of its pictures (12 a second with sweeps)."""
    tables = _Tables(folder)
    with reading(folder, "the nuScenes tables"):
        found = []
        for token, rows in tables.views(camera).items():
            about = tables["scene"][token]
            pictures = zip((str(row["filename"]) for row in rows), _seconds(rows, rows[0]), strict=True)
            size = int(rows[0]["width"]), int(rows[0]["height"])
            told = str(about.get("description", ""))
            found.append(Filmed(str(about["name"]), *tables.log_of(about), told, *size, tuple(pictures)))
        return sorted(found, key=lambda one: one.name)


def _seconds(rows: list[dict[str, Any]], first: dict[str, Any]) -> list[float]:
    return [(int(row["timestamp"]) - int(first["timestamp"])) / 1e6 for row in rows]


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
    if not 0 < np.linalg.norm(quaternion) < np.inf:
        raise ValueError(f"{quaternion} is no rotation")
    w, x, y, z = np.asarray(quaternion, np.float64) / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
