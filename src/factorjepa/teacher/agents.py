"""Psi_A: one object-centric state per tracklet, aggregated over the retained ones (contract table, Agent).

A state is the tracklet's mean projected descriptor and its geometry over the whole window (the same fields as the
predictor's object states, each over its typical size). The target is their mean, weighted with their reliabilities, in
each part of a coarse grid, with the weight itself: which agents, moving how, where, and how many.

Shapes: K tracklets, T frames, G geometry fields, E descriptor width, W target width.
"""

from __future__ import annotations

import numpy as np
import torch

from .projection import AGENT_BINS, Projections, soft_bins
from .regions import Floats
from .states import GEOMETRY, geometry_of
from .trajectories import Trajectories, unit
from .visibility import Visibility, geometric_mean

# What a typical deviation is in each field of GEOMETRY, so that all of them count alike in the target.
_SCALE = {
    "centre_x": 0.3, "centre_y": 0.3, "width": 0.1, "height": 0.15, "velocity_x": 0.03, "velocity_y": 0.03,
    "own_velocity_x": 0.03, "own_velocity_y": 0.03, "area": 0.02, "visibility": 0.3, "confidence": 0.2, "age": 0.3,
    "gap": 0.2, "truncated": 0.5,
}  # fmt: skip
_SCALES = np.array([_SCALE[name] for name in GEOMETRY], np.float32)


def whole_window_geometry(tracks: Trajectories, chain_T33: Floats) -> Floats:
    """GEOMETRY of every tracklet at the end of the window, `[K, G]`."""
    return geometry_of(
        torch.from_numpy(tracks.seen_KT),
        torch.from_numpy(tracks.box_KT4),
        torch.from_numpy(tracks.area_KT),
        torch.from_numpy(tracks.confidence_KT),
        torch.from_numpy(chain_T33)[None],
    ).numpy()


def agent_reliability(tracks: Trajectories, visibility: Visibility, min_reliability: float) -> Floats:
    """`[K]`: region confidence, visible support, continuity and coverage of the window, as a geometric mean."""
    reliability = geometric_mean(
        tracks.mean_over_seen(tracks.confidence_KT),
        visibility.target_K,
        tracks.continuity_K,
        np.minimum(1.0, tracks.length_K / max(1, tracks.frames // 2)),
    )
    return np.clip(reliability, min_reliability, 1.0)


def psi_agents(
    tracks: Trajectories, geometry_KG: Floats, reliability_K: Floats, projections: Projections, threshold: float
) -> tuple[Floats, float]:
    """`Psi_A(P, A(P)) -> (T_A [W], omega_A)`; omega_A is 0 where no agent passes the threshold."""
    kept = np.flatnonzero(reliability_K >= threshold)
    if kept.size == 0:
        return np.zeros(projections.agents_FW.shape[1], np.float32), 0.0
    descriptor_KE = unit(tracks.descriptor_KTE.sum(1))[kept]
    state_KF = np.concatenate((descriptor_KE, np.clip(geometry_KG[kept] / _SCALES, -4.0, 4.0) / 4.0), axis=1)
    weight_K = reliability_K[kept]
    target_W = pooled(state_KF, weight_K, soft_bins(geometry_KG[kept, :2], AGENT_BINS)) @ projections.agents_FW
    return target_W.astype(np.float32), float(weight_K.mean())


def pooled(state_KF: Floats, weight_K: Floats, bins_Kb: Floats) -> Floats:
    """In each bin the weighted mean state and a quarter of the logarithm of one plus the weight, flat.

    The mean is drawn towards zero by half a member, so that a bin which holds a trace of an agent holds a trace of
    its state.
    """
    mass_Kb = weight_K[:, None] * bins_Kb
    total_b = mass_Kb.sum(0)[:, None]
    mean_bF = mass_Kb.T @ state_KF / (total_b + 0.5)
    return np.concatenate((mean_bF, np.log1p(total_b) / 4.0), axis=1).reshape(-1)
