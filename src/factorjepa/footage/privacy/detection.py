"""Looking for faces or plates in frames: a detector's file, opened with the layout and the classes that are meant."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...detectors.boxes import Detections, joined, suppressed
from ...detectors.detector import ANY, COCO, Detector
from ...detectors.session import Device
from ...detectors.tiles import detect_tiled, tile_share
from ...errors import ConfigError, DetectorError
from ...pixels import Frames
from .licences import KNOWN
from .settings import DetectionSettings

Boxes = tuple[NDArray[np.float64], NDArray[np.float64]]  # [M, 4] in pixels and scores [M] of one frame

_WHERE = {
    "face": "YuNet (github.com/opencv/opencv_zoo), CenterFace (github.com/Star-Clouds/CenterFace, MIT) or the paper's "
    "SCRFD (github.com/deepinsight/insightface, non-commercial) can be had",
    "plate": "train or export a YOLO for the plates of your region, as the paper did",
}
_CALLED = {  # whole words: a road's "surface" is no face
    "face": re.compile(r"(?<![a-z])(human)?faces?(?![a-z])"),
    "plate": re.compile(r"(?<![a-z])(licen[cs]e|number|registration|car|vehicle)?plates?(?![a-z])"),
}
_MADE_FOR = {"scrfd": "face", "yunet": "face", "centerface": "face", "retinaface": "face", "retinaplate": "plate"}
_REDUCED = 1.4  # times: a picture that must shrink by more is looked at in tiles as well
_ENLARGED_TILE = 2.0  # times at most: beyond it a network sees larger pixels, not more


class Finder(Protocol):
    """Finds one kind of identifier in frames `uint8 [T, H, W, 3]`: boxes in pixels and scores, for each frame."""

    def __call__(self, frames: Frames) -> list[Boxes]: ...


class OnnxFinder:
    """A user's ONNX file as a finder of `sought`, "face" or "plate"."""

    def __init__(self, path: Path, sought: str, settings: DetectionSettings, device: Device = "cpu") -> None:
        self._settings = settings
        layouts = [layout for layout in ANY if settings.layout in (None, layout.name)]
        enlarged = _ENLARGED_TILE if settings.tiles else 1.0
        self._detector = Detector(path, None, layouts, settings.side, enlarged, settings.low, device)
        self.layout = self._detector.layout
        self.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        self._refuse_other(path, sought)
        wanted = settings.classes or _named_after(sought, self._detector)
        if wanted:
            self._detector.choose(wanted)

    def _refuse_other(self, path: Path, sought: str) -> None:
        """A detector of something else finds nothing, and nothing would be blurred."""
        known = KNOWN.get(self.sha256)
        if known and known.finds != sought:
            raise ConfigError(f"{path}: is {known.name}, a {known.finds} detector; give a {sought} detector")
        made_for = _MADE_FOR.get(self.layout, sought)
        if made_for != sought:
            raise ConfigError(
                f"{path}: its outputs are laid out as {self.layout}'s, a {made_for} detector; give a {sought} detector"
            )

    def __call__(self, frames: Frames) -> list[Boxes]:
        height, width = frames.shape[1:3]
        scale = np.array([width, height, width, height])
        single = (suppressed(replace(one, kinds=np.zeros_like(one.kinds))) for one in self._looks(frames))
        return [(one.boxes * scale, one.scores) for one in single]

    def _looks(self, frames: Frames) -> list[Detections]:
        tiles = self._settings.tiles or self._tiles(*frames.shape[1:3])
        if tiles > 1:
            return [detect_tiled(self._detector, frame, tiles) for frame in frames]
        step = self._settings.batch
        return [one for k in range(0, len(frames), step) for one in self._detector.batch(frames[k : k + step])]

    def _tiles(self, height: int, width: int) -> int:
        """As many that a tile is not much larger than what the network sees of it."""
        sees = max(self._detector.input_size(height, width))
        tiles = 1
        while tile_share(tiles) * max(height, width) > _REDUCED * sees:
            tiles += 1
        return tiles


class Together:
    """Several finders of the same thing: what any of them finds, each once."""

    def __init__(self, finders: Sequence[Finder]) -> None:
        self._finders = finders

    def __call__(self, frames: Frames) -> list[Boxes]:
        looks = [finder(frames) for finder in self._finders]
        return [_each_once(here) for here in zip(*looks, strict=True)]


def _each_once(looks: Sequence[Boxes]) -> Boxes:
    found = joined([Detections(boxes, scores, np.zeros(len(scores), np.int64)) for boxes, scores in looks])
    return found.boxes, found.scores


def _named_after(sought: str, detector: Detector) -> tuple[str, ...]:
    """Classes of a model with several that are called a face or a plate; none where all it finds is meant."""
    names = tuple((detector.names or {}).values())
    if not (names or detector.classes == len(COCO)):
        return ()
    named = tuple(name for name in names if _CALLED[sought].search(name.lower()))
    if not named:
        raise ConfigError(
            f"{detector.path}: none of its classes ({', '.join(names or COCO)}) is called a {sought}; give a {sought} "
            f"detector, or name the classes that are meant in privacy.{sought}_detection.classes"
        )
    return named if len(names) > 1 else ()


def opened(paths: Sequence[Path], sought: str, settings: DetectionSettings, device: Device) -> list[OnnxFinder]:
    """The finders of `sought`, or an error that says how to come by one."""
    if not paths:
        raise ConfigError(_advice(f"no {sought} detector is given", sought))
    try:
        return [OnnxFinder(path, sought, settings, device) for path in paths]
    except DetectorError as error:
        raise ConfigError(_advice(f"the {sought} detector cannot be used: {error}", sought)) from None


def _advice(problem: str, sought: str) -> str:
    return (
        f"privacy is on, but {problem}. Pass --{sought}s MODEL.onnx (privacy.{sought}s): {_WHERE[sought]}; "
        "docs/privacy.md says more. To leave faces and plates as they are, say --privacy off: the data card records it."
    )
