"""TCC cycle-back error and Kendall's tau: whether predicted tubelets are recognised as what they predict, in order
(appendix D, "Temporal correspondence").

The pair of sequences is a method's prediction, made in one go from the first frames, and the clip itself in the frozen
encoder's space. Two tubelets are as far apart as their tokens are at the same places: mean squared difference.

Shapes: B clips, n tubelets, p places, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..scores import CHANCE, DiagnosticInfo
from .asks import Answers, Ask
from .continuing import FromEarly
from .diagnostic import Diagnostic, Part
from .scene import Scene
from .stability import tubelet_seconds

_EVALUATOR = "frozen pretrained encoder, affine-free LayerNormed tokens; nearest neighbour"
_PROVENANCE = "the end of the context (`rollout.early`, 2 tubelets) and the future, predicted from the frames before"


class CycleBack(Diagnostic):
    """Predicted tubelet i -> nearest true one -> nearest predicted one i': mean of |i - i'|."""

    info = DiagnosticInfo(
        name="tcc_cycle_back",
        title="TCC cycle-back error",
        formula="mean over predicted tubelets i of |i - back(match(i))|; chance, n tubelets: (n^2 - 1) / (6 n - 3)",
        direction="lower",
        unit="seconds, clip",
        status="secondary",
        evaluator=_EVALUATOR,
        provenance=_PROVENANCE,
    )

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return (FromEarly(self.settings.rollout.early),) if part.role == "measure" else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        apart_Bnn = distances(answers[FromEarly(self.settings.rollout.early)].tokens_BtD, scene)
        self.put(scene.clips, "pooled", cycle_back(apart_Bnn) * tubelet_seconds(scene))
        by_chance = chance_of_cycle_back(apart_Bnn.shape[1]) * tubelet_seconds(scene)
        self.put(scene.clips, CHANCE, np.full(len(scene), by_chance))


class KendallTau(Diagnostic):
    """Agreement of the order of predicted tubelets with the order of their matches; a tie counts as neither."""

    info = DiagnosticInfo(
        name="tcc_kendall_tau",
        title="TCC Kendall tau",
        formula="(concordant - discordant) / pairs of predicted tubelets, by the times of their matches; chance: 0",
        direction="higher",
        unit="rank agreement, clip",
        status="secondary",
        evaluator=_EVALUATOR,
        provenance=_PROVENANCE,
    )

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return (FromEarly(self.settings.rollout.early),) if part.role == "measure" else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        apart_Bnn = distances(answers[FromEarly(self.settings.rollout.early)].tokens_BtD, scene)
        self.put(scene.clips, "pooled", kendall(apart_Bnn.argmin(2)))
        self.put(scene.clips, CHANCE, np.zeros(len(scene)))
        exact_Bn = apart_Bnn.argmin(2) == torch.arange(apart_Bnn.shape[1])
        self.put(scene.clips, "alt/matched", exact_Bn.double().mean(1))


def distances(tokens_BtD: Tensor, scene: Scene) -> Tensor:
    """`[B, n, n]`: predicted tubelet i to true tubelet j."""
    true_BtD = scene.target(early=scene.settings.rollout.early)
    tubelets = len(scene), scene.grid[0] - scene.context_grid[0] + scene.settings.rollout.early, -1
    predicted_Bnf, true_Bnf = (one.reshape(tubelets).float() for one in (tokens_BtD.cpu(), true_BtD))
    return torch.stack([(predicted_Bnf - one[:, None]).square().mean(2) for one in true_Bnf.unbind(1)], dim=2)


def cycle_back(apart_Bnn: Tensor) -> Tensor:
    """Mean of |i - i'| in tubelets, `[B]`."""
    match_Bn = apart_Bnn.argmin(2)
    back_Bn = apart_Bnn.argmin(1).gather(1, match_Bn)
    return (back_Bn - torch.arange(apart_Bnn.shape[1])).abs().double().mean(1)


def chance_of_cycle_back(n: int) -> float:
    """Mean of |i - i'| in tubelets where all distances are independent noise.

    A smallest of its row is the smallest of its column, too, with probability n / (2 n - 1); else i' is any other.
    """
    return (n * n - 1) / (3 * (2 * n - 1))


def kendall(match_Bn: Tensor) -> Tensor:
    """tau-a of a sequence of ranks, `[B]`."""
    n = match_Bn.shape[1]
    signs_Bnn = torch.sign(match_Bn[:, None, :] - match_Bn[:, :, None]).triu(1)
    return signs_Bnn.sum((1, 2)).double() / (n * (n - 1) / 2)
