"""What explains a gain: pairs of methods between which one thing changes, so that a difference can be credited to it.

A gain of the whole method over a baseline may come from training other blocks, from knowing where objects are, from the
channels, from the targets or from the order in which they are taught: the ladder of `STEPS`. What each part of
FactorJEPA is worth, its ablations say: `PARTS`. Each step has its own pair; steps whose methods were not run are left
out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..words import AT, base_of
from .rows import NAN, ContrastRow, Number
from .verdict import stated


@dataclass(frozen=True)
class Step:
    """From method `b` to method `a`, `title` is all that changes."""

    title: str
    a: str
    b: str


_SHUFFLED = Step("targets of this clip instead of another's", "factorjepa", "shuffled_targets")
_MISALIGNED = Step("targets of this moment instead of another", "factorjepa", "misaligned_targets")
_GATE = Step("the visibility gate", "factorjepa", "no_visibility_path")
_INTERACTIONS = Step("the interaction channel", "factorjepa", "no_interaction_path")
_RAW_INTERACTIONS = Step("the interaction channel, RAW", "factorjepa_raw", "raw_no_interaction_path")
_MOTION = Step("pairs that move agents", "pair_motion", "factorjepa")
_MOVING = Step("agents that move by their own state too", "agent_motion", "pair_motion")
_PLACES = Step("future places of agents as targets", "future_places", "agent_motion")
_MOVING_CHOSEN = Step(
    "agents that move by their own state and by pairs; Auto-RGN's blocks", "agent_motion_chosen", "factorjepa_chosen"
)
_PLACES_CHOSEN = Step(
    "future places of agents as targets; Auto-RGN's blocks", "future_places_chosen", "agent_motion_chosen"
)
_TARGETS = Step("targets, given states and channels", "no_curriculum", "factorjepa_raw")
_TARGETS_VIEWED = Step("targets, given stages and views", "factorjepa", "factorjepa_raw_views")
_VIEWS = Step("stages and factor views, without targets", "factorjepa_raw_views", "factorjepa_raw")
_CURRICULUM = Step("stages and factor views, with targets", "factorjepa", "no_curriculum")
_BOTH = Step("early injection as well", "factorjepa_both", "factorjepa")
_RAW_CHOSEN = Step("Auto-RGN's blocks instead of the top ones, RAW", "factorjepa_raw_chosen", "factorjepa_raw")
_CHOSEN = Step("Auto-RGN's blocks instead of the top ones", "factorjepa_chosen", "factorjepa")
_BOTH_CHOSEN = Step(
    "early injection as well, RAW, Auto-RGN's blocks", "factorjepa_raw_both_chosen", "factorjepa_raw_chosen"
)
_DI_CHOSEN = Step("more time on interactions; Auto-RGN's blocks", "factorjepa_di_chosen", "factorjepa_chosen")
_INT_CHOSEN = Step("interventions in training; Auto-RGN's blocks", "factorjepa_int_chosen", "factorjepa_chosen")
_RAW_BOTH = Step("early injection as well, RAW", "factorjepa_raw_both", "factorjepa_raw")


def _both_chosen(step: Step) -> Step:
    """The same between methods with states early and late and Auto-RGN's blocks."""
    return Step(f"{step.title}; early and late, Auto-RGN's blocks", f"{step.a}_both_chosen", f"{step.b}_both_chosen")


def _on_chosen_blocks(states: str, raw: str, ours: str, controls: str) -> tuple[Step, ...]:
    """From Auto-RGN to FactorJEPA on its blocks, through the form without targets and through the dense heads."""
    dense, taught = f"mono_states{controls}", f"mono_matched{controls}"
    steps = (
        (f"{states}, through a dense head", dense, "auto_rgn"),
        (f"factorization, given {states}", raw, dense),
        (f"{states} and factorization together", raw, "auto_rgn"),
        (f"targets and stages as well, {states}", ours, raw),
        (f"targets and stages through a dense head, {states}", taught, dense),
        (f"factorization, given {states}, targets and stages", ours, taught),
        (f"everything but the factorization, {states}", taught, "auto_rgn"),
        (f"everything, {states}", ours, "auto_rgn"),
        (f"{states} and targets through a dense head, given stages and views", taught, "auto_rgn_views"),
        (f"{states}, targets and factorization, given stages and views", ours, "auto_rgn_views"),
    )
    return tuple(Step(f"{title}; Auto-RGN's blocks", a, b) for title, a, b in steps)


_ONE_CHANGE = (
    _TARGETS, _VIEWS, _CURRICULUM, _TARGETS_VIEWED, _SHUFFLED, _MISALIGNED, _INTERACTIONS, _RAW_INTERACTIONS, _MOTION,
)  # fmt: skip

STEPS = (
    Step("training predictor and top blocks", "mono_top", "frozen"),
    Step("other blocks instead of the top ones", "auto_rgn", "mono_top"),
    Step("object states, through a dense head", "mono_states_late", "mono_top"),
    Step("factorization, given states", "factorjepa_raw", "mono_states_late"),
    Step("states and factorization together", "factorjepa_raw", "mono_top"),
    _TARGETS,
    _VIEWS,
    _CURRICULUM,
    _TARGETS_VIEWED,
    Step("factorization, given states, targets and stages", "factorjepa", "mono_matched_late"),
    Step(
        "a dense head that writes into the tokens, not into narrower queries", "mono_direct_late", "mono_matched_late"
    ),
    Step("factorization, given states, targets, stages and that", "factorjepa", "mono_direct_late"),
    _SHUFFLED,
    _MISALIGNED,
    _GATE,
    _INTERACTIONS,
    _RAW_INTERACTIONS,
    _MOTION,
    _MOVING,
    _PLACES,
    Step("early injection instead of late, dense head", "mono_states_early", "mono_states_late"),
    Step("early injection as well, dense head", "mono_states_both", "mono_states_late"),
    _RAW_BOTH,
    _BOTH,
    Step("factorization, states early and late, no targets", "factorjepa_raw_both", "mono_states_both"),
    Step("factorization, states early and late, and targets", "factorjepa_both", "mono_matched_both"),
    _RAW_CHOSEN,
    _CHOSEN,
    Step("stages and factor views alone, Auto-RGN's blocks", "auto_rgn_views", "auto_rgn"),
    Step("a wide look back, given stages and views; Auto-RGN's blocks", "auto_rgn_look", "auto_rgn_views"),
    *_on_chosen_blocks("late states", "factorjepa_raw_chosen", "factorjepa_chosen", "_late_chosen"),
    Step(
        "a dense head that writes into the tokens, not into narrower queries; Auto-RGN's blocks",
        "mono_direct_late_chosen",
        "mono_matched_late_chosen",
    ),
    Step(
        "factorization, given late states, targets, stages and that; Auto-RGN's blocks",
        "factorjepa_chosen",
        "mono_direct_late_chosen",
    ),
    Step(
        "late states and targets into the tokens through a dense head, given stages and views; Auto-RGN's blocks",
        "mono_direct_late_chosen",
        "auto_rgn_views",
    ),
    _MOVING_CHOSEN,
    _PLACES_CHOSEN,
    Step(
        "factorization, given late states, targets, stages and places; Auto-RGN's blocks",
        "future_places_chosen",
        "mono_places_late_chosen",
    ),
    Step(
        "late states, targets, factorization and places, given stages and views; Auto-RGN's blocks",
        "future_places_chosen",
        "auto_rgn_views",
    ),
    _DI_CHOSEN,
    _INT_CHOSEN,
    Step(
        "interventions in training alone, given stages and views; Auto-RGN's blocks", "auto_rgn_int", "auto_rgn_views"
    ),
    Step("everything and interventions, late states; Auto-RGN's blocks", "factorjepa_int_chosen", "auto_rgn"),
    Step(
        "late states, targets, factorization and interventions, given stages and views; Auto-RGN's blocks",
        "factorjepa_int_chosen",
        "auto_rgn_views",
    ),
    Step(
        "late states, targets and factorization, given stages, views and interventions; Auto-RGN's blocks",
        "factorjepa_int_chosen",
        "auto_rgn_int",
    ),
    _BOTH_CHOSEN,
    *_on_chosen_blocks("states early and late", "factorjepa_raw_both_chosen", "factorjepa_both_chosen", "_chosen"),
    Step("pairs, through a dense head, Auto-RGN's blocks", "mono_states_chosen", "mono_agents_chosen"),
    Step(
        "factorization, given agents and no pairs, Auto-RGN's blocks",
        "raw_no_interaction_path_both_chosen",
        "mono_agents_chosen",
    ),
    Step(
        "states early and late and factorization, given stages and views; Auto-RGN's blocks",
        "factorjepa_raw_views_both_chosen",
        "auto_rgn_views",
    ),
    *map(_both_chosen, _ONE_CHANGE),
)

_TERMS = ("factor", "visibility", "separation", "sparsity")

PARTS = (
    *(Step(f"the {term} loss", "factorjepa", f"no_{term}_loss") for term in (*_TERMS, "nonlinear")),
    _GATE,
    _INTERACTIONS,
    _RAW_INTERACTIONS,
    Step("reliability weights", "factorjepa", "no_reliability"),
    _CURRICULUM,
    _SHUFFLED,
    _MISALIGNED,
    Step("half the ranks", "half_ranks", "factorjepa"),
    Step("twice the ranks", "double_ranks", "factorjepa"),
    *(
        Step(f"{words} the weight of the {term} loss", f"{size}_{term}", "factorjepa")
        for term in _TERMS
        for size, words in (("half", "half"), ("double", "twice"))
    ),
    Step("a dense residual beside the channels", "residual_path", "factorjepa"),
    Step("slots instead of tracklets", "slots", "factorjepa"),
    Step("early injection instead of late", "factorjepa_early", "factorjepa"),
    _BOTH,
    _MOTION,
    Step("agents that move by their own state and by pairs", "agent_motion", "factorjepa"),
    Step("agents that move, and their future places as targets", "future_places", "factorjepa"),
    _VIEWS,
    Step("early injection instead of late, RAW", "factorjepa_raw_early", "factorjepa_raw"),
    _RAW_BOTH,
    _CHOSEN,
    _RAW_CHOSEN,
    _DI_CHOSEN,
    _INT_CHOSEN,
    _MOVING_CHOSEN,
    Step(
        "agents that move, and their future places as targets; Auto-RGN's blocks",
        "future_places_chosen",
        "factorjepa_chosen",
    ),
    _BOTH_CHOSEN,
    Step("early injection as well, Auto-RGN's blocks", "factorjepa_both_chosen", "factorjepa_chosen"),
    *map(_both_chosen, _ONE_CHANGE),
)
"""Every ablation of the registry. What was taken out: FactorJEPA over the rest. What was changed: it over the whole."""


@dataclass(frozen=True)
class Ladder:
    """Steps that are shown together; `name` is that of their CSV."""

    name: str
    heading: str
    steps: tuple[Step, ...]
    variants: bool = False  # ends with what other settings change


LADDERS = (
    Ladder("explained", "What explains a gain", STEPS, variants=True),
    Ladder("parts", "What each part is worth", PARTS),
)

COLUMNS = (
    ("future_l1", ""),
    ("mask_slope", "alt/auc"),  # a poor model has a small slope: the area under its curve is the fair number
    ("intervention_l1", ""),
)
"""Diagnostic, and the variant where it is not the headline."""
AREA = "Masking AUC"  # what people call that variant


Told = Literal["methods", "variants", ""]
"""Where a step is told: among those between methods, among those of variants, or only where all are."""
CONTROL = "control"  # the family of methods that are there to be compared with


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
    told: Told = "methods"


def variant_steps(methods: Collection[str]) -> list[Step]:
    """What other settings change: from a method to `method@word`."""
    return [
        Step(f"{name.removeprefix(base_of(name))} instead of the usual settings, {base_of(name)}", name, base_of(name))
        for name in methods
        if AT in name and base_of(name) in methods
    ]


def _between_variants(places: Collection[tuple[str, str, str]]) -> list[Step]:
    """From one variant of a method to another, where somebody has asked for it."""
    pairs = dict.fromkeys((a, b) for a, b, _ in places if base_of(a) == base_of(b) and AT in a and AT in b)
    return [
        Step(f"{a.removeprefix(base_of(a))} instead of {b.removeprefix(base_of(b))}, {base_of(a)}", a, b)
        for a, b in pairs
    ]


def with_variants(steps: Sequence[Step], methods: Collection[str]) -> list[Step]:
    """Each step, and again where `a@word` or `b@word` stand in for its methods: both where both are there."""
    words = dict.fromkeys(name.removeprefix(base_of(name)) for name in methods if AT in name)
    found = []
    for step in steps:
        found.append(step)
        for word in words:
            a, b = (f"{name}{word}" if f"{name}{word}" in methods else name for name in (step.a, step.b))
            if (a, b) != (step.a, step.b):
                found.append(Step(f"{step.title} ({word})", a, b))
    return found


def explained(
    contrasts: Sequence[ContrastRow],
    backbone: str,
    ladder: Ladder = LADDERS[0],
    families: Mapping[str, str] | None = None,
) -> list[Explained]:
    """The steps that were measured, in their order, each on every column; `families` are those of methods."""
    by_place = {(row.a, row.b, row.diagnostic): row for row in contrasts if row.backbone == backbone}
    methods = dict.fromkeys(name for a, b, _ in by_place for name in (a, b))
    changed = [*variant_steps(methods), *_between_variants(by_place)] if ladder.variants else []
    found: list[Explained] = []
    for step in [*with_variants(ladder.steps, methods), *changed]:
        rows = [_of(step, backbone, *column, by_place.get((step.a, step.b, column[0]))) for column in COLUMNS]
        if any(math.isfinite(row.effect) for row in rows):
            found += rows
    pairs = {(row.a, row.b) for row in found}
    return [dataclasses.replace(row, told=_told(row.a, row.b, pairs, families or {})) for row in found]


def _told(a: str, b: str, pairs: Collection[tuple[str, str]], families: Mapping[str, str]) -> Told:
    """Of a variant: what it changes, and what becomes of the step between a method and its control.

    Elsewhere the step between the methods themselves says most, and dozens of others would hide it. A variant whose
    method was not run is told like a method.
    """
    meant = (base_of(a), base_of(b))
    if meant[0] == meant[1]:
        return "variants"
    if meant == (a, b) or meant not in pairs:
        return "methods"
    return "variants" if families.get(b) == CONTROL != families.get(a) else ""


def told(rows: Sequence[Explained]) -> tuple[dict[Told, list[Explained]], int]:
    """The rows of steps between methods and of variants, where there are any, and how many more steps there are.

    What a variant changes comes before what it is beside controls.
    """
    found: dict[Told, list[Explained]] = {}
    for where in ("methods", "variants"):
        if its := [row for row in rows if row.told == where]:
            found[where] = sorted(its, key=lambda row: base_of(row.a) != base_of(row.b))
    return found, len({row.step for row in rows if not row.told})


def worth_showing(rows: Sequence[Explained], ladder: Ladder) -> bool:
    """Two steps or more, for one is in the table of contrasts already, and not only those of an earlier ladder."""
    found = {(row.a, row.b) for row in rows}
    before = [step for earlier in LADDERS[: LADDERS.index(ladder)] for step in earlier.steps]
    methods = {name for pair in found for name in pair}
    shown = {(step.a, step.b) for step in with_variants(before, methods)}
    return len(found) > 1 and not found <= shown


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
