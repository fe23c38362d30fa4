"""Prespecified tests that could not be made, and what that does to the family that is adjusted together.

A method that was not run, or that lacks a diagnostic because evaluations of different diagnostics were joined, leaves
the family smaller than it was planned, and Holm's adjustment milder. Whoever reads an adjusted p-value must know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..words import listed
from .rows import ContrastRow


def untested(rows: Sequence[ContrastRow], diagnostics: Mapping[str, str]) -> tuple[str, str]:
    """Of one backbone's rows: how many tests are missing and what follows, then which ones and why; else nothing.

    `diagnostics` are titles by name.
    """
    family = [row for row in rows if row.family == "primary"]
    missing = [row for row in family if math.isnan(row.p)]
    if not missing:
        return "", ""
    made = len(family) - len(missing)
    if not made:
        said = f"none of the {len(family)} prespecified tests could be made: every decision is exploratory"
    else:
        said = (
            f"{len(missing)} of {len(family)} prespecified tests could not be made: p-values are adjusted for the "
            f"{made} that could, and Holm multiplies the smallest by {made} instead of {len(family)}"
        )
    planned = list(dict.fromkeys(row.diagnostic for row in family))
    by_reason: dict[str, dict[str, list[str]]] = {}
    for row in missing:
        why = row.decision.partition(": ")[2] or "no p-value"
        by_reason.setdefault(why, {}).setdefault(row.contrast, []).append(row.diagnostic)
    return said, "; ".join(f"{_named(which, planned, diagnostics)} ({why})" for why, which in by_reason.items())


def _named(which: Mapping[str, Sequence[str]], planned: Sequence[str], titles: Mapping[str, str]) -> str:
    """`INT`, or `pkg and total on Motion cosine` where other diagnostics could be tested."""
    together: dict[tuple[str, ...], list[str]] = {}
    for contrast, its in which.items():
        together.setdefault(tuple(its), []).append(contrast)
    return ", ".join(
        listed(contrasts)
        + ("" if len(its) == len(planned) else f" on {listed([titles.get(name, name) for name in its])}")
        for its, contrasts in together.items()
    )
