"""Regions from a detector's boxes. Features say which part of a box is the agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ..detectors.boxes import Detections, suppressed
from ..detectors.detector import Detector
from ..detectors.tiles import detect_tiled
from ..errors import TeacherError
from ..pixels import Frames
from .proposals import describe, mask_side
from .regions import Floats, Region, region_of
from .settings import RegionSettings
from .street_detector import REGIONS, StreetDetector

_ROUNDNESS = 2.5  # exponent of the shape that agents fill in their boxes, between an ellipse (2) and the box
_CORE, _SURROUND = 0.7, 2.2  # of the box's size: where the agent surely is, and where the background is sought
_MIN_CELLS = 4.0  # a smaller box, in feature cells, tells core from surround by nothing but noise
_EVIDENCE = 0.3  # weight of the features against the shape's prior
_LOWER = 0.05  # of the box's height by which a nearer agent stands lower
_NEARER = 0.8  # of a nearer agent's size: what lies within is hidden behind it
_MIN_FILL = 0.3  # of the box: a smaller mask lost the agent


class DetectorProposals:
    """Agents that a user's ONNX detector finds, each frame by itself."""

    def __init__(self, settings: RegionSettings) -> None:
        if settings.detector is None:
            raise TeacherError("regions.kind is detector, but regions.detector does not say where the ONNX file is")
        self._settings = settings
        self._detector = Detector(Path(settings.detector), settings.classes)
        self.name = f"detector {Path(settings.detector).name}{' with tiles' if settings.tiles else ''}"

    def __call__(self, frames: Frames, features: Floats, camera: Floats, context: int) -> list[list[Region]]:
        side = mask_side(self._settings, frames.shape[1])
        return [self._regions(frame, grid, side) for frame, grid in zip(frames, features, strict=True)]

    def _regions(self, frame: Frames, grid: Floats, side: int) -> list[Region]:
        found = detect_tiled(self._detector, frame) if self._settings.tiles else self._detector(frame)
        return regions_of(found, grid, side, self._settings)


class StreetProposals:
    """Agents of simulated streets, by a packaged detector that has learned on other worlds than any corpus has."""

    def __init__(self, settings: RegionSettings) -> None:
        self._settings = settings
        self._detector = StreetDetector.load(packaged=REGIONS)
        self.name = f"street detector {self._detector.name}"

    def __call__(self, frames: Frames, features: Floats, camera: Floats, context: int) -> list[list[Region]]:
        side = mask_side(self._settings, frames.shape[1])
        found = map(self._sure, self._detector(frames))  # each frame by itself
        return [regions_of(agents, grid, side, self._settings) for agents, grid in zip(found, features, strict=True)]

    def _sure(self, found: Detections) -> Detections:
        """Its own threshold is the least confidence that counts: the rest of both scales is stretched alike."""
        least, threshold = self._settings.min_confidence, self._detector.threshold
        return replace(found, scores=least + (1 - least) * (found.scores - threshold) / (1 - threshold))


def regions_of(found: Detections, grid: Floats, side: int, settings: RegionSettings) -> list[Region]:
    """Of one frame's detections, those that are sure enough, each once."""
    found = found.take(found.scores >= settings.min_confidence)
    # A car that is also a truck is one agent; left in, the one would hide the other.
    found = suppressed(replace(found, kinds=np.zeros_like(found.kinds)), settings.duplicate_iou)
    masks = refined(found.boxes, grid, side)
    return [
        region_of(mask, describe(mask, grid), float(score)) for mask, score in zip(masks, found.scores, strict=True)
    ]


def refined(boxes: NDArray[np.float64], features: Floats, side: int) -> list[NDArray[np.bool_]]:
    """Masks `[side, side]` inside boxes `[M, 4]` in [0, 1], from features `[g, g, D]`.

    A pixel belongs to the agent if its feature is nearer to the box's core than to its surround, on top of the prior
    that an agent fills a rounded shape in its box. The surround leaves out the cores of other boxes: in a crowd,
    background is what lies between people. Whoever stands lower in the picture is nearer and hides the others. A mask
    that loses most of its box, or a box of a few cells, falls back to the shape.
    """
    grid = features.shape[0]
    radii = np.array([_radius(box, side) for box in boxes]).reshape(-1, side, side)
    insides = np.array([_inside(box, side) for box in boxes]).reshape(-1, side, side)
    cores = np.array([_cells(radius < _CORE, grid) for radius in radii]).reshape(-1, grid, grid)
    occupied = cores.max(axis=0, initial=0.0)
    masks = []
    for k, box in enumerate(boxes):
        ring = _cells(_inside(_grown(box), side) & ~insides[k], grid) * (1 - occupied)
        score = 1 - radii[k] ** 2
        if np.prod(box[2:] - box[:2]) * grid * grid >= _MIN_CELLS:
            score = score + _EVIDENCE * _evidence(features, cores[k], ring, side)
        nearer = boxes[:, 3] > box[3] + _LOWER * (box[3] - box[1])
        hidden = insides[k] & (radii[nearer] < _NEARER).any(axis=0)
        shape = insides[k] & (radii[k] < 1)
        choices = (insides[k] & (score > 0) & ~hidden, shape & ~hidden, shape)
        enough = _MIN_FILL * insides[k].sum()
        masks.append(next((mask for mask in choices if mask.sum() >= enough), insides[k]))
    return masks


def _evidence(features: Floats, core: NDArray[np.float32], ring: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """How much each pixel is like the core rather than the surround: 1 and -1 on their averages, `[side, side]`."""
    nothing = np.zeros((side, side), np.float32)
    if core.sum() == 0 or ring.sum() == 0:
        return nothing
    affinity = features @ (_mean(features, core) - _mean(features, ring))
    high, low = (float((affinity * weight).sum() / weight.sum()) for weight in (core, ring))
    if high - low < 1e-3:  # the surround looks like the agent
        return nothing
    evidence = ((2 * affinity - high - low) / (high - low)).clip(-3, 3).astype(np.float32)
    return np.asarray(cv2.resize(evidence, (side, side), interpolation=cv2.INTER_LINEAR))


def _radius(box: NDArray[np.float64], side: int) -> NDArray[np.float32]:
    """Distance of each pixel's centre from the box's, 1 on the rounded shape that fits into it."""
    place = (np.arange(side) + 0.5) / side
    centre, half = (box[:2] + box[2:]) / 2, np.maximum((box[2:] - box[:2]) / 2, 0.5 / side)
    x, y = ((np.abs(place - c) / h) ** _ROUNDNESS for c, h in zip(centre, half, strict=True))
    return np.asarray((y[:, None] + x) ** (1 / _ROUNDNESS), dtype=np.float32)


def _inside(box: NDArray[np.float64], side: int) -> NDArray[np.bool_]:
    """The box's pixels, at least one."""
    left, top = (min(side - 1, int(v * side + 0.5)) for v in box[:2])
    right, bottom = (max(low + 1, int(v * side + 0.5)) for low, v in zip((left, top), box[2:], strict=True))
    mask = np.zeros((side, side), dtype=bool)
    mask[top:bottom, left:right] = True
    return mask


def _grown(box: NDArray[np.float64]) -> NDArray[np.float64]:
    centre, half = (box[:2] + box[2:]) / 2, (box[2:] - box[:2]) / 2 * _SURROUND
    return np.concatenate([centre - half, centre + half]).clip(0, 1)


def _cells(mask: NDArray[np.bool_], grid: int) -> NDArray[np.float32]:
    """How much of each feature cell a mask covers, `[g, g]`."""
    return np.asarray(cv2.resize(mask.astype(np.float32), (grid, grid), interpolation=cv2.INTER_AREA))


def _mean(features: Floats, weight: NDArray[np.float32]) -> Floats:
    mean = np.tensordot(weight, features, axes=2)
    return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12), dtype=np.float32)
