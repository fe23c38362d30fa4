"""A description of frames by a fixed rule, for when no trained network is at hand: colour, edges and texture of cells.

Each frame is brought to 256 px and cut into 32 x 32 cells. A cell is described by the mean and spread of its Lab
colour, the directions and strength of its edges, and its texture (local binary patterns), by itself and with the cells
around it. Nothing says where the cell is: the same thing looks the same everywhere.

Shapes: p pixels of a cell (64), c cells of a frame (1024).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .. import pixels
from .features import square_frames
from .regions import Floats

GRID = 32
_SIDE = 256  # pixels that the rule looks at
_DIRECTIONS = 8  # bins of edge direction over half a turn
_PATTERNS = 10  # 0 to 8 brighter neighbours in one run, and everything else
_NOISE = 2.0  # lightness per pixel: weaker edges have no direction worth comparing
_BRIGHTER = 1.5  # lightness by which a neighbour must exceed its centre to count


@dataclass(frozen=True)
class _Group:
    """Measures of one kind: their usual value and spread over cells of streets, and what the group weighs in all.

    Values and spreads are round numbers between those of simulated and of real streets, which differ little: whitened
    by them, a measure has mean 0 and spread 1 or nearly so, and the cosine of two cells says how alike they are among
    cells of streets. A single cell has too few pixels for a steady texture, so those measures weigh half.
    """

    usual: tuple[float, ...]
    spread: tuple[float, ...]
    weight: float

    def whitened(self, measures: Floats) -> Floats:
        scale = np.float32(self.weight / len(self.usual) ** 0.5) / np.array(self.spread, np.float32)
        result: Floats = (measures - np.array(self.usual, np.float32)) * scale
        return result


GROUPS = {
    "colour": _Group((45, 2, 3), (20, 6, 10), 1.0),
    "colour around": _Group((45, 2, 3), (18, 5.5, 9.5), 1.0),
    "spread": _Group((4, 1.3, 2), (5, 2.3, 3), 0.5),
    "spread around": _Group((7, 2.3, 3.7), (6.5, 3, 4), 1.0),
    "directions": _Group((0.12,) * _DIRECTIONS, (0.14,) * _DIRECTIONS, 0.5),
    "directions around": _Group((0.13,) * _DIRECTIONS, (0.115,) * _DIRECTIONS, 1.0),
    "edges": _Group((0.87,), (0.7,), 0.5),
    "edges around": _Group((0.95,), (0.62,), 0.5),
    "patterns around": _Group(
        (0.75, 0.22, 0.2, 0.3, 0.2, 0.075, 0.045, 0.02, 0.005, 0.13),
        (0.22, 0.14, 0.13, 0.2, 0.19, 0.1, 0.06, 0.05, 0.05, 0.12),
        1.0,
    ),
}


class ClassicalFeatures:
    """`FrameFeatures` by the rule above; the same frame gives the same numbers, and needs no weights."""

    name = "classical v1"  # changes with every number in this file
    width = sum(len(group.usual) for group in GROUPS.values())

    def __call__(self, frames: NDArray[np.uint8]) -> Floats:
        seen = pixels.resize_to_cover(square_frames(frames), _SIDE, _SIDE)
        return np.stack([_unit(whitened(measure(frame))) for frame in seen])


def measure(frame: NDArray[np.uint8]) -> dict[str, Floats]:
    """A frame of 256 px to the measures of each group as they are, each `[32, 32, n]`."""
    lab: Floats = np.asarray(cv2.cvtColor(frame.astype(np.float32) / 255, cv2.COLOR_RGB2LAB), np.float32)  # L to 100
    lightness = np.ascontiguousarray(lab[..., 0])
    lab_pc3 = _by_cell(lab)
    colour, squares = _mean(lab_pc3), _mean(lab_pc3 * lab_pc3)
    edges, patterns = _edges(lightness), _patterns(lightness)
    near_colour, near_squares, near_edges = _around(colour), _around(squares), _around(edges)
    return {
        "colour": colour,
        "colour around": near_colour,
        "spread": _spread(colour, squares),
        "spread around": _spread(near_colour, near_squares),
        "directions": _directions(edges),
        "directions around": _directions(near_edges),
        "edges": np.log1p(edges[..., :1]),
        "edges around": np.log1p(near_edges[..., :1]),
        "patterns around": np.sqrt(_around(patterns)),
    }


def whitened(measures: dict[str, Floats]) -> Floats:
    """All groups side by side, each measure whitened and weighed: `[32, 32, D]`."""
    return np.concatenate([group.whitened(measures[name]) for name, group in GROUPS.items()], axis=-1)


def _unit(cells: Floats) -> Floats:
    unit: Floats = cells / np.linalg.norm(cells, axis=-1, keepdims=True)
    return unit


def _by_cell(image: Floats) -> Floats:
    """`[256, 256, C]` -> `[p, c, C]`: cells that lie side by side are added up at once, a pixel of each at a time."""
    step = _SIDE // GRID
    apart = image.reshape(GRID, step, GRID, step, -1).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(apart).reshape(step * step, GRID * GRID, -1)


def _mean(values_pcC: Floats) -> Floats:
    """Means over the cells, `[p, c, C]` -> `[32, 32, C]`."""
    means: Floats = values_pcC.mean(axis=0).reshape(GRID, GRID, -1)
    return means


def _around(cells: Floats) -> Floats:
    """Means over each cell and its eight neighbours."""
    wide = np.pad(cells, ((1, 1), (1, 1), (0, 0)), mode="edge")
    rows = wide[:-2] + wide[1:-1] + wide[2:]
    means: Floats = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / np.float32(9)
    return means


def _spread(mean: Floats, square: Floats) -> Floats:
    spread: Floats = np.sqrt(np.maximum(square - mean * mean, 0))
    return spread


def _edges(lightness: Floats) -> Floats:
    """Strength of the edges of each cell, and its share in each direction, `[32, 32, 1 + 8]`.

    A direction and its opposite are one, so angles are doubled; each bin takes the cosine of the doubled angle between,
    where positive, so that turning by a little changes little.
    """
    slopes = (cv2.Scharr(lightness, cv2.CV_32F, *axis, scale=1 / 32) for axis in ((1, 0), (0, 1)))
    dx, dy = (_by_cell(np.asarray(slope, np.float32)) for slope in slopes)
    across, down = dx * dx, dy * dy
    strength = np.sqrt(across + down)
    safe = np.maximum(strength, np.float32(1e-6))
    doubled = np.concatenate(((across - down) / safe, 2 * dx * dy / safe), axis=-1)
    angles = 2 * np.pi * np.arange(_DIRECTIONS, dtype=np.float32) / _DIRECTIONS
    bins = doubled @ np.stack((np.cos(angles), np.sin(angles)))
    return np.concatenate((_mean(strength), _mean(np.maximum(bins, 0, out=bins))), axis=-1)


def _directions(edges: Floats) -> Floats:
    directions: Floats = edges[..., 1:] / (edges[..., :1] + np.float32(_NOISE))
    return directions


def _kinds() -> NDArray[np.uint8]:
    """Which of the ten local patterns the eight bits of a ring are: rotation-invariant, uniform binary patterns."""
    ring = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    changes = np.count_nonzero(ring != np.roll(ring, 1, axis=1), axis=1)
    return np.where(changes <= 2, np.count_nonzero(ring, axis=1), _PATTERNS - 1).astype(np.uint8)


_RING = ((0, 2), (1, 1), (2, 0), (1, -1), (0, -2), (-1, -1), (-2, 0), (-1, 1))  # rows and columns from the centre
_KINDS = _kinds()
_CELL = np.arange(_SIDE)[:, None] * GRID // _SIDE * GRID + np.arange(_SIDE) * GRID // _SIDE  # of each pixel


def _patterns(lightness: Floats) -> Floats:
    """The share of each of the ten local patterns among each cell's pixels, `[32, 32, 10]`."""
    calm = cv2.GaussianBlur(lightness, (0, 0), 1.0, borderType=cv2.BORDER_REPLICATE)
    wide = np.pad(calm, 2, mode="edge")
    enough = calm + np.float32(_BRIGHTER)
    ring = np.zeros((_SIDE, _SIDE), np.uint8)
    for bit, (y, x) in enumerate(_RING):
        brighter = wide[2 + y : 2 + y + _SIDE, 2 + x : 2 + x + _SIDE] > enough
        ring |= brighter.view(np.uint8) * np.uint8(1 << bit)
    counts = np.bincount((_CELL * _PATTERNS + _KINDS[ring]).ravel(), minlength=GRID * GRID * _PATTERNS)
    shares: Floats = counts.reshape(GRID, GRID, _PATTERNS).astype(np.float32) / np.float32((_SIDE // GRID) ** 2)
    return shares
