"""A measure: one number of one diagnostic, computed from weighted means of its components.

A component is a variant in the scores. Weighted means of components are all that a bootstrap replicate has to
supply: the number is computed from them anew in each ("recompute the complete metric", appendix E).

Legend: K components of a measure; ... any leading axes (replicates, seeds).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ScoresError
from ..scores import DEFICIT, DiagnosticInfo, Direction

Array = np.ndarray[Any, np.dtype[np.float64]]

ALTERNATIVE = "alt/"
"""A variant whose name starts like this is another construction of the headline (epsilon, relative slope, AUC)."""
_HORIZON = re.compile(r"h\d+")  # so is the error at one horizon alone (appendix E, "Metric-construction sensitivity")

CONSTANT = "constant"
LEAK_EPSILON = 1e-8


@dataclass(frozen=True)
class Measure:
    """One number of a diagnostic; `reduce` takes means [..., K] to values [...]."""

    diagnostic: str
    variant: str
    headline: bool
    sign: float  # +1: higher is better
    components: tuple[str, ...]
    reduce: Callable[[Array], Array]

    @property
    def linear(self) -> bool:
        """Whether the number is a plain mean, so that single clips have a value too."""
        return self.reduce is plain_mean


def plain_mean(means: Array) -> Array:
    return means[..., 0]


def f1(means: Array) -> Array:
    """2 tp / (2 tp + fp + fn) from [..., 3]; 0 for a class that neither occurs nor is predicted.

    Every class counts for every method alike: left out only where a method does not predict it, it would favour some.
    """
    tp, fp, fn = np.moveaxis(means, -1, 0)
    return np.where(2 * tp + fp + fn == 0, 0.0, _ratio(2 * tp, 2 * tp + fp + fn))


def explained(means: Array) -> Array:
    """1 - error / total from [..., 2]."""
    return 1.0 - _ratio(means[..., 0], means[..., 1])


def leak(means: Array) -> Array:
    """Leak(k -> k') from squared errors [..., 3] of k -> k', k' -> k' and the constant; score = -error.

    Undefined where the channel of k' does not predict its own target: there is nothing to normalise by.
    """
    crossed, own, constant = np.moveaxis(means, -1, 0)
    return _ratio(constant - crossed, np.where(constant > own, constant - own + LEAK_EPSILON, 0.0))


_ERROR = "per token dimension, clip"
# Variants that are another quantity than their diagnostic's headline: which way is better, and in what unit.
_QUANTITIES: dict[str, list[tuple[str, Direction, str]]] = {
    "motion_cosine": [("alt/squared_error", "lower", "standardised squared error, clip")],
    "mask_slope": [
        (r"(mse/)?hidden_.*|alt/(mse/)?auc", "lower", _ERROR),
        (r"alt/(mse/)?relative", "lower", "share of the error that nothing hidden leaves, per unit of hidden share"),
    ],
    "rollout_drift": [(r"q\d+|alt/mean", "lower", _ERROR)],
    "horizon_decay": [(r"early/h\d+", "lower", _ERROR)],
    "tcc_kendall_tau": [("alt/matched", "higher", "share of moments, clip")],
}


def direction_of(info: DiagnosticInfo, variant: str) -> Direction:
    """Of one variant: a deficit is how much worse than the oracle, whatever the diagnostic's own direction."""
    return "lower" if DEFICIT in variant.split("/") else _quantity(info, variant)[0]


def unit_of(info: DiagnosticInfo, variant: str) -> str:
    return _quantity(info, variant)[1]


def _quantity(info: DiagnosticInfo, variant: str) -> tuple[Direction, str]:
    for pattern, direction, unit in _QUANTITIES.get(info.name, ()):
        if re.fullmatch(pattern, variant):
            return direction, unit
    return info.direction, info.unit


def measures_of(
    info: DiagnosticInfo, variants: Sequence[str], alternatives: Sequence[str] | None = None
) -> list[Measure]:
    """The headline first, then its parts and every other variant."""
    found = sorted(variants)
    parts = _PARTS[info.reduction](info, found) if info.reduction in _PARTS else {}
    used = {component for components, _ in parts.values() for component in components}
    for variant in found:
        if variant not in used:
            parts[variant] = ((variant,), plain_mean)
    _check_alternatives(info, found, alternatives)
    headline = _headline(info, parts, used)
    others = [
        Measure(info.name, name, False, _sign(direction_of(info, name)), components, reduce)
        for name, (components, reduce) in parts.items()
        if name != headline.variant
    ]
    return [headline, *others]


def alternatives_of(
    info: DiagnosticInfo, measures: Sequence[Measure], chosen: Mapping[str, Sequence[str]] | None
) -> list[Measure]:
    """Construction alternatives of the headline: those named, or those whose name says so."""
    names = None if chosen is None else chosen.get(info.name)
    if names is None:
        return [one for one in measures if one.variant.startswith(ALTERNATIVE) or _HORIZON.fullmatch(one.variant)]
    return [measure for measure in measures if measure.variant in names and not measure.headline]


_Parts = dict[str, tuple[tuple[str, ...], Callable[[Array], Array]]]


def _f1_parts(info: DiagnosticInfo, variants: Sequence[str]) -> _Parts:
    classes = sorted({v.split("/", 1)[1] for v in variants if v.split("/", 1)[0] in ("tp", "fp", "fn") and "/" in v})
    return {f"f1/{c}": (_present(info, variants, f"tp/{c}", f"fp/{c}", f"fn/{c}"), f1) for c in classes}


def _explained_parts(info: DiagnosticInfo, variants: Sequence[str]) -> _Parts:
    names = [variant.split("/", 1)[1] for variant in variants if variant.startswith("error/")]
    return {name: (_present(info, variants, f"error/{name}", f"total/{name}"), explained) for name in names}


def _leakage_parts(info: DiagnosticInfo, variants: Sequence[str]) -> _Parts:
    pairs = [tuple(variant.split("->", 1)) for variant in variants if "->" in variant]
    return {
        f"{k}->{other}": (_present(info, variants, f"{k}->{other}", f"{other}->{other}", f"{CONSTANT}->{other}"), leak)
        for k, other in pairs
        if k not in (CONSTANT, other)
    }


_PARTS = {"macro_f1": _f1_parts, "explained": _explained_parts, "leakage": _leakage_parts}


def _headline(info: DiagnosticInfo, parts: _Parts, used: set[str]) -> Measure:
    """The variant that the diagnostic names; else the mean over its parts (macro F1, mean leakage)."""
    sign = _sign(direction_of(info, info.headline))
    if info.headline in parts:
        components, reduce = parts[info.headline]
        return Measure(info.name, info.headline, True, sign, components, reduce)
    averaged = [part for part in parts.values() if set(part[0]) <= used]
    if not averaged:
        raise ScoresError(
            f"diagnostic {info.name!r}: its headline variant {info.headline!r} has no scores (there are: "
            f"{', '.join(sorted(parts)) or 'none'}); evaluate again"
        )
    components = tuple(component for part in averaged for component in part[0])
    reduce, width = averaged[0][1], len(averaged[0][0])

    def mean_over_parts(means: Array) -> Array:
        return np.asarray(reduce(means.reshape(*means.shape[:-1], len(averaged), width)).mean(-1))

    return Measure(info.name, info.headline, True, sign, components, mean_over_parts)


def _sign(direction: Direction) -> float:
    return 1.0 if direction == "higher" else -1.0


def _present(info: DiagnosticInfo, variants: Sequence[str], *names: str) -> tuple[str, ...]:
    missing = [name for name in names if name not in variants]
    if missing:
        raise ScoresError(
            f"diagnostic {info.name!r}: {info.reduction} needs the variants {', '.join(names)}; there is no "
            f"{', '.join(missing)}. Evaluate again"
        )
    return names


def _check_alternatives(info: DiagnosticInfo, variants: Sequence[str], names: Sequence[str] | None) -> None:
    unknown = sorted(set(names or ()) - set(variants))
    if unknown:
        raise ScoresError(
            f"diagnostic {info.name!r}: the alternatives {', '.join(unknown)} are no variants of it (there are: "
            f"{', '.join(variants)})"
        )


def _ratio(numerator: Array, denominator: Array) -> Array:
    """NaN where there is nothing to divide by."""
    defined = denominator > 0
    return np.where(defined, numerator / np.where(defined, denominator, 1.0), np.nan)
