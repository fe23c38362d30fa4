"""Evidence cells: an agent's support in the context, cut along the grid of tokens that a mask may hide."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .projection import Projections
from .regions import Evidence


def evidence_cells(evidence: Evidence, slots: int, grid: int, projections: Projections) -> dict[str, NDArray[Any]]:
    """One row per (agent, context frame, cell) with support, in that order; agents are the first `slots` tracklets.

    A pixel belongs to the cell that holds its centre; its feature is that of the feature cell that does.
    """
    side, feature_grid = evidence.side, evidence.features.shape[1]
    seen = [
        (slot, frame, region)
        for slot, one in enumerate(evidence.tracklets[:slots])
        for frame, region in zip(one.frames, one.regions, strict=True)
        if frame < evidence.context
    ]
    parts = [np.nonzero(region.mask) for _, _, region in seen]
    sizes = [rows.size for rows, _ in parts]
    empty = np.zeros(0, np.intp)
    row = np.concatenate([rows + region.top for (rows, _), (_, _, region) in zip(parts, seen, strict=True)] or [empty])
    column = np.concatenate(
        [columns + region.left for (_, columns), (_, _, region) in zip(parts, seen, strict=True)] or [empty]
    )
    region_of_pixel = np.repeat(np.arange(len(seen)), sizes)
    cell_at, feature_at = _cell_of_pixel(side, grid), _cell_of_pixel(side, feature_grid)
    cell = cell_at[row] * grid + cell_at[column]
    key = region_of_pixel * grid**2 + cell
    order = np.argsort(key, kind="stable")
    key, row, column = key[order], row[order], column[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    pixels = np.diff(starts, append=key.size)
    region_of_cell, place = np.divmod(key[starts], grid**2)
    slot = np.array([slot for slot, _, _ in seen], np.intp)[region_of_cell]
    frame = np.array([frame for _, frame, _ in seen], np.intp)[region_of_cell]
    feature = frame.repeat(pixels) * feature_grid**2 + feature_at[row] * feature_grid + feature_at[column]
    if not starts.size:
        extent, mean = np.zeros((0, 4)), np.zeros((0, projections.descriptor_DE.shape[1]))
    else:
        low = [np.minimum.reduceat(places, starts) for places in (column, row)]
        high = [np.maximum.reduceat(places, starts) + 1 for places in (column, row)]
        extent = np.stack((*low, *high), axis=1)
        mean = _mean_features(evidence, projections, np.repeat(np.arange(starts.size), pixels), feature, pixels)
    return {
        "cell_slot": slot,
        "cell_frame": frame,
        "cell_place": place,
        "cell_pixels": pixels,
        "cell_extent": extent,
        "cell_descriptor": mean,
    }


def _mean_features(
    evidence: Evidence, projections: Projections, cell: NDArray[Any], feature: NDArray[Any], pixels: NDArray[Any]
) -> NDArray[Any]:
    """Mean projected feature of each cell's pixels, `[C, E]`; pixels that share both cells are counted together."""
    context = evidence.features[: evidence.context].reshape(-1, evidence.features.shape[-1])
    projected = context @ projections.descriptor_DE
    joint, counts = np.unique(cell * len(context) + feature, return_counts=True)
    cell_of_joint, feature_of_joint = np.divmod(joint, len(context))
    weighted = projected[feature_of_joint] * counts[:, None]
    starts = np.flatnonzero(np.diff(cell_of_joint, prepend=-1))
    return np.asarray(np.add.reduceat(weighted, starts, axis=0) / pixels[:, None])


def _cell_of_pixel(side: int, cells: int) -> NDArray[np.intp]:
    return ((np.arange(side) * 2 + 1) * cells // (2 * side)).astype(np.intp)
