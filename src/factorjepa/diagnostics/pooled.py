"""What probes are fitted on: pooled features of clips, collected batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..corpus.manifest import Clip
from .probes import Array


class Pool:
    """Features `x` and targets `y` of clips, `[n, ...]`, and the clips."""

    def __init__(self) -> None:
        self.clips: list[Clip] = []
        self._x: list[Array] = []
        self._y: list[Array] = []

    def add(self, clips: Sequence[Clip], x: Tensor, y: NDArray[Any] | Tensor) -> None:
        """One row of both for each clip."""
        self.clips += clips
        self._x.append(x.detach().double().cpu().numpy())
        self._y.append(y.detach().double().cpu().numpy() if isinstance(y, Tensor) else y.astype(np.float64))

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def x(self) -> Array:
        return np.concatenate(self._x)

    @property
    def y(self) -> Array:
        return np.concatenate(self._y)

    @property
    def sources(self) -> list[str]:
        return [clip.source for clip in self.clips]
