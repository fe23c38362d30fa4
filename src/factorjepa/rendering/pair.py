"""X and O of one clip with all that is read off them: the same for every method, so it is made once.

    pair = Pair(context, Future(observed, agents), Future(oracle, agents))
    reading = pair.read(Future(predicted, agents))

Legend: T frames, H x W pixels, s pixels a side of flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..detectors.boxes import Detections
from ..errors import RenderingError
from .failure_settings import FailureSettings
from .metrics.motion import Floats, Mask, future_flow
from .outlines import boxed, pictures_of
from .pace import OwnMotion, Pace
from .scenery import Scenery
from .symptoms import Decoded, Observed


@dataclass(frozen=True)
class Future:
    """A clip's future frames and who a detector sees in them. One detector for X, O and P."""

    frames_T3HW: Tensor
    agents: Sequence[Detections]
    flow_Tss2: Floats | None = None  # from the last context frame, where somebody has it already


@dataclass(frozen=True)
class Reading:
    """A decoded future read against X."""

    decoded: Decoded
    scenery: Scenery
    pace: Pace

    @property
    def nbytes(self) -> int:
        return self.scenery.nbytes + sum(one.nbytes for one in self.decoded.frames)


class Pair:
    """What it sees nowhere in X a detector cannot miss in P: `dynamic_THW` is where it sees agents in X."""

    def __init__(
        self, context_3HW: Tensor, observed: Future, oracle: Future, settings: FailureSettings | None = None
    ) -> None:
        self.settings = FailureSettings() if settings is None else settings
        self._context_3HW, self._shape = context_3HW, observed.frames_T3HW.shape
        self._check("observed", observed)
        self.seen = Observed(pictures_of(observed.frames_T3HW), observed.agents, self.settings)
        height, width = self._shape[-2:]
        self.dynamic_THW: Mask = np.stack([boxed(one.boxes, height, width) for one in observed.agents])
        self._reference = self._motion(observed)
        self.oracle = self.read(oracle, "oracle")

    def read(self, future: Future, name: str = "predicted") -> Reading:
        """A method's future (or the oracle's) against X."""
        self._check(name, future)
        decoded = Decoded(pictures_of(future.frames_T3HW), future.agents, self.seen)
        scenery = Scenery(self.seen, decoded, self.dynamic_THW)
        return Reading(decoded, scenery, Pace(self.seen, decoded, self._reference, self._motion(future)))

    @property
    def nbytes(self) -> int:
        own = self.dynamic_THW.nbytes + self._reference.flow_Tss2.nbytes + self._reference.speed_Tss.nbytes
        return self.seen.nbytes + self.oracle.nbytes + own

    def _motion(self, future: Future) -> OwnMotion:
        if future.flow_Tss2 is not None:
            return OwnMotion.of(future.flow_Tss2)
        return OwnMotion.of(future_flow(self._context_3HW[None], future.frames_T3HW[None])[0])

    def _check(self, name: str, future: Future) -> None:
        if future.frames_T3HW.shape != self._shape:
            raise RenderingError(
                f"{name} frames are {list(future.frames_T3HW.shape)}, the observed ones {list(self._shape)}"
            )
        if len(future.agents) != self._shape[0]:
            raise RenderingError(f"agents of {len(future.agents)} {name} frames, but there are {self._shape[0]} frames")
