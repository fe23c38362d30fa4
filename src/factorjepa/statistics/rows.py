"""The result tables as plain rows. A number that does not exist is NaN in memory, null in JSON, empty in CSV."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator


def _nan_for_null(value: Any) -> Any:
    return float("nan") if value is None else value


Number = Annotated[float, BeforeValidator(_nan_for_null)]


@dataclass
class ScoreRow:
    """A method on a measure: the complete numerical scorecard."""

    backbone: str
    method: str
    title: str
    family: str
    diagnostic: str
    variant: str
    headline: bool
    status: str
    direction: str
    unit: str
    mean: Number
    low: Number
    high: Number
    interval: str  # BCa, or what took its place
    seeds: list[int]
    seed_values: list[Number]
    seed_sd: Number
    clips: int
    sources: int
    cities: int
    note: str = ""


@dataclass
class Sensitivity:
    """A contrast seen another way. `agrees`: its direction is the headline's, and its interval takes nothing back."""

    name: str
    effect: Number
    low: Number
    high: Number
    agrees: bool
    note: str = ""


@dataclass
class MixedCheck:
    """The nested mixed-effects model; supportive only where its direction is the clustered estimate's."""

    effect: Number
    standard_error: Number
    supportive: bool
    note: str = ""


@dataclass
class ContrastRow:
    """Method `a` over method `b` on a diagnostic; positive favours `a`."""

    backbone: str
    contrast: str
    a: str
    b: str
    diagnostic: str
    status: str
    family: str  # primary (confirmatory) or exploratory
    effect: Number
    low: Number
    high: Number
    interval: str
    units: Number  # effect over the half of its interval that faces zero
    ratio: Number  # value of a over value of b
    ratio_low: Number
    ratio_high: Number
    p: Number
    adjusted_p: Number
    adjustment: str
    decision: str  # better, worse, not separated, untestable: ...
    stable: bool
    seeds: list[int]
    seed_effects: list[Number]
    clips: int
    sources: int
    cities: int
    dropped: int  # clips that only one of the two had a value for
    mixed: MixedCheck
    sensitivities: list[Sensitivity] = field(default_factory=list)
    note: str = ""


@dataclass
class RankRow:
    """Order of the methods common to two backbones."""

    diagnostic: str
    first: str
    second: str
    methods: list[str]
    spearman: Number
    kendall: Number
    spearman_without_method: list[Number]  # smallest and largest
    spearman_without_family: list[Number]
    kendall_without_method: list[Number]
    kendall_without_family: list[Number]
    note: str = ""


@dataclass
class ParetoRow:
    """A method's costs and primary scores, and who has better for no more."""

    backbone: str
    method: str
    trainable: int
    gpu_hours: Number
    scores: dict[str, Number]
    dominated_by: list[str]
    note: str = ""
