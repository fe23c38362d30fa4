"""Which methods are compared, by name: the paper's attribution contrasts, and the wider ones that are exploratory.

Methods are plain strings here; `factorjepa methods` explains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .explaining import PARTS, STEPS


@dataclass(frozen=True)
class Contrast:
    """`a` over `b`; a positive effect favours `a`."""

    name: str
    a: str
    b: str
    confirmatory: bool = False


OURS, FROZEN = "factorjepa", "frozen"

PRESPECIFIED = (
    Contrast("pkg", "factorjepa_raw", "auto_rgn", True),  # Delta_pkg
    Contrast("sup|pkg", OURS, "factorjepa_raw", True),  # Delta_sup|pkg
    Contrast("total", OURS, "auto_rgn", True),  # Delta_total
    Contrast("INT", "factorjepa_int", OURS, True),  # Delta_INT
    Contrast("DI+", "factorjepa_di", OURS, True),  # Delta_DI+
)
"""Appendix D. Crossed with the primary diagnostics they are the confirmatory family of a backbone."""

_OWN_FAMILIES = ("factorized", "ablation")


def extended(methods: Sequence[str], families: Mapping[str, str]) -> list[Contrast]:
    """FactorJEPA over every method that is not a form of it (controls among them), every method over frozen, and the
    steps between methods that differ in one thing, ablations among them."""
    taken = {(contrast.a, contrast.b) for contrast in PRESPECIFIED}
    found = []
    if OURS in methods:
        others = [m for m in methods if families.get(m) not in _OWN_FAMILIES and m not in (OURS, FROZEN)]
        found += [Contrast(f"over {other}", OURS, other) for other in others if (OURS, other) not in taken]
    if FROZEN in methods:
        found += [Contrast(f"{method} over frozen", method, FROZEN) for method in methods if method != FROZEN]
    taken |= {(contrast.a, contrast.b) for contrast in found}
    steps = [
        step
        for step in dict.fromkeys((*STEPS, *PARTS))
        if {step.a, step.b} <= {*methods} and (step.a, step.b) not in taken
    ]
    return found + [Contrast(f"{step.a} over {step.b}", step.a, step.b) for step in steps]
