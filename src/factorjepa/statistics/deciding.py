"""The interval that decides: it allows for few cities, and for what another training would have given.

Appendix E's interval draws cities and sources, and averages the training seeds first. With few cities it is too narrow,
and how trainings differ is not in it. Here the half-widths of all that varies are added in quadrature, each with
Student's quantile for what it was estimated from (Banerjee 1960):

    h^2 = t(C - 1)^2  C / (C - 1)  Var*(delta)  +  sum_k t(S_k - 1)^2  Var_k

Var* is the bootstrap's variance over C cities, which is (C - 1) / C of the unbiased one (Hesterberg 2014); Var_k the
jackknife variance over S_k seeds, s^2 / S for a mean. For normal effects it covers at least what it says, whatever the
variances are to each other. Welch's approximation does not where one of them has one or two degrees of freedom, and
drawing two or three seeds again gives a variance that is a half or a third too small (`benchmarks/coverage.py`).

Where methods were trained with the same seeds, Var_k and its degrees of freedom may be moderated by what all of them
say (`pooling.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr, stdtrit

from ..words import counted
from .estimand import Distribution
from .measures import Array
from .pooling import Pool, Spread, moderated
from .rows import NAN, ContrastRow, Deciding

OWN, MODERATED = "own", "moderated"  # the seeds' variance: of the pair alone, or helped by other methods
ONE_SEED = "one training seed"
UNDEFINED_SEED = "no value in one of the training seeds"
FEW_SEEDS = 5  # fewer, and Student's quantiles are several times the normal ones
_SMALLEST = 1e-15  # p-value
_HALVINGS = 45  # of the logarithm of a p-value


def deciding(effect: Distribution, confidence: float, seeds_known: bool, pool: Pool | None = None) -> Deciding:
    """`seeds_known` is false where a method was trained once: nobody knows what a second training would give.

    `pool` is of the methods trained with the seeds of both sides.
    """
    if not seeds_known:
        return Deciding(note=ONE_SEED)
    cities, seeds = city_spread(effect), seed_spreads(effect)
    found = Deciding(seed_variance=OWN if seeds else "")
    if len(seeds) == 1:
        (own,), trainings = seeds, len(effect.seeds_S)
        found.seed_sd = float(np.sqrt(own.variance * trainings))
        if pool is not None:
            seeds = [moderated(own, pool, trainings)]
            found.seed_variance, found.prior_freedom = MODERATED, float(seeds[0].freedom - own.freedom)
            found.pooled_sd, found.pooled_methods = float(np.sqrt(2 * pool.variance)), pool.methods
        found.seed_freedom = float(seeds[0].freedom)
    half = half_width([cities, *seeds], 1 - confidence)
    if not np.isfinite(half):
        return Deciding(note=UNDEFINED_SEED if np.isnan(effect.seeds_S).any() else "no variance")
    if half:
        found.seed_share = float((half_width(seeds, 1 - confidence) / half) ** 2)
    estimate = effect.estimate
    found.low, found.high, found.p = estimate - half, estimate + half, tail(estimate, [cities, *seeds])
    return found


def city_spread(effect: Distribution) -> Spread:
    """Over cities and their sources; over sources where there is one city."""
    clusters = effect.cities if effect.cities > 1 else effect.sources
    if clusters < 2 or np.isnan(effect.replicates_B).all():
        return Spread(NAN, 1)
    return Spread(float(np.nanvar(effect.replicates_B)) * clusters / (clusters - 1), clusters - 1)


def seed_spreads(effect: Distribution) -> list[Spread]:
    """Over training seeds; one for each side where the seeds of the two have nothing to do with each other."""
    return [Spread(_jackknife_variance(one), len(one) - 1) for one in effect.seed_jackknives if len(one) > 1]


def half_width(spreads: Sequence[Spread], level: float) -> float:
    """Of an interval that leaves out `level`, both ends together."""
    variances, freedoms = (np.array([getattr(one, name) for one in spreads]) for name in ("variance", "freedom"))
    return float(np.sqrt((stdtrit(freedoms, level / 2) ** 2 * variances).sum()))


def tail(effect: float, spreads: Sequence[Spread]) -> float:
    """Two-sided p-value: the level at which the interval just touches zero."""
    varying = [one for one in spreads if one.variance > 0]
    if effect == 0:
        return 1.0
    if not varying:
        return _SMALLEST
    if len(varying) == 1:
        return max(float(2 * stdtr(varying[0].freedom, -abs(effect) / np.sqrt(varying[0].variance))), _SMALLEST)
    low, high = np.log(_SMALLEST), 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if half_width(varying, np.exp(middle)) > abs(effect) else (low, middle)
    return float(np.exp(high))


def least_effect(seeds: int, tests: int, alpha: float, freedom: float | None = None) -> float:
    """How many SDs over its seeds an effect must be to pass the first of Holm's steps, if nothing else varied."""
    return float(-stdtrit(freedom or seeds - 1, alpha / tests / 2) / np.sqrt(seeds))


def about_seeds(seeds: int, tests: int, alpha: float, freedom: float | None = None) -> str:
    """What few training seeds keep from being decided among prespecified tests; nothing where they are enough.

    `freedom` is the most that any of them has, with what other methods lend.
    """
    if seeds >= FEW_SEEDS:
        return ""
    if seeds == 1:
        return (
            f"{ONE_SEED}: how much another training would differ is not known, so no method that was trained once is "
            "called better or worse"
        )
    few = f"{seeds} training seeds are few: intervals leave their differences out, decisions allow for them"
    if not tests:
        return few
    needed, enough = (least_effect(count, tests, alpha) for count in (seeds, FEW_SEEDS))
    lent = ""
    if freedom is not None and freedom > seeds - 1:
        with_more = least_effect(seeds, tests, alpha, freedom)
        lent = f" ({with_more:.1f} times where the seeds of other methods lend degrees of freedom)"
    return (
        f"{few}. Among {counted(tests, 'prespecified test')}, an effect must be {needed:.0f} times the SD of its "
        f"seeds to be the first that is decided{lent}; with {FEW_SEEDS} seeds, {enough:.1f} times"
    )


def most_freedom(rows: Sequence[ContrastRow]) -> float | None:
    """Of the seeds' variance of any prespecified contrast."""
    known = [row.deciding.seed_freedom for row in rows if row.family == "primary"]
    return max((one for one in known if np.isfinite(one)), default=None)


def _jackknife_variance(without_S: Array) -> float:
    """(S - 1) / S times the squared deviations of the leave-one-out values."""
    seeds = len(without_S)
    return float((seeds - 1) / seeds * ((without_S - without_S.mean()) ** 2).sum())
