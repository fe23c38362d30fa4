"""Arrow of time, temporal order, playback pace: whether a probe reads from the prediction what was done to the context
(appendix D, "Order and pace sensitivity").

Every clip is shown in every class, so that who knows nothing is right in one of K.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..scores import CHANCE, DiagnosticInfo
from .asks import PLAIN, Answers, Ask, Predict, Predicted
from .classifier import Classifier, indicators, pooled_tokens
from .continuing import Paced
from .diagnostic import Part, Role
from .probed import Probed
from .reordered import REVERSED, RIFFLED
from .scene import Scene

_EVALUATOR = "fixed transformations of the context; ridge probe on indicators"
_PROVENANCE = "labels are what was done; probe fitted on training, chosen on validation clips"


class _Transformations(Probed):
    """Share of a clip's versions whose transformation the probe names."""

    @abstractmethod
    def classes(self) -> Sequence[Ask[Predicted]]:
        """The clip in each class."""

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return self.classes() if self._room(part.role) != 0 else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        clips = scene.clips[: self._room(part.role)]
        for number, ask in enumerate(self.classes()):
            x = pooled_tokens(answers[ask].tokens_BtD, scene)[: len(clips)]
            self.pools[part.role].add(clips, x, np.full(len(clips), number))

    def _room(self, role: Role) -> int | None:
        """How many more clips it wants to see; None: all."""
        if role != "fit":
            return None
        return self.settings.probes.transformed_clips - len(self.pools["fit"]) // len(self.classes())

    def finish(self) -> None:
        fit, choose, measure = (self.pools[role] for role in ("fit", "choose", "measure"))
        is_fit, is_choose = (indicators(pool.y.astype(np.intp), len(self.classes())) for pool in (fit, choose))
        probe = Classifier.fit(fit.x, is_fit, choose.x, is_choose, self.settings.probes.grid)
        right: dict[Any, list[bool]] = {}
        for clip, one in zip(measure.clips, (probe.top(measure.x) == measure.y).tolist(), strict=True):
            right.setdefault(clip, []).append(one)
        self.put(list(right), "pooled", [float(np.mean(of_clip)) for of_clip in right.values()])
        self.put(list(right), CHANCE, np.full(len(right), 1 / len(self.classes())))


class ArrowOfTime(_Transformations):
    info = DiagnosticInfo(
        name="arrow_of_time",
        title="Arrow of time",
        formula="accuracy of W pool(Y_hat) at telling a context from the same one reversed; chance: 1/2",
        direction="higher",
        unit="accuracy, clip",
        status="secondary",
        evaluator=_EVALUATOR,
        provenance=_PROVENANCE,
    )

    def classes(self) -> Sequence[Ask[Predicted]]:
        return PLAIN, Predict(REVERSED)


class TemporalOrder(_Transformations):
    info = DiagnosticInfo(
        name="temporal_order",
        title="Temporal-order accuracy",
        formula="accuracy of W pool(Y_hat) at telling a context from the same one riffled; chance: 1/2",
        direction="higher",
        unit="accuracy, clip",
        status="secondary",
        evaluator=_EVALUATOR,
        provenance=_PROVENANCE,
    )

    def classes(self) -> Sequence[Ask[Predicted]]:
        return PLAIN, Predict(RIFFLED)


class PlaybackPace(_Transformations):
    info = DiagnosticInfo(
        name="playback_pace",
        title="Playback-pace accuracy",
        formula="accuracy of W pool(Y_hat) at telling at which of K paces (3) the context is shown; chance: 1/K",
        direction="higher",
        unit="accuracy, clip",
        status="secondary",
        evaluator=_EVALUATOR,
        provenance=f"{_PROVENANCE}; every k-th context frame (1st, 2nd, 3rd), as many of each, up to the last",
    )

    def classes(self) -> Sequence[Ask[Predicted]]:
        paces = self.settings.pace.paces
        return [Paced(pace, max(paces)) for pace in paces]
