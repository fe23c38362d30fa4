"""BCa intervals, two-sided bootstrap p-values, and effects in units of their interval.

Legend: B replicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, stdtr

from .measures import Array

BCA, PERCENTILE, CONSTANT, NONE = "BCa", "percentile", "constant", "none"
_ROUNDING = 1e-12  # relative to the values compared: below this two numbers are the same one
_UNDEFINED = 0.05  # share of replicates that may be undefined


@dataclass(frozen=True)
class Interval:
    """`kind` says how it was made: BCa, or what took its place; `note` says why."""

    low: float
    high: float
    kind: str
    note: str = ""

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def bca(
    estimate: float, replicates_B: Array, jackknives: Sequence[Array], confidence: float = 0.95, scale: float = 0.0
) -> Interval:
    """Bias-corrected and accelerated interval (Efron 1987).

    The acceleration comes from leaving out, in turn, each of the things that were resampled: one array for each set
    that was drawn by itself (all cities; the sources of each city; the seeds). `scale` is the size of the numbers that
    the estimate is a difference of: what rounding leaves of their spread is no spread.
    """
    if np.isnan(estimate):
        return Interval(np.nan, np.nan, NONE, "no value")
    defined, undefined = replicates_B[~np.isnan(replicates_B)], float(np.isnan(replicates_B).mean())
    if undefined > _UNDEFINED:
        return Interval(np.nan, np.nan, NONE, f"undefined in {undefined:.0%} of the replicates")
    note = f"undefined in {undefined:.1%} of the replicates" if undefined else ""
    tail = (1 - confidence) / 2
    tails = np.array([tail, 1 - tail])
    if np.ptp(defined) <= _ROUNDING * max(scale, abs(estimate)):
        return Interval(estimate, estimate, CONSTANT, _joined(note, "the same in all clusters"))
    below = ((defined < estimate).mean() + (defined <= estimate).mean()) / 2
    acceleration = acceleration_of(jackknives)
    if below in (0.0, 1.0) or np.isnan(acceleration):
        low, high = np.quantile(defined, tails)
        why = (
            "estimate outside all replicates" if below in (0.0, 1.0) else "no acceleration: a cluster alone defines it"
        )
        return Interval(float(low), float(high), PERCENTILE, _joined(note, why))
    bias = ndtri(below)
    shifted = bias + ndtri(tails)
    low, high = np.quantile(defined, ndtr(bias + shifted / (1 - acceleration * shifted)))
    return Interval(float(low), float(high), BCA, note)


def p_value(effect: float, replicates_B: Array, scale: float = 0.0) -> float:
    """Two-sided, from the replicates recentred on no effect: (1 + #{|d* - d| >= |d|}) / (B + 1)."""
    defined = replicates_B[~np.isnan(replicates_B)]
    if np.isnan(effect) or not len(defined):
        return float("nan")
    tolerance = _ROUNDING * max(scale, abs(effect))
    as_far = (np.abs(defined - effect) >= abs(effect) - tolerance).sum()
    return float((1 + as_far) / (1 + len(defined)))


def separation(effect: float, interval: Interval) -> float:
    """The effect over the interval's half that faces zero: 1 where the interval just touches zero."""
    half = effect - interval.low if effect > 0 else interval.high - effect
    return float(effect / half) if half > 0 else float("nan")


def expected_coverage(clusters: int, confidence: float = 0.95) -> float:
    """What a bootstrap interval of a mean over few alike clusters really covers (normal, all variation between them).

    Its variance is (C - 1)/C of the unbiased one, and normal quantiles stand where Student's belong.
    """
    reach = ndtri((1 + confidence) / 2) * np.sqrt((clusters - 1) / clusters)
    return float(2 * stdtr(clusters - 1, reach) - 1)


def acceleration_of(jackknives: Sequence[Array]) -> float:
    """Davison & Hinkley (1997), for several sets that are resampled independently; NaN where nothing can be left out.

    What a set's members are worth is `(n - 1) / n` of the mean of its leave-one-out values less each of them. A set of
    one has nothing to draw from.
    """
    drawn = [one for one in jackknives if len(one) > 1]
    if not drawn or any(np.isnan(one).any() for one in drawn):
        return float("nan")
    influence = np.concatenate([(len(one) - 1) / len(one) * (one.mean() - one) for one in drawn])
    spread = float((influence**2).sum())
    return float((influence**3).sum() / (6 * spread**1.5)) if spread > 0 else 0.0


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
