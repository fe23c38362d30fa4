"""Matched-population estimates (appendix B.3): source groups weigh alike, whatever they are drawn or matched into.

Legend: C clips of a corpus; K columns; P matched clips; U source groups; S scene strata.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .scene import Array, Ints


def offers(source_C: Ints, drawn_V: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Rows of clips, each as often as its source is drawn, and the group that each copy belongs to.

    All clips of a drawn source stay together; a source drawn twice is two groups.
    """
    copies_C = drawn_V.astype(np.int64)[source_C]
    rows = np.repeat(np.arange(len(source_C)), copies_C)
    copy = np.arange(len(rows)) - np.repeat(np.cumsum(copies_C) - copies_C, copies_C)
    return rows, source_C[rows] + copy * len(drawn_V)


def source_means(totals_PK: Array, terms_PK: Array, group_P: Ints) -> Array:
    """m_{k,u}: every source group's mean over its eligible frames, [U, K]; NaN where it has none."""
    order = np.argsort(group_P, kind="stable")
    starts = np.flatnonzero(np.diff(group_P[order], prepend=-1))
    totals, terms = (np.add.reduceat(values[order], starts, axis=0) for values in (totals_PK, terms_PK))
    return np.where(terms > 0, totals / np.where(terms > 0, terms, 1), np.nan)


def matched_means(totals_PK: Array, terms_PK: Array, group_P: Ints) -> Array:
    """mu_{r,k}: the mean over source groups, [K]."""
    if not len(group_P):
        return np.full(totals_PK.shape[1], np.nan)
    return _mean(source_means(totals_PK, terms_PK, group_P))


def means_by_scene(totals_PK: Array, terms_PK: Array, group_P: Ints, scene_P: Ints, scenes: int) -> Array:
    """The same within every scene stratum, [S, K]; NaN where it has no matched clip."""
    found = np.full((scenes, totals_PK.shape[1]), np.nan)
    for scene in np.unique(scene_P).tolist():
        its = scene_P == scene
        found[scene] = matched_means(totals_PK[its], terms_PK[its], group_P[its])
    return found


def _mean(values_UK: Array) -> Array:
    known = np.isfinite(values_UK)
    count = known.sum(0)
    return np.where(count > 0, np.where(known, values_UK, 0).sum(0) / np.maximum(count, 1), np.nan)
