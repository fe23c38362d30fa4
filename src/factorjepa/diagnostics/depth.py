"""Depth profile I_k(l): at which encoder block a factor becomes linearly readable (paper, "Depth-Wise Factor ...")."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..scores import DiagnosticInfo
from .asks import Predicted
from .pooled import Pool
from .probes import Array
from .structure import FactorProbes

_FORMULA = "I_k(l) = 1 - error / total of a ridge probe from the mean context token after block l to T_k"


class Depth(FactorProbes):
    """Rows `error/<factor>/<block>` and `total/<factor>/<block>`, blocks from 01 on."""

    info = DiagnosticInfo(
        name="depth",
        title="Depth profile",
        formula=_FORMULA,
        direction="higher",
        unit="standardised squared error, clip",
        status="structure",
        evaluator="the teacher's factor targets; ridge probe",
        provenance="teacher-relative: agreement with pseudo-labels; fitted on training, chosen on validation clips",
        headline="",
        reduction="explained",
    )

    def features(self, answer: Predicted) -> Mapping[str, Tensor] | None:
        assert answer.layers_LBD is not None
        return {f"{number:02d}": layer for number, layer in enumerate(answer.layers_LBD, start=1)}

    def state(self, pool: Pool, feature: str, factor: str, error_n: Array, total_n: Array) -> None:
        self.put(pool.clips, f"error/{factor}/{feature}", error_n)
        self.put(pool.clips, f"total/{factor}/{feature}", total_n)


class TrueDepth(Depth):
    """The same against ground truth."""

    labels = "truth"
    info = DiagnosticInfo(
        name="depth_truth",
        title="Depth profile, ground truth",
        formula=_FORMULA,
        direction="higher",
        unit="standardised squared error, clip",
        status="structure",
        evaluator="summaries of the simulator's ground truth; ridge probe",
        provenance="audit clips alone; each source is answered by probes fitted on other sources",
        headline="",
        reduction="explained",
    )
