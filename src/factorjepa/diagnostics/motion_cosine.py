"""Motion cosine: how much of the future's motion can be read linearly from the prediction (appendix D)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..scores import DiagnosticInfo
from .asks import PLAIN, Answers, Ask
from .diagnostic import Diagnostic, Part, Role
from .flow import future_descriptors
from .pooled import Pool
from .probes import Array, Ridge
from .scene import Scene

_EPSILON = 1e-8  # epsilon_mot


class MotionCosine(Diagnostic):
    """eq. s_n^motion. Descriptors are standardised over training clips: who answers the mean scores 0, not 0.9."""

    info = DiagnosticInfo(
        name="motion_cosine",
        title="Motion cosine",
        formula="cosine of W pool(Y_hat) and u*, the standardised motion descriptor of the future",
        direction="higher",
        unit="cosine, clip",
        status="primary",
        evaluator="optical flow without the camera's motion; ridge probe",
        provenance="OpenCV's dense inverse search, not learned; probe fitted on training, chosen on validation clips",
    )

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._pools: dict[Role, Pool] = {"fit": Pool(), "choose": Pool(), "measure": Pool()}

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return (PLAIN,)

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        pooled = answers[PLAIN].tokens_BtD.mean(1)
        self._pools[part.role].add(scene.clips, pooled, future_descriptors(scene))

    def finish(self) -> None:
        fit, choose, measure = (self._pools[role] for role in ("fit", "choose", "measure"))
        probe = Ridge.fit(fit.x, fit.y, choose.x, choose.y, self.settings.probes.grid)
        wanted = probe.targets(measure.y)
        self.put(measure.clips, "pooled", cosine(probe(measure.x), wanted), "training clips show no motion")
        error = np.square(probe(measure.x) - wanted).mean(1)
        self.put(measure.clips, "alt/squared_error", error)


def cosine(answer_nG: Array, wanted_nG: Array) -> Array:
    """eq. s_n^motion; not a number where the target says nothing."""
    lengths = np.linalg.norm(answer_nG, axis=1) * np.linalg.norm(wanted_nG, axis=1)
    values = (answer_nG * wanted_nG).sum(1) / (lengths + _EPSILON)
    return np.where(np.abs(wanted_nG).max(1) > 0, values, np.nan)
