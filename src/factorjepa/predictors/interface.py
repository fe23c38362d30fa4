"""One interface for every predictor of the last tap, so that one training engine serves all.

Shapes: B clips, c context tokens, t target tokens, W query width, T width of the factor targets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor, nn

from ..backbones.predictor import Predictor
from ..backbones.spec import BackboneSpec
from ..teacher.states import ObjectStates
from .branches import Pairs
from .geometry import Grid
from .prediction import PerFactor, Prediction
from .query import Question

Role = Literal["query", "head", "branch", "gate", "dictionary", "scale"]

_BRANCHES = ("reader.", "early.", "late.", "agents.", "interactions.", "recall.")  # no pretraining knows them
_GATES = ("g_V", "g_W")  # of the branches, those that say how much counts, not what


class LatentPredictor(nn.Module, ABC):
    """`predictor(context[B,c,4D], context_index[B,c], target_index[B,t], states) -> Prediction` of `[B, t, D]` tokens.

    Nothing else goes in: a prediction can depend on the context's tokens and the object states only.
    """

    def __init__(self, spec: BackboneSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(
        self,
        context: Tensor,
        context_index: Tensor,
        target_index: Tensor,
        states: ObjectStates | None = None,
        *,
        grid: Grid | None = None,
        mask_token: int | None = None,
    ) -> Prediction:
        asked = Question(context, context_index, target_index, states, self._grid(grid), mask_token)
        return self.answer(asked)

    @abstractmethod
    def answer(self, asked: Question) -> Prediction:
        """What each predictor does with the same question."""

    def roles(self) -> dict[str, Role]:
        """What each parameter is, by name: the optimiser gives each role its own rate and decay."""
        return {name: _role(name) for name, _ in self.named_parameters()}

    def set_recompute(self, recompute: bool) -> None:
        """Trade time for memory: activations of Q's blocks and of pair chunks are made again in the backward pass."""
        for module in self.modules():
            if isinstance(module, Predictor | Pairs):
                module.recompute = recompute

    def _grid(self, grid: Grid | None) -> Grid:
        return grid or (self.spec.tubelets, *self.spec.grid)


class FactorHeads(nn.Module):
    """`T_hat_k = P_k(mean over target tokens)`; without bias, as in `C_k P_k^T` (the targets are standardised)."""

    def __init__(self, widths: PerFactor[int], target_width: int) -> None:
        super().__init__()
        self.P_L = nn.Linear(widths.layout, target_width, bias=False)
        self.P_A = nn.Linear(widths.agents, target_width, bias=False)
        self.P_I = nn.Linear(widths.interactions, target_width, bias=False)

    def forward(self, read: PerFactor[Tensor]) -> PerFactor[Tensor]:
        """`read` are `[B, t, r_k]`; answers `[B, T]`."""
        return PerFactor(
            self.P_L(read.layout.mean(1)), self.P_A(read.agents.mean(1)), self.P_I(read.interactions.mean(1))
        )


def _role(name: str) -> Role:
    if name.startswith("query."):
        return "query"
    if name.endswith(".log_scale"):
        return "scale"
    if name.endswith(".directions"):
        return "dictionary"
    if name.startswith(_BRANCHES):
        return "gate" if any(part in _GATES for part in name.split(".")) else "branch"
    return "head"
