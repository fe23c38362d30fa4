"""A user's ONNX detector through onnxruntime: pictures in, boxes of agents out.

Three output layouts are recognised by their shape. N is the number of cells of the grids at strides 8, 16 and 32.

- YOLOX as exported, `[1, N, 5 + C]`: offsets and log sizes per cell, objectness, class scores. Takes BGR in 0..255.
- YOLOv8 and later, `[1, 4 + C, N]`: centre and size in pixels, class scores. Takes RGB in 0..1.
- already suppressed, `[1, M, 6]` or `[M, 6]`: corners in pixels, score, class. Takes RGB in 0..1.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from ..errors import TeacherError
from ..pixels import Frames
from ..words import nearest
from .proposals import box_iou

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

Layout = Literal["yolox", "yolov8", "suppressed"]

_STRIDES = (8, 16, 32)
_DEFAULT_INPUT = 640  # px, of a model that takes any size
_GREY = 114  # around a picture that does not fill the input
_WORTH_A_LOOK = 0.05  # scores below are noise to any threshold
_SAME_OBJECT = 0.5  # box IoU, within a class


@dataclass(frozen=True)
class Detections:
    """M boxes of one picture."""

    boxes: NDArray[np.float64]  # [M, 4] left, top, right, bottom in [0, 1]
    scores: NDArray[np.float64]  # [M]
    kinds: NDArray[np.int64]  # [M] class numbers

    def take(self, rows: NDArray[Any]) -> Detections:
        return Detections(self.boxes[rows], self.scores[rows], self.kinds[rows])


class Detector:
    """An ONNX file, opened once. `wanted` are names of classes; a model without known names gives all of them."""

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self.path = path
        self._session = _open(path)
        given = self._session.get_inputs()
        shape = list(given[0].shape)
        if len(given) != 1 or len(shape) != 4 or shape[1] != 3:
            raise TeacherError(f"{path}: takes {[list(g.shape) for g in given]}, not one picture [1, 3, H, W]")
        self._input: str = given[0].name
        self._height, self._width = (size if isinstance(size, int) else _DEFAULT_INPUT for size in shape[2:])
        self.layout, classes = self._probe()
        self.kinds = self._chosen(wanted, classes)

    def __call__(self, picture: Frames) -> Detections:
        """Agents in `uint8 [S, S, 3]`, best first, none twice."""
        scale = min(self._height, self._width) / picture.shape[0]
        raw = self._run(self._prepared(picture))
        boxes, scores, kinds = _DECODERS[self.layout](raw, (self._height, self._width))
        useful = (scores >= _WORTH_A_LOOK) & np.isfinite(boxes).all(axis=1)
        if self.kinds is not None:
            useful &= np.isin(kinds, self.kinds)
        boxes = (boxes[useful] / (scale * picture.shape[0])).clip(0, 1)
        solid = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        return suppressed(Detections(boxes[solid], scores[useful][solid], kinds[useful][solid]))

    def _prepared(self, picture: Frames) -> NDArray[np.float32]:
        """`[1, 3, H, W]`: the picture in the upper left corner, grey around it."""
        side = min(self._height, self._width)
        how = cv2.INTER_AREA if side < picture.shape[0] else cv2.INTER_LINEAR
        padded = np.full((self._height, self._width, 3), _GREY, np.uint8)
        padded[:side, :side] = cv2.resize(picture, (side, side), interpolation=how)
        values = padded[..., ::-1].astype(np.float32) if self.layout == "yolox" else padded.astype(np.float32) / 255
        return np.ascontiguousarray(values.transpose(2, 0, 1)[None])

    def _run(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        raw = np.asarray(self._session.run(None, {self._input: values})[0], dtype=np.float64)
        return raw[0] if raw.ndim == 3 else raw

    def _probe(self) -> tuple[Layout, int | None]:
        """The layout and the number of classes, from what the model says about an empty picture."""
        outputs = self._session.get_outputs()
        shape = self._run(np.zeros((1, 3, self._height, self._width), np.float32)).shape if len(outputs) == 1 else ()
        cells = sum(len(_grid(self._height, self._width, stride)) for stride in _STRIDES)
        if len(shape) == 2:
            if shape[0] == cells and shape[1] > 5:
                return "yolox", shape[1] - 5
            if shape[1] == cells and shape[0] > 4:
                return "yolov8", shape[0] - 4
            if shape[1] == 6:
                return "suppressed", None
        described = ", ".join(f"{o.name} {o.shape}" for o in outputs)
        raise TeacherError(
            f"{self.path}: gives {described}, which is no detector's output known here: YOLOX [1, {cells}, 5 + C], "
            f"YOLOv8 [1, 4 + C, {cells}] or suppressed boxes [1, M, 6]; export it in one of these layouts"
        )

    def _chosen(self, wanted: Sequence[str], classes: int | None) -> NDArray[np.int64] | None:
        names = _names(self._session.get_modelmeta().custom_metadata_map.get("names"))
        if names is None:
            if classes not in (None, len(COCO)):
                return None
            names = dict(enumerate(COCO))
        numbers = {name: number for number, name in names.items()}
        if unknown := [name for name in wanted if name not in numbers]:
            hint = nearest(unknown[0], numbers)
            raise TeacherError(f"{self.path}: has no class {unknown[0]!r}{hint}; classes: {', '.join(numbers)}")
        return np.array([numbers[name] for name in wanted], dtype=np.int64)


def suppressed(found: Detections, same: float = _SAME_OBJECT) -> Detections:
    """Best first; of boxes of one class that overlap by `same` or more, only the best."""
    order = np.lexsort((*found.boxes.T, -found.scores))
    found = found.take(order)
    clash = (box_iou(found.boxes, found.boxes) >= same) & (found.kinds[:, None] == found.kinds)
    kept = np.ones(len(order), dtype=bool)
    for k in range(len(order)):
        if kept[k]:
            kept[k + 1 :] &= ~clash[k, k + 1 :]
    return found.take(kept)


def _open(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise TeacherError(
            "regions.kind=detector runs an ONNX file with onnxruntime; install it with "
            "pip install 'factorjepa[detectors]'"
        ) from None
    if not path.is_file():
        raise TeacherError(f"{path}: no such file; set regions.detector to the path of an ONNX detector")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # the same sums in the same order, and other cores are busy with other windows
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises its own kinds, which are not all exported
        reason = str(error).splitlines()[0]
        raise TeacherError(f"{path}: onnxruntime cannot open it ({reason}); is it an ONNX detector?") from None


def _grid(height: int, width: int, stride: int) -> NDArray[np.float64]:
    """Cells of one stride, row by row: `[n, 3]` column, row, stride."""
    rows, columns = np.mgrid[: height // stride, : width // stride]
    return np.stack([columns.ravel(), rows.ravel(), np.full(rows.size, stride)], axis=1).astype(np.float64)


Decoded = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]


def _decode_yolox(raw: NDArray[np.float64], size: tuple[int, int]) -> Decoded:
    grid = np.concatenate([_grid(*size, stride) for stride in _STRIDES])
    centre = (raw[:, :2] + grid[:, :2]) * grid[:, 2:]
    half = np.exp(raw[:, 2:4].clip(max=10)) * grid[:, 2:] / 2
    boxes = np.concatenate([centre - half, centre + half], axis=1)
    # Objectness times class score, both probabilities; the root puts the product on the scale of one of them.
    kinds = raw[:, 5:].argmax(axis=1)
    scores = np.sqrt((raw[:, 4] * raw[:, 5:].max(axis=1)).clip(0, 1))
    return boxes, scores, kinds


def _decode_yolov8(raw: NDArray[np.float64], size: tuple[int, int]) -> Decoded:
    centre, half = raw[:2].T, raw[2:4].T / 2
    return np.concatenate([centre - half, centre + half], axis=1), raw[4:].max(axis=0), raw[4:].argmax(axis=0)


def _decode_suppressed(raw: NDArray[np.float64], size: tuple[int, int]) -> Decoded:
    return raw[:, :4], raw[:, 4], raw[:, 5].astype(np.int64)


_DECODERS = {"yolox": _decode_yolox, "yolov8": _decode_yolov8, "suppressed": _decode_suppressed}


def _names(text: str | None) -> dict[int, str] | None:
    """The class names that some exporters put into the file: `{0: 'person', 1: ...}`."""
    if text is None:
        return None
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return {int(k): str(v) for k, v in names.items()} if isinstance(names, dict) else None
