"""Teacher-domain diagnostics: whether the measuring system itself behaves alike on two corpora (appendix B.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .motion import Steps
from .scene import UNRESOLVED, Array, Scene
from .settings import Thresholds

BINS = 20  # of confidence, over [0, 1]
COUNTS = ("candidates", "retained", "unresolved", "small", "unsure", "tracks", "fragments")


@dataclass(frozen=True)
class DomainCounts:
    """Of one clip, or of many added up."""

    counts: Array  # [len(COUNTS)]
    confidence: Array  # [BINS] candidates by confidence

    def __add__(self, other: DomainCounts) -> DomainCounts:
        return DomainCounts(self.counts + other.counts, self.confidence + other.confidence)

    def confidence_quantile(self, share: float) -> float:
        """To the nearest bin's middle."""
        if not self.confidence.sum():
            return float("nan")
        below = np.cumsum(self.confidence) / self.confidence.sum()
        return float((np.searchsorted(below, share - 1e-12) + 0.5) / BINS)

    def rates(self) -> dict[str, float]:
        """Rates per candidate, and interruptions per track."""
        of = dict(zip(COUNTS, self.counts.tolist(), strict=True))

        def per(what: str, whole: str) -> float:
            return of[what] / of[whole] if of[whole] else float("nan")

        return {
            "retained-instance rate": per("retained", "candidates"),
            "unresolved-class rate": per("unresolved", "candidates"),
            "small-instance exclusion rate": per("small", "candidates"),
            "low-confidence rate": per("unsure", "candidates"),
            "confidence, lowest tenth below": self.confidence_quantile(0.1),
            "confidence, median": self.confidence_quantile(0.5),
            "confidence, highest tenth above": self.confidence_quantile(0.9),
            "track fragmentation (gaps per track)": per("fragments", "tracks"),
        }


def domain_counts(scene: Scene, thresholds: Thresholds) -> DomainCounts:
    """Of the candidates that the source gives; what it dropped before is not among them."""
    small = scene.area_O < thresholds.min_area * scene.support
    unsure = scene.confidence_O < thresholds.min_confidence
    unresolved = np.zeros(len(small), bool) if scene.superclass_O is None else scene.superclass_O == UNRESOLVED
    steps = Steps.of(scene)
    broken = scene.frame_O[steps.after_S] - scene.frame_O[steps.before_S] > 1
    tracks = len(np.unique(scene.track_O[scene.track_O >= 0]))
    counts = (len(small), (~small & ~unsure & ~unresolved).sum(), unresolved.sum(), small.sum(), unsure.sum(), tracks,
              broken.sum())  # fmt: skip
    bins = np.minimum((scene.confidence_O * BINS).astype(int), BINS - 1)
    return DomainCounts(np.array(counts, np.float64), np.bincount(bins, minlength=BINS).astype(np.float64))
