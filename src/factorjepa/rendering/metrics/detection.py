"""Who is in a frame, by one frozen detector: the user's ONNX file, or the street detector that comes with the package.

The detector looks at observed and decoded frames alike, each by itself. Its name says which file it is and from which
score on it believes: scores of different detectors never meet in one table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from ...backbones.weights import sha256_of
from ...detectors.boxes import Detections, suppressed
from ...detectors.detector import Detector
from ...detectors.tiles import detect_tiled
from ...pixels import Frames
from ...teacher.settings import RegionSettings

_TEACHER = RegionSettings()


class AgentDetector(Protocol):
    """Agents in each of `uint8 [T, H, W, 3]`, best first, none twice."""

    name: str

    def __call__(self, frames: Frames) -> list[Detections]: ...


class OnnxAgents:
    """A detector as the teacher uses it: COCO's agents, from the teacher's confidence on.

    A car that is also a truck is one agent. `threshold` is the least score. `tiles` looks into parts of large pictures
    as well.
    """

    def __init__(
        self,
        path: Path | str,
        classes: tuple[str, ...] = _TEACHER.classes,
        threshold: float = _TEACHER.min_confidence,
        tiles: bool = False,
    ) -> None:
        path = Path(path)
        self._detector, self._threshold, self._tiles = Detector(path, classes), threshold, tiles
        tiled = ", tiles" if tiles else ""
        self.name = f"{path.name} (sha256 {sha256_of(path)[:8]}, scores from {threshold:g}{tiled})"

    def __call__(self, frames: Frames) -> list[Detections]:
        found = [detect_tiled(self._detector, one) for one in frames] if self._tiles else self._detector.batch(frames)
        sure = (one.take(np.flatnonzero(one.scores >= self._threshold)) for one in found)
        return [suppressed(one, _TEACHER.duplicate_iou, across=True) for one in sure]
