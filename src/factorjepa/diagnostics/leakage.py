"""Leakage: what a channel knows of another factor (paper, "Leakage diagnostic")."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..scores import DiagnosticInfo
from .asks import Predicted
from .factors import FACTORS
from .pooled import Pool
from .probes import Array
from .structure import FactorProbes

_FORMULA = "Leak(k -> k') = (S(k -> k') - S(0 -> k')) / (S(k' -> k') - S(0 -> k')), S = minus a probe's squared error"


class Leakage(FactorProbes):
    """Rows `k->k'` and `constant->k'`: squared errors of probes from channel Y_k to T_k', and of answering the mean."""

    info = DiagnosticInfo(
        name="leakage",
        title="Channel leakage",
        formula=_FORMULA,
        direction="lower",
        unit="standardised squared error, clip",
        status="structure",
        evaluator="the teacher's factor targets; ridge probe",
        provenance="teacher-relative: agreement with pseudo-labels; fitted on training, chosen on validation clips",
        headline="",
        reduction="leakage",
    )

    def features(self, answer: Predicted) -> Mapping[str, Tensor] | None:
        if answer.channels is None:
            return None
        return {name: channel.float().mean(1) for name, channel in zip(FACTORS, answer.channels, strict=True)}

    def state(self, pool: Pool, feature: str, factor: str, error_n: Array, total_n: Array) -> None:
        self.put(pool.clips, f"{feature}->{factor}", error_n)
        if feature == FACTORS[0]:
            self.put(pool.clips, f"constant->{factor}", total_n)


class TrueLeakage(Leakage):
    """The same against ground truth."""

    labels = "truth"
    info = DiagnosticInfo(
        name="leakage_truth",
        title="Channel leakage, ground truth",
        formula=_FORMULA,
        direction="lower",
        unit="standardised squared error, clip",
        status="structure",
        evaluator="summaries of the simulator's ground truth; ridge probe",
        provenance="audit clips alone; each source is answered by probes fitted on other sources",
        headline="",
        reduction="leakage",
    )
