"""Sums over the three channels of a colour.

They are written out, from left to right: numpy's reduction over so short an axis gives the same bits in several times
the time.
"""

from __future__ import annotations

import numpy as np

from .regions import Floats


def total(values: Floats) -> Floats:
    """`[..., 3]` -> `[...]`."""
    result: Floats = values[..., 0] + values[..., 1] + values[..., 2]
    return result


def length(difference: Floats) -> Floats:
    """Of a difference between two colours, `[..., 3]` -> `[...]`."""
    return np.sqrt(total(difference * difference))
