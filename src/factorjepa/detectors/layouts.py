"""What comes out of an ONNX detector, and how boxes are read from it.

A layout is recognised by the shapes that a model gives for an empty picture, so that a user need not know its name.
Outputs here are those of one picture, without the batch axis. N is the number of cells of the grids at strides 8, 16
and 32; C the number of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

STRIDES = (8, 16, 32)

Outputs = Sequence[NDArray[np.float32]]
Shapes = Sequence[tuple[int, ...]]
Size = tuple[int, int]  # height and width of the network's input
Decoded = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]  # corners in input pixels, scores, classes


@dataclass(frozen=True)
class Layout:
    """One family of detectors: what it wants to see and how to read what it says."""

    name: str
    described: str  # its outputs, for an error message
    fits: Callable[[Shapes, Size], bool]
    classes: Callable[[Shapes], int | None]  # how many; None where the outputs do not say
    decode: Callable[[Outputs, Size, int | None], Decoded]  # outputs, input size, classes if known
    colours: Literal["rgb", "bgr"] = "rgb"
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)  # subtracted from bytes, in the order of `colours`
    divisor: float = 1.0  # then divided by this


def cells(size: Size, stride: int) -> int:
    return (size[0] // stride) * (size[1] // stride)


def grid(size: Size, stride: int) -> NDArray[np.float64]:
    """Cells of one stride, row by row: `[n, 3]` column, row, stride."""
    rows, columns = np.mgrid[: size[0] // stride, : size[1] // stride]
    return np.stack([columns.ravel(), rows.ravel(), np.full(rows.size, stride)], axis=1).astype(np.float64)


def around(centre: NDArray[np.floating], sides: NDArray[np.floating]) -> NDArray[np.float64]:
    """Corners `[M, 4]` from centres and sides `[M, 2]`."""
    return np.concatenate([centre - sides / 2, centre + sides / 2], axis=1).astype(np.float64)


def one_class(boxes: NDArray[np.float64], scores: NDArray[np.floating]) -> Decoded:
    return boxes, scores.astype(np.float64), np.zeros(len(boxes), np.int64)
