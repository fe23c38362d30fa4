"""How much training seeds vary: a pair's own seeds, and what the other methods lend to them.

Three seeds tell a variance with two degrees of freedom, and Student's quantile there is three times the normal one.
Methods that were trained with the same seeds under one protocol tell more. Their values are a two-way table

    y(M, s) = mu_M + gamma_s + e(M, s)

in which gamma_s, what a seed does to all methods, cancels from every paired difference. `pool_of` takes the variance of
e from the whole table, and from how the methods' variances differ the degrees of freedom that it is worth as a prior
(Smyth 2004, as in limma's eBayes). `moderated` puts both together:

    lent = min(d_0, d) min(1, v_0 / v)      v' = max(v, (d v + lent v_0) / (d + lent))      d' = min(d + lent, d_pool)

with v and d = S - 1 of the pair, v_0 twice the pool's variance. It is more careful than limma, whose thousands of genes
are 3 to 25 methods here, too few to find the one that varies more than the others (`benchmarks/seed_pooling.py`): the
pool counts at most as much as the pair's own seeds, the less the more these vary, and never lowers their variance.

Legend: M methods; S seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import polygamma

from .measures import Array

FEWEST = 3  # methods: one besides the pair
_STEPS = 50  # of Newton's method


@dataclass(frozen=True)
class Spread:
    """A variance of the effect, and the degrees of freedom it was estimated with."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class Pool:
    """What the seeds of several methods say together."""

    variance: float  # of one training's value, its method's and its seed's level taken away
    freedom: float  # it was estimated with
    prior: float  # degrees of freedom that it is worth for one method; infinite where methods vary alike
    methods: int


def pool_of(values: Sequence[Array]) -> Pool | None:
    """From one array of values by seed for each method, all of the same seeds; None of fewer than three methods."""
    known = [one for one in values if np.isfinite(one).all()]
    if len(known) < FEWEST or len(known[0]) < 2:
        return None
    values_MS = np.stack(known)
    methods, seeds = values_MS.shape
    left_MS = values_MS - values_MS.mean(0) - values_MS.mean(1, keepdims=True) + values_MS.mean()
    squares_M = (left_MS**2).sum(1)
    freedom = (methods - 1) * (seeds - 1)
    variances_M = squares_M * methods / freedom  # unbiased where methods vary alike
    if not squares_M.any():
        return None
    return Pool(float(squares_M.sum() / freedom), freedom, prior_freedom(variances_M, seeds - 1), methods)


def prior_freedom(variances_M: Array, freedom: float) -> float:
    """d_0 of Smyth (2004): log variances spread by trigamma(d / 2) where methods vary alike, and by
    trigamma(d_0 / 2) besides where their variances are drawn from a scaled inverse chi-squared."""
    logs = np.log(variances_M[variances_M > 0])
    if len(logs) < FEWEST:
        return 0.0
    excess = float(logs.var(ddof=1) - polygamma(1, freedom / 2))
    return 2 * _trigamma_inverse(excess) if excess > 0 else float("inf")


def moderated(own: Spread, pool: Pool, seeds: int) -> Spread:
    """Of the mean of a pair's differences over seeds."""
    expected = 2 * pool.variance / seeds
    lent = min(pool.prior, own.freedom)
    if own.variance > expected:
        lent *= expected / own.variance
    together = (own.freedom * own.variance + lent * expected) / (own.freedom + lent)
    return Spread(max(own.variance, together), min(own.freedom + lent, pool.freedom))


def _trigamma_inverse(value: float) -> float:
    """Newton's method on 1 / trigamma, which is nearly straight (Smyth 2004, appendix)."""
    y = 0.5 + 1 / value
    for _ in range(_STEPS):
        trigamma = float(polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, y))
        y += step
        if -step < 1e-10 * y:
            break
    return float(y)
