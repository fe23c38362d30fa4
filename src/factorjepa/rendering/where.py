"""Where a decoded future is wrong: E_e2e and E_oracle in pixel L1, by region of the picture.

Three regions share the picture out: agents of the observed future (the contour that every panel shows), what else moves
on its own, and the static scene. So a future that no symptom of the taxonomy describes still says what its error is.

Shapes: T future frames, H x W pixels.
"""

from __future__ import annotations

import numpy as np

from ..decoded import AGENTS, MOVING, STATIC, RegionError, apart
from ..pixels import Frames
from .metrics.motion import Mask


def errors_by_region(
    observed_THW3: Frames, oracle_THW3: Frames, predicted_THW3: Frames, agents_THW: Mask | None, moving_THW: Mask
) -> list[RegionError]:
    """The regions that are not empty. Their errors, weighted by their areas, add up to those of the whole picture."""
    agents = np.zeros_like(moving_THW) if agents_THW is None else agents_THW
    regions = {AGENTS: agents, MOVING: moving_THW & ~agents, STATIC: ~(moving_THW | agents)}
    predicted, oracle = (apart(drawn, observed_THW3) for drawn in (predicted_THW3, oracle_THW3))
    return [
        RegionError(name, float(where.mean()), float(predicted[where].mean()), float(oracle[where].mean()))
        for name, where in regions.items()
        if where.any()
    ]
