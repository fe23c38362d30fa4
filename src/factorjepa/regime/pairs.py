"""Which agents of a frame can possibly meet: all pairs where agents are few, a spatial index where they are many.

Legend: O observations sorted by frame; P pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from .scene import Array, Ints

Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]

FEW = 96  # agents in a frame up to which listing all pairs is faster than sorting them into trees


def pairs_within(frame_O: Ints, place_O2: Array, reach_O: Array, base: float, norm: float = 2.0) -> Pairs:
    """Rows (i, j), i < j, of the same frame that include every pair nearer than `base` + both reaches.

    A superset: whoever asks tests its own condition. Agents are sorted into classes of reach, each twice the one
    before, so that one fast or large agent does not make everyone a candidate of everyone.
    """
    ends = np.searchsorted(frame_O, frame_O, side="right")
    starts = np.searchsorted(frame_O, np.unique(frame_O))
    sizes = np.diff(np.append(starts, len(frame_O)))
    if sizes.max(initial=0) <= FEW:
        return all_pairs(ends)
    found = [
        _indexed(place_O2[start : start + size], reach_O[start : start + size], base, norm) + start
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    ]
    first, second = np.concatenate(found).T
    return first, second


def all_pairs(ends_O: NDArray[np.intp]) -> Pairs:
    """Every row with every later one of its frame, which ends at `ends_O`."""
    rows = np.arange(len(ends_O))
    later_O = ends_O - rows - 1
    first = np.repeat(rows, later_O)
    begun = np.repeat(np.cumsum(later_O) - later_O, later_O)
    return first, np.arange(len(first)) - begun + first + 1


def _indexed(place_N2: Array, reach_N: Array, base: float, norm: float) -> NDArray[np.intp]:
    """[P, 2] of one frame."""
    if len(place_N2) <= FEW:
        return np.stack(all_pairs(np.full(len(place_N2), len(place_N2))), axis=1)
    positive = reach_N[reach_N > 0]
    smallest = float(np.median(positive)) if len(positive) else 1.0
    class_N = np.ceil(np.log2(np.maximum(reach_N / smallest, 1.0))).astype(np.int64)
    groups = [np.flatnonzero(class_N == level) for level in np.unique(class_N)]
    trees = [cKDTree(place_N2[rows]) for rows in groups]
    reaches = [float(reach_N[rows].max()) for rows in groups]
    found = []
    for a, rows in enumerate(groups):
        inside = trees[a].query_pairs(base + 2 * reaches[a], p=norm, output_type="ndarray")
        found.append(rows[inside])
        for b in range(a + 1, len(groups)):
            across = trees[a].sparse_distance_matrix(
                trees[b], base + reaches[a] + reaches[b], p=norm, output_type="ndarray"
            )
            found.append(np.stack([rows[across["i"]], groups[b][across["j"]]], axis=1))
    return np.sort(np.concatenate(found), axis=1)
