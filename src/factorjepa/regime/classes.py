"""Class assignment: a detector looks at the teacher's frames and says of which superclass its regions are.

The teacher's regions decide who is there and how large; the detector only names them. A region is what the surest
detection that covers it well is. One that none covers, or of which another superclass is nearly as sure, is unresolved,
and so excluded (appendix B.1). Detectors say "truck" behind most cars, but less surely: to call these ambiguous would
drop half the vehicles of a road, and no pedestrian.

Legend: O observations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..backbones.weights import sha256_of
from ..detectors.boxes import Detections, box_iou
from ..detectors.detector import COCO, Detector
from ..detectors.tiles import detect_tiled
from ..errors import RegimeError
from ..pixels import Frames
from ..world.taxonomy import SUPERCLASSES
from .readers.coco import CLASSES
from .scene import UNRESOLVED, Ints, Scene

_SAME = 0.5  # box IoU of a region and a detection of it
_SURE = 0.25  # least score of a detection that names a region
_RULE = "surest superclass"  # a part of the measuring system's name: tables of another rule are measured anew
_RIVAL = 0.8  # of the surest score: another superclass with as much makes a region ambiguous


class ClassAssigner:
    """`detect` finds objects in a picture; `names` are its classes by number, those of COCO where it has none."""

    def __init__(self, detect: Callable[[Frames], Detections], names: Mapping[int, str], name: str) -> None:
        self._detect, self.name = detect, name
        self._superclass = {
            number: SUPERCLASSES.index(CLASSES[word]) for number, word in names.items() if word in CLASSES
        }
        if not self._superclass:
            raise RegimeError(
                f"{name}: names no class that maps to a superclass; it must name some of {', '.join(CLASSES)}"
            )

    @classmethod
    def open(cls, path: Path) -> ClassAssigner:
        detector = Detector(path, None)
        names = detector.names or (dict(enumerate(COCO)) if detector.classes in (None, len(COCO)) else {})
        # The bytes are the system, not the name: another file of that name must not pass as the same frozen detector.
        name = f"{path.name} (sha256 {sha256_of(path)[:8]}), {_RULE}"
        return cls(lambda frame: detect_tiled(detector, frame), names, name)

    def __call__(self, frames: Frames, scene: Scene) -> Ints:
        """Of each observation; `frames` are the teacher's, one for each of the scene's."""
        superclass_O = np.full(len(scene.frame_O), UNRESOLVED, np.int64)
        boxes_O4 = scene.box_O4 / np.array([scene.width, scene.height] * 2)
        starts = np.searchsorted(scene.frame_O, np.arange(scene.frames + 1))
        for t, frame in enumerate(frames):
            rows = slice(int(starts[t]), int(starts[t + 1]))
            if rows.start == rows.stop:
                continue
            found = self._detect(frame)
            known = np.isin(found.kinds, list(self._superclass)) & (found.scores >= _SURE)
            found = found.take(known)
            classes = np.array([self._superclass[int(kind)] for kind in found.kinds], np.int64)
            same = box_iou(boxes_O4[rows], found.boxes) >= _SAME
            for row, covered in enumerate(same, start=rows.start):
                if covered.any():
                    scores = np.where(covered, found.scores, 0.0)
                    best = classes[scores.argmax()]
                    if scores[classes != best].max(initial=0.0) < _RIVAL * scores.max():
                        superclass_O[row] = best
        return superclass_O
