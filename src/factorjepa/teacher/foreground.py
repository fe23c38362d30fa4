"""Where agents may be, pixel by pixel and without labels: five cues and their weighted sum.

- Rarity: the scene's colours fill large parts of the window, an agent's few pixels.
- Enclosure: sky, walls and road run out of the picture; an agent is fenced off from its border by strong edges.
- Affinity: how far a cell's frozen features are from those along the border, where scene prevails.
- Motion: dense flow that the camera's own motion does not explain.
- Change: how far a frame differs from the scene behind the agents (`background`).

Each is standardised over the context, so 0 is usual for the window. What change says is then said again as far as the
frozen features can say it (ridge regression on the context's cells): things that look like what comes and goes are
likely agents too, whether they move at the moment or not.

Histograms, scales and the regression are fitted on the context and applied to every frame. Flow reads a frame and the
one before it; the first frame, having none, the one after it.

Besides the cues, a window has a look: the few directions in which the context's features differ most, for telling what
belongs together.

Shapes: T frames, S side of the mask grid, g cells, D features, L directions of the look.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from ..pixels import Frames, resize_to_cover
from .background import change
from .channels import length
from .regions import Floats
from .scene_flow import REFERENCE, scene_flow

CUES = ("rarity", "enclosure", "affinity", "motion", "change")
# Fitted by benchmarks/fit_regions.py
WEIGHTS = (0.59, 0.29, 0.13, 0.46, 0.58)  # of the standardised cues
_LEAST_SPREAD = np.array([0.5, 0.3, 0.02, 0.1, 0.2], np.float32)  # of a cue that says anything at all

_BINS = (16, 20, 20)  # of L, a and b
_BIN_LOW, _BIN_SPAN = np.array([0, -60, -60], np.float32), np.array([100, 120, 120], np.float32)
_BORDER_CELLS = 200  # at most, of all context frames together
_NEAREST = 8  # the border cell of this rank counts: one agent at the border is not the scene
_STILL = 0.5  # px of camera motion at which a residual of one pixel counts half as much as without
_RIDGE = 0.5  # of what is retold, by the root of the number of cells
_DIRECTIONS = 8  # of the look
_LOST = 20.0  # grey levels by which a frame differs from its neighbour in most places, flow undone: a cut


@dataclass(frozen=True)
class Foreground:
    """The evidence of one window on the mask grid."""

    lab: Floats  # [T, S, S, 3]
    evidence: Floats  # [T, S, S] mean 0 and spread 1 over the context
    cues: Floats  # [T, S, S, 5] standardised
    residual: Floats  # [T, S, S, 2] flow that the camera does not explain, in reference pixels per frame
    flow: Floats  # [T, S, S, 2] from each pixel to its place in the frame before, in pixels of the mask grid
    followed: NDArray[np.bool_]  # [T] whether that flow leads anywhere; False at 0
    movers: (
        Floats  # [T, S, S] how much the features look like what comes and goes, mean 0 and spread 1 over the context
    )
    look: Floats  # [T, S, S, L] the features' main directions, spread 1 together over the context


def foreground(frames: Frames, features: Floats, camera: Floats, side: int, context: int) -> Foreground:
    """`uint8 [T, S', S', 3]`, `[T, g, g, D]`, `[T, 2, 3]` to evidence on `side` pixels."""
    shown = resize_to_cover(frames, side, side)
    known = min(context, len(frames))
    lab = np.stack([cv2.cvtColor(frame.astype(np.float32) / 255, cv2.COLOR_RGB2LAB) for frame in shown])
    with _one_thread():
        motion, residual, flow, followed = _motion(shown, camera, known)
    affinity = _enlarged(_border_distance(features, known), side)
    changed = change(shown, camera, known)
    cues = np.stack([_rarity(lab, known), _enclosure(lab), affinity, motion, changed], axis=-1)
    usual = cues[:known].reshape(-1, len(CUES)).mean(axis=0, dtype=np.float64).astype(np.float32)
    spread = cues[:known].reshape(-1, len(CUES)).std(axis=0, dtype=np.float64).astype(np.float32)
    cues = (cues - usual) / np.maximum(spread, _LEAST_SPREAD)
    retelling = Retelling(features, known)
    movers = _standard(_enlarged(retelling.of(cues[..., CUES.index("change")]), side), known)
    look = _enlarged(retelling.directions(_DIRECTIONS), side)
    return Foreground(lab, combined(cues, known), cues, residual, flow, followed, movers, look)


def combined(cues: Floats, known: int, weights: tuple[float, ...] = WEIGHTS) -> Floats:
    """The evidence `[T, S, S]` of standardised cues `[T, S, S, 5]`, of which the first `known` frames are context."""
    return _standard(cues @ np.array(weights, np.float32), known)


def _rarity(lab: Floats, known: int) -> Floats:
    """Minus the log share of each pixel's colour among the context's, `[T, S, S]`."""
    flat = np.zeros(lab.shape[:-1], np.int64)
    for k, bins in enumerate(_BINS):
        place = ((lab[..., k] - _BIN_LOW[k]) / _BIN_SPAN[k] * np.float32(bins)).astype(np.int64)
        flat = flat * bins + place.clip(0, bins - 1)
    counts = np.bincount(flat[:known].ravel(), minlength=int(np.prod(_BINS))).reshape(_BINS).astype(np.float64)
    share = gaussian_filter(counts, 0.7) / counts.sum()
    rarity: Floats = -np.log(share.ravel() + 1e-6).astype(np.float32)[flat]
    return rarity


def _enclosure(lab: Floats) -> Floats:
    """Log of the least colour change on a way from the border to each pixel, `[T, S, S]`.

    Two rounds of sweeps down, up, right and left: ways with more than a few turns come out a little long.
    """
    calm = np.stack([cv2.GaussianBlur(image, (0, 0), 0.7) for image in lab])
    steps = {axis: length(np.diff(calm, axis=axis)) for axis in (1, 2)}
    far = np.full_like(lab[..., 0], np.inf)
    side = far.shape[1]
    far[:, :: side - 1] = 0
    far.swapaxes(1, 2)[:, :: side - 1] = 0
    for axis in (1, 2, 1, 2):
        lines, costs = (np.ascontiguousarray(np.moveaxis(a, axis, 0)) for a in (far, steps[axis]))
        for i in range(1, side):
            np.minimum(lines[i], lines[i - 1] + costs[i - 1], out=lines[i])
        for i in range(side - 2, -1, -1):
            np.minimum(lines[i], lines[i + 1] + costs[i], out=lines[i])
        far = np.moveaxis(lines, 0, axis)
    return np.log1p(far)


def _border_distance(features: Floats, known: int) -> Floats:
    """One minus the cosine to the eighth nearest border cell of the context, `[T, g, g]`."""
    grid = features.shape[1]
    border = np.ones((grid, grid), dtype=bool)
    border[1:-1, 1:-1] = False
    scene = features[:known, border].reshape(-1, features.shape[-1])
    scene = scene[:: -(-len(scene) // _BORDER_CELLS)]
    rank = min(_NEAREST, len(scene))
    distance = np.empty(features.shape[:3], np.float32)
    for t, cells in enumerate(features):  # one product per frame: a frame's bits do not depend on how many there are
        alike = cells.reshape(-1, cells.shape[-1]) @ scene.T
        distance[t] = 1 - np.partition(alike, -rank, axis=1)[:, -rank].reshape(grid, grid)
    return distance


def _motion(shown: Frames, camera: Floats, known: int) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Log of the unexplained share of each pixel's flow, `[T, S, S]`, the unexplained flow and the flow itself,
    `[T, S, S, 2]` each, and in which frames it leads to the frame before, `[T]`."""
    count, side = shown.shape[:2]
    grey = [np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)) for frame in shown]
    unit = np.float32(REFERENCE / side)
    share = np.zeros((count, side, side), np.float32)
    residual = np.zeros((count, side, side, 2), np.float32)
    flows = np.zeros_like(residual)
    measured = np.zeros(count, dtype=bool)
    estimate = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    for t in range(count):
        other = t - 1 if t else 1
        if other >= (known if t < known else count):
            continue
        flow = np.asarray(estimate.calc(grey[t], grey[other], None), np.float32)  # type: ignore[call-overload]
        if _lost(grey[t], grey[other], flow):
            continue
        scene = scene_flow(flow, camera[max(t, other)], backwards=other < t)
        residual[t] = (flow - scene) * unit
        relative = np.hypot(*np.moveaxis(residual[t], -1, 0)) / (_STILL + np.hypot(*np.moveaxis(scene * unit, -1, 0)))
        share[t] = np.log1p(4 * relative)
        flows[t] = flow
        measured[t] = True
    followed = measured & (np.arange(count) > 0)
    if measured[:known].any():
        share[~measured] = share[:known][measured[:known]].mean(dtype=np.float64)  # says nothing where nothing is known
    return share, residual, flows, followed


def _lost(grey: NDArray[np.uint8], other: NDArray[np.uint8], flow: Floats) -> bool:
    """Whether flow does not lead from one frame to the other: they show different things."""
    side = len(grey)
    rows, columns = np.mgrid[:side, :side].astype(np.float32)
    carried = cv2.remap(
        other, columns + flow[..., 0], rows + flow[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return bool(np.median(cv2.absdiff(grey, carried)) > _LOST)


class Retelling:
    """What the context's features say about a map of it, by ridge regression; and their main directions."""

    def __init__(self, features: Floats, known: int) -> None:
        self._grid, self._width = features.shape[1], features.shape[-1]
        self._known = known
        usual = features[:known].reshape(-1, self._width).mean(axis=0, dtype=np.float64).astype(np.float32)
        self._centred = features.reshape(len(features), -1, self._width) - usual
        self._gram = np.zeros((self._width, self._width))
        for cells in self._centred[:known]:
            self._gram += cells.T @ cells

    def of(self, evidence: Floats) -> Floats:
        """Of every cell, from `[T, S, S]`: `[T, g, g]`."""
        size = (self._grid, self._grid)
        moment, cells = np.zeros(self._width), 0
        for here, image in zip(self._centred[: self._known], evidence[: self._known], strict=True):
            moment += here.T @ cv2.resize(image, size, interpolation=cv2.INTER_AREA).ravel()
            cells += len(here)
        ridge = _RIDGE * np.sqrt(cells)
        direction = np.linalg.solve(self._gram + ridge * np.eye(self._width), moment).astype(np.float32)
        return np.stack([(here @ direction).reshape(size) for here in self._centred])

    def directions(self, count: int) -> Floats:
        """Along the principal directions of the context, `[T, g, g, count]`; together they have spread 1."""
        cells = self._centred.shape[1] * min(self._known, len(self._centred))
        spread, directions = np.linalg.eigh(self._gram / cells)
        main = directions[:, -count:] / max(float(np.sqrt(spread[-count:].sum().clip(0))), 1e-3)
        shape = (self._grid, self._grid, min(count, self._width))
        return np.stack([(here @ main.astype(np.float32)).reshape(shape) for here in self._centred])


def _enlarged(cells: Floats, side: int) -> Floats:
    """`[T, g, g]` or `[T, g, g, L]` to the mask grid."""
    return np.stack([cv2.resize(image, (side, side), interpolation=cv2.INTER_LINEAR) for image in cells])


def _standard(values: Floats, known: int) -> Floats:
    """Mean 0 and spread 1 over the context; what hardly varies stays small."""
    usual, spread = values[:known].mean(dtype=np.float64), values[:known].std(dtype=np.float64)
    standard: Floats = ((values - usual) / max(spread, 0.1)).astype(np.float32)
    return standard


@contextmanager
def _one_thread() -> Iterator[None]:
    """Dense inverse search cuts the picture into one strip per thread, and its result depends on the strips."""
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(threads)
