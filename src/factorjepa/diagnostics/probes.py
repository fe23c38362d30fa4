"""Fixed-capacity linear probes: ridge regression whose one strength is chosen on clips it was not fitted on.

Features and targets are standardised with the statistics of the clips that the probe is fitted on, so that the same
grid of strengths means the same for every model, and a probe that knows nothing answers the mean.

Shapes: n examples, F features, G targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FOLDS = 5
_FLAT = 1e-8  # of a standard deviation: a dimension that does not vary says nothing


@dataclass(frozen=True)
class Standard:
    """Mean and deviation of each dimension; one that does not vary becomes 0."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, values: Array) -> Standard:
        deviation = values.std(0)
        return cls(values.mean(0), np.where(deviation > _FLAT, deviation, np.inf))

    def __call__(self, values: Array) -> Array:
        return np.asarray((values - self.mean) / self.deviation)


@dataclass(frozen=True)
class Ridge:
    """`W = argmin |X W - Y|^2 + n lambda |W|^2`; answers are standardised targets."""

    features: Standard
    targets: Standard
    weight_FG: Array
    strength: float  # lambda

    @classmethod
    def fit(cls, x_nF: Array, y_nG: Array, x_choose: Array, y_choose: Array, grid: Sequence[float]) -> Ridge:
        """Fitted on the first pair, its lambda the one of `grid` with the least squared error on the second."""
        features, targets = Standard.of(x_nF), Standard.of(y_nG)
        left, values, right = np.linalg.svd(features(x_nF), full_matrices=False)
        along = left.T @ targets(y_nG)
        x_new, y_new = features(x_choose), targets(y_choose)
        best: tuple[float, float, Array] | None = None
        for strength in sorted(grid, reverse=True):  # of equals, the strongest
            weight = right.T @ ((values / (values**2 + len(x_nF) * strength))[:, None] * along)
            error = float(np.square(x_new @ weight - y_new).mean())
            if best is None or error < best[0]:
                best = (error, strength, weight)
        assert best is not None
        return cls(features, targets, best[2], best[1])

    def __call__(self, x_nF: Array) -> Array:
        """Standardised targets `[n, G]`."""
        return np.asarray(self.features(x_nF) @ self.weight_FG)


def crossed(x_nF: Array, y_nG: Array, groups: Sequence[str], grid: Sequence[float]) -> tuple[Array, Array] | None:
    """Answers for every example by probes that saw nothing of its group, and the targets, both standardised.

    For labels that only evaluated clips have. Groups are dealt into folds; each fold is answered by a probe fitted on
    the others but one, which chooses lambda. None with fewer than three groups.
    """
    names = sorted(set(groups))
    folds = min(FOLDS, len(names))
    if folds < 3:
        return None
    fold_n = np.array([names.index(group) % folds for group in groups])
    answers, wanted = np.empty_like(y_nG), np.empty_like(y_nG)
    for fold in range(folds):
        asked, choose = fold_n == fold, fold_n == (fold + 1) % folds
        fit = ~asked & ~choose
        probe = Ridge.fit(x_nF[fit], y_nG[fit], x_nF[choose], y_nG[choose], grid)
        answers[asked], wanted[asked] = probe(x_nF[asked]), probe.targets(y_nG[asked])
    return answers, wanted
