"""Fixed-capacity linear probes: ridge regression whose one strength is chosen on clips it was not fitted on.

Features and targets are standardised with the statistics of the clips that the probe is fitted on, so that the same
grid of strengths means the same for every model, and a probe that knows nothing answers the mean.

Shapes: n examples, F features, G targets, S strengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FOLDS = 5
_FLAT = 1e-3  # of the typical deviation: a dimension that varies less says nothing


@dataclass(frozen=True)
class Standard:
    """Mean and deviation of each dimension; one that does not vary becomes 0."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, values_nG: Array) -> Standard:
        deviation = values_nG.std(0)
        typical = float(np.sqrt(np.square(deviation).mean()))
        return cls(values_nG.mean(0), np.where(deviation > max(_FLAT * typical, 1e-12), deviation, np.inf))

    def __call__(self, values_nG: Array) -> Array:
        return np.asarray((values_nG - self.mean) / self.deviation)


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
        weights_SFG = _path(features(x_nF), targets(y_nG), grid)
        errors_S = np.square(features(x_choose) @ weights_SFG - targets(y_choose)).mean((1, 2))
        best = _least(errors_S, grid)
        return cls(features, targets, weights_SFG[best], grid[best])

    def __call__(self, x_nF: Array) -> Array:
        """Standardised targets `[n, G]`."""
        return np.asarray(self.features(x_nF) @ self.weight_FG)


@dataclass(frozen=True)
class Crossed:
    """Answers for every example by a probe that saw nothing of its group. All are in deviations of all targets."""

    answer_nG: Array
    mean_nG: Array  # what a probe that knows nothing answers
    wanted_nG: Array
    deviation_G: Array

    def read(self) -> Array:
        """The answers in the targets' own unit."""
        return np.asarray(self.answer_nG * self.deviation_G)


def crossed(x_nF: Array, y_nG: Array, groups: Sequence[str], grid: Sequence[float]) -> Crossed | None:
    """For labels that only evaluated clips have: groups are dealt into folds. None with fewer than three groups.

    Each fold is answered by a probe fitted on all others, whose lambda was chosen by leaving out each of these in turn.
    Targets are scaled by their deviation over all examples: a fold may hold no example of something rare.
    """
    names = sorted(set(groups))
    folds = min(FOLDS, len(names))
    if folds < 3:
        return None
    fold_n = np.array([names.index(group) % folds for group in groups])
    deviation_G = y_nG.std(0)
    wanted = y_nG / np.where(deviation_G > 0, deviation_G, 1.0)
    answer, mean = np.empty_like(wanted), np.empty_like(wanted)
    for fold in range(folds):
        asked = fold_n == fold
        errors_S = np.zeros(len(grid))
        for left in set(range(folds)) - {fold}:
            fit, choose = ~asked & (fold_n != left), fold_n == left
            apart = _answers(x_nF[fit], wanted[fit], x_nF[choose], grid) - wanted[choose]
            errors_S += np.square(apart).mean((1, 2))
        best = [grid[_least(errors_S, grid)]]
        answer[asked] = _answers(x_nF[~asked], wanted[~asked], x_nF[asked], best)[0]
        mean[asked] = wanted[~asked].mean(0)
    return Crossed(answer, mean, wanted, deviation_G)


def _answers(x_nF: Array, y_nG: Array, x_new: Array, grid: Sequence[float]) -> Array:
    """What ridges of every strength, fitted on the first pair, say of new examples: `[S, n, G]`."""
    features, mean_G = Standard.of(x_nF), y_nG.mean(0)
    return np.asarray(features(x_new) @ _path(features(x_nF), y_nG - mean_G, grid) + mean_G)


def _path(x_nF: Array, y_nG: Array, grid: Sequence[float]) -> Array:
    """Weights of every strength, `[S, F, G]`, from one decomposition."""
    left, values, right = np.linalg.svd(x_nF, full_matrices=False)
    along = left.T @ y_nG
    shrunk = [values / (values**2 + len(x_nF) * strength) for strength in grid]
    return np.stack([right.T @ (one[:, None] * along) for one in shrunk])


def _least(errors_S: Array, grid: Sequence[float]) -> int:
    """Where the error is least; of equals, the strongest."""
    return min(range(len(grid)), key=lambda number: (float(errors_S[number]), -grid[number]))
