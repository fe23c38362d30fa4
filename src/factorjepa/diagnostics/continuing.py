"""Predictions that the training never asks for: from fewer context frames, or from a model's own predictions.

A context is what the predictor reads: the encoder's tokens of all levels, tubelet after tubelet. It can be encoded from
some of the context's frames, and continued by tokens that were predicted.

Shapes: B clips, c context tokens, t target tokens, D width, L width of all levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..backbones.masks import Grid
from ..errors import DiagnosticsError
from ..objective import normalised_targets
from ..predictors import Prediction
from ..teacher.states import EvidenceCells, ObjectStates, object_states
from .asks import Ask, Predicted, Subject
from .reordered import shown_evidence
from .scene import Scene


@dataclass(frozen=True)
class Context:
    """Whole tubelets from the first on, and what is known of the agents."""

    tokens_BcL: Tensor
    states: ObjectStates | None

    def continued(self, tokens_BtL: Tensor) -> Context:
        """With the tokens of further tubelets; of the agents nothing more is known."""
        return Context(torch.cat([self.tokens_BcL, tokens_BtL.to(self.tokens_BcL)], dim=1), self.states)


@torch.no_grad()
def encode(subject: Subject, scene: Scene, frames: Sequence[int], clips: int | None = None) -> Tensor:
    """Tokens `[B, c, L]` of some context frames, shown as a clip of their own: the encoder sees no other.

    Of the batch's first `clips`; None: of all.
    """
    if max(frames) >= scene.context:
        raise DiagnosticsError(f"frame {max(frames)} is no context frame: a prediction must not see it")
    video = scene.video()[:clips, :, list(frames)].to(subject.precision.device)
    with subject.precision():
        tokens_BcL: Tensor = subject.model.encoder(video, None, levels=True)
    return tokens_BcL.float()


@torch.no_grad()
def predict(subject: Subject, context: Context, first: int, last: int, grid: Grid) -> Tensor:
    """Tokens `[B, t, D]` of the tubelets `first` to `last - 1` of a clip with this grid."""
    places = grid[1] * grid[2]
    batch, known = context.tokens_BcL.shape[:2]
    context_index = torch.arange(known, device=subject.precision.device).expand(batch, -1)
    target_index = torch.arange(first * places, last * places, device=subject.precision.device).expand(batch, -1)
    with subject.precision():
        made: Prediction = subject.model.predictor(
            context.tokens_BcL, context_index, target_index, context.states, grid=grid
        )
    return made.tokens_BtD.float()


def last_level(subject: Subject, tokens_BcL: Tensor) -> Tensor:
    """Context tokens as predictions state them: the last level, LayerNormed without affine."""
    return normalised_targets(tokens_BcL[..., -subject.model.spec.dim :])


def states_seen(subject: Subject, scene: Scene, frames: Sequence[int], ended: bool) -> ObjectStates | None:
    """Object states from the evidence of some context frames alone.

    `ended`: these frames are the whole context. Otherwise they keep their time in it, and agents are as old by its end
    as if nobody had looked since.
    """
    teacher = scene.known.teacher
    if teacher is None or not subject.model.method.reads_states:
        return None
    cells: EvidenceCells = teacher.cells.to(subject.precision.device)
    if ended:
        return object_states(shown_evidence(cells, frames))
    seen_T = torch.zeros(cells.context, dtype=torch.bool, device=subject.precision.device)
    seen_T[list(frames)] = True
    return object_states(cells.where(seen_T[cells.frame_C]))


def early_context(subject: Subject, scene: Scene, early: int) -> Context:
    """The context without its last `early` tubelets."""
    shown = range(known_tubelets(scene, early) * subject.model.spec.tubelet)
    return Context(encode(subject, scene, shown), states_seen(subject, scene, shown, ended=False))


def known_tubelets(scene: Scene, early: int) -> int:
    """Tubelets that a prediction begins with which begins `early` ones before the context's end."""
    tubelets = scene.context_grid[0]
    if early >= tubelets:
        raise DiagnosticsError(
            f"a rollout cannot begin {early} tubelets before the end of a context of {tubelets}: lower rollout.early"
        )
    return tubelets - early


@dataclass(frozen=True)
class FromEarly(Ask[Predicted]):
    """The last `early` tubelets of the context and the future, in one go, from the frames before them."""

    early: int

    def answer(self, subject: Subject, scene: Scene) -> Predicted:
        context = early_context(subject, scene, self.early)
        first, last = known_tubelets(scene, self.early), scene.grid[0]
        return Predicted(predict(subject, context, first, last, scene.grid))


@dataclass(frozen=True)
class Paced(Ask[Predicted]):
    """The future from every `pace`-th frame of the context, shown as a clip of its own.

    All paces up to `fastest` show as many frames and end with the context's last one: only the rate tells them apart.
    """

    pace: int
    fastest: int

    def answer(self, subject: Subject, scene: Scene) -> Predicted:
        shown = self.frames(scene.context, subject.model.spec.tubelet)
        context = Context(encode(subject, scene, shown), states_seen(subject, scene, shown, ended=True))
        first = len(shown) // subject.model.spec.tubelet
        last = first + scene.grid[0] - scene.context_grid[0]
        return Predicted(predict(subject, context, first, last, (last, *scene.grid[1:])))

    def frames(self, context: int, tubelet: int) -> list[int]:
        count = context // self.fastest // tubelet * tubelet
        if not count:
            raise DiagnosticsError(
                f"a context of {context} frames shown {self.fastest} times as fast fills no tubelet: lower pace.paces"
            )
        return [context - 1 - self.pace * back for back in range(count)][::-1]
