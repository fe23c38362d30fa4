"""What all readers share: boxes as scenes, the map to superclasses, and how a file that is not what it says is told."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RegimeError
from ...world.taxonomy import SUPERCLASSES, Superclass
from ..scene import UNRESOLVED, BoxMasks, Scene, clipped

MOST_FRAMES = 1_000_000  # of a video: nine hours at 30 a second. A larger number is a damaged one


@dataclass(frozen=True)
class Box:
    """One annotated agent in one frame; left, top, right, bottom in pixels."""

    frame: int
    track: int
    superclass: Superclass | None  # None: an agent, of no class or of several
    corners: tuple[float, float, float, float]


def scene_of_boxes(boxes: Sequence[Box], times: Sequence[float], width: float, height: float) -> Scene:
    """Boxes stand for masks, everything is sure, and camera motion is unknown: velocities include it."""
    if not (0 < width < float("inf") and 0 < height < float("inf")):
        raise ValueError(f"a picture of {width} x {height}")
    if not np.isfinite([value for box in boxes for value in box.corners]).all():
        raise ValueError("a box whose corners are not finite")
    ordered = sorted(boxes, key=lambda box: box.frame)
    frame_O = np.array([box.frame for box in ordered], np.int64)
    box_O4 = clipped(np.array([box.corners for box in ordered], np.float64), (0, 0, width, height))
    return Scene(
        times_T=np.asarray(times, np.float64),
        width=float(width),
        height=float(height),
        frame_O=frame_O,
        track_O=np.array([box.track for box in ordered], np.int64),
        superclass_O=np.array([number_of(box.superclass) for box in ordered], np.int64),
        confidence_O=np.ones(len(ordered)),
        box_O4=box_O4,
        area_O=(box_O4[:, 2:] - box_O4[:, :2]).prod(1),
        drift_O2=np.zeros((len(ordered), 2)),
        cover=BoxMasks(frame_O, box_O4, len(times)),
    )


def number_of(superclass: Superclass | None) -> int:
    return UNRESOLVED if superclass is None else SUPERCLASSES.index(superclass)


@contextlib.contextmanager
def reading(path: Path, layout: str) -> Iterator[None]:
    """Whatever goes wrong with the content of a file from elsewhere is said of that file."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise RegimeError(f"{path}: is not as {layout} must be ({type(error).__name__}: {error})") from None


def frame_number(value: Any) -> int:
    """From 0, and so small that a list of all frames fits into memory."""
    number = int(value)
    if not 0 <= number < MOST_FRAMES:
        raise ValueError(f"frame {number} of a video of at most {MOST_FRAMES} frames")
    return number


def read_json(path: Path, layout: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RegimeError(f"{path}: no such file; {layout} keeps it there") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RegimeError(f"{path}: cannot be read as {layout} ({error})") from None


def field(row: Mapping[str, Any], key: str, path: Path, layout: str) -> Any:
    try:
        return row[key]
    except (KeyError, TypeError):
        raise RegimeError(f"{path}: an entry has no {key!r}, which {layout} must have") from None
