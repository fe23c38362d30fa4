"""Masks and label maps as run lengths (row-major; a mask's first run is background)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def encode_runs(flat: NDArray[np.generic]) -> tuple[NDArray[np.uint32], NDArray[np.generic]]:
    """Lengths and values of the runs of a 1-D array."""
    if flat.size == 0:
        return np.empty(0, np.uint32), flat[:0]
    starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
    return np.diff(starts, append=flat.size).astype(np.uint32), flat[starts]


def encode_masks(masks: list[NDArray[np.bool_]]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Run lengths of several masks after one another, and how many runs each has. The first run is background."""
    start = np.zeros(1, bool)
    flat = np.concatenate([part for mask in masks for part in (start, mask.ravel())]) if masks else np.empty(0, bool)
    sizes = np.array([mask.size + 1 for mask in masks], dtype=np.int64)
    begins = np.cumsum(sizes) - sizes
    change = np.zeros(flat.size, dtype=bool)
    change[1:] = flat[1:] != flat[:-1]
    change[begins] = True
    starts = np.flatnonzero(change)
    lengths = np.diff(starts, append=flat.size)
    counts = np.diff(np.searchsorted(starts, np.append(begins, flat.size)))
    lengths[np.searchsorted(starts, begins)] -= 1  # the extra background pixel that every mask starts with
    return lengths.astype(np.uint32), counts


def decode_mask(runs: NDArray[np.uint32], shape: tuple[int, int]) -> NDArray[np.bool_]:
    values = np.arange(runs.size) % 2 == 1
    return np.repeat(values, runs).reshape(shape)


def set_pixels(runs: NDArray[np.uint32], counts: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every set pixel of several masks after one another (`encode_masks`): its mask's number, its row-major place."""
    mask = np.repeat(np.arange(len(counts)), counts)
    first = (np.cumsum(counts, dtype=np.int64) - counts)[mask]  # run of the same mask
    start = np.cumsum(runs, dtype=np.int64) - runs
    is_set = (np.arange(len(runs)) - first) % 2 == 1
    length = runs[is_set].astype(np.int64)
    begin = (start - start[first])[is_set] - (np.cumsum(length) - length)
    return np.repeat(mask[is_set], length), np.repeat(begin, length) + np.arange(length.sum())
