"""Reference corpora in their published layouts, as a table that `factorjepa ingest` takes.

BDD100K has videos. nuScenes has pictures: those of a scene become one video, byte for byte and with the camera's own
times, so that ingest cuts, resamples and filters them like any footage. No annotation of an agent is read here.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

from ...errors import RegimeError, StorageError
from ...storage import inside, write_atomic, write_text
from ...words import counted
from .annotated import read_json, reading
from .bdd100k import read_attributes
from .nuscenes import Filmed, read_filmed

TABLE = "table.csv"
_COLUMNS = ("file", "city", "session", "capture_mode", "scene_type", "illumination", "weather", "dataset")
_JPEG = b"\xff\xd8"
_CLOCK = Fraction(1, 1000)  # s, Matroska's
# BDD100K names no city. These are the two regions of its paper; centre in degrees, and what lies within 120 km of it.
_REGIONS = {"new york": (40.73, -73.99), "san francisco bay area": (37.70, -122.27)}
_REACH, _DEGREE = 120.0, 111.2  # km


@dataclass(frozen=True)
class Listing:
    """What was written, and what a person should know of it."""

    table: Path
    videos: int
    notes: tuple[str, ...] = ()


def list_bdd100k(folder: Path, out: Path) -> Listing:
    """`videos/**/*.mov`, with conditions from the image labels and place and ride from `info/`, where they lie there.

    The table must lie above the videos: ingest looks for them under its folder.
    """
    videos = sorted(path for path in (folder / "videos").rglob("*.mov") if path.is_file())
    if not videos:
        raise RegimeError(f"{folder}: holds no videos/**/*.mov; name the folder that BDD100K unpacks to, bdd100k/")
    if not folder.resolve().is_relative_to(out.resolve()):
        raise RegimeError(f"{out}: is not above the videos ({folder}), where ingest looks for them; leave --out away")
    conditions: dict[str, dict[str, str]] = {}
    for path in _image_labels(folder / "labels"):
        conditions |= read_attributes(path)
    infos = {path.stem: path for path in (folder / "info").rglob("*.json")}
    rows, placed = [], 0
    for video in videos:
        city, ride = _place_and_ride(infos[video.stem]) if video.stem in infos else ("", "")
        placed += bool(city)
        rows.append(
            {"file": video.resolve().relative_to(out.resolve()).as_posix(), "city": city or "unknown",
             "session": ride or video.stem.split("-")[0], "capture_mode": "drive", "dataset": "BDD100K",
             **conditions.get(video.stem, {})}
        )  # fmt: skip
    known = sum(video.stem in conditions for video in videos)
    notes = (
        f"conditions are known of {known} of {counted(len(videos), 'video')}, the place of {placed}: BDD100K names no "
        "city, and info/ has positions. Compare with --clusters source for this corpus, as the paper does",
    )
    return Listing(_write(out / TABLE, rows), len(rows), notes)


def _image_labels(folder: Path) -> list[Path]:
    """Of both releases: the pictures of second 10, which carry the conditions of their video."""
    return sorted([*folder.rglob("det_*.json"), *folder.rglob("bdd100k_labels_images_*.json")])


def _place_and_ride(path: Path) -> tuple[str, str]:
    """Region of the first position, and the ride that the video is a part of; empty where they are not told."""
    layout = "BDD100K info"
    told = read_json(path, layout)
    with reading(path, layout):
        ride = str(told.get("rideID") or "")
        where = [*(told.get("locations") or []), *(told.get("gps") or [])]
        return (_region(float(where[0]["latitude"]), float(where[0]["longitude"])) if where else ""), ride


def _region(latitude: float, longitude: float) -> str:
    for name, (north, east) in _REGIONS.items():
        shrink = math.cos(math.radians(north))
        if math.hypot(latitude - north, (longitude - east) * shrink) * _DEGREE <= _REACH:
            return name
    return "elsewhere"


def list_nuscenes(
    folder: Path,
    out: Path,
    camera: str = "CAM_FRONT",
    version: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Listing:
    """One video per scene from the camera's key frames and sweeps; city is the location, session the log.

    The dataset is published in parts: a scene whose pictures are not all there is left out, and counted.
    """
    tables = _version(folder, version)
    scenes = read_filmed(folder / tables, camera)
    if not scenes:
        raise RegimeError(f"{folder / tables}: has no picture of {camera}")
    rows, absent = [], 0
    for number, scene in enumerate(scenes, start=1):
        paths = [_inside(folder, name) for name, _ in scene.pictures]
        if all(path.is_file() for path in paths):
            file = f"{camera}/{_plain(scene.name)}.mkv"
            if not (out / file).exists():
                _write_video(out / file, paths, scene)
            rows.append({"file": file, "city": scene.location, "session": scene.log, "capture_mode": "drive",
                         "dataset": f"nuScenes {tables} {camera}", **_conditions(scene.description)})  # fmt: skip
        else:
            absent += 1
        if progress is not None:
            progress(number, len(scenes))
    if not rows:
        raise RegimeError(f"{folder}: of none of {counted(len(scenes), 'scene')} are all pictures there")
    notes = (f"{counted(absent, 'scene')} of {len(scenes)} left out: not all pictures are there",) if absent else ()
    return Listing(_write(out / TABLE, rows), len(rows), notes)


def _version(folder: Path, wanted: str | None) -> str:
    there = sorted(path.name for path in folder.glob("v1.0-*") if path.is_dir())
    if wanted is not None and wanted in there:
        return wanted
    if wanted is not None or len(there) != 1:
        said = ", ".join(there) or "none"
        raise RegimeError(f"{folder}: name the folder of nuScenes' tables with --version; there are: {said}")
    return there[0]


def _conditions(description: str) -> dict[str, str]:
    """The devkit's own words: scenes at night and in the rain say so; the others were taken by day, in the dry."""
    words = description.lower()
    return {"illumination": "night" if "night" in words else "day", "weather": "rain" if "rain" in words else "clear"}


def _write_video(path: Path, pictures: Sequence[Path], scene: Filmed) -> None:
    """JPEG pictures as Motion JPEG: nothing is decoded, nothing is lost, and times are the camera's."""
    span = scene.pictures[-1][1]
    rate = Fraction(round(1000 * (len(pictures) - 1) / span), 1000) if span > 0 else Fraction(1)

    def write(temporary: Path) -> None:
        with av.open(str(temporary), "w", format="matroska") as container:
            stream = container.add_stream("mjpeg", rate=rate)
            stream.width, stream.height, stream.pix_fmt = scene.width, scene.height, "yuvj420p"
            last = -1
            for picture, (_, seconds) in zip(pictures, scene.pictures, strict=True):
                data = picture.read_bytes()
                if not data.startswith(_JPEG):
                    raise RegimeError(f"{picture}: is not a JPEG picture; is the download complete?")
                packet = av.Packet(data)
                packet.stream, packet.time_base, packet.is_keyframe = stream, _CLOCK, True
                last = max(round(seconds / _CLOCK), last + 1)
                packet.pts = packet.dts = last
                container.mux(packet)

    write_atomic(path, write)


def _inside(folder: Path, name: str) -> Path:
    try:
        return inside(folder, name)
    except StorageError as error:
        raise RegimeError(f"{folder}: its tables name a picture outside it ({error})") from None


def _plain(name: str) -> str:
    if not name or not all(c.isalnum() or c in "-_" for c in name):
        raise RegimeError(f"scene {name!r}: names of nuScenes scenes are letters, digits and dashes")
    return name


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if path.exists() and path.read_text(encoding="utf-8") != text.getvalue():
        raise RegimeError(f"{path}: exists and says something else; a table that somebody may have changed is kept")
    write_text(path, text.getvalue())
    return path
