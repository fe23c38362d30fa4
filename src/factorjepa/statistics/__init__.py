"""Clustered inference on scores: estimand, paired bootstrap, contrasts, multiplicity, ranks. Knows no models."""

from .compare import CompareSettings, compare
from .comparison import Comparison
from .contrasts import PRESPECIFIED, Contrast
from .rows import ContrastRow, MixedCheck, ParetoRow, RankRow, ScoreRow, Sensitivity

__all__ = [
    "PRESPECIFIED",
    "CompareSettings",
    "Comparison",
    "Contrast",
    "ContrastRow",
    "MixedCheck",
    "ParetoRow",
    "RankRow",
    "ScoreRow",
    "Sensitivity",
    "compare",
]
