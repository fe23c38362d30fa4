"""What a method is: which predictor, what trains, under which objective, in which stages. A value, not code.

Every method runs through the same loop. What differs is said here, so that `factorjepa methods` can print it and an
ablation is a method with one field changed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import TrainingError
from ..objective import EVEN, LossWeights
from ..predictors import FactorizedOptions, MonolithicOptions, PerFactor

View = Literal["raw", "layout", "agents", "interactions"]
Encoder = Literal["frozen", "top", "chosen", "all", "lora", "dora"]
PredictorScope = Literal["frozen", "head", "all", "lora", "dora"]
Targets = Literal["aligned", "misaligned", "shuffled"]
Family = Literal["reference", "generic", "factorized", "control", "ablation"]


@dataclass(frozen=True)
class Stage:
    """A stretch of the run (figure "Staged factor-curriculum surgery")."""

    name: str
    share: float  # of the run's updates
    depth: float = 1.0  # share of the method's trainable encoder blocks that train now, from the top
    emphasis: PerFactor[float] = EVEN  # multiplies the terms of L_factor
    views: tuple[tuple[View, float], ...] = (("raw", 1.0),)  # how a clip is shown, with what probability
    predictor: PredictorScope | None = None  # None: as the method says


WHOLE_RUN = (Stage("training", 1.0),)
PLAIN = MonolithicOptions()  # V-JEPA's own predictor
PREDICTION_ONLY = LossWeights(factor=0.0, visibility=0.0, separation=0.0, sparsity=0.0)
NEW_BRANCHES: tuple[PredictorScope, ...] = ("all", "head")  # what trains of a predictor where a fresh branch can learn


@dataclass(frozen=True)
class Method:
    """One row of `factorjepa methods`."""

    name: str
    title: str  # as tables print it
    family: Family
    why: str  # what a comparison with it shows
    predictor: FactorizedOptions | MonolithicOptions = PLAIN
    encoder: Encoder = "top"
    predictor_scope: PredictorScope = "all"
    losses: LossWeights = PREDICTION_ONLY
    loss_scale: tuple[tuple[str, float], ...] = ()  # an ablation's, in `losses` already: also of a preset's values
    stages: tuple[Stage, ...] = WHOLE_RUN
    objective: Literal["future", "released"] = "future"  # released: V-JEPA's own masks and dense loss
    targets: Targets = "aligned"
    reliability: bool = True  # False: every retained target counts fully
    edits: float = 0.0  # weight of the L1 on the predicted change under train-time region edits
    interpolation: float | None = None  # WiSE-FT: share of the adapted encoder
    matched: bool = False  # its trainable parameters must lie within the budget's tolerance
    level_with: str = "factorjepa"  # the method whose trainable parameters are that budget

    def __post_init__(self) -> None:
        shares = sum(stage.share for stage in self.stages)
        if abs(shares - 1.0) > 1e-9:
            raise TrainingError(f"method {self.name!r}: the stages' shares add up to {shares:g}, not 1")
        if self.objective == "released" and self.predictor != PLAIN:
            raise TrainingError(f"method {self.name!r} keeps V-JEPA's own predictor: it has no options to change")
        if self.predictor.recalled and self.predictor_scope not in NEW_BRANCHES:
            raise TrainingError(f"method {self.name!r}: recalled is a new branch, which this method does not train")
        if self.losses.places and not (self.reads_states and self.predictor.interactions == "motion"):
            raise TrainingError(
                f"method {self.name!r}: places of agents teach only a predictor that learns how tracklets move "
                "(agents: tracklets, interactions: motion)"
            )

    @property
    def trains(self) -> bool:
        return not (self.encoder == "frozen" and self.predictor_scope == "frozen") and self.interpolation is None

    @property
    def scope(self) -> str:
        """What trains, in words."""
        if not self.trains:
            return "nothing" if self.interpolation is None else "nothing: made from a run of `full`"
        if self.encoder in ("lora", "dora"):
            return "adapters in encoder and predictor"
        kind = "factorized" if isinstance(self.predictor, FactorizedOptions) else "monolithic"
        blocks = {"top": "top K blocks", "chosen": "K chosen blocks", "all": "whole encoder", "frozen": "no block"}
        return f"{kind} predictor, {blocks[self.encoder]}"

    @property
    def has_branches(self) -> bool:
        """Whether the predictor reads agents, from object states or by slots."""
        return isinstance(self.predictor, FactorizedOptions) or self.predictor.injection != "none"

    @property
    def reads_states(self) -> bool:
        """Whether the predictor needs object states (slots find their own)."""
        return self.has_branches and self.predictor.agents == "tracklets"

    @property
    def idle_settings(self) -> frozenset[str]:
        """Settings of training that change nothing, because the method has nothing to set with them."""
        if self.has_branches:
            return frozenset()
        return frozenset(("gate_rate",)) if self.predictor.recalled else frozenset(("branch_rate", "gate_rate"))

    @property
    def reads_targets(self) -> bool:
        return self.losses.factor > 0 or self.losses.visibility > 0 or self.losses.places > 0

    @property
    def reads_packets(self) -> bool:
        views = any(view != "raw" for stage in self.stages for view, _ in stage.views)
        return self.reads_states or self.reads_targets or views or self.edits > 0

    def stage_at(self, step: int, steps: int) -> tuple[int, Stage]:
        """Number and stage of update `step` (from 0) of `steps`."""
        end = 0.0
        for number, stage in enumerate(self.stages):
            end += stage.share
            if step < round(end * steps):
                return number, stage
        return len(self.stages) - 1, self.stages[-1]

    def variant(self, name: str, title: str, why: str, **changes: Any) -> Method:
        """An ablation: this method with some fields changed; `title` says which, after the method's own."""
        title = f"{self.title} {title}" if title[0] in "+-" else f"{self.title}, {title}"
        return dataclasses.replace(self, name=name, title=title, why=why, family="ablation", matched=False, **changes)
