"""What diagnostics ask of a model. Equal asks are one ask: each is answered once per batch, whoever wants it.

Shapes: B clips, t target tokens, D width, L encoder blocks.
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ..predictors import PerFactor, Prediction
from ..training.learner import Learner
from ..training.validation import states_of
from .reference import Precision
from .scene import Scene
from .views import ORIGINAL, View

A = TypeVar("A")


@dataclass(frozen=True)
class Subject:
    """The model under evaluation, and how it is run."""

    model: Learner
    precision: Precision

    @torch.no_grad()
    def predict(self, scene: Scene, view: View, visible: Tensor | None) -> Prediction:
        """The future from a view's context, of which only `visible` tokens are shown, and the evidence under them."""
        video = scene.video(view).to(self.precision.device)
        teacher = scene.known.teacher if self.model.method.reads_states else None
        if teacher is not None:
            shown = view.evidence(scene, teacher.cells)
            teacher = dataclasses.replace(teacher, cells=shown).to(self.precision.device)
        visible = None if visible is None else visible.to(self.precision.device)
        with self.precision():
            return self.model.predict(video, visible, states_of(self.model, teacher, visible, video))


@dataclass(frozen=True)
class Ask(ABC, Generic[A]):
    """One evaluation of the model on a batch. Subclasses are frozen dataclasses; what they hold is their identity."""

    @abstractmethod
    def answer(self, subject: Subject, scene: Scene) -> A:
        """Evaluate."""


@dataclass(frozen=True)
class Predicted:
    """A predicted future; float32, where the model is."""

    tokens_BtD: Tensor
    channels: PerFactor[Tensor] | None = None  # Y_k [B, t, D]; of the plain ask, where the predictor has channels
    layers_LBD: Tensor | None = None  # mean context token after each encoder block; of the plain ask


@dataclass(frozen=True)
class Predict(Ask[Predicted]):
    """The future from the context of a view, a share of whose positions is hidden."""

    view: View = ORIGINAL
    hidden: float = 0.0
    realisation: int = 0

    def answer(self, subject: Subject, scene: Scene) -> Predicted:
        visible = scene.visible(self.hidden, self.realisation)
        if self != PLAIN:
            return Predicted(subject.predict(scene, self.view, visible).tokens_BtD.float())
        with _layers(subject.model.encoder.blocks) as layers:
            made = subject.predict(scene, self.view, visible)
        return Predicted(made.tokens_BtD.float(), made.channels, torch.stack(layers))


PLAIN = Predict()  # the whole context of the clip as it is


@dataclass(frozen=True)
class OwnFuture(Ask[Tensor]):
    """The target in the method's own space: its momentum encoder's, `[B, t, D]`."""

    def answer(self, subject: Subject, scene: Scene) -> Tensor:
        with subject.precision():
            return subject.model.future(scene.video().to(subject.precision.device)).float()


class Answers:
    """Answers to what was asked for a batch, and to nothing else."""

    def __init__(self, subject: Subject, scene: Scene, asks: Iterable[Ask[Any]]) -> None:
        self._answers = {ask: ask.answer(subject, scene) for ask in dict.fromkeys(asks)}

    def __getitem__(self, ask: Ask[A]) -> A:
        try:
            answer: A = self._answers[ask]
        except KeyError:
            raise KeyError(f"{ask} was not asked: a diagnostic must name it in asks()") from None
        return answer


@contextlib.contextmanager
def _layers(blocks: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """Mean token after each block, `[B, D]` each, filled in while the encoder runs."""
    means: list[Tensor] = []

    def record(module: nn.Module, given: Any, made: Tensor) -> None:
        means.append(made.detach().float().mean(1))

    hooks = [block.register_forward_hook(record) for block in blocks]
    try:
        yield means
    finally:
        for hook in hooks:
            hook.remove()
