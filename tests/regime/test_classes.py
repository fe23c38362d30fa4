"""A detector names regions, and only where it is clear."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from factorjepa.detectors.boxes import Detections
from factorjepa.errors import RegimeError
from factorjepa.pixels import Frames
from factorjepa.regime import classes
from factorjepa.regime.classes import ClassAssigner
from factorjepa.world.taxonomy import SUPERCLASSES, Superclass

from .scenes import Agent, scene

NAMES = {0: "person", 2: "car", 7: "truck", 56: "chair"}


def assigner(*found: tuple[tuple[float, float, float, float], float, int]) -> ClassAssigner:
    """A detector that sees the same in every frame."""

    def detect(frame: Frames) -> Detections:
        boxes, scores, kinds = zip(*found, strict=True) if found else ([], [], [])
        return Detections(np.array(boxes, float).reshape(-1, 4), np.array(scores, float), np.array(kinds, np.int64))

    return ClassAssigner(detect, NAMES, "a detector")


def named(these: ClassAssigner, *boxes: tuple[float, float, float, float]) -> list[str | None]:
    found = these(np.zeros((1, 8, 8, 3), np.uint8), scene([Agent(0, box) for box in boxes]))
    return [None if k < 0 else SUPERCLASSES[k] for k in found]


def test_a_region_is_named_by_the_detection_that_covers_it() -> None:
    these = assigner(((0.1, 0.1, 0.3, 0.3), 0.9, 0), ((0.6, 0.6, 0.8, 0.8), 0.8, 2))
    assert named(these, (10, 10, 30, 32), (60, 62, 80, 80), (40, 10, 50, 20)) == [
        Superclass.PEDESTRIAN, Superclass.LIGHT_VEHICLE, None,
    ]  # fmt: skip


def test_two_superclasses_in_one_place_are_unresolved_and_two_kinds_of_one_are_not() -> None:
    box = (0.1, 0.1, 0.3, 0.3)
    assert named(assigner((box, 0.9, 2), (box, 0.8, 7)), (10, 10, 30, 30)) == [None]
    assert named(assigner((box, 0.9, 2), (box, 0.8, 2)), (10, 10, 30, 30)) == [Superclass.LIGHT_VEHICLE]


def test_a_rival_that_is_much_less_sure_takes_no_vehicle_away() -> None:
    """Detectors say "truck" behind most cars: half the vehicles of real roads were unresolved because of it."""
    box, beside = (0.1, 0.1, 0.3, 0.3), (0.1, 0.1, 0.3, 0.32)
    assert named(assigner((box, 0.9, 2), (beside, 0.5, 7)), (10, 10, 30, 30)) == [Superclass.LIGHT_VEHICLE]
    assert named(assigner((box, 0.5, 2), (beside, 0.9, 7)), (10, 10, 30, 30)) == [Superclass.HEAVY_VEHICLE]


def test_furniture_and_unsure_detections_name_nobody() -> None:
    box = (0.1, 0.1, 0.3, 0.3)
    assert named(assigner((box, 0.9, 56), (box, 0.1, 0)), (10, 10, 30, 30)) == [None]
    assert named(assigner(), (10, 10, 30, 30)) == [None]


def test_a_detector_without_street_classes_is_refused() -> None:
    with pytest.raises(RegimeError, match="names no class that maps to a superclass"):
        ClassAssigner(
            lambda frame: Detections(np.empty((0, 4)), np.empty(0), np.empty(0, np.int64)), {0: "face"}, "faces"
        )


def test_another_file_of_the_same_name_is_another_measuring_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kept measures are used again, and corpora compared, only if the name of the system is the same."""
    monkeypatch.setattr(classes, "Detector", lambda path, wanted: SimpleNamespace(names=NAMES, classes=len(NAMES)))
    names = []
    for folder, weights in (("one", b"weights"), ("copy", b"weights"), ("other", b"other weights")):
        path = tmp_path / folder / "model.onnx"
        path.parent.mkdir()
        path.write_bytes(weights)
        names.append(ClassAssigner.open(path).name)
    assert names[0] == names[1] != names[2]
    assert all(name.startswith("model.onnx (sha256 ") for name in names)
