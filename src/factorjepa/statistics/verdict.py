"""Decisions and the sentences they allow. A method is never called better than its evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from .rows import ContrastRow

LEAST_CITIES = 6  # with fewer, even effects of one sign in every city happen by chance more often than 1 in 20
BETTER, WORSE, NOT_SEPARATED, UNTESTABLE = "better", "worse", "not separated", "untestable"
NOT_RESOLVED = "not resolved"  # separated over cities, seeds averaged; not once few cities and seeds are allowed for
RULE = (
    "adjusted p and interval over cities, and adjusted p that allows for few cities and training seeds, whose variance "
    "is estimated as seed_variance says"
)


def decide_as_the_paper(row: ContrastRow, alpha: float) -> str:
    """Better or worse only where the adjusted p-value passes and the interval excludes zero (appendix E)."""
    if row.decision.startswith(UNTESTABLE):
        return row.decision
    if row.cities < LEAST_CITIES:
        return f"{UNTESTABLE}: {'one city' if row.cities < 2 else f'{row.cities} cities are too few'}"
    if np.isnan(row.low):
        return f"{UNTESTABLE}: no interval"
    if row.adjusted_p <= alpha and (row.low > 0 or row.high < 0):
        return BETTER if row.effect > 0 else WORSE
    return NOT_SEPARATED


def decide(row: ContrastRow, alpha: float) -> str:
    """What the paper decides, where the interval that allows for few cities and seeds decides it too."""
    if row.paper_decision not in (BETTER, WORSE) or row.deciding.adjusted_p <= alpha:
        return row.paper_decision
    return f"{NOT_RESOLVED}: {_what_varies(row)}"


def _what_varies(row: ContrastRow) -> str:
    if row.deciding.note:
        return row.deciding.note
    if row.deciding.seed_share > 0.5:
        return f"{len(row.seeds) or 'the'} training seeds vary too much"
    return f"{row.cities} cities vary too much"


def decided(row: ContrastRow) -> bool:
    return row.decision in (BETTER, WORSE)


def stated(row: ContrastRow) -> str:
    """`better, unstable`: the decision with what takes away from it."""
    return row.decision if row.stable or row.decision.startswith(UNTESTABLE) else f"{row.decision}, unstable"


def brief(said: str) -> str:
    """What `stated` says, without the reason: `not resolved: 8 cities vary too much, unstable` is two words."""
    decision, _, why = said.partition(":")
    return f"{decision}, unstable" if why.endswith(", unstable") else decision


def words(row: ContrastRow) -> str:
    """`better (Holm-adjusted p = 0.0020)`; p is the larger of the two that a decision needs."""
    if row.decision.startswith(UNTESTABLE):
        return row.decision
    exploratory = "" if row.family == "primary" else ", exploratory"
    if row.decision.startswith(NOT_RESOLVED):
        over_cities = f"over cities alone {row.paper_decision}, {row.adjustment}-adjusted p = {row.adjusted_p:.2g}"
        return f"{row.decision}{exploratory} ({over_cities})"
    adjusted = float(np.nanmax([row.adjusted_p, row.deciding.adjusted_p]))
    return f"{row.decision}{exploratory} ({row.adjustment}-adjusted p = {adjusted:.2g})"


def verdict(contrasts: Sequence[ContrastRow], titles: Mapping[str, str], diagnostics: Mapping[str, str]) -> list[str]:
    """One paragraph per backbone and confirmatory contrast, from the adjusted decisions alone.

    Those that could not be made are left to a note on all of them (`untested`).
    """
    grouped: dict[tuple[str, str], list[ContrastRow]] = {}
    for row in contrasts:
        if row.family == "primary" and not math.isnan(row.p):
            grouped.setdefault((row.backbone, row.contrast), []).append(row)
    return [_paragraph(backbone, rows, titles, diagnostics) for (backbone, _), rows in grouped.items()]


def _paragraph(
    backbone: str, rows: Sequence[ContrastRow], titles: Mapping[str, str], diagnostics: Mapping[str, str]
) -> str:
    first = rows[0]
    named = f"{backbone}, {first.contrast}: {titles.get(first.a, first.a)} over {titles.get(first.b, first.b)}"
    reasons = {row.decision for row in rows}
    if len(reasons) == 1 and first.decision.startswith(UNTESTABLE):
        return f"{named}: {first.decision}."
    said = [
        f"{diagnostics.get(row.diagnostic, row.diagnostic)} {words(row)}"
        + ("" if row.stable or row.decision.startswith(UNTESTABLE) else ", direction unstable")
        for row in rows
    ]
    both = {BETTER, WORSE} <= reasons
    closing = " A trade-off, not a general improvement." if both else ""
    return f"{named}: {'; '.join(said)}.{closing}"
