"""Psi_I: candidate pairs, their normalised descriptors and reliabilities, and the clip's target (contract table).

A candidate pair has been seen together, at some moment within `pair_distance` between box centres; each agent keeps its
nearest `max_neighbours`. Pairs are directed: (i, j) describes j as i meets it. The target is the mean embedding of the
pair descriptors (random Fourier features: a plain mean would cancel the two directions of every pair), in each part of
a coarse grid, with the pairs' weight.

Shapes: K tracklets, T frames, P pairs, F pair fields, W target width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .agents import pooled
from .projection import PAIR_BINS, Projections, soft_bins
from .regions import Floats
from .settings import TargetSettings
from .trajectories import Trajectories
from .visibility import Visibility

PAIR_FIELDS = (
    "dx", "dy",  # from i to j when they are nearest, over the candidate distance
    "relative_vx", "relative_vy",  # mean motion of j relative to i, over the candidate distance per half second
    "distance",  # when nearest, over the candidate distance
    "closest",  # distance of closest approach if both went on as when last seen together, over the candidate distance
    "time_to_closest",  # frames until then, over the window, 1 at most; 0 if they move apart
    "approach",  # change of distance from first to last seen together, over the candidate distance
    "size_ratio",  # logarithm of j's area over i's, over 2
    "support",  # smaller one's mean visibility
    "overlap",  # frames seen together over frames in which either was tracked
)  # fmt: skip


@dataclass(frozen=True)
class Interactions:
    """E, T_I and omega_I."""

    pairs_P2: NDArray[np.int64]  # tracklets (i, j), i is the one acted upon
    descriptor_PF: Floats
    reliability_P: Floats
    target_W: Floats
    reliability: float  # mean over the pairs; 0 where there are none


def psi_interactions(
    tracks: Trajectories, agents_K: Floats, visibility: Visibility, projections: Projections, settings: TargetSettings
) -> Interactions:
    """`Psi_I(P, A(P)) -> (E, T_I, omega_I)`; `agents_K` are the endpoints' reliabilities."""
    pairs_P2, nearest_P = _candidates(tracks, settings)
    width = projections.interactions_FW.shape[1]
    if not len(pairs_P2):
        empty = np.zeros((0, len(PAIR_FIELDS)), np.float32)
        return Interactions(pairs_P2, empty, np.zeros(0, np.float32), np.zeros(width, np.float32), 0.0)
    i, j = pairs_P2.T
    descriptor_PF = _describe(tracks, visibility, pairs_P2, nearest_P, settings.pair_distance)
    together_P = (tracks.seen_KT[i] & tracks.seen_KT[j]).sum(1)
    temporal_P = np.minimum(1.0, together_P / max(1, tracks.frames // 2))
    endpoint_P = np.sqrt(agents_K[i] * agents_K[j])
    reliability_P = np.clip(np.sqrt(endpoint_P * temporal_P), settings.min_reliability, 1.0).astype(np.float32)
    *frequencies, phases = projections.waves_FK
    waves_PK = np.cos(descriptor_PF @ np.stack(frequencies) + phases) * np.sqrt(2.0 / len(phases))
    centre_KT2 = tracks.centre_KT2
    middle_P2 = (centre_KT2[i, nearest_P] + centre_KT2[j, nearest_P]) / 2
    target_W = pooled(waves_PK, reliability_P, soft_bins(middle_P2, PAIR_BINS)) @ projections.interactions_FW
    return Interactions(
        pairs_P2, descriptor_PF, reliability_P, target_W.astype(np.float32), float(reliability_P.mean())
    )


def _candidates(tracks: Trajectories, settings: TargetSettings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Directed candidate pairs `[P, 2]`, by i and then by distance, and the frame in which each is nearest."""
    centre_KT2, seen_KT = tracks.centre_KT2, tracks.seen_KT
    count = len(tracks)
    smallest_KK = np.full((count, count), np.inf, np.float32)
    frame_KK = np.zeros((count, count), np.int64)
    for t in range(tracks.frames):
        apart = np.linalg.norm(centre_KT2[:, None, t] - centre_KT2[None, :, t], axis=-1)
        apart[~(seen_KT[:, None, t] & seen_KT[None, :, t])] = np.inf
        nearer = apart < smallest_KK
        smallest_KK[nearer], frame_KK[nearer] = apart[nearer], t
    np.fill_diagonal(smallest_KK, np.inf)
    smallest_KK[smallest_KK > settings.pair_distance] = np.inf
    order_KK = np.argsort(smallest_KK, axis=1, kind="stable")[:, : settings.max_neighbours]
    i = np.repeat(np.arange(count), order_KK.shape[1])
    j = order_KK.reshape(-1)
    real = np.isfinite(smallest_KK[i, j])
    i, j = i[real], j[real]
    return np.stack((i, j), axis=1).astype(np.int64), frame_KK[i, j]


def _describe(
    tracks: Trajectories,
    visibility: Visibility,
    pairs_P2: NDArray[np.int64],
    nearest_P: NDArray[np.int64],
    reach: float,
) -> Floats:
    """`PAIR_FIELDS [P, F]`, each in [-1, 1] or little beyond."""
    i, j = pairs_P2.T
    row = np.arange(len(i))
    both_PT = tracks.seen_KT[i] & tracks.seen_KT[j]
    offset_PT2 = (tracks.centre_KT2[j] - tracks.centre_KT2[i]) / reach
    first_P, last_P = both_PT.argmax(1), both_PT.shape[1] - 1 - both_PT[:, ::-1].argmax(1)
    frames_P = np.maximum(last_P - first_P, 1)[:, None]
    motion_P2 = (offset_PT2[row, last_P] - offset_PT2[row, first_P]) / frames_P  # candidate distances per frame
    near_P2, now_P2 = offset_PT2[row, nearest_P], offset_PT2[row, last_P]
    speed_P = np.maximum((motion_P2**2).sum(1), 1e-8)
    until_P = np.clip(-(now_P2 * motion_P2).sum(1) / speed_P, 0.0, float(tracks.frames))
    closest_P = np.linalg.norm(now_P2 + motion_P2 * until_P[:, None], axis=1)
    distance_P = np.linalg.norm(near_P2, axis=1)
    approach_P = np.linalg.norm(now_P2, axis=1) - np.linalg.norm(offset_PT2[row, first_P], axis=1)
    area_K = np.maximum(tracks.mean_over_seen(tracks.area_KT), 1e-6)
    either_P = (tracks.span_KT[i] | tracks.span_KT[j]).sum(1)
    fields = (
        near_P2, motion_P2 * 2.0, distance_P, closest_P, until_P / tracks.frames, approach_P,
        np.log(area_K[j] / area_K[i]) / 2.0, np.minimum(visibility.target_K[i], visibility.target_K[j]),
        both_PT.sum(1) / np.maximum(either_P, 1),
    )  # fmt: skip
    flat = np.concatenate([np.asarray(field, np.float32).reshape(len(i), -1) for field in fields], axis=1)
    return np.asarray(np.clip(flat, -4.0, 4.0), np.float32)
