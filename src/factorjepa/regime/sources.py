"""Scenes from simulated ground truth and from teacher packets."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..teacher.packet import Packet
from ..video import frame_index
from ..world import ClipTruth
from ..world.taxonomy import KINDS, SUPERCLASSES
from .scene import Array, Bools, DisjointMasks, Ints, Scene


def scene_of_truth(truth: ClipTruth, fps: float) -> Scene:
    """The true agents of the whole clip, `fps` frames per second of it; boxes are those of whole bodies."""
    times_T = np.arange(0, truth.frames / truth.fps - 1e-9, 1 / fps)
    numbers_T = np.minimum(frame_index(times_T, truth.fps), truth.frames - 1)
    rows_T = [truth.observations(number) for number in numbers_T.tolist()]
    rows_O = np.concatenate(rows_T)
    frame_O = np.repeat(np.arange(len(times_T)), [len(rows) for rows in rows_T])
    group_A = np.array([SUPERCLASSES.index(KINDS[str(kind)].superclass) for kind in truth.agent_kinds], np.int64)
    area_O = truth.visible_pixels[rows_O].astype(np.float64)
    return Scene(
        times_T=times_T,
        width=float(truth.size),
        height=float(truth.size),
        frame_O=frame_O,
        track_O=truth.agent[rows_O].astype(np.int64),
        superclass_O=group_A[truth.agent[rows_O]] if len(group_A) else np.empty(0, np.int64),
        confidence_O=np.ones(len(rows_O)),
        box_O4=truth.box[rows_O].astype(np.float64),
        area_O=area_O,
        drift_O2=truth.camera_velocity[rows_O].astype(np.float64) / truth.size,
        cover=DisjointMasks(frame_O, area_O, len(times_T)),
    )


def scene_of_packet(packet: Packet) -> Scene:
    """What the frozen teacher found in its window. It tells no classes: they are unavailable, not guessed."""
    order_O = np.argsort(packet.region_frame, kind="stable")
    side = float(packet.side)
    frame_O = packet.region_frame[order_O].astype(np.int64)
    place_O4 = packet.region_place[order_O].astype(np.float64)
    box_O4 = np.concatenate([place_O4[:, :2], place_O4[:, :2] + place_O4[:, 2:]], axis=1)
    times_T = np.asarray(packet.times, np.float64)
    return Scene(
        times_T=times_T,
        width=side,
        height=side,
        frame_O=frame_O,
        track_O=packet.region_track[order_O].astype(np.int64),
        superclass_O=None,
        confidence_O=packet.region_confidence[order_O].astype(np.float64),
        box_O4=box_O4,
        area_O=_mask_areas(packet)[order_O],
        drift_O2=_drift((box_O4[:, :2] + box_O4[:, 2:]) / (2 * side), frame_O, times_T, packet.chain),
        cover=PacketMasks(packet, order_O),
    )


@dataclass(frozen=True)
class PacketMasks:
    """The teacher's masks, which may overlap."""

    packet: Packet
    order_O: NDArray[np.intp]
    _known: dict[bytes, Array] = field(default_factory=dict, repr=False, compare=False)

    def union(self, kept_O: Bools) -> Array:
        """Pixels that the kept masks cover in each frame, [T]. Variants of the thresholds keep the same ones often."""
        chosen_R = np.zeros(len(self.order_O), bool)
        chosen_R[self.order_O[kept_O]] = True
        key = chosen_R.tobytes()
        if key not in self._known:
            self._known[key] = self._covered(chosen_R)
        return self._known[key]

    def _covered(self, chosen_R: Bools) -> Array:
        side = int(self.packet.side)
        covered_Tss = np.zeros((self.packet.frames, side, side), bool)
        for region in np.flatnonzero(chosen_R).tolist():
            frame, where, mask = self._masks[region]
            covered_Tss[(frame, *where)] |= mask
        return np.asarray(covered_Tss.sum((1, 2)), np.float64)

    @functools.cached_property
    def _masks(self) -> list[tuple[int, tuple[slice, slice], Bools]]:
        """Frame, place and pixels of every region."""
        everyone_R = np.ones(len(self.order_O), bool)
        found = self.packet.region_masks(everyone_R)
        return [(int(self.packet.region_frame[region]), where, mask) for region, where, mask in found]


def _mask_areas(packet: Packet) -> Array:
    """Pixels of every region, [R]: the sums of its second, fourth, ... runs."""
    counts = packet.region_runs.astype(np.int64)
    starts = np.cumsum(counts) - counts
    within = np.arange(len(packet.runs)) - np.repeat(starts, counts)
    filled = np.where(within % 2 == 1, packet.runs, 0).astype(np.float64)
    summed = np.bincount(np.repeat(np.arange(len(counts)), counts), filled, minlength=len(counts))
    return np.asarray(summed, np.float64)


def _drift(centre_O2: Array, frame_O: Ints, times_T: Array, chain: Array) -> Array:
    """How fast a static point here would move, from where it lay one frame before; 0 in the first frame."""
    back_T33 = np.tile(np.eye(3), (len(times_T), 1, 1))
    back_T33[1:] = chain[:-1] @ np.linalg.inv(chain[1:].astype(np.float64))
    point_O3 = np.concatenate([centre_O2, np.ones((len(centre_O2), 1))], axis=1)
    before_O3 = np.einsum("oij,oj->oi", back_T33[frame_O], point_O3)
    seconds_T = np.diff(times_T, prepend=times_T[:1] - 1.0)
    return np.asarray((centre_O2 - before_O3[:, :2] / before_O3[:, 2:]) / seconds_T[frame_O][:, None])
