"""Models with a learner's interface whose scores are known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from factorjepa.adaptation import METHODS
from factorjepa.backbones.encoder import gather_tokens
from factorjepa.backbones.masks import Grid
from factorjepa.diagnostics.asks import Subject
from factorjepa.diagnostics.diagnostic import Diagnostic
from factorjepa.diagnostics.evaluator import Evaluator
from factorjepa.diagnostics.reference import Precision
from factorjepa.predictors import Prediction
from factorjepa.training.learner import Learner


class Recognising:
    """An encoder whose tokens say which clip it is, and no more. One that it does not know, it takes for the first."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.blocks = nn.ModuleList([nn.Identity()])
        self.reference = evaluator.reference
        self.videos = torch.cat([scene.video() for scenes in evaluator.parts for scene in scenes])
        self._clip_of_frame = {
            frame.numpy().tobytes(): clip for clip, video in enumerate(self.videos) for frame in video.unbind(1)
        }

    def __call__(self, video: Tensor, keep: Tensor | None, levels: bool) -> Tensor:
        tubelets, rows, columns = self.reference.grid(video)
        clips = [self._clip_of_frame.get(one[:, 0].numpy().tobytes(), 0) for one in video]
        said = torch.zeros(len(video), tubelets * rows * columns, 4 * self.reference.spec.dim)
        said[..., 0] = torch.tensor(clips)[:, None]
        return said


class Fake:
    """Predicts `answer(video)` whatever it is shown of the context, and counts how often it is asked.

    Shown a part of the context, or asked for other tubelets, it recognises the clip by a frame: `answer(video, early)`.
    """

    method = METHODS["frozen"]

    def __init__(self, evaluator: Evaluator, answer: Callable[..., Tensor]) -> None:
        self.reference, self.answer = evaluator.reference, answer
        self.spec = self.reference.spec
        self.encoder = Recognising(evaluator)
        self.calls = 0

    def predictor(self, levels_BcL: Tensor, shown: Tensor, asked: Tensor, states: object, grid: Grid) -> Prediction:
        video = self.encoder.videos[levels_BcL[:, 0, 0].long()]
        if grid != self.reference.grid(video):
            return Prediction(self.answer(video))
        tubelets, rows, columns = self.reference.context_grid(video)
        everything_BtD = self.answer(video, tubelets - 1)  # from the second tubelet on
        return Prediction(gather_tokens(everything_BtD, asked - rows * columns))

    def predict(self, video: Tensor, visible: Tensor | None, states: object) -> Prediction:
        self.calls += 1
        self.encoder.blocks[0](torch.zeros(len(video), 3, 8))
        return Prediction(self.answer(video))

    def future(self, video: Tensor) -> Tensor:
        return self.reference.future(video)


def oracle(evaluator: Evaluator) -> Fake:
    """Looks at the future itself."""
    return Fake(evaluator, evaluator.reference.future)


def constant(evaluator: Evaluator) -> Fake:
    """Always says 0."""
    return Fake(evaluator, lambda video, early=0: torch.zeros_like(evaluator.reference.future(video, early)))


def subject(model: object) -> Subject:
    return Subject(cast(Learner, model), Precision(torch.device("cpu"), False))


def means(one: Diagnostic) -> dict[str, float]:
    """Mean over clips of each variant."""
    values: dict[str, list[float]] = {}
    for found in one.found:
        values.setdefault(found.variant, []).append(found.value)
    return {variant: sum(some) / len(some) for variant, some in values.items()}


def reasons(one: Diagnostic) -> dict[str, int]:
    """Why scores are missing, and of how many clips."""
    return {lack.reason: lack.clips for lack in one.missing}
