"""Packets of a batch as tensors: targets with their weights, and the evidence cells that object states come from.

Shapes: B clips, N agents (padded; slots of the packets), T frames of the window, W target width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..transfer import sent
from .packet import Packet
from .settings import TeacherSettings
from .states import EvidenceCells


@dataclass(frozen=True)
class TargetBatch:
    """What factor losses read. The effective weight of a target is `retained * reliability` (contract table)."""

    layout_BW: Tensor  # float32 T_L
    agents_BW: Tensor  # float32 T_A
    interactions_BW: Tensor  # float32 T_I
    reliability_B3: Tensor  # float32 omega_L, omega_A, omega_I; 0: no evidence
    retained_B3: Tensor  # bool r_k = 1[omega_k >= tau_k], and some evidence
    visibility_BN: Tensor  # float32 T_V
    visibility_reliability_BN: Tensor  # float32 omega_V; 0 in the padding
    visibility_retained_BN: Tensor  # bool
    visibility_BNT: Tensor  # float32 in every frame of the window
    visibility_known_BNT: Tensor  # bool, frames that say something
    places_BNT2: Tensor  # float32 centre of the agent's box in every frame of the window, in [0, 1]
    places_known_BNT: Tensor  # bool, frames in which it was seen
    cells: EvidenceCells  # for `states.object_states`, whose `slot_BN` points into N

    def to(self, device: torch.device) -> Self:
        """The targets on another device. The evidence stays: what a mask leaves of it decides how many agents and pairs
        there are, and on a GPU the host would have to wait for the answer."""
        moved = {field.name: getattr(self, field.name) for field in fields(self)}
        moved |= {name: sent(value, device) for name, value in moved.items() if name != "cells"}
        return type(self)(**moved)


def collate(packets: Sequence[Packet], settings: TeacherSettings) -> TargetBatch:
    """The batch of `packets`, in their order. N is the largest number of agents in it, and at least 1."""
    targets, tau = settings.targets, settings.targets.exclude_below
    slots = [int(packet.slots) for packet in packets]
    N, T = max(1, *slots), packets[0].frames
    visibility, reliability = np.zeros((len(packets), N), np.float32), np.zeros((len(packets), N), np.float32)
    frames, known = np.zeros((len(packets), N, T), np.float32), np.zeros((len(packets), N, T), bool)
    confidence = np.zeros((len(packets), N, settings.context), np.float32)
    places, placed = np.zeros((len(packets), N, T, 2), np.float32), np.zeros((len(packets), N, T), bool)
    for b, (packet, count) in enumerate(zip(packets, slots, strict=True)):
        visibility[b, :count] = packet.track_visibility[:count]
        reliability[b, :count] = packet.track_visibility_reliability[:count]
        frames[b, :count] = packet.track_visibility_frames[:count]
        known[b, :count] = packet.track_known[:count]
        mine = (packet.region_track >= 0) & (packet.region_track < count)
        at, place = (packet.region_track[mine], packet.region_frame[mine]), packet.region_place[mine]
        places[(b, *at)] = (place[:, :2] + place[:, 2:] / 2) / packet.side
        placed[(b, *at)] = True
        mine &= packet.region_frame < settings.context
        confidence[b, packet.region_track[mine], packet.region_frame[mine]] = packet.region_confidence[mine]
    omega = torch.from_numpy(np.stack([packet.reliability for packet in packets]))
    threshold = torch.tensor([tau.layout, tau.agents, tau.interactions])
    agent = np.repeat(np.arange(len(packets)) * N, [len(packet.cell_slot) for packet in packets])
    cells = EvidenceCells(
        agent_C=torch.from_numpy(agent + _joined(packets, "cell_slot", np.int64)),
        frame_C=torch.from_numpy(_joined(packets, "cell_frame", np.int64)),
        cell_C=torch.from_numpy(_joined(packets, "cell_place", np.int64)),
        pixels_C=torch.from_numpy(_joined(packets, "cell_pixels", np.int64)),
        extent_C4=torch.from_numpy(_joined(packets, "cell_extent", np.int64)),
        descriptor_CE=torch.from_numpy(_joined(packets, "cell_descriptor", np.float16)),
        confidence_BNT=torch.from_numpy(confidence),
        chain_BT33=torch.from_numpy(np.stack([packet.chain[: settings.context] for packet in packets])),
        side_B=torch.tensor([int(packet.side) for packet in packets]),
        grid=targets.grid,
        pair_distance=targets.pair_distance,
        max_neighbours=targets.max_neighbours,
    )
    return TargetBatch(
        layout_BW=_stacked(packets, "layout"),
        agents_BW=_stacked(packets, "agents"),
        interactions_BW=_stacked(packets, "interactions"),
        reliability_B3=omega,
        retained_B3=(omega >= threshold) & (omega > 0),
        visibility_BN=torch.from_numpy(visibility),
        visibility_reliability_BN=torch.from_numpy(reliability),
        visibility_retained_BN=torch.from_numpy((reliability >= tau.visibility) & (reliability > 0)),
        visibility_BNT=torch.from_numpy(frames),
        visibility_known_BNT=torch.from_numpy(known),
        places_BNT2=torch.from_numpy(places),
        places_known_BNT=torch.from_numpy(placed),
        cells=cells,
    )


def _stacked(packets: Sequence[Packet], name: str) -> Tensor:
    return torch.from_numpy(np.stack([getattr(packet, name) for packet in packets]).astype(np.float32))


def _joined(packets: Sequence[Packet], name: str, dtype: type) -> np.ndarray[Any, Any]:
    return np.concatenate([getattr(packet, name) for packet in packets]).astype(dtype, copy=False)
