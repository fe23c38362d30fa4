"""What a packet cache holds, in numbers: coverage, counts, reliabilities and exclusions by factor (appendix C.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..corpus.access import ClipSet
from .cache import Packets
from .settings import Exclusions

FACTORS = ("layout", "agents", "visibility", "interactions")
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Factor:
    """One factor in one split. Visibility counts agents, the others count clips."""

    reliability: Numbers  # omega of everything with evidence
    without_evidence: int
    threshold: float  # tau

    @property
    def total(self) -> int:
        return len(self.reliability) + self.without_evidence

    @property
    def retained(self) -> int:
        return int((self.reliability >= self.threshold).sum())

    @property
    def below_threshold(self) -> int:
        return len(self.reliability) - self.retained

    @property
    def coverage(self) -> float:
        """Share that contributes to its loss; NaN of nothing."""
        return self.retained / self.total if self.total else float("nan")

    def histogram(self, bins: int = 10) -> NDArray[np.int64]:
        """Counts of reliabilities in equal parts of [0, 1]."""
        return np.histogram(self.reliability, bins, (0.0, 1.0))[0].astype(np.int64)

    def quantiles(self) -> Numbers:
        return np.quantile(self.reliability, QUANTILES) if len(self.reliability) else np.full(len(QUANTILES), np.nan)


@dataclass(frozen=True)
class Coverage:
    """All factors of one split."""

    clips: int
    factors: dict[str, Factor]
    agents: Numbers  # per clip: agents of the context
    tracks: Numbers  # per clip: tracklets of the window
    pairs: Numbers  # per clip: directed candidate pairs
    visibility: Numbers  # T_V of all agents


def coverage_of(packets: Packets[ClipSet]) -> Coverage:
    """Read every packet once."""
    tau: Exclusions = packets.settings.targets.exclude_below
    clip_level: list[NDArray[np.float32]] = []
    visibility: list[NDArray[np.float16]] = []
    reliability: list[NDArray[np.float32]] = []
    counts: list[tuple[int, int, int]] = []
    for index in range(len(packets)):
        packet = packets[index]
        slots = int(packet.slots)
        clip_level.append(packet.reliability)
        visibility.append(packet.track_visibility[:slots])
        reliability.append(packet.track_visibility_reliability[:slots])
        counts.append((slots, len(packet.track_visibility), len(packet.pair_tracks)))
    omega = np.stack(clip_level).astype(np.float64)
    factors = {}
    for column, name in enumerate(("layout", "agents", "interactions")):
        known = omega[:, column] > 0
        factors[name] = Factor(omega[known, column], int((~known).sum()), getattr(tau, name))
    factors["visibility"] = Factor(np.concatenate(reliability).astype(np.float64), 0, tau.visibility)
    table = np.array(counts, np.float64)
    return Coverage(
        clips=len(packets),
        factors={name: factors[name] for name in FACTORS},
        agents=table[:, 0],
        tracks=table[:, 1],
        pairs=table[:, 2],
        visibility=np.concatenate(visibility).astype(np.float64),
    )
