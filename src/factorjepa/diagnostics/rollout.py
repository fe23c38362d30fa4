"""Autoregressive rollout: predicted tokens are fed back as context.

A predictor reads context tokens of all levels of its encoder and predicts tokens of the last one. What is fed back is
therefore lifted: a ridge from the last level (LayerNormed, as predictions are) to all levels, fitted on the contexts of
training clips with the method's own encoder. To encode again the frames that were predicted would look at them.

Shapes: B clips, t target tokens, D width, L width of all levels, n tokens.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .asks import Answers, Ask, Subject
from .continuing import early_context, encode, known_tubelets, last_level, predict
from .diagnostic import Diagnostic, Part
from .scene import Scene
from .settings import EvaluateSettings


@dataclass(frozen=True)
class Moments:
    """Sums over tokens x (last level, and a 1) and y (all levels): `x x^T`, `x y^T`. Float64 on the CPU."""

    xx: Tensor
    xy: Tensor
    count: int  # tokens
    clips: int

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.xx + other.xx, self.xy + other.xy, self.count + other.count, self.clips + other.clips)


@dataclass(frozen=True)
class LevelMoments(Ask[Moments]):
    """Of the method's own encoder over the contexts of the batch's first clips."""

    clips: int

    def answer(self, subject: Subject, scene: Scene) -> Moments:
        levels_nL = encode(subject, scene, range(scene.context), self.clips).flatten(0, 1)
        x_nD = last_level(subject, levels_nL).double()
        x_nF = torch.cat([x_nD, x_nD.new_ones(len(x_nD), 1)], dim=1)
        clips = min(self.clips, len(scene))
        return Moments((x_nF.T @ x_nF).cpu(), (x_nF.T @ levels_nL.double()).cpu(), len(x_nF), clips)


@dataclass(frozen=True)
class Lift:
    """Predicted tokens to context tokens, `y = W x + b`. Equal where its numbers are."""

    digest: str
    weight_FL: Tensor = field(compare=False, repr=False)

    @classmethod
    def fit(cls, moments: Moments, strength: float) -> Lift:
        """`argmin |W x + b - y|^2 + n lambda |W|^2`."""
        penalty_F = torch.full((len(moments.xx),), moments.count * strength, dtype=torch.float64)
        penalty_F[-1] = 0.0
        weight_FL = torch.linalg.solve(moments.xx + torch.diag(penalty_F), moments.xy).float()
        return cls(hashlib.blake2b(weight_FL.numpy().tobytes(), digest_size=8).hexdigest(), weight_FL)

    def __call__(self, tokens_BtD: Tensor) -> Tensor:
        weight_FL = self.weight_FL.to(tokens_BtD.device)
        return tokens_BtD.float() @ weight_FL[:-1] + weight_FL[-1]


@dataclass(frozen=True)
class Rolled:
    """What a rollout predicted."""

    steps_BtD: Tensor  # tubelet by tubelet from where it begins to the window's end, each from the ones before
    free_BtD: Tensor  # the future in one go after the end of the context was predicted
    taught_BtD: Tensor  # the same after the end of the context was told


@dataclass(frozen=True)
class Rollout(Ask[Rolled]):
    """Begins `early` tubelets before the context's end. Frames after the context are seen by nobody.

    Free and taught differ in nothing but the tokens of these tubelets: predicted, or the encoder's own; both lifted.
    """

    early: int
    lift: Lift

    def answer(self, subject: Subject, scene: Scene) -> Rolled:
        begun = early_context(subject, scene, self.early)
        start, end, last = known_tubelets(scene, self.early), scene.context_grid[0], scene.grid[0]
        steps: list[Tensor] = []
        context, free = begun, None
        for tubelet in range(start, last):
            if tubelet == end:
                free = predict(subject, context, end, last, scene.grid)
            steps.append(predict(subject, context, tubelet, tubelet + 1, scene.grid))
            context = context.continued(self.lift(steps[-1]))
        assert free is not None, "the context ends before the window does"
        told_BcL = encode(subject, scene, range(scene.context))[:, begun.tokens_BcL.shape[1] :]
        told = begun.continued(self.lift(last_level(subject, told_BcL)))
        return Rolled(torch.cat(steps, dim=1), free, predict(subject, told, end, last, scene.grid))


class RolloutDiagnostic(Diagnostic):
    """Fits the lift on training clips and rolls out on evaluated ones; who shares a lift shares the rollout."""

    def __init__(self, settings: EvaluateSettings) -> None:
        super().__init__(settings)
        self._moments: Moments | None = None

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        if part.role == "fit":
            return (self._wanted,) if self._wanted.clips else ()
        return (self._rollout,) if part.role == "measure" and self._moments is not None else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        if part.role == "measure":
            self.rolled(scene, answers[self._rollout])
            return
        moments = answers[self._wanted]
        self._moments = moments if self._moments is None else self._moments + moments

    @abstractmethod
    def rolled(self, scene: Scene, rolled: Rolled) -> None:
        """State the scores of a batch."""

    @property
    def _wanted(self) -> LevelMoments:
        """Of so many more training clips."""
        return LevelMoments(self.settings.rollout.fit_clips - (self._moments.clips if self._moments else 0))

    @cached_property
    def _rollout(self) -> Rollout:
        """What evaluated clips are asked; training clips come before them."""
        assert self._moments is not None
        return Rollout(self.settings.rollout.early, Lift.fit(self._moments, self.settings.rollout.strength))
