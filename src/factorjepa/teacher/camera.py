"""How the static scene moves in the picture from one frame to the next, and where a shot ends.

Corners spread over the picture are followed by pyramidal Lucas-Kanade there and back; a similarity (shift, zoom, roll)
that most of them share is the camera's motion. Agents move their corners otherwise and drop out as outliers. The
estimate for frame t reads frames t-1 and t alone, draws its samples from a fixed stream and is the same to the bit in
every run.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ..pixels import Frames
from ..seeding import stream
from .regions import Floats

IDENTITY = np.array([[1, 0, 0], [0, 1, 0]], dtype=np.float32)

_SIDE = 288  # px at which corners are followed: a tenth of the side is within reach of four pyramid levels
_CELLS = 8  # corners are picked in 8 x 8 cells, so that a textured crowd does not outvote a plain road
_PER_CELL = 8
_LEVELS = 4
_WINDOW = 17  # px
_THERE_AND_BACK = 1.0  # px by which a corner followed back may miss its start
_TOLERANCE = 0.006  # sides: a corner that obeys the motion within this is static
_TRIALS = 400
_ENOUGH = 12  # static corners without which there is no estimate
_MIN_SHARE = 0.2  # of the followed corners that must agree
_FLAT = 4.0  # grey levels of deviation below which a frame shows nothing
_HISTOGRAM_CELLS = 4
_CUT_SIMILARITY = 0.55  # of neighbouring frames' colours in place: a cut is below, when corners are lost as well


@dataclass(frozen=True)
class CameraMotion:
    """Motion of the static scene over a window of T frames."""

    affine: Floats  # [T, 2, 3] maps points of frame t-1 to frame t, in [0, 1] of the square; identity at 0
    tracked: NDArray[np.bool_]  # [T] False where nothing could be followed and the identity stands in; True at 0
    cuts: tuple[int, ...]  # frames that begin a new shot


def camera_motion(frames: Frames) -> CameraMotion:
    """The motion between consecutive frames of `uint8 [T, S, S, 3]`."""
    count = len(frames)
    affine = np.tile(IDENTITY, (count, 1, 1))
    tracked = np.ones(count, dtype=bool)
    cuts = []
    grey = [_grey(frame) for frame in frames]
    for t in range(1, count):
        found = _similarity(grey[t - 1], grey[t], np.zeros(2))
        if found is None:  # a fast turn of the camera: look again from where the whole picture seems to have gone
            found = _similarity(grey[t - 1], grey[t], _whole_shift(grey[t - 1], grey[t]))
        tracked[t] = found is not None
        if found is not None:
            affine[t] = found
        elif _is_cut(frames[t - 1], frames[t]):
            cuts.append(t)
    return CameraMotion(affine, tracked, tuple(cuts))


def moved(points: NDArray[np.floating], affine: NDArray[np.floating]) -> NDArray[np.float64]:
    """Points `[..., 2]` under a motion `[2, 3]`."""
    return np.asarray(points @ affine[:, :2].T + affine[:, 2], dtype=np.float64)


def _grey(frame: Frames) -> NDArray[np.uint8]:
    grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
    how = cv2.INTER_AREA if grey.shape[0] > _SIDE else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(grey, (_SIDE, _SIDE), interpolation=how), dtype=np.uint8)


def _similarity(
    before: NDArray[np.uint8], after: NDArray[np.uint8], shift: NDArray[np.float64]
) -> NDArray[np.float32] | None:
    """The similarity from `before` to `after` in [0, 1] coordinates; None if too few corners agree on one.

    `shift` is where the search begins, px.
    """
    start, end = _followed(before, after, shift)
    if len(start) < _ENOUGH:
        return None
    start, end = (start + 0.5) / _SIDE, (end + 0.5) / _SIDE
    static = _consensus(start, end)
    if static.sum() < max(_ENOUGH, _MIN_SHARE * len(start)):
        return None
    for _ in range(3):  # least squares on those that agree, then who agrees now?
        motion = _fit(start[static], end[static])
        static = np.hypot(*(moved(start, motion) - end).T) < _TOLERANCE
        if static.sum() < _ENOUGH:
            return None
    return motion.astype(np.float32)


def _whole_shift(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The shift of the whole picture by phase correlation, px."""
    window = cv2.createHanningWindow((_SIDE, _SIDE), cv2.CV_32F)
    shift, _ = cv2.phaseCorrelate(before.astype(np.float32), after.astype(np.float32), window)
    return np.array(shift)


def _followed(
    before: NDArray[np.uint8], after: NDArray[np.uint8], shift: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of `before` and where they are in `after`, `[N, 2]` px, those that lead back to their start."""
    none = np.empty((0, 2))
    if before.std() < _FLAT or after.std() < _FLAT:
        return none, none
    corners = _corners(before)
    if corners is None:
        return none, none
    there, found = _lucas_kanade(before, after, corners, shift)
    found &= ((there >= 0) & (there < _SIDE)).all(axis=1)
    corners, there = corners[found], there[found]
    if not len(corners):
        return none, none
    back, returned = _lucas_kanade(after, before, there, -shift)
    kept = returned & (np.abs(back - corners).max(axis=1) < _THERE_AND_BACK)
    return corners[kept].astype(np.float64), there[kept].astype(np.float64)


def _lucas_kanade(
    before: NDArray[np.uint8], after: NDArray[np.uint8], points: NDArray[np.float32], shift: NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Where points `[N, 2]` went, sought around `points + shift`, and which were found."""
    guess = (points + shift).astype(np.float32)
    window, flags = (_WINDOW, _WINDOW), cv2.OPTFLOW_USE_INITIAL_FLOW
    there, found, _ = cv2.calcOpticalFlowPyrLK(
        before, after, points, guess, winSize=window, maxLevel=_LEVELS, flags=flags
    )
    return np.asarray(there, dtype=np.float32), np.asarray(found).ravel() == 1


def _corners(grey: NDArray[np.uint8]) -> NDArray[np.float32] | None:
    """Up to `_PER_CELL` corners of every cell, `[N, 2]` px."""
    strength = cv2.cornerMinEigenVal(grey, 5)
    peaks = (strength == cv2.dilate(strength, np.ones((7, 7), np.uint8))) & (strength > 1e-4)
    rows, columns = np.nonzero(peaks)
    if rows.size == 0:
        return None
    cell = rows * _CELLS // _SIDE * _CELLS + columns * _CELLS // _SIDE
    order = np.lexsort((columns, rows, -strength[rows, columns], cell))
    first = np.searchsorted(cell[order], cell[order])
    chosen = order[np.arange(order.size) - first < _PER_CELL]
    return np.stack([columns[chosen], rows[chosen]], axis=1).astype(np.float32)


def _consensus(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points obey the similarity that most points obey: RANSAC over pairs of points, as complex numbers.

    A similarity is `z -> a z + b` with complex a and b, so two points give one.
    """
    z, w = start @ np.array([1, 1j]), end @ np.array([1, 1j])
    picks = stream("teacher", "camera", len(z)).integers(len(z), size=(_TRIALS, 2))
    first, second = picks.T
    apart = z[second] - z[first]
    usable = np.abs(apart) > 0.1  # near points say little about zoom and roll
    apart, first, second = apart[usable], first[usable], second[usable]
    a = (w[second] - w[first]) / apart
    sane = np.abs(a - 1) < 0.5
    a, first = a[sane], first[sane]
    if a.size == 0:
        return np.zeros(len(z), dtype=bool)
    b = w[first] - a * z[first]
    agree = np.abs(a[:, None] * z + b[:, None] - w) < _TOLERANCE
    return np.asarray(agree[int(agree.sum(axis=1).argmax())])


def _fit(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least-squares similarity `[2, 3]`."""
    z, w = start @ np.array([1, 1j]), end @ np.array([1, 1j])
    z0, w0 = z.mean(), w.mean()
    a = (np.conj(z - z0) * (w - w0)).sum() / max((np.abs(z - z0) ** 2).sum(), 1e-12)
    b = w0 - a * z0
    return np.array([[a.real, -a.imag, b.real], [a.imag, a.real, b.imag]])


def _is_cut(before: Frames, after: Frames) -> bool:
    """Whether the colours in place are others. Noise is like noise, and a fade changes little from frame to frame."""
    overlap = np.minimum(_histograms(before), _histograms(after)).sum(axis=1).mean()
    return bool(overlap < _CUT_SIMILARITY)


def _histograms(frame: Frames) -> NDArray[np.float64]:
    """Colour histograms of 4 x 4 cells, `[16, 64]`, each summing to 1."""
    small = cv2.resize(frame, (64, 64), interpolation=cv2.INTER_AREA)
    bins = (small.astype(np.int64) // 64) @ np.array([16, 4, 1])
    rows = np.arange(64) * _HISTOGRAM_CELLS // 64
    cell = rows[:, None] * _HISTOGRAM_CELLS + rows
    cells = _HISTOGRAM_CELLS**2
    counts = np.bincount((cell * 64 + bins).ravel(), minlength=cells * 64).reshape(cells, 64)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
