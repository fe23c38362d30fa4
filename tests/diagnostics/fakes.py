"""Models with a learner's interface whose scores are known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import torch
from torch import Tensor, nn

from factorjepa.adaptation import METHODS
from factorjepa.diagnostics.asks import Subject
from factorjepa.diagnostics.diagnostic import Diagnostic
from factorjepa.diagnostics.evaluator import Evaluator
from factorjepa.diagnostics.reference import Precision
from factorjepa.predictors import Prediction
from factorjepa.training.learner import Learner


class Fake:
    """Predicts `answer(video)` whatever it is shown of the context, and counts how often it is asked."""

    method = METHODS["frozen"]

    def __init__(self, evaluator: Evaluator, answer: Callable[[Tensor], Tensor]) -> None:
        self.reference, self.answer = evaluator.reference, answer
        self.encoder = SimpleNamespace(blocks=nn.ModuleList([nn.Identity()]))
        self.calls = 0

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
    return Fake(evaluator, lambda video: torch.zeros_like(evaluator.reference.future(video)))


def subject(model: object) -> Subject:
    return Subject(cast(Learner, model), Precision(torch.device("cpu"), False))


def means(one: Diagnostic) -> dict[str, float]:
    """Mean over clips of each variant."""
    values: dict[str, list[float]] = {}
    for found in one.found:
        values.setdefault(found.variant, []).append(found.value)
    return {variant: sum(some) / len(some) for variant, some in values.items()}
