"""Which methods are compared, by name: the paper's attribution contrasts, and the wider ones that are exploratory.

Methods are plain strings here; `factorjepa methods` explains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..words import base_of
from .explaining import PARTS, STEPS, Step, variant_steps, with_variants


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
_FORMS = (OURS, "factorjepa_chosen", "factorjepa_both_chosen")  # the first that was run stands against the others


def foremost(methods: Sequence[str]) -> str | None:
    """FactorJEPA as it stands against the others: in the paper's form, or the first other that was run."""
    forms = sorted((m for m in methods if base_of(m) in _FORMS), key=lambda m: (_FORMS.index(base_of(m)), m))
    return next(iter(forms), None)


def extended(methods: Sequence[str], families: Mapping[str, str]) -> list[Contrast]:
    """What else is compared, of the methods that were run.

    FactorJEPA, in the paper's form or the first other that is there, over every method that is not a form of it;
    every method over frozen; the steps between methods that differ in one thing, ablations and variants among them.
    """
    taken = {(contrast.a, contrast.b) for contrast in PRESPECIFIED}
    found = []
    ours = foremost(methods)
    if ours is not None:
        whose = "" if ours == OURS else f"{ours} "
        others = [m for m in methods if families.get(m) not in _OWN_FAMILIES and m not in (ours, FROZEN)]
        found += [Contrast(f"{whose}over {other}", ours, other) for other in others if (ours, other) not in taken]
    if FROZEN in methods:
        found += [Contrast(f"{method} over frozen", method, FROZEN) for method in methods if method != FROZEN]
    taken |= {(contrast.a, contrast.b) for contrast in found}
    known = [*(Step(one.name, one.a, one.b) for one in PRESPECIFIED), *dict.fromkeys((*STEPS, *PARTS))]
    steps = [*with_variants(known, methods), *variant_steps(methods)]
    return found + [
        Contrast(f"{step.a} over {step.b}", step.a, step.b)
        for step in steps
        if {step.a, step.b} <= {*methods} and (step.a, step.b) not in taken
    ]
