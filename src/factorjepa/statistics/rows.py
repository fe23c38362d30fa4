"""The result tables as plain rows. A number that does not exist is NaN in memory, null in JSON, empty in CSV."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator


def _nan_for_null(value: Any) -> Any:
    return float("nan") if value is None else value


Number = Annotated[float, BeforeValidator(_nan_for_null)]
NAN = float("nan")


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
    mean: Number = NAN
    low: Number = NAN
    high: Number = NAN
    interval: str = "none"  # BCa, or what took its place
    seeds: list[int] = field(default_factory=list)
    seed_values: list[Number] = field(default_factory=list)
    seed_sd: Number = NAN
    clips: int = 0
    sources: int = 0
    cities: int = 0
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

    effect: Number = NAN
    standard_error: Number = NAN
    supportive: bool = False
    note: str = "not fitted"


@dataclass
class Deciding:
    """The interval that a decision rests on: it allows for few cities and for what another training would give."""

    low: Number = NAN
    high: Number = NAN
    p: Number = NAN
    adjusted_p: Number = NAN
    seed_share: Number = NAN  # of the squared half-width: what training seeds contribute
    seed_variance: str = ""  # its estimator: own or moderated (`pooling.py`); empty: seeds do not vary, or unknown
    seed_sd: Number = NAN  # of the effect over training seeds, the pair's own
    seed_freedom: Number = NAN  # degrees of freedom that the seeds' variance went in with
    prior_freedom: Number = NAN  # of these, lent by other methods
    pooled_sd: Number = NAN  # what the pool of methods expects in place of `seed_sd`
    pooled_methods: int = 0
    note: str = ""  # why there is none


@dataclass
class ContrastRow:
    """Method `a` over method `b` on a diagnostic; positive favours `a`."""

    backbone: str
    contrast: str
    a: str
    b: str
    diagnostic: str
    status: str
    family: str  # primary (confirmatory), exploratory, or asked for: what is adjusted together
    effect: Number = NAN
    low: Number = NAN
    high: Number = NAN
    interval: str = "none"
    units: Number = NAN  # effect over the half of its interval that faces zero
    ratio: Number = NAN  # value of a over value of b
    ratio_low: Number = NAN
    ratio_high: Number = NAN
    p: Number = NAN  # raw, of an untestable contrast too
    adjusted_p: Number = NAN  # of a tested one
    adjustment: str = ""
    paper_decision: str = ""  # from p, adjusted p and interval above alone: cities and sources vary, seeds do not
    deciding: Deciding = field(default_factory=Deciding)
    decision: str = ""  # better, worse, not separated, not resolved: ..., untestable: ...
    stable: bool = False
    seeds: list[int] = field(default_factory=list)
    seed_effects: list[Number] = field(default_factory=list)
    clips: int = 0
    sources: int = 0
    cities: int = 0
    dropped: int = 0  # clips that only one of the two had a value for
    mixed: MixedCheck = field(default_factory=MixedCheck)
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
    goes: list[int] = field(default_factory=list)  # in which its runs were trained, as they are numbered here


@dataclass
class StratumRow:
    """Method `a` over method `b` on the clips of one level; positive favours `a`."""

    backbone: str
    column: str
    level: str
    contrast: str
    a: str
    b: str
    diagnostic: str
    effect: Number = NAN
    low: Number = NAN
    high: Number = NAN
    interval: str = "none"
    mean_a: Number = NAN
    mean_b: Number = NAN
    clips: int = 0
    sources: int = 0
    cities: int = 0
    note: str = ""
