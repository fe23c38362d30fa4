"""Why a decoded future fails, in words: what its error is and where, then the symptoms with their numbers.

A future that no symptom describes still has an error: it is told beside the oracle's, and where it lies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from ..decoded import AGENTS, MOVING, STATIC, DecodedExample, Failure, RegionError, Strengths, apart
from ..rendering.failure_settings import FailureSettings
from ..rendering.gallery import column_order
from .markup import Markup, joined, tag
from .numbers import NOTHING, number

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
_ERRORS = {"E_e2e": "end to end", "E_oracle": "oracle", "G_visible": "visible gap"}
OURS_TOO = "Lost detail and scenery substitution are ours: the paper's table has no name for a wrong static scene."
NONE_FOUND = "No symptom of the taxonomy reaches its threshold."
_IN = {AGENTS: "the agents", MOVING: "other things that move", STATIC: "the static scene"}
_NEARLY_ALL = 0.95  # of what the prediction adds to the oracle's error
_AS_MUCH = 1.1  # of the oracle's error: less is as good as the oracle
_SOME = 0.4  # thresholds: what the oracle shows of a failure is not nothing
_MATERIAL = FailureSettings().material  # thresholds: a smaller difference of strengths is none


def plain(name: str) -> str:
    """`oracle-present` and `oracle_present` are one."""
    return str(name).replace("-", "_").replace(" ", "_")


def told_apart(example: DecodedExample) -> str:
    """How far each method is from what came, beside the oracle and the last frame repeated, and from each other."""
    observed = example.observed_THW3
    order = column_order(example.methods)
    drawn = {example.titles.get(name, name): example.methods[name] for name in order}
    drawn |= {"the oracle": example.oracle_THW3, "the last seen frame, repeated": example.last_HW3}
    off = {who: float(apart(frames, observed).mean()) for who, frames in drawn.items()}
    span = f"{example.seconds[0]:g} to {example.seconds[-1]:g} s ahead"
    said = f"Off from what came, mean pixel {span}: {', '.join(f'{who} {_percent(by)}' for who, by in off.items())}."
    pairs = [float(apart(example.methods[a], example.methods[b]).mean()) for a, b in itertools.combinations(order, 2)]
    if not pairs:
        return said
    ends = list(dict.fromkeys((_percent(min(pairs)), _percent(max(pairs)))))
    return f"{said} The methods' pictures differ from each other by {' to '.join(ends)}."


def why(found: Sequence[Failure] | None, errors: Sequence[RegionError], nearest: Failure | None = None) -> Markup:
    """The error, where it lies, and the symptoms; `found` is None where nobody looked for any."""
    symptoms: Markup | None = None
    if found:
        symptoms = tag("ul", [tag("li", _failure(one)) for one in found])
    elif found is not None:
        symptoms = tag("p", NONE_FOUND, _nearest(nearest) if nearest is not None else None)
    return joined(tag("p", _error(errors)) if errors else None, symptoms, _regions(errors) if errors else None)


def _nearest(one: Failure) -> Markup:
    name, means = _named(one)
    numbers = "; ".join(_evidence(one.evidence, one.strength))
    return joined(" Nearest: ", tag("b", name.lower()), f", {means}." if means else ".", tag("small", f" {numbers}"))


def _error(errors: Sequence[RegionError]) -> str:
    """The whole picture's error beside the oracle's, and where most of what the prediction adds lies."""
    predicted, oracle = (
        sum(one.area * value for one, value in zip(errors, values, strict=True)) / sum(one.area for one in errors)
        for values in ([one.predicted for one in errors], [one.oracle for one in errors])
    )
    said = f"A pixel is off by {_percent(predicted)} of the range on average; the oracle's by {_percent(oracle)}."
    if predicted <= _AS_MUCH * oracle:
        return f"{said} The prediction draws this clip as well as the true latents do."
    added = {one.region: one.area * (one.predicted - one.oracle) for one in errors}
    worst = max(errors, key=lambda one: added[one.region])
    share = added[worst.region] / sum(value for value in added.values() if value > 0)
    part = "Nearly all" if share >= _NEARLY_ALL else f"The largest part, {100 * share:.0f} %,"
    ratio = f" That is {predicted / oracle:.1f} times the oracle's error." if oracle > 0 else ""
    return (
        f"{said}{ratio} {part} of what is added lies in {_IN[worst.region]}: {_percent(worst.predicted)} instead of "
        f"{_percent(worst.oracle)}."
    )


def _regions(errors: Sequence[RegionError]) -> Markup:
    """Three rows: nobody needs to sort them."""
    heads = ("where", "of the picture", "prediction off by", "oracle off by", "ratio")
    lines = [
        (REGIONS[one.region], f"{100 * one.area:.0f} %" if one.area >= 0.01 else "below 1 %", _percent(one.predicted),
         _percent(one.oracle), f"{one.predicted / one.oracle:.1f}" if one.oracle > 0 else NOTHING)
        for one in errors
    ]  # fmt: skip
    caption = "Mean difference of a pixel from the observed future, of the range"
    head = tag("tr", [tag("th", name, scope="col", class_="n" if k else None) for k, name in enumerate(heads)])
    body = [
        tag("tr", tag("th", line[0], scope="row"), [tag("td", one, class_="n") for one in line[1:]]) for line in lines
    ]
    drawn = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body))
    return tag("div", drawn, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _failure(one: Failure) -> Markup:
    (name, means), where = _named(one), attributed(one)
    numbers = "; ".join(_evidence(one.evidence, one.strength))
    return joined(
        tag("b", name), f": {means}. " if means else ". ", tag("em", f"{where[0].upper()}{where[1:]}."),
        tag("small", f" {numbers}") if numbers else None,
    )  # fmt: skip


def _named(one: Failure) -> tuple[str, str]:
    return SYMPTOMS.get(plain(one.symptom), (str(one.symptom).replace("_", " "), ""))


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
    if kind == "prediction_conditioned" and found.oracle >= _SOME:
        return "mostly in the prediction: the oracle shows some of it, below the threshold"
    if kind == "oracle_present" and found.oracle < 1:
        return "the oracle shows nearly as much"
    return ATTRIBUTIONS.get(kind, str(one.attribution).replace("_", " "))


def _evidence(evidence: Mapping[str, float], strength: Strengths | None) -> list[str]:
    """Each number with the oracle's beside it: `recall 0.45 (oracle 0.91)`."""
    known = {what: value for what, value in evidence.items() if math.isfinite(value)}
    said = []
    for what, value in known.items():
        stem, _, whose = what.rpartition(", ")
        if (whose == "oracle" and f"{stem}, predicted" in known) or what in _ERRORS:
            continue
        beside = known.get(f"{stem}, oracle") if whose == "predicted" else None
        shown = stem if whose == "predicted" else what.replace("_", " ")
        said.append(f"{shown} {number(value, 2)}" + (f" (oracle {number(beside, 2)})" if beside is not None else ""))
    if here := [f"{name} {number(known[what], 2)}" for what, name in _ERRORS.items() if what in known]:
        said.append(f"pixel L1 there: {', '.join(here)}")
    if strength is not None:
        said.append(
            f"strength {number(strength.predicted, 2)} thresholds (oracle {number(strength.oracle, 2)}; at the same "
            f"agents or places {number(strength.shared, 2)})"
        )
    return said


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
