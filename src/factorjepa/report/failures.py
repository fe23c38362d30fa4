"""Why a decoded future fails, in words: what its error is and where, then the symptoms with their numbers.

A future that no symptom describes still has an error: it is told beside the oracle's, and where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..decoded import AGENTS, MOVING, STATIC, Failure, RegionError, Strengths
from ..rendering.failure_settings import FailureSettings
from .markup import Markup, joined, tag
from .numbers import number
from .tables import Cell, table

SYMPTOMS = {
    "layout_drift": ("Layout drift", "what stands still has moved"),
    "agent_omission": ("Agent omission", "an agent is missing or has faded"),
    "agent_duplication": ("Agent duplication", "one agent appears more than once"),
    "interaction_inconsistency": ("Interaction inconsistency", "neighbours stand or move wrongly to each other"),
    "motion_under_dispersion": ("Motion under-dispersion", "what moves is slowed, or blurred towards an average"),
    "appearance_substitution": ("Appearance substitution", "an agent is in its place but looks different"),
    "unsupported_content": ("Unsupported content", "something appears that was never there"),
    "lost_detail": ("Lost detail", "walls, roads and other scenery are blurred or flattened"),
    "scenery_substitution": ("Scenery substitution", "something else stands where the scenery should be"),
}
ATTRIBUTIONS = {
    "prediction_conditioned": "only in the prediction",
    "mixed": "in both, more or elsewhere in the prediction",
    "oracle_present": "the oracle shows it too",
}
REGIONS = {
    AGENTS: "agents (inside the contour)", MOVING: "other things that move", STATIC: "static scene",
}  # fmt: skip
NONE_FOUND = "No symptom of the taxonomy reaches its threshold."
_AS_MUCH, _WELL_ABOVE = 1.1, 1.5  # of the oracle's error: less is as much as the oracle's; more is a failed forecast
_MATERIAL = FailureSettings().material  # thresholds: a smaller difference of strengths is none


def plain(name: str) -> str:
    """`oracle-present` and `oracle_present` are one."""
    return str(name).replace("-", "_").replace(" ", "_")


def why(found: Sequence[Failure] | None, errors: Sequence[RegionError]) -> Markup:
    """The error, where it lies, and the symptoms; `found` is None where nobody looked for any."""
    symptoms: Markup | None = None
    if found is not None:
        symptoms = tag("ul", [tag("li", _failure(one)) for one in found]) if found else tag("p", NONE_FOUND)
    return joined(
        tag("p", _error(errors, bool(found))) if errors else None, symptoms, _regions(errors) if errors else None
    )


def _error(errors: Sequence[RegionError], named: bool) -> str:
    """The whole picture's error beside the oracle's, and where most of what the prediction adds lies."""
    predicted, oracle = (
        sum(one.area * value for one, value in zip(errors, values, strict=True)) / sum(one.area for one in errors)
        for values in ([one.predicted for one in errors], [one.oracle for one in errors])
    )
    said = f"A pixel is off by {_percent(predicted)} of the range on average; the oracle's by {_percent(oracle)}."
    times = predicted / oracle if oracle > 0 else math.inf
    if times < _AS_MUCH:
        return f"{said} The prediction draws this clip as well as the true latents do."
    added = {one.region: one.area * (one.predicted - one.oracle) for one in errors}
    worst = max(errors, key=lambda one: added[one.region])
    share = added[worst.region] / sum(value for value in added.values() if value > 0)
    where = REGIONS.get(worst.region, worst.region)
    said += f" That is {_times(times)} the oracle's error: {100 * share:.0f} % of what is added lies in the {where}"
    said += f", where a pixel is off by {_percent(worst.predicted)} instead of {_percent(worst.oracle)}."
    if times >= _WELL_ABOVE and not named:
        said += " The forecast is wrong here, although not in a way that the taxonomy names."
    return said


def _regions(errors: Sequence[RegionError]) -> Markup:
    lines: list[list[str | Cell]] = [
        [
            REGIONS.get(one.region, one.region), Cell(f"{100 * one.area:.0f} %", one.area),
            Cell(_percent(one.predicted), one.predicted), Cell(_percent(one.oracle), one.oracle),
            Cell(_times(one.predicted / one.oracle) if one.oracle > 0 else "", hint="prediction by oracle"),
        ]
        for one in errors
    ]  # fmt: skip
    heads: list[str | Cell] = ["where", "of the picture", "prediction off by", "oracle off by", "ratio"]
    return table(heads, lines, "Mean difference of a pixel from the observed future, of the range", range(1, 5))


def _failure(one: Failure) -> Markup:
    name, means = SYMPTOMS.get(plain(one.symptom), (str(one.symptom).replace("_", " "), ""))
    where = attributed(one)
    numbers = "; ".join(_evidence(one.evidence, one.strength))
    return joined(
        tag("b", name), f": {means}. " if means else ". ", tag("em", f"{where[0].upper()}{where[1:]}."),
        tag("small", f" {numbers}") if numbers else None,
    )  # fmt: skip


def attributed(one: Failure) -> str:
    """Panel A in words that follow from the strengths shown: the same amount is not called stronger."""
    kind, found = plain(one.attribution), one.strength
    if found is None:
        return ATTRIBUTIONS.get(kind, str(one.attribution).replace("_", " "))
    if kind == "mixed":
        if found.predicted - found.oracle >= _MATERIAL:
            return "in both, stronger in the prediction"
        return "in both, but only in part at the same agents or places"
    if kind == "prediction_conditioned" and found.oracle >= 1:
        return "new in the prediction: the oracle fails in this way too, but at other agents or places"
    if kind == "oracle_present" and found.oracle < 1:
        return "the oracle shows nearly as much"
    return ATTRIBUTIONS.get(kind, str(one.attribution).replace("_", " "))


def _evidence(evidence: Mapping[str, float], strength: Strengths | None) -> list[str]:
    """Each number with the oracle's beside it: `recall 0.45 (oracle 0.91)`."""
    known = {what: value for what, value in evidence.items() if math.isfinite(value)}
    said = []
    for what, value in known.items():
        stem, _, whose = what.rpartition(", ")
        if whose == "oracle" and f"{stem}, predicted" in known:
            continue
        beside = known.get(f"{stem}, oracle") if whose == "predicted" else None
        shown = stem if whose == "predicted" else what.replace("_", " ")
        said.append(f"{shown} {number(value, 2)}" + (f" (oracle {number(beside, 2)})" if beside is not None else ""))
    if strength is not None:
        said.append(
            f"strength in thresholds {number(strength.predicted, 1)} (oracle {number(strength.oracle, 1)}, the same "
            f"agents or places {number(strength.shared, 1)})"
        )
    return said


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times"
