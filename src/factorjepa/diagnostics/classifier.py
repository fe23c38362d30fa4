"""Classification by the same fixed-capacity probe: a ridge that answers with indicators of the classes.

Its one strength is chosen on clips it was not fitted on. One that knows nothing answers the classes' frequencies.

Shapes: B clips, h horizons, t target tokens, D width, n examples, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .probes import Array, Ridge
from .scene import Scene

Labels = NDArray[np.intp]


@dataclass(frozen=True)
class Classifier:
    """Fitted on indicators `[n, K]`, of which several may be 1."""

    ridge: Ridge
    frequency_K: Array  # in the clips that it was fitted on

    @classmethod
    def fit(cls, x_nF: Array, is_nK: Array, x_choose: Array, is_choose: Array, grid: Sequence[float]) -> Classifier:
        return cls(Ridge.fit(x_nF, is_nK, x_choose, is_choose, grid), is_nK.mean(0))

    def top(self, x_nF: Array) -> Labels:
        """The most probable class; of equals, the first."""
        deviation_K = np.where(np.isfinite(self.ridge.targets.deviation), self.ridge.targets.deviation, 0.0)
        return np.asarray(np.argmax(self.ridge(x_nF) * deviation_K + self.frequency_K, axis=1), np.intp)

    def present(self, x_nF: Array) -> NDArray[np.bool_]:
        """`[n, K]` classes at least as probable as they are frequent: rare ones are found, and who knows nothing says
        that all are there."""
        return np.asarray(self.ridge(x_nF) >= 0)


def indicators(labels: Sequence[int] | Labels, classes: int) -> Array:
    """One-hot rows `[n, K]`."""
    return np.eye(classes)[np.asarray(labels, np.intp)]


def pooled_tokens(tokens_BtD: Tensor, scene: Scene) -> Tensor:
    """What probes read of a prediction: mean and deviation over the places of each horizon, `[B, 2 h D]`."""
    _, rows, columns = scene.grid
    of_horizon = tokens_BtD.reshape(len(tokens_BtD), -1, rows * columns, tokens_BtD.shape[-1])
    return torch.cat([of_horizon.mean(2), of_horizon.std(2)], dim=1).flatten(1)
