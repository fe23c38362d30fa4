"""Face and plate detectors: SCRFD, YuNet, CenterFace, and RetinaFace with its relatives for plates.

All give one class and key points, which nobody here reads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .layouts import STRIDES, Decoded, Layout, Outputs, Shapes, Size, around, cells, grid, one_class

_FACE_PRIORS = ((16, 32), (64, 128), (256, 512))  # px at strides 8, 16, 32: RetinaFace as released
_PLATE_PRIORS = ((24, 48), (96, 192), (384, 768))  # the plate detectors made from it
_PRIOR_VARIANCE = (0.1, 0.2)  # of centre and size
_FACE_POINTS, _PLATE_POINTS = 10, 8  # numbers: five points of a face, four corners of a plate
_CENTERFACE_STRIDE = 4
_SCRFD_ANCHORS = 2


def _by_width(outputs: Outputs, width: int) -> list[NDArray[np.float32]]:
    """The outputs with so many columns, finest grid first."""
    return sorted((one for one in outputs if one.shape[-1] == width), key=len, reverse=True)


def _levels(shapes: Shapes, size: Size, anchors: int, widths: dict[int, int]) -> bool:
    """Whether there are `widths[w]` outputs of w columns for each stride, and none of other widths but key points."""
    rows = [anchors * cells(size, stride) for stride in STRIDES]
    if any(len(shape) != 2 for shape in shapes):
        return False
    expected = sorted((n, width) for width, count in widths.items() for n in rows for _ in range(count))
    return sorted(shape for shape in shapes if shape[1] != _FACE_POINTS) == expected


def _is_scrfd(shapes: Shapes, size: Size) -> bool:
    return _levels(shapes, size, _SCRFD_ANCHORS, {1: 1, 4: 1})


def _decode_scrfd(outputs: Outputs, size: Size, classes: int | None) -> Decoded:
    """Distances from a cell's corner to the four sides, in strides."""
    boxes, scores = [], []
    for stride, distance, score in zip(STRIDES, _by_width(outputs, 4), _by_width(outputs, 1), strict=True):
        corner = np.repeat(grid(size, stride)[:, :2], _SCRFD_ANCHORS, axis=0)
        boxes.append(np.concatenate([corner - distance[:, :2], corner + distance[:, 2:]], axis=1) * stride)
        scores.append(score[:, 0])
    return one_class(np.concatenate(boxes), np.concatenate(scores))


def _is_yunet(shapes: Shapes, size: Size) -> bool:
    return _levels(shapes, size, 1, {1: 2, 4: 1})


def _decode_yunet(outputs: Outputs, size: Size, classes: int | None) -> Decoded:
    """Offsets and log sizes per cell; the score is the root of class score times objectness."""
    boxes, scores = [], []
    both = _by_width(outputs, 1)
    for level, (stride, raw) in enumerate(zip(STRIDES, _by_width(outputs, 4), strict=True)):
        cell = grid(size, stride)[:, :2]
        boxes.append(around((cell + raw[:, :2]) * stride, np.exp(raw[:, 2:].clip(max=10)) * stride))
        one, other = both[2 * level : 2 * level + 2]
        scores.append(np.sqrt(one[:, 0].clip(0, 1) * other[:, 0].clip(0, 1)))
    return one_class(np.concatenate(boxes), np.concatenate(scores))


def _is_centerface(shapes: Shapes, size: Size) -> bool:
    places = (size[0] // _CENTERFACE_STRIDE, size[1] // _CENTERFACE_STRIDE)
    return [shape[0] for shape in shapes] == [1, 2, 2, 10] and all(shape[1:] == places for shape in shapes)


def _decode_centerface(outputs: Outputs, size: Size, classes: int | None) -> Decoded:
    """A heat map of centres, then log sizes and offsets, each as (vertical, horizontal)."""
    heat, scale, offset = outputs[:3]
    cell = grid(size, _CENTERFACE_STRIDE)[:, :2] + 0.5
    xy = [np.stack([one[1].ravel(), one[0].ravel()], axis=1).astype(np.float64) for one in (offset, scale)]
    sides = np.exp(xy[1].clip(max=10)) * _CENTERFACE_STRIDE
    return one_class(around((cell + xy[0]) * _CENTERFACE_STRIDE, sides), heat.ravel())


def _is_retina(points: int) -> Callable[[Shapes, Size], bool]:
    def fits(shapes: Shapes, size: Size) -> bool:
        rows = 2 * sum(cells(size, stride) for stride in STRIDES)
        return sorted(shapes) == sorted([(rows, 4), (rows, 2), (rows, points)])

    return fits


def _decode_retina(priors: tuple[tuple[int, int], ...]) -> Callable[[Outputs, Size, int | None], Decoded]:
    def decode(outputs: Outputs, size: Size, classes: int | None) -> Decoded:
        """Shifts and log scales of two square priors per cell; the second of two class scores is the object's."""
        centres, sides = [], []
        for stride, pair in zip(STRIDES, priors, strict=True):
            centre = (grid(size, stride)[:, :2] + 0.5) * stride
            centres.append(np.repeat(centre, len(pair), axis=0))
            sides.append(np.tile(pair, len(centre)))
        centre, side = np.concatenate(centres), np.concatenate(sides).astype(np.float64)[:, None]
        (raw,), (scores,) = _by_width(outputs, 4), _by_width(outputs, 2)
        shift, scale = _PRIOR_VARIANCE
        wide = side * np.exp((raw[:, 2:] * scale).clip(max=10))
        return one_class(around(centre + raw[:, :2] * shift * side, wide), scores[:, 1])

    return decode


def _one(shapes: Shapes) -> int:
    return 1


_CAFFE_MEAN = (104.0, 117.0, 123.0)

IDENTIFIERS = (
    Layout(
        name="scrfd",
        described="SCRFD (scores, distances and points at three strides)",
        fits=_is_scrfd,
        classes=_one,
        decode=_decode_scrfd,
        mean=(127.5, 127.5, 127.5),
        divisor=128.0,
    ),
    Layout(
        name="yunet",
        described="YuNet (two scores, boxes and points at three strides)",
        fits=_is_yunet,
        classes=_one,
        decode=_decode_yunet,
        colours="bgr",
    ),
    Layout(
        name="centerface",
        described="CenterFace (four maps at stride 4)",
        fits=_is_centerface,
        classes=_one,
        decode=_decode_centerface,
    ),
    Layout(
        name="retinaface",
        described="RetinaFace ([1, 2 N, 4], [1, 2 N, 2], [1, 2 N, 10])",
        fits=_is_retina(_FACE_POINTS),
        classes=_one,
        decode=_decode_retina(_FACE_PRIORS),
        colours="bgr",
        mean=_CAFFE_MEAN,
    ),
    Layout(
        name="retinaplate",
        described="RetinaFace for plates (the same with 8 numbers for the corners)",
        fits=_is_retina(_PLATE_POINTS),
        classes=_one,
        decode=_decode_retina(_PLATE_PRIORS),
        colours="bgr",
        mean=_CAFFE_MEAN,
    ),
)
