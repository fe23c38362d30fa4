"""Factor probes: a ridge from features of a clip to each factor's target. Leakage and depth differ in the features.

Against the teacher a probe is fitted on training clips and chosen on validation clips. Ground truth is known of audit
clips alone: there, each source is answered by probes fitted on other sources (`probes.crossed`).

Shapes: B clips, F features, W target width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from .asks import PLAIN, Answers, Ask, Predicted
from .diagnostic import Diagnostic, Part, Role
from .factors import teacher_targets, true_targets
from .pooled import Pool
from .probes import Array, Ridge, crossed
from .scene import Scene
from .settings import EvaluateSettings

_FEW = 4  # clips on which no probe is fitted


class FactorProbes(Diagnostic):
    """Collects features and targets; subclasses say which features, and what their errors are called."""

    labels: Literal["teacher", "truth"] = "teacher"

    def __init__(self, settings: EvaluateSettings) -> None:
        super().__init__(settings)
        self._pools: dict[tuple[Role, str, str], Pool] = {}

    @abstractmethod
    def features(self, answer: Predicted) -> Mapping[str, Tensor] | None:
        """`[B, F]` by name; None where the model has none of the kind."""

    @abstractmethod
    def state(self, pool: Pool, feature: str, factor: str, error_n: Array, total_n: Array) -> None:
        """Put the squared errors of one probe, and those of answering the mean."""

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        if self.labels == "teacher":
            return (PLAIN,) if part.packets else ()
        return (PLAIN,) if part.truth and part.role == "measure" else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        features = self.features(answers[PLAIN])
        if features is None:
            if part.role == "measure":
                self.absent("the predictor has no channels", scene.clips)
            return
        targets = teacher_targets(scene) if self.labels == "teacher" else true_targets(scene)
        for feature, x_BF in features.items():
            for factor, (y_BW, kept_B) in targets.items():
                pool = self._pools.setdefault((part.role, feature, factor), Pool())
                clips = [clip for clip, kept in zip(scene.clips, kept_B, strict=True) if kept]
                pool.add(clips, x_BF.cpu()[torch.from_numpy(kept_B)], y_BW[kept_B])

    def finish(self) -> None:
        measured = [(feature, factor) for role, feature, factor in self._pools if role == "measure"]
        for feature, factor in measured:
            pool = self._pools["measure", feature, factor]
            errors = self._errors(feature, factor, pool) if len(pool) else None
            if errors is not None:
                self.state(pool, feature, factor, *errors)

    def _errors(self, feature: str, factor: str, pool: Pool) -> tuple[Array, Array] | None:
        """Squared errors of the probe and of answering the mean, `[n]` each."""
        grid = self.settings.probes.grid
        if self.labels == "truth":
            found = crossed(pool.x, pool.y, pool.sources, grid)
            if found is None:
                self.absent("fewer than three audit sources: none to fit a probe on", pool.clips)
                return None
            wanted = found.wanted_nG
            return _squared(found.answer_nG, wanted), _squared(found.mean_nG, wanted)
        fit, choose = (self._pools[role, feature, factor] for role in ("fit", "choose"))
        if len(fit) < _FEW or not len(choose):
            self.absent(f"the teacher stands by too few {factor} targets of training or validation clips", pool.clips)
            return None
        probe = Ridge.fit(fit.x, fit.y, choose.x, choose.y, grid)
        wanted = probe.targets(pool.y)
        return _squared(probe(pool.x), wanted), _squared(np.zeros_like(wanted), wanted)


def _squared(answer_nW: Array, wanted_nW: Array) -> Array:
    return np.asarray(np.square(answer_nW - wanted_nW).mean(1))
