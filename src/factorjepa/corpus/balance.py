"""Sequences whose every prefix is proportional: the rule behind splits and stratified subsets.

Rounding each stratum by itself lets errors pile up (strata of four sources never reach the 10 % test share), and
largest remainders for n and n + 1 need not nest. Tijdeman's solution of the chairman assignment problem (1980) does
both: in every prefix of length k, group g appears within one of `k * weight_g / sum(weights)` times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def balanced_sequence(weights: Sequence[int]) -> Iterator[int]:
    """Endless group numbers, proportional to `weights` in every prefix to within one; ties go to the earlier group."""
    weight = np.asarray(weights, dtype=np.int64)
    if weight.size == 0 or np.any(weight < 0) or weight.sum() == 0:
        raise ValueError(f"weights must be whole numbers >= 0 that are not all zero, got {list(weights)}")
    total = int(weight.sum())
    slack = max(2, 2 * int(np.count_nonzero(weight)) - 2)
    count = np.zeros_like(weight)
    step = 0
    while True:
        step += 1
        owed = step * weight - count * total  # how far each group lags behind its share, times `total`
        deadline = np.full(weight.size, np.inf)
        eligible = (slack * owed >= total) & (weight > 0)
        deadline[eligible] = ((slack - 1) * total - slack * owed[eligible]) / weight[eligible]
        chosen = int(np.argmin(deadline))
        count[chosen] += 1
        yield chosen
