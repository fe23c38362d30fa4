"""A user's ONNX detector through onnxruntime: pictures in, boxes out. Its layout is recognised by its outputs."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ..errors import DetectorError
from ..pixels import Frames
from ..words import nearest
from .boxes import Detections, suppressed
from .identifiers import IDENTIFIERS
from .layouts import STRIDES, Layout, Outputs, Size, cells
from .session import Device, open_session
from .yolo import YOLO

COCO = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant",
    "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard",
    "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli",
    "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed", "dining table", "toilet",
    "tv", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink",
    "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip

ANY = (*YOLO, *IDENTIFIERS)

_DEFAULT_SIDE = 640  # px, of a model that takes any size
_GREY = 114  # around a picture that does not fill the input
_WORTH_A_LOOK = 0.05  # scores below are noise to any threshold


class Detector:
    """An ONNX file, opened once. `wanted` are names of classes, None for all; a model without names gives all of them.

    A model that takes any size sees the picture with its longer side at `side` pixels, but at most `enlarged` times as
    large as it is. `layouts` are those it may have, and what scores below `floor` is not told.
    """

    def __init__(
        self,
        path: Path,
        wanted: Sequence[str] | None,
        layouts: Sequence[Layout] = YOLO,
        side: int = _DEFAULT_SIDE,
        enlarged: float = math.inf,
        floor: float = _WORTH_A_LOOK,
        device: Device = "cpu",
    ) -> None:
        self.path, self._side, self._enlarged, self._floor = path, side, enlarged, floor
        self._session = open_session(path, device)
        given = self._session.get_inputs()
        shape = list(given[0].shape)
        if len(given) != 1 or len(shape) != 4 or shape[1] != 3:
            raise DetectorError(f"{path}: takes {[list(g.shape) for g in given]}, not one picture [1, 3, H, W]")
        self._input: str = given[0].name
        self._fixed: Size | None = (shape[2], shape[3]) if all(isinstance(size, int) for size in shape[2:]) else None
        self._layout, classes, batched = self._probe(layouts)
        self.layout = self._layout.name
        self.many = batched and not isinstance(shape[0], int)  # whether one run takes several pictures
        self.names = _names(self._session.get_modelmeta().custom_metadata_map.get("names"))
        self.classes = classes if self.names is None else len(self.names)
        self.kinds: NDArray[np.int64] | None = None
        if wanted is not None:
            self.choose(wanted)

    def __call__(self, picture: Frames) -> Detections:
        """Objects in `uint8 [H, W, 3]`, best first, none twice."""
        return self.batch(picture[None])[0]

    def batch(self, pictures: Frames) -> list[Detections]:
        """Objects in each of `uint8 [B, H, W, 3]`."""
        size = self.input_size(*pictures.shape[1:3])
        values = np.stack([self._prepared(picture, size) for picture in pictures])
        runs = [values] if self.many else [one[None] for one in values]
        return [self._read(outputs, size, pictures.shape[1:3]) for run in runs for outputs in self._run(run)]

    def choose(self, wanted: Sequence[str]) -> None:
        """Give these classes only. 80 nameless ones are COCO's; of another nameless model all are given."""
        names = self.names or (dict(enumerate(COCO)) if self.classes in (None, len(COCO)) else None)
        if names is None:
            return
        numbers = {name: number for number, name in names.items()}
        if unknown := [name for name in wanted if name not in numbers]:
            hint = nearest(unknown[0], numbers)
            raise DetectorError(f"{self.path}: has no class {unknown[0]!r}{hint}; classes: {', '.join(numbers)}")
        self.kinds = np.array([numbers[name] for name in wanted], dtype=np.int64)

    def _read(self, outputs: Outputs, size: Size, shape: Sequence[int]) -> Detections:
        boxes, scores, kinds = self._layout.decode(outputs, size, self.classes)
        useful = ~(scores < self._floor)
        if self.kinds is not None:
            useful &= np.isin(kinds, self.kinds)
        boxes, scores, kinds = boxes[useful], scores[useful], kinds[useful]
        if not (np.isfinite(scores).all() and np.isfinite(boxes).all()):
            raise DetectorError(f"{self.path}: gave boxes or scores that are not finite numbers")
        scale = _scale(size, shape)
        boxes = (boxes / (scale * np.array([shape[1], shape[0]] * 2))).clip(0, 1)
        solid = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        return suppressed(Detections(boxes[solid], scores[solid], kinds[solid]))

    def input_size(self, height: int, width: int) -> Size:
        """Of what the network sees for a picture of this size."""
        if self._fixed is not None:
            return self._fixed
        scale, stride = min(self._side / max(height, width), self._enlarged), STRIDES[-1]
        rows, columns = (max(stride, -(-round(side * scale) // stride) * stride) for side in (height, width))
        return rows, columns

    def _prepared(self, picture: Frames, size: Size) -> NDArray[np.float32]:
        """`[3, H, W]`: the picture in the upper left corner, grey around it."""
        scale = _scale(size, picture.shape)
        sides = zip(size, picture.shape[:2], strict=True)
        height, width = (max(1, min(most, round(side * scale))) for most, side in sides)
        padded = np.full((*size, 3), _GREY, np.uint8)
        padded[:height, :width] = cv2.resize(
            picture, (width, height), interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        )
        order = (2, 1, 0) if self._layout.colours == "bgr" else (0, 1, 2)
        values = np.empty((3, *size), np.float32)
        for k, channel in enumerate(order):
            np.subtract(padded[..., channel], np.float32(self._layout.mean[k]), out=values[k])
        if self._layout.divisor != 1:
            values /= np.float32(self._layout.divisor)
        return values

    def _run(self, values: NDArray[np.float32]) -> list[Outputs]:
        """Outputs of every picture, without the batch axis where the model has one."""
        outputs = [np.asarray(one, dtype=np.float32) for one in self._session.run(None, {self._input: values})]
        if all(one.ndim >= 3 and len(one) == len(values) for one in outputs):
            return [[one[k] for one in outputs] for k in range(len(values))]
        return [outputs]

    def _probe(self, layouts: Sequence[Layout]) -> tuple[Layout, int | None, bool]:
        """The layout, its number of classes and whether outputs have a batch axis, from an empty picture."""
        size = self._fixed or (_DEFAULT_SIDE // 2, _DEFAULT_SIDE // 2)
        empty = np.zeros((1, 3, *size), np.float32)
        try:
            raw = [np.asarray(one) for one in self._session.run(None, {self._input: empty})]
        except Exception as error:  # onnxruntime's own kinds
            raise DetectorError(f"{self.path}: does not take a picture ({str(error).splitlines()[0]})") from None
        batched = all(one.ndim >= 3 for one in raw)
        shapes = [one.shape[1:] if batched else one.shape for one in raw]
        for layout in layouts:
            if layout.fits(shapes, size):
                return layout, layout.classes(shapes), batched
        described = ", ".join(f"{o.name} {o.shape}" for o in self._session.get_outputs())
        known = ", ".join(layout.described for layout in layouts)
        raise DetectorError(
            f"{self.path}: gives {described}, which is no detector's output known here: {known}, with N = "
            f"{sum(cells(size, stride) for stride in STRIDES)} cells; export it in one of these layouts"
        )


def _scale(size: Size, shape: Sequence[int]) -> float:
    """From pixels of the picture to pixels of the input."""
    return min(size[0] / shape[0], size[1] / shape[1])


def _names(text: str | None) -> dict[int, str] | None:
    """The class names that some exporters put into the file: `{0: 'person', 1: ...}`."""
    if text is None:
        return None
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return {int(k): str(v) for k, v in names.items()} if isinstance(names, dict) else None
