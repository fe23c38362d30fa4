"""One threshold set for every corpus, and the prespecified variations around it (appendix B.1, B.4)."""

from __future__ import annotations

from pydantic import Field

from ..config import Settings
from ..world.measures import APPROACH_DISTANCE, APPROACH_SECONDS, NEAR, SMALLEST_SHARE

PRIMARY = "primary"


class Thresholds(Settings):
    """What counts as an agent, as overlap and as interaction. Lengths in roots of the picture's area."""

    fps: float = Field(default=4.0, gt=0, allow_inf_nan=False)  # sampled frames per second (ground truth)
    min_confidence: float = Field(default=0.55, ge=0, le=1)  # tau_det
    min_area: float = Field(default=SMALLEST_SHARE, ge=0, lt=1)  # a_min, of the valid picture
    overlap: float = Field(default=0.30, gt=0, le=1)  # tau_ov, intersection over the smaller box
    edge: float = Field(default=0.005, ge=0)  # a box this near the border is truncated
    gap_seconds: float = Field(default=1.0, gt=0)  # longest disappearance that is a gap
    near: float = Field(default=NEAR, gt=0)  # rho
    approach_seconds: float = Field(default=APPROACH_SECONDS, gt=0)  # tau_t
    approach_distance: float = Field(default=APPROACH_DISTANCE, gt=0)  # tau_d
    stride: int = Field(default=1, ge=1)  # of the sampled frames, every how manieth is used


def grid(primary: Thresholds) -> dict[str, Thresholds]:
    """The primary thresholds, then each varied by itself, down and up."""
    p = primary
    varied: dict[str, dict[str, float | int]] = {
        "tau_det -0.10": {"min_confidence": max(p.min_confidence - 0.10, 0.0)},
        "tau_det +0.10": {"min_confidence": min(p.min_confidence + 0.10, 1.0)},
        "a_min / 2": {"min_area": p.min_area / 2},
        "a_min x 2": {"min_area": p.min_area * 2},
        "tau_ov -0.10": {"overlap": max(p.overlap - 0.10, 0.01)},
        "tau_ov +0.10": {"overlap": min(p.overlap + 0.10, 1.0)},
        "gap / 2": {"gap_seconds": p.gap_seconds / 2},
        "gap x 2": {"gap_seconds": p.gap_seconds * 2},
        "rho / 1.5": {"near": p.near / 1.5},
        "rho x 1.5": {"near": p.near * 1.5},
        "tau_t, tau_d / 2": {
            "approach_seconds": p.approach_seconds / 2, "approach_distance": p.approach_distance / 2,
        },
        "tau_t, tau_d x 2": {
            "approach_seconds": p.approach_seconds * 2, "approach_distance": p.approach_distance * 2,
        },
        "half the frames": {"stride": p.stride * 2},
    }  # fmt: skip
    return {PRIMARY: p} | {name: p.model_copy(update=change) for name, change in varied.items()}
