"""What a predictor is made of, as values: plain frozen dataclasses, so that they can be used where pydantic is absent.

Defaults are the paper's where it speaks (Panel B) and what the prototypes found necessary where it is silent.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, Literal, Self

from ..errors import TrainingError
from ..words import nearest
from .prediction import PerFactor

Injection = Literal["late", "early", "both"]
Start = Literal["predictions", "targets", "random"]
RANKS = PerFactor(64, 96, 64)  # Panel B
SCALES = PerFactor(1.0, 0.3, 2.0)


@dataclass(frozen=True)
class AgentOptions:
    """How agents and pairs are read, alike for the factorized predictor and the controls that are given the same."""

    agents: Literal["tracklets", "slots"] = "tracklets"  # slots: learned queries over the context, no teacher needed
    descriptor_width: int = 64  # of the object states (teacher settings: targets.descriptor_width)
    hidden: int = 256  # of every two-layer branch (Panel B)
    normalise_states: bool = True  # LayerNorm on E(o); without it fresh states drown the pretrained queries
    relative_geometry: bool = True  # R: where a token lies relative to an agent's constant-velocity box
    carried: bool = False  # agents bring along what the context last showed where they come from
    recalled: bool = False  # the layout (of controls: the head) also reads what a token's own place last showed
    recall_hidden: int = 256  # of the branch that does
    recall_follows: bool = False  # it also reads where its query says that this place lay: cameras move
    recall_blind: bool = False  # it is shown nothing: what its width is worth without the look back
    gate_prior: bool = True  # gates start from the token's closeness to that box; without it they die silently
    edge_prior: bool = True  # edge strengths start from that closeness and from the pair's closest approach
    visibility: Literal["learned", "open"] = "learned"  # open: the visibility pathway is off, every agent counts fully
    interactions: Literal["additive", "motion", "off"] = "additive"  # motion: also, pairs change how agents move
    own_motion: bool = False  # with motion: so does what is known of the agent itself
    agent_epsilon: float = 0.3  # of the agents' mean: where no gate opens, the channel fades out
    pair_chunk: int = 64  # pairs whose token-wise hidden states exist at once
    slots: int = 16
    slot_neighbours: int = 4  # pairs per slot
    slot_iterations: int = 3
    context_frames: int = 12  # of the context that slots look at (a run's own); tracklets bring theirs

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value, allowed = getattr(self, field.name), typing.get_args(hints[field.name])
            if typing.get_origin(hints[field.name]) is Literal and value not in allowed:
                raise TrainingError(f"predictor option {field.name} must be one of {allowed}, got {value!r}")
            if hints[field.name] is bool and not isinstance(value, bool):
                raise TrainingError(f"predictor option {field.name} is true or false, got {value!r}")
            if hints[field.name] is int and value < (field.name != "extra_hidden"):
                raise TrainingError(f"predictor option {field.name} is too small: {value}")
        if self.agent_epsilon <= 0:
            raise TrainingError(f"predictor option agent_epsilon must be positive, got {self.agent_epsilon}")
        of_a_look_back = ("recall_hidden", "recall_follows", "recall_blind")
        given = [name for name in of_a_look_back if getattr(self, name) != getattr(AgentOptions, name)]
        if given and not self.recalled:
            raise TrainingError(f"predictor options of a look back ({', '.join(given)}) change nothing: set recalled")
        if self.recall_follows and self.recall_blind:
            raise TrainingError("predictor option recall_follows: a look back that is blind follows nothing")
        if self.own_motion and self.interactions != "motion":
            raise TrainingError(f"predictor option own_motion needs interactions: motion, got {self.interactions}")
        if self.agents == "slots" and self.slot_neighbours >= self.slots:
            raise TrainingError(f"{self.slots} slots cannot have {self.slot_neighbours} neighbours each")

    def replace(self, **overrides: Any) -> Self:
        """A copy with some fields changed; an unknown field is an error that names the nearest one."""
        known = [field.name for field in dataclasses.fields(self)]
        for key in overrides:
            if key not in known:
                hint = nearest(key, known)
                raise TrainingError(f"predictors have no option {key!r}{hint}; options: {', '.join(known)}")
        return dataclasses.replace(self, **overrides)


@dataclass(frozen=True)
class FactorizedOptions(AgentOptions):
    """The factorized predictor.

    `injection` says where tokens meet the agents' geometry: in the branches after Q (late, as in the paper), in the
    target queries before Q's blocks (early: the branches then read `u = q + E(o)` without R), or in both.
    """

    ranks: PerFactor[int] = RANKS
    rank_scale: float = 1.0  # multiplies all three: an ablation's, whatever ranks a preset has
    target_width: int = 256  # of T_L, T_A and T_I
    injection: Injection = "late"
    dictionaries: Start = "predictions"  # principal directions of what is predicted and of its errors, or of targets
    dictionary_scale: PerFactor[float] = SCALES  # lengths of the columns at the start
    fold_projection: bool = True  # g_L starts as the pretrained last-level projection seen through A_L
    zero_outputs: bool = True  # last layers of g_A and g_I start at zero: the pretrained prediction is not disturbed
    pair_epsilon: float = 0.1  # of the pair states' normalisation; smaller multiplies g_I's first gradients by 1 / it
    residual: bool = False  # a dense path for what the layout dictionary cannot span (an ablation; not in the paper)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "ranks", PerFactor(*self.ranks))
        object.__setattr__(self, "dictionary_scale", PerFactor(*self.dictionary_scale))
        if min(self.scaled_ranks) < 1 or min(self.dictionary_scale) <= 0 or self.pair_epsilon <= 0:
            raise TrainingError(
                f"predictor options: ranks {tuple(self.scaled_ranks)}, dictionary scales "
                f"{tuple(self.dictionary_scale)} and pair_epsilon {self.pair_epsilon} must be positive"
            )

    @property
    def scaled_ranks(self) -> PerFactor[int]:
        return PerFactor(*(round(self.rank_scale * rank) for rank in self.ranks))


@dataclass(frozen=True)
class MonolithicOptions(AgentOptions):
    """The monolithic controls: plain, given the same supervision, or given the same agents, geometry and pairs."""

    injection: Literal["none", "late", "early", "both"] = "none"  # none: the predictor knows no agents
    direct: bool = False  # late injection adds to the tokens themselves, not to the queries, which are narrower
    factor_heads: bool = False  # supervision-matched: P_k read the pooled hidden states
    target_width: int = 256
    extra_hidden: int = 0  # of a residual MLP before the head that brings the budget level with the factorized one

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.carried and self.injection == "none":
            raise TrainingError(
                "predictor option carried: a predictor without agents (injection: none) has no use of it"
            )
        if self.direct and self.injection not in ("late", "both"):
            raise TrainingError(f"predictor option direct is of late injection, and injection is {self.injection}")
