"""Motion cosine: how much of the future's motion can be read linearly from the prediction (appendix D)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..backbones.masks import Grid
from ..scores import CHANCE, DiagnosticInfo
from .asks import PLAIN, Answers
from .diagnostic import Part
from .flow import future_descriptors
from .probed import Probed
from .probes import Array, Ridge
from .scene import Scene

_EPSILON = 1e-8  # epsilon_mot


class MotionCosine(Probed):
    """eq. s_n^motion. One probe reads the motion of a cell from the mean predicted token of that cell, for all cells.

    Descriptors are standardised over training clips: who answers the mean scores 0, and not the cosine of two means.
    """

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

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        pooled_BcD = cells(answers[PLAIN].tokens_BtD, scene.grid, self.settings.motion.grid)
        self.pools[part.role].add(scene.clips, pooled_BcD, future_descriptors(scene))

    def finish(self) -> None:
        fit, choose, measure = (self.pools[role] for role in ("fit", "choose", "measure"))
        grid = self.settings.probes.grid
        probe = Ridge.fit(_rows(fit.x), _rows(fit.y), _rows(choose.x), _rows(choose.y), grid)
        answer, wanted = probe(_rows(measure.x)), probe.targets(_rows(measure.y))
        answer, wanted = answer.reshape(len(measure), -1), wanted.reshape(len(measure), -1)
        self.put(measure.clips, "pooled", cosine(answer, wanted), "training clips show no motion")
        self.put(measure.clips, CHANCE, np.zeros(len(measure)))
        self.put(measure.clips, "alt/squared_error", np.square(answer - wanted).mean(1))


def cells(tokens_BtD: Tensor, grid: Grid, side: int) -> Tensor:
    """Predicted tokens, mean over horizons and over each cell of a `side x side` grid: `[B, cells, D]`."""
    _, rows, columns = grid
    of_place = tokens_BtD.reshape(len(tokens_BtD), -1, rows, columns, tokens_BtD.shape[-1]).mean(1)
    return torch.nn.functional.adaptive_avg_pool2d(of_place.permute(0, 3, 1, 2), side).flatten(2).transpose(1, 2)


def cosine(answer_nG: Array, wanted_nG: Array) -> Array:
    """eq. s_n^motion; not a number where the target says nothing."""
    lengths = np.linalg.norm(answer_nG, axis=1) * np.linalg.norm(wanted_nG, axis=1)
    values = (answer_nG * wanted_nG).sum(1) / (lengths + _EPSILON)
    return np.where(np.abs(wanted_nG).max(1) > 0, values, np.nan)


def _rows(values_ncG: Array) -> Array:
    """Cells of all clips as examples of one probe."""
    return values_ncG.reshape(-1, values_ncG.shape[-1])
