"""Psi_V: a soft visibility for every retained agent, and how far it can be trusted (contract table, Visibility).

Per frame, the visible share is judged from three kinds of support:

- who stands in front: a region whose lower edge is lower in the picture is nearer to the camera. Both the share of the
  agent's box that nearer regions leave to it, and the share of its outline that does not run along one, count;
- a sudden loss of area, against its own area shortly before and after (a steady growth or shrinking is perspective);
- truncation by the picture's border, against its own area when it was whole.

Uncertain regions and gaps attenuate. No frame says "not visible" for want of evidence: such frames have no weight.

Shapes: K tracklets, T frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .regions import Evidence, Floats, Region
from .trajectories import Trajectories

_NEARBY = 3  # frames before and after that an area is compared with
_NOISE = 0.7  # an area above this share of the expected one is no loss: masks flicker
_GAP = 0.5  # a gap keeps this much of what was visible around it
_UNKNOWN_TRUNCATION = 0.75  # of an agent that touches the border and was never seen whole


@dataclass(frozen=True)
class Visibility:
    """T_V and omega_V."""

    target_K: Floats  # T_V in [0, 1]: mean over the frames with weight
    reliability_K: Floats  # omega_V in [min, 1]
    frames_KT: Floats  # visibility in every frame
    known_KT: NDArray[np.bool_]  # frames that say something: tracked, or before entering and after leaving the picture


def psi_visibility(evidence: Evidence, tracks: Trajectories, min_reliability: float) -> Visibility:
    """`Psi_V(P, A(P)) -> {T_V, omega_V}`."""
    share_KT = np.where(tracks.seen_KT, _unoccluded(evidence, tracks) * _sudden_loss(tracks) * _inside(tracks), 0)
    share_KT *= np.sqrt(tracks.confidence_KT)
    frames_KT = _bridged(np.clip(share_KT, 0, 1).astype(np.float32), tracks.seen_KT)
    known_KT = tracks.span_KT | _outside(tracks)
    target_K = np.where(known_KT, frames_KT, 0).sum(1) / np.maximum(known_KT.sum(1), 1)
    reliability_K = geometric_mean(
        tracks.mean_over_seen(tracks.confidence_KT),
        np.minimum(1.0, tracks.length_K / max(1, tracks.frames // 2)),
        tracks.continuity_K,
        consistency(tracks),
    )
    return Visibility(
        target_K.astype(np.float32), np.clip(reliability_K, min_reliability, 1.0), frames_KT, np.asarray(known_KT)
    )


def geometric_mean(*factors_K: Floats | float) -> Floats:
    """Of factors in [0, 1]: one that fails pulls the whole down."""
    product = np.prod([np.clip(factor, 0.0, 1.0) for factor in factors_K], axis=0)
    return np.asarray(product ** (1.0 / len(factors_K)), dtype=np.float32)


def consistency(tracks: Trajectories) -> Floats:
    """`[K]` in [0, 1]: does each tracklet look like itself? Mean likeness of its descriptors to their mean."""
    mean_KE = tracks.descriptor_KTE.sum(1) / np.maximum(tracks.length_K, 1)[:, None]
    return np.asarray(np.clip(np.linalg.norm(mean_KE, axis=1), 0.0, 1.0), np.float32)


def _unoccluded(evidence: Evidence, tracks: Trajectories) -> Floats:
    """Share of each agent that no nearer region hides, from its box and from its outline, `[K, T]`."""
    side = evidence.side
    share_KT = np.ones(tracks.seen_KT.shape, np.float32)
    nearest = [_lower_edges(regions, side) for regions in evidence.regions]
    for k, tracklet in enumerate(evidence.tracklets):
        for frame, region in zip(tracklet.frames, tracklet.regions, strict=True):
            share_KT[k, frame] = _free_share(region, nearest[frame])
    return share_KT


def _lower_edges(regions: tuple[Region, ...], side: int) -> NDArray[np.int32]:
    """For every pixel the lowest lower edge of the regions over it, -1 where there is none; a margin of 1 all round."""
    edges = np.full((side + 2, side + 2), -1, np.int32)
    for region in regions:
        height, width = region.mask.shape
        part = edges[region.top + 1 : region.top + 1 + height, region.left + 1 : region.left + 1 + width]
        part[region.mask] = np.maximum(part[region.mask], region.top + height)
    return edges


def _free_share(region: Region, edges: NDArray[np.int32]) -> float:
    height, width = region.mask.shape
    around = edges[region.top : region.top + height + 2, region.left : region.left + width + 2]
    own = np.pad(region.mask, 1)
    nearer = (around > region.top + height) & ~own
    pixels = region.pixels
    in_box = pixels / (pixels + np.count_nonzero(nearer[1:-1, 1:-1]))
    outline = (cv2.dilate(own.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0) & ~own
    along = np.count_nonzero(outline & nearer) / np.count_nonzero(outline)
    return float(np.sqrt(in_box * (1.0 - along)))


def _sudden_loss(tracks: Trajectories) -> Floats:
    """Area against what the frames before and after lead to expect (log-linear between any two of them), at most 1."""
    log_KT = np.where(tracks.seen_KT, np.log(np.maximum(tracks.area_KT, 1e-9)), -np.inf)
    expected_KT = log_KT.copy()
    for before in range(1, _NEARBY + 1):
        for after in range(1, _NEARBY + 1):
            if before + after >= tracks.frames:
                continue
            middle = (log_KT[:, : -before - after] * after + log_KT[:, before + after :] * before) / (before + after)
            inner = expected_KT[:, before : tracks.frames - after]
            np.maximum(inner, middle, out=inner)
    lost_KT = np.subtract(log_KT, expected_KT, out=np.zeros(log_KT.shape), where=tracks.seen_KT)
    ratio_KT = np.exp(lost_KT)
    return np.minimum(1.0, ratio_KT / _NOISE).astype(np.float32)


def _inside(tracks: Trajectories) -> Floats:
    """How much of an agent at the border is inside the picture: its area against the nearest it had when whole."""
    whole_KT = tracks.seen_KT & ~tracks.truncated_KT
    share_KT = np.ones(tracks.seen_KT.shape, np.float32)
    for k, frame in np.argwhere(tracks.truncated_KT):
        when = np.flatnonzero(whole_KT[k])
        if when.size == 0:
            share_KT[k, frame] = _UNKNOWN_TRUNCATION
        else:
            whole = tracks.area_KT[k, when[np.argmin(np.abs(when - frame))]]
            share_KT[k, frame] = min(1.0, tracks.area_KT[k, frame] / max(float(whole), 1e-9))
    return share_KT


def _outside(tracks: Trajectories) -> NDArray[np.bool_]:
    """Frames before an agent came in over the border, and after it went out over it."""
    outside_KT = np.zeros(tracks.seen_KT.shape, bool)
    truncated_KT = tracks.truncated_KT
    for k in np.flatnonzero(tracks.seen_KT.any(1)):
        when = np.flatnonzero(tracks.seen_KT[k])
        outside_KT[k, : when[0]] = truncated_KT[k, when[0]]
        outside_KT[k, when[-1] + 1 :] = truncated_KT[k, when[-1]]
    return outside_KT


def _bridged(share_KT: Floats, seen_KT: NDArray[np.bool_]) -> Floats:
    """Gaps inside a tracklet get a part of what lies around them."""
    bridged_KT = share_KT.copy()
    time = np.arange(share_KT.shape[1])
    for k in range(len(share_KT)):
        when = np.flatnonzero(seen_KT[k])
        if when.size and when[-1] - when[0] >= when.size:
            gaps = (time > when[0]) & (time < when[-1]) & ~seen_KT[k]
            bridged_KT[k, gaps] = _GAP * np.interp(time[gaps], when, share_KT[k, when])
    return bridged_KT
