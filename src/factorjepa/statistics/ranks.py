"""Whether methods keep their order from one backbone to another, and how much that hangs on one method or family.

The methods are a fixed set, so these correlations are descriptive. Agreement is scale robustness, not replication.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .measures import Array
from .rows import RankRow, ScoreRow

FAMILIES = {
    "frozen": "frozen",
    "full": "conventional fine-tuning",
    "continual": "conventional fine-tuning",
    "lpft": "conventional fine-tuning",
    "auto_rgn": "conventional fine-tuning",
    "auto_rgn_views": "conventional fine-tuning",
    "lora": "parameter-efficient",
    "dora": "parameter-efficient",
    "factorjepa_raw": "FactorJEPA",
    "factorjepa": "FactorJEPA",
    "factorjepa_di": "FactorJEPA",
    "factorjepa_int": "FactorJEPA",
    "wise_0.3": "encoder scope",
    "wise_0.5": "encoder scope",
    "wise_0.7": "encoder scope",
}
"""Appendix E's method families, and a control that is one of them but for its augmentation; others have the family that
their run states."""

_FEWEST = 3  # methods: with two, a correlation is 1 or -1 whatever they do


def rank_rows(scores: Sequence[ScoreRow]) -> list[RankRow]:
    """One row per pair of backbones and diagnostic."""
    headlines: dict[str, dict[str, dict[str, ScoreRow]]] = {}
    for row in scores:
        if row.headline and not np.isnan(row.mean):
            headlines.setdefault(row.diagnostic, {}).setdefault(row.backbone, {})[row.method] = row
    found = []
    for diagnostic, by_backbone in headlines.items():
        for first, second in itertools.combinations(sorted(by_backbone), 2):
            found.append(_row(diagnostic, by_backbone[first], by_backbone[second]))
    return found


def _row(diagnostic: str, first: Mapping[str, ScoreRow], second: Mapping[str, ScoreRow]) -> RankRow:
    from scipy.stats import kendalltau, spearmanr

    methods = sorted(first.keys() & second.keys())
    sign = 1.0 if next(iter(first.values())).direction == "higher" else -1.0
    a, b = (sign * np.array([side[method].mean for method in methods]) for side in (first, second))
    families = np.array([FAMILIES.get(method, first[method].family) for method in methods])
    without_method = [np.arange(len(methods)) != left_out for left_out in range(len(methods))]
    without_family = [families != family for family in sorted(set(families))]
    rho, tau = _correlation(spearmanr, a, b), _correlation(kendalltau, a, b)
    note = "" if len(methods) >= _FEWEST else f"{len(methods)} common methods: at least {_FEWEST} are needed"
    return RankRow(
        diagnostic, next(iter(first.values())).backbone, next(iter(second.values())).backbone, methods, rho, tau,
        _range(spearmanr, a, b, without_method), _range(spearmanr, a, b, without_family),
        _range(kendalltau, a, b, without_method), _range(kendalltau, a, b, without_family), note,
    )  # fmt: skip


def _correlation(of: Callable[[Array, Array], tuple[float, float]], a: Array, b: Array) -> float:
    """NaN with too few methods, or where all are equal."""
    if len(a) < _FEWEST or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(of(a, b)[0])


def _range(
    of: Callable[[Array, Array], tuple[float, float]],
    a: Array,
    b: Array,
    kept: Sequence[np.ndarray[tuple[int], np.dtype[np.bool_]]],
) -> list[float]:
    """Smallest and largest correlation over the subsets that can have one (eq. R_rho); empty when none can."""
    found = [value for mask in kept if not np.isnan(value := _correlation(of, a[mask], b[mask]))]
    return [min(found), max(found)] if found else []
