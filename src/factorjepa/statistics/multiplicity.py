"""Adjusted p-values: Holm for the confirmatory family, Benjamini-Hochberg for what is exploratory or asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .measures import Array


def holm(p_values: Sequence[float]) -> Array:
    """Holm's step-down adjustment: controls the chance of any false rejection."""
    p, order = _sorted(p_values)
    return _restored(np.minimum(np.maximum.accumulate(p * np.arange(len(p), 0, -1)), 1.0), order)


def benjamini_hochberg(p_values: Sequence[float]) -> Array:
    """Step-up adjustment: controls the expected share of false rejections."""
    p, order = _sorted(p_values)
    raised = p * len(p) / np.arange(1, len(p) + 1)
    return _restored(np.minimum(np.minimum.accumulate(raised[::-1])[::-1], 1.0), order)


def _sorted(p_values: Sequence[float]) -> tuple[Array, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    return p[order], order


def _restored(adjusted: Array, order: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Array:
    result = np.empty_like(adjusted)
    result[order] = adjusted
    return result
