"""Which methods are beaten at no higher cost (appendix D, Pareto dominance)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..scores import RunInfo
from .measures import Array
from .rows import ParetoRow, ScoreRow


def pareto_rows(backbone: str, scores: Sequence[ScoreRow], about: Mapping[str, Sequence[RunInfo]]) -> list[ParetoRow]:
    """Dominance over trainable parameters, GPU-hours and the primary scores, among methods that have them all."""
    primary = [row for row in scores if row.backbone == backbone and row.status == "primary" and row.headline]
    diagnostics = sorted({row.diagnostic for row in primary})
    table: dict[str, dict[str, ScoreRow]] = {}
    for row in primary:
        if not np.isnan(row.mean):
            table.setdefault(row.method, {})[row.diagnostic] = row
    methods = [m for m in sorted(table) if len(table[m]) == len(diagnostics) and m in about]
    hours = {method: _hours(about[method]) for method in methods}
    timed = not any(np.isnan(spent) for spent in hours.values())
    note = "" if timed else "training time was not logged for all methods: hours are left out"
    goods = {
        method: np.array(
            [-_trainable(about[method]), *([-hours[method]] if timed else [])]
            + [(1 if table[method][d].direction == "higher" else -1) * table[method][d].mean for d in diagnostics]
        )
        for method in methods
    }
    return [
        ParetoRow(
            backbone, method, int(_trainable(about[method])), hours[method],
            {d: table[method][d].mean for d in diagnostics},
            [other for other in methods if dominates(goods[other], goods[method])], note,
        )
        for method in methods
    ]  # fmt: skip


def dominates(goods: Array, other: Array) -> bool:
    """At least as good everywhere and better somewhere; larger is better in every column."""
    return bool((goods >= other).all() and (goods > other).any())


def _trainable(runs: Sequence[RunInfo]) -> float:
    return float(np.mean([run.trainable for run in runs]))


def _hours(runs: Sequence[RunInfo]) -> float:
    """Of one training run, the mean over seeds; a method that trains nothing costs nothing."""
    spent = [0.0 if run.seconds is None and not run.trainable else run.seconds for run in runs]
    logged = [seconds for seconds in spent if seconds is not None]
    return float(np.mean(logged)) / 3600 if len(logged) == len(spent) else float("nan")
