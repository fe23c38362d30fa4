"""YOLO exports: YOLOX, YOLOv5, YOLOv8 and later, and boxes that the model has suppressed itself."""

from __future__ import annotations

import numpy as np

from .layouts import STRIDES, Decoded, Layout, Outputs, Shapes, Size, around, cells, grid

_ANCHORS = 3  # of a YOLOv5 cell


def _all_cells(size: Size) -> int:
    return sum(cells(size, stride) for stride in STRIDES)


def _is_yolox(shapes: Shapes, size: Size) -> bool:
    return _one_table(shapes) and shapes[0][0] == _all_cells(size) and shapes[0][1] > 5


def _is_yolov5(shapes: Shapes, size: Size) -> bool:
    return _one_table(shapes) and shapes[0][0] == _ANCHORS * _all_cells(size) and shapes[0][1] > 5


def _is_yolov8(shapes: Shapes, size: Size) -> bool:
    return _one_table(shapes) and shapes[0][1] == _all_cells(size) and shapes[0][0] > 4


def _is_suppressed(shapes: Shapes, size: Size) -> bool:
    return _one_table(shapes) and shapes[0][1] == 6


def _one_table(shapes: Shapes) -> bool:
    return len(shapes) == 1 and len(shapes[0]) == 2


def _decode_yolox(outputs: Outputs, size: Size, classes: int | None) -> Decoded:
    raw = outputs[0].astype(np.float64)
    cell = np.concatenate([grid(size, stride) for stride in STRIDES])
    boxes = around((raw[:, :2] + cell[:, :2]) * cell[:, 2:], np.exp(raw[:, 2:4].clip(max=10)) * cell[:, 2:])
    # Objectness times class score, both probabilities; the root puts the product on the scale of one of them.
    scores = np.sqrt((raw[:, 4] * raw[:, 5:].max(axis=1)).clip(0, 1))
    return boxes, scores, raw[:, 5:].argmax(axis=1)


def _decode_yolov5(outputs: Outputs, size: Size, classes: int | None) -> Decoded:
    raw = outputs[0].astype(np.float64)
    named = raw[:, 5 : None if classes is None else 5 + classes]  # what follows are key points
    return around(raw[:, :2], raw[:, 2:4]), raw[:, 4] * named.max(axis=1), named.argmax(axis=1)


def _decode_yolov8(outputs: Outputs, size: Size, classes: int | None) -> Decoded:
    raw = outputs[0].astype(np.float64)
    named = raw[4 : None if classes is None else 4 + classes]
    return around(raw[:2].T, raw[2:4].T), named.max(axis=0), named.argmax(axis=0)


def _decode_suppressed(outputs: Outputs, size: Size, classes: int | None) -> Decoded:
    raw = outputs[0].astype(np.float64)
    return raw[:, :4], raw[:, 4], raw[:, 5].astype(np.int64)


YOLO = (
    Layout(
        name="yolox",  # offsets and log sizes per cell, objectness, class scores
        described="YOLOX [1, N, 5 + C]",
        fits=_is_yolox,
        classes=lambda shapes: shapes[0][1] - 5,
        decode=_decode_yolox,
        colours="bgr",
    ),
    Layout(
        name="yolov5",  # centre and size in pixels, objectness, class scores; three anchors to a cell
        described="YOLOv5 [1, 3 N, 5 + C]",
        fits=_is_yolov5,
        classes=lambda shapes: shapes[0][1] - 5,
        decode=_decode_yolov5,
        divisor=255.0,
    ),
    Layout(
        name="yolov8",  # centre and size in pixels, class scores
        described="YOLOv8 [1, 4 + C, N]",
        fits=_is_yolov8,
        classes=lambda shapes: shapes[0][0] - 4,
        decode=_decode_yolov8,
        divisor=255.0,
    ),
    Layout(
        name="suppressed",  # corners in pixels, score, class
        described="suppressed boxes [1, M, 6]",
        fits=_is_suppressed,
        classes=lambda shapes: None,
        decode=_decode_suppressed,
        divisor=255.0,
    ),
)
