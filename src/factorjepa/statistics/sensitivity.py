"""The same contrast, aggregated or constructed another way. Stable means: none of them turns it round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .estimand import Distribution
from .intervals import Interval, bca
from .rows import Sensitivity

CLIP_WEIGHTED = "clip-weighted"
SOURCE_ONLY = "source-only bootstrap"
CROSSED_SEEDS = "crossed-seed bootstrap"
WITHOUT_CITY = "leave one city out"


def sensitivities(
    effect: Distribution,
    interval: Interval,
    constructions: Mapping[str, Distribution | None],
    confidence: float,
    scale: float,
) -> list[Sensitivity]:
    """Aggregation first, then the alternative constructions of the metric (None: no value).

    A bootstrap over something else has the same estimate, so its direction cannot differ; it disagrees where the
    interval excluded zero and its own does not.
    """
    found = [_point(CLIP_WEIGHTED, effect.clip_weighted, effect.estimate)]
    others = {SOURCE_ONLY: (effect.source_only_B, effect.source_jackknives_C)}
    if len(effect.seeds_S) > 1:
        others[CROSSED_SEEDS] = effect.crossed_B, (effect.jackknife_J, *effect.seed_jackknives)
    for name, (replicates, jackknives) in others.items():
        its = bca(effect.estimate, replicates, jackknives, confidence, scale)
        agrees = effect.estimate != 0 and (its.excludes_zero or not interval.excludes_zero)
        found.append(Sensitivity(name, effect.estimate, its.low, its.high, agrees, its.note))
    if effect.cities > 1:
        low, high = float(effect.jackknife_J.min()), float(effect.jackknife_J.max())
        weakest = low if effect.estimate > 0 else high
        agrees = _same_direction(weakest, effect.estimate)
        found.append(Sensitivity(WITHOUT_CITY, weakest, low, high, agrees))
    for name, other in constructions.items():
        if other is None:
            found.append(Sensitivity(name, np.nan, np.nan, np.nan, False, "no value"))
            continue
        its = bca(other.estimate, other.replicates_B, (other.jackknife_J,), confidence)
        agrees = _same_direction(other.estimate, effect.estimate)
        found.append(Sensitivity(name, other.estimate, its.low, its.high, agrees, its.note))
    return found


def _point(name: str, value: float, headline: float) -> Sensitivity:
    return Sensitivity(name, value, np.nan, np.nan, _same_direction(value, headline))


def _same_direction(value: float, headline: float) -> bool:
    return bool(value * headline > 0)
