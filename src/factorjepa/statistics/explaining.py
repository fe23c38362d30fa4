"""What explains a gain: pairs of methods between which one thing changes, so that a difference can be credited to it.

A gain of the whole method over a baseline may come from training other blocks, from knowing where objects are, from the
channels, from the targets or from the order in which they are taught. Each step has its own pair; steps whose methods
were not run are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .rows import NAN, ContrastRow, Number
from .verdict import stated


@dataclass(frozen=True)
class Step:
    """From method `b` to method `a`, `title` is all that changes."""

    title: str
    a: str
    b: str


STEPS = (
    Step("training predictor and top blocks", "mono_top", "frozen"),
    Step("other blocks instead of the top ones", "auto_rgn", "mono_top"),
    Step("object states, through a dense head", "mono_states_late", "mono_top"),
    Step("factorization, given states", "factorjepa_raw", "mono_states_late"),
    Step("states and factorization together", "factorjepa_raw", "mono_top"),
    Step("targets, given states and channels", "no_curriculum", "factorjepa_raw"),
    Step("stages and factor views, without targets", "factorjepa_raw_views", "factorjepa_raw"),
    Step("stages and factor views, with targets", "factorjepa", "no_curriculum"),
    Step("targets, given stages and views", "factorjepa", "factorjepa_raw_views"),
    Step("factorization, given states, targets and stages", "factorjepa", "mono_matched_late"),
    Step("targets of this clip instead of another's", "factorjepa", "shuffled_targets"),
    Step("targets of this moment instead of another", "factorjepa", "misaligned_targets"),
    Step("the visibility gate", "factorjepa", "no_visibility_path"),
    Step("the interaction channel", "factorjepa", "no_interaction_path"),
    Step("pairs that move agents", "pair_motion", "factorjepa"),
    Step("early injection instead of late, dense head", "mono_states_early", "mono_states_late"),
    Step("early injection as well, dense head", "mono_states_both", "mono_states_late"),
    Step("early injection as well, RAW", "factorjepa_raw_both", "factorjepa_raw"),
    Step("early injection as well", "factorjepa_both", "factorjepa"),
    Step("factorization, states early and late, no targets", "factorjepa_raw_both", "mono_states_both"),
    Step("factorization, states early and late, and targets", "factorjepa_both", "mono_matched_both"),
)

COLUMNS = (
    ("future_l1", ""),
    ("mask_slope", "alt/auc"),  # a poor model has a small slope: the area under its curve is the fair number
    ("intervention_l1", ""),
)
"""Diagnostic, and the variant where it is not the headline."""
AREA = "Masking AUC"  # what people call that variant


@dataclass(frozen=True)
class Explained:
    """A step on a diagnostic; positive favours `a`. A variant has an interval and no decision of its own."""

    backbone: str
    step: str
    a: str
    b: str
    diagnostic: str
    variant: str
    effect: Number = NAN
    low: Number = NAN
    high: Number = NAN
    decision: str = ""


def explained(contrasts: Sequence[ContrastRow], backbone: str) -> list[Explained]:
    """The steps that were measured, in the order of the ladder, each on every column."""
    by_place = {(row.a, row.b, row.diagnostic): row for row in contrasts if row.backbone == backbone}
    found = []
    for step in STEPS:
        rows = [_of(step, backbone, *column, by_place.get((step.a, step.b, column[0]))) for column in COLUMNS]
        if any(math.isfinite(row.effect) for row in rows):
            found += rows
    return found


def _of(step: Step, backbone: str, diagnostic: str, variant: str, row: ContrastRow | None) -> Explained:
    nothing = Explained(backbone, step.title, step.a, step.b, diagnostic, variant)
    if row is None:
        return nothing
    seen = row if not variant else next((one for one in row.sensitivities if one.name == variant), None)
    if seen is None:
        return nothing
    decision = "" if variant else stated(row)
    return Explained(
        backbone, step.title, step.a, step.b, diagnostic, variant, seen.effect, seen.low, seen.high, decision
    )
