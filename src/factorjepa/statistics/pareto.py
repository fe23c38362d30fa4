"""Which methods are beaten at no higher cost (appendix D, Pareto dominance)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..scores import RunInfo
from .measures import Array
from .rows import ParetoRow, ScoreRow


def pareto_rows(backbone: str, scores: Sequence[ScoreRow], about: Mapping[str, Sequence[RunInfo]]) -> list[ParetoRow]:
    """Dominance over trainable parameters, GPU-hours and the primary scores, among methods that have them all.

    Hours are left out between methods that were not trained in the same goes: another machine, or more runs beside
    them, takes other seconds for the same updates.
    """
    primary = [row for row in scores if row.backbone == backbone and row.status == "primary" and row.headline]
    diagnostics = sorted({row.diagnostic for row in primary})
    table: dict[str, dict[str, ScoreRow]] = {}
    for row in primary:
        if not np.isnan(row.mean):
            table.setdefault(row.method, {})[row.diagnostic] = row
    methods = [m for m in sorted(table) if len(table[m]) == len(diagnostics) and m in about]
    goods = {
        method: np.array(
            [-_trainable(about[method])]
            + [(1 if table[method][d].direction == "higher" else -1) * table[method][d].mean for d in diagnostics]
        )
        for method in methods
    }
    hours = {method: training_hours(about[method]) for method in methods}
    numbers = goes_of([run for runs in about.values() for run in runs])

    def beats(other: str, method: str) -> bool:
        spent = hours_compare(about[other], about[method])
        ours, theirs = ((goods[one], [-hours[one]] if spent else []) for one in (other, method))
        return dominates(np.append(*ours), np.append(*theirs))

    notes = [
        "training time was not logged for all methods: hours are left out beside those"
        if any(np.isnan(spent) for spent in hours.values())
        else "",
        about_goes(numbers),
    ]
    return [
        ParetoRow(
            backbone, method, int(_trainable(about[method])), hours[method],
            {d: table[method][d].mean for d in diagnostics}, [other for other in methods if beats(other, method)],
            "; ".join(note for note in notes if note), sorted({numbers[run.go] for run in _timed(about[method])}),
        )
        for method in methods
    ]  # fmt: skip


def goes_of(runs: Sequence[RunInfo]) -> dict[tuple[str, ...], int]:
    """The goes in which these runs were trained, numbered from 1."""
    return {go: number for number, go in enumerate(dict.fromkeys(run.go for run in _timed(runs)), start=1)}


def about_goes(numbers: Mapping[tuple[str, ...], int]) -> str:
    """What follows from several; nothing where there is one."""
    if len(numbers) < 2:
        return ""
    return (
        f"runs were trained in {len(numbers)} goes, with other commands, machines or runs beside them: training hours "
        "compare within a go alone, and are left out of who dominates whom between goes"
    )


def hours_compare(one: Sequence[RunInfo], other: Sequence[RunInfo]) -> bool:
    """Whether the hours of two methods are known, and seed by seed of the same goes; who trains nothing takes none."""
    if any(np.isnan(training_hours(runs)) for runs in (one, other)):
        return False
    first, second = ({run.seed: run.go for run in _timed(runs)} for runs in (one, other))
    return not first or not second or first == second


def training_hours(runs: Sequence[RunInfo]) -> float:
    """Of one training run, the mean over seeds; a method that trains nothing costs nothing."""
    spent = [0.0 if run.seconds is None and not run.trainable else run.seconds for run in runs]
    logged = [seconds for seconds in spent if seconds is not None]
    return float(np.mean(logged)) / 3600 if spent and len(logged) == len(spent) else float("nan")


def dominates(goods: Array, other: Array) -> bool:
    """At least as good everywhere and better somewhere; larger is better in every column."""
    return bool((goods >= other).all() and (goods > other).any())


def _trainable(runs: Sequence[RunInfo]) -> float:
    return float(np.mean([run.trainable for run in runs]))


def _timed(runs: Sequence[RunInfo]) -> list[RunInfo]:
    return [run for run in runs if run.seconds is not None]
