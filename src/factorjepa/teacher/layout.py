"""Psi_L: what the scene is made of where no agent stands (contract table, Layout).

Support of retained tracklets is removed. What remains counts as far as it persists: a feature is compared with the one
that the camera's motion moves to its place from the frame before. Features are pooled over time on a coarse grid, so
that the target knows what lies where, and then projected. A part of the picture that agents cover for the whole window
gets the rest's mean: nothing is known about it, and zeros would tell where the agents are.

Shapes: T frames, g x g feature cells, D features, E projected features, W target width.
"""

from __future__ import annotations

import cv2
import numpy as np

from .projection import LAYOUT_BINS, Projections, soft_bins
from .regions import Evidence, Floats
from .visibility import geometric_mean


def psi_layout(evidence: Evidence, projections: Projections, min_reliability: float) -> tuple[Floats, float]:
    """`Psi_L(P, A(P)) -> (T_L [W], omega_L)`; omega_L is 0 where no background was seen at all."""
    features_TggE = evidence.features @ projections.descriptor_DE
    background_Tgg = 1.0 - dynamic_support(evidence)
    strength_Tgg = np.minimum(np.linalg.norm(evidence.features, axis=-1), 1.0)  # 0 where features say nothing
    persistence_Tgg = persistence(evidence)
    weight_Tgg = background_Tgg * strength_Tgg * persistence_Tgg
    total = float(weight_Tgg.sum())
    width = projections.layout_FW.shape[1]
    if total < 1e-6:
        return np.zeros(width, np.float32), 0.0
    grid = evidence.features.shape[1]
    rows, columns = np.mgrid[:grid, :grid]
    centres = (np.stack((columns.ravel(), rows.ravel()), axis=1).astype(np.float32) + 0.5) / grid
    bins_gb = soft_bins(centres, LAYOUT_BINS)
    mass_b = np.einsum("tc,cb->b", weight_Tgg.reshape(len(weight_Tgg), -1), bins_gb)
    weighted_cE = np.einsum("tijc,tij->ijc", features_TggE, weight_Tgg).reshape(grid * grid, -1)
    pooled_bE = bins_gb.T @ weighted_cE
    overall_E = weighted_cE.sum(0) / total
    # A bin keeps its own mean as far as it was seen for the equivalent of one frame.
    trust_b = np.minimum(1.0, mass_b / (grid / LAYOUT_BINS) ** 2)[:, None]
    own_bE = pooled_bE / np.maximum(mass_b, 1e-6)[:, None]
    layout_bE = trust_b * own_bE + (1.0 - trust_b) * overall_E
    covered = float(background_Tgg.sum())
    reliability = geometric_mean(
        background_Tgg.mean(),
        (background_Tgg * strength_Tgg).sum() / max(covered, 1e-6),
        (background_Tgg * persistence_Tgg).sum() / max(covered, 1e-6) if evidence.frames > 1 else 0.0,
    )
    target_W = layout_bE.reshape(-1) @ projections.layout_FW
    return target_W.astype(np.float32), float(np.clip(reliability, min_reliability, 1.0))


def dynamic_support(evidence: Evidence) -> Floats:
    """Share of each feature cell that retained tracklets cover, `[T, g, g]`; a pixel's margin counts as covered."""
    side, grid = evidence.side, evidence.features.shape[1]
    union_Tss = np.zeros((evidence.frames, side, side), np.uint8)
    for tracklet in evidence.tracklets:
        for frame, region in zip(tracklet.frames, tracklet.regions, strict=True):
            height, width = region.mask.shape
            union_Tss[frame, region.top : region.top + height, region.left : region.left + width] |= region.mask
    shares = [
        cv2.resize(
            cv2.dilate(union, np.ones((3, 3), np.uint8)).astype(np.float32), (grid, grid), interpolation=cv2.INTER_AREA
        )
        for union in union_Tss
    ]
    return np.clip(np.stack(shares), 0.0, 1.0).astype(np.float32)


def persistence(evidence: Evidence) -> Floats:
    """How like itself each cell is one frame before, moved with the camera, `[T, g, g]` in [0, 1].

    The first frame is judged by the second. A cell that the frame before did not show is taken as it is.
    """
    frames, grid = evidence.frames, evidence.features.shape[1]
    if frames == 1:
        return np.ones((1, grid, grid), np.float32)
    steps = [_likeness(evidence.features[t - 1], evidence.features[t], evidence.camera[t]) for t in range(1, frames)]
    return np.stack([steps[0], *steps])


def _likeness(before: Floats, now: Floats, motion_23: Floats) -> Floats:
    grid = now.shape[0]
    affine = np.vstack((motion_23, [0, 0, 1])).astype(np.float64)
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine)) < 1e-3:
        affine = np.eye(3)
    back = np.linalg.inv(affine)
    rows, columns = np.mgrid[:grid, :grid]
    places = np.stack((columns + 0.5, rows + 0.5, np.full(rows.shape, grid)), axis=-1) / grid @ back.T
    source = np.floor(places[..., :2] * grid).clip(-1, grid).astype(np.intp)
    inside = ((source >= 0) & (source < grid)).all(-1)
    column, row = np.clip(source[..., 0], 0, grid - 1), np.clip(source[..., 1], 0, grid - 1)
    likeness = np.clip(np.einsum("ijd,ijd->ij", before[row, column], now), 0.0, 1.0)
    return np.where(inside, likeness, 1.0).astype(np.float32)
