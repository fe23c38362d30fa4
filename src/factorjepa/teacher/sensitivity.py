"""Threshold sensitivity: what other thresholds would retain, on a sample of clips (appendix C.1).

Features and candidate regions are computed once per clip; retention, association and the structural maps run again for
every variant. One threshold is varied at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..corpus.access import ClipSet
from ..corpus.windows import window_times
from .camera import camera_motion
from .observe import settle
from .packet import Packet, build_packet
from .proposals import mask_side
from .regions import Evidence
from .settings import TeacherSettings
from .teacher import Teacher, window_of

# threshold -> factors on its setting; whole numbers are rounded
VARIED: dict[str, tuple[float, ...]] = {
    "regions.min_confidence": (0.8, 1.0, 1.2),
    "regions.min_area": (0.5, 1.0, 2.0),
    "tracks.min_length": (2 / 3, 1.0, 2.0),
    "targets.pair_distance": (0.6, 1.0, 1.4),
}


@dataclass(frozen=True)
class Variant:
    """Means over the sampled clips with one threshold changed."""

    setting: str
    value: float
    as_set: bool  # the value that the packets were made with
    agents: float
    pairs: float
    reliability: tuple[float, float, float]  # omega_L, omega_A, omega_I; 0 where there is no evidence
    coverage: tuple[float, float, float]  # share of clips retained
    agreement: float  # mean cosine of T_A with the one as set, over clips that have both; NaN if none has


def variants_of(settings: TeacherSettings) -> Iterator[tuple[str, float, TeacherSettings]]:
    """Setting, value, and the settings with that value."""
    for setting, scales in VARIED.items():
        section, key = setting.split(".")
        now = getattr(getattr(settings, section), key)
        values = {type(now)(round(now * scale) if isinstance(now, int) else min(now * scale, 1.0)) for scale in scales}
        for value in sorted(values):
            changed = getattr(settings, section).model_copy(update={key: value})
            yield setting, value, settings.model_copy(update={section: changed})


def sensitivity(
    teacher: Teacher, clips: ClipSet, replication: int = 0, progress: Callable[[int, int], object] | None = None
) -> list[Variant]:
    """Every variant over `clips`; pass a `subset`. `progress(done, total)` counts clips."""
    made: dict[tuple[str, float], list[Packet]] = {}
    default: list[Packet] = []
    for done, clip in enumerate(clips):
        frames = teacher.window(clips, clip, replication)
        described = teacher.features(frames)
        motion = camera_motion(frames)
        candidates = teacher.proposals(clips, clip, replication)(
            frames, described, motion.affine, teacher.settings.context
        )
        side = mask_side(teacher.settings.regions, frames.shape[1])
        times = window_times(clip, window_of(teacher.settings), replication)
        settled = functools.partial(settle, candidates, described, motion, side)
        packet = functools.partial(_packet, teacher, settled, times)
        default.append(packet(teacher.settings))
        for setting, value, settings in variants_of(teacher.settings):
            same = settings == teacher.settings
            made.setdefault((setting, value), []).append(default[-1] if same else packet(settings))
        if progress is not None:
            progress(done + 1, len(clips))
    return [_summary(setting, value, packets, default, teacher.settings) for (setting, value), packets in made.items()]


def _packet(
    teacher: Teacher,
    settled: Callable[[TeacherSettings], Evidence],
    times: NDArray[np.float64],
    settings: TeacherSettings,
) -> Packet:
    return build_packet(settled(settings), times, settings, teacher.projections)


def _cosine(one: NDArray[Any], two: NDArray[Any]) -> float:
    a, b = one.astype(np.float64), two.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) if a.any() and b.any() else float("nan")


def _summary(
    setting: str, value: float, packets: list[Packet], default: list[Packet], settings: TeacherSettings
) -> Variant:
    omega = np.stack([packet.reliability for packet in packets])
    tau = settings.targets.exclude_below
    retained = (omega >= [tau.layout, tau.agents, tau.interactions]) & (omega > 0)
    section, key = setting.split(".")
    cosines = [_cosine(p.agents, d.agents) for p, d in zip(packets, default, strict=True)]
    known = [cosine for cosine in cosines if not np.isnan(cosine)]
    layout, agents, interactions = (float(v) for v in omega.mean(0))
    kept = retained.mean(0)
    return Variant(
        setting=setting,
        value=value,
        as_set=value == getattr(getattr(settings, section), key),
        agents=float(np.mean([int(packet.slots) for packet in packets])),
        pairs=float(np.mean([len(packet.pair_tracks) for packet in packets])),
        reliability=(layout, agents, interactions),
        coverage=(float(kept[0]), float(kept[1]), float(kept[2])),
        agreement=float(np.mean(known)) if known else float("nan"),
    )
