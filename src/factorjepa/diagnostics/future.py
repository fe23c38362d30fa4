"""Future-frame L1 and MSE: how far predicted tokens lie from the frozen encoder's (appendix D, "Future-frame MSE").

Shapes: B clips, h horizons (future tubelets), p places, t = h * p target tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..scores import DiagnosticInfo
from .asks import PLAIN, Answers, Ask, OwnFuture
from .diagnostic import Diagnostic, Part
from .scene import Scene
from .tokens import agent_tokens, interacting_tokens

OWN = OwnFuture()
_PROVENANCE = "pretrained weights, which no method has touched; it sees the whole clip, the model its context"
_EVALUATOR = "frozen pretrained encoder, affine-free LayerNormed tokens"


def _l1(predicted_BtD: Tensor, target_BtD: Tensor) -> Tensor:
    """`[B, t]`, mean over D."""
    return (predicted_BtD - target_BtD).abs().mean(-1)


def _mse(predicted_BtD: Tensor, target_BtD: Tensor) -> Tensor:
    """`[B, t]`, mean over D."""
    return torch.square(predicted_BtD - target_BtD).mean(-1)


_ERRORS = {"l1": _l1, "mse": _mse}


class _FutureError(Diagnostic):
    """Mean error over tokens and width; variants say over which tokens, or in whose space.

    The other error is an alternative construction (appendix E): a conclusion on one is stable only if it holds on both.
    """

    kind: ClassVar[str]  # of _ERRORS

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return (PLAIN, OWN) if part.role == "measure" else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        predicted_BtD = answers[PLAIN].tokens_BtD
        target_BtD = scene.target().to(predicted_BtD.device)
        error = _ERRORS[self.kind]
        error_Bt = error(predicted_BtD, target_BtD)
        self.put(scene.clips, "pooled", error_Bt.mean(1))
        self.put(scene.clips, "own", error(predicted_BtD, answers[OWN]).mean(1))
        horizons = scene.grid[0] - scene.context_grid[0]
        for number, mean_B in enumerate(error_Bt.reshape(len(scene), horizons, -1).mean(2).unbind(1), start=1):
            self.put(scene.clips, f"h{number}", mean_B)
        self.put(scene.clips, "alt/median_token", error_Bt.median(1).values)
        for kind, other in _ERRORS.items():
            if kind != self.kind:
                self.put(scene.clips, f"alt/{kind}", other(predicted_BtD, target_BtD).mean(1))
        if part.truth:
            self._over(scene, "agents", error_Bt, agent_tokens(scene, "truth"), "no agent in the future")
            self._over(scene, "interacting", error_Bt, interacting_tokens(scene, "truth"), "no agent interacts")
        if part.packets:
            self._over(scene, "teacher_agents", error_Bt, agent_tokens(scene, "teacher"), "no agent in the future")
            marked_Bt = interacting_tokens(scene, "teacher")
            self._over(scene, "teacher_interacting", error_Bt, marked_Bt, "no agent has a neighbour")

    def _over(self, scene: Scene, variant: str, error_Bt: Tensor, marked_Bt: Tensor, why: str) -> None:
        """The mean over marked tokens; none where no token is."""
        marked_Bt = marked_Bt.to(error_Bt)
        self.put(scene.clips, variant, (error_Bt * marked_Bt).sum(1) / marked_Bt.sum(1), why)


class FutureL1(_FutureError):
    """eq. e_n^future with |.|_1."""

    kind = "l1"
    info = DiagnosticInfo(
        name="future_l1",
        title="Future-frame L1",
        formula="mean over future tokens and width of |Y_hat - Y*|",
        direction="lower",
        unit="per token dimension, clip",
        status="primary",
        evaluator=_EVALUATOR,
        provenance=_PROVENANCE,
    )


class FutureMSE(_FutureError):
    """eq. e_n^future."""

    kind = "mse"
    info = DiagnosticInfo(
        name="future_mse",
        title="Future-frame MSE",
        formula="mean over future tokens and width of (Y_hat - Y*)^2",
        direction="lower",
        unit="per token dimension, clip",
        status="companion",
        evaluator=_EVALUATOR,
        provenance=_PROVENANCE,
    )
