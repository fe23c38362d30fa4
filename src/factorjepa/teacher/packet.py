"""A teacher packet: everything the teacher says about one window, as columns ready for the cache.

Tables share their first axis: tracks (K; the first `slots` of them are the agents a predictor may know), pairs (P),
regions (R), the regions' runs, and evidence cells (C). Descriptors and targets are FP16, reliabilities FP32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TeacherError
from ..runlengths import decode_mask, encode_masks
from .agents import agent_reliability, psi_agents, whole_window_geometry
from .evidence_cells import evidence_cells
from .interactions import PAIR_FIELDS, psi_interactions
from .layout import psi_layout
from .projection import Projections, make_projections
from .regions import Evidence, Region, Tracklet
from .settings import TeacherSettings
from .states import GEOMETRY
from .trajectories import camera_chain, trajectories, unit
from .visibility import psi_visibility

Array = NDArray[Any]

# column -> (table, type). A table of None has one row per packet.
COLUMNS: dict[str, tuple[str | None, type]] = {
    "times": (None, np.float64),
    "side": (None, np.int32),
    "slots": (None, np.int32),
    "layout": (None, np.float16),
    "agents": (None, np.float16),
    "interactions": (None, np.float16),
    "reliability": (None, np.float32),
    "chain": (None, np.float32),
    "track_visibility": ("tracks", np.float16),
    "track_visibility_frames": ("tracks", np.float16),
    "track_known": ("tracks", np.uint8),
    "track_visibility_reliability": ("tracks", np.float32),
    "track_reliability": ("tracks", np.float32),
    "pair_tracks": ("pairs", np.int16),
    "pair_descriptor": ("pairs", np.float16),
    "pair_reliability": ("pairs", np.float32),
    "region_frame": ("regions", np.uint8),
    "region_track": ("regions", np.int16),
    "region_place": ("regions", np.uint16),
    "region_confidence": ("regions", np.float32),
    "region_descriptor": ("regions", np.float16),
    "region_runs": ("regions", np.uint32),
    "runs": ("runs", np.uint32),
    "cell_slot": ("cells", np.uint8),
    "cell_frame": ("cells", np.uint8),
    "cell_place": ("cells", np.uint16),
    "cell_pixels": ("cells", np.uint16),
    "cell_extent": ("cells", np.uint16),
    "cell_descriptor": ("cells", np.float16),
}
TABLES = ("tracks", "pairs", "regions", "runs", "cells")


@dataclass(frozen=True)
class Packet:
    """W target width, T frames, E descriptor width; other letters as above."""

    times: Array  # [T] seconds of the clip
    side: Array  # [] pixels of the mask grid
    slots: Array  # [] how many tracks are agents of the context
    layout: Array  # [W] T_L
    agents: Array  # [W] T_A
    interactions: Array  # [W] T_I
    reliability: Array  # [3] omega_L, omega_A, omega_I; 0: no evidence
    chain: Array  # [T, 3, 3] where a static point of frame 0 lies in frame t
    track_visibility: Array  # [K] T_V
    track_visibility_frames: Array  # [K, T]
    track_known: Array  # [K, T] 1 where the frame says something about visibility
    track_visibility_reliability: Array  # [K] omega_V
    track_reliability: Array  # [K] of the tracklet as an agent
    pair_tracks: Array  # [P, 2] (i, j), i is the one acted upon
    pair_descriptor: Array  # [P, F]
    pair_reliability: Array  # [P]
    region_frame: Array  # [R]
    region_track: Array  # [R] -1: of no tracklet
    region_place: Array  # [R, 4] left, top, width, height in pixels of the mask grid
    region_confidence: Array  # [R]
    region_descriptor: Array  # [R, E]
    region_runs: Array  # [R] how many runs each mask has
    runs: Array  # run lengths of all masks after one another
    cell_slot: Array  # [C]
    cell_frame: Array  # [C]
    cell_place: Array  # [C] row-major in the cell grid
    cell_pixels: Array  # [C]
    cell_extent: Array  # [C, 4] left, top, right, bottom in pixels of the mask grid
    cell_descriptor: Array  # [C, E]

    @property
    def frames(self) -> int:
        return len(self.chain)

    def region_masks(self, chosen: NDArray[np.bool_]) -> Iterator[tuple[int, tuple[slice, slice], NDArray[np.bool_]]]:
        """Of the regions where `chosen [R]`: number, where on the mask grid (rows, columns), and the mask there."""
        ends = np.cumsum(self.region_runs, dtype=np.int64)
        for region in np.flatnonzero(chosen).tolist():
            left, top, width, height = (int(v) for v in self.region_place[region])
            runs = self.runs[ends[region] - int(self.region_runs[region]) : ends[region]]
            where = slice(top, top + height), slice(left, left + width)
            yield region, where, decode_mask(runs, (height, width))


def projections_for(width: int, settings: TeacherSettings) -> Projections:
    """The fixed projections of this teacher's targets, for features of `width`."""
    return make_projections(width, settings.targets, len(GEOMETRY), len(PAIR_FIELDS))


def build_packet(
    evidence: Evidence, times: NDArray[np.float64], settings: TeacherSettings, projections: Projections
) -> Packet:
    """`Psi_struct(P, A(P))`: targets and reliabilities of the window at `times`, and the evidence they rest on."""
    _refuse(evidence, settings)
    targets = settings.targets
    chosen = agents_of_context(evidence, settings)
    others = [k for k in range(len(evidence.tracklets)) if k not in set(chosen)]
    evidence = dataclasses.replace(evidence, tracklets=tuple(evidence.tracklets[k] for k in (*chosen, *others)))
    tracks = trajectories(evidence.tracklets, evidence.frames, evidence.side, projections.descriptor_DE)
    chain = camera_chain(evidence.camera)
    layout, layout_reliability = psi_layout(evidence, projections, targets.min_reliability)
    visibility = psi_visibility(evidence, tracks, targets.min_reliability)
    reliability_K = agent_reliability(tracks, visibility, targets.min_reliability)
    geometry = whole_window_geometry(tracks, chain)
    agents, agents_reliability = psi_agents(tracks, geometry, reliability_K, projections, targets.exclude_below.agents)
    met = psi_interactions(tracks, reliability_K, visibility, projections, targets)
    values: dict[str, Any] = {
        "times": times,
        "side": evidence.side,
        "slots": len(chosen),
        "layout": layout,
        "agents": agents,
        "interactions": met.target_W,
        "reliability": [layout_reliability, agents_reliability, met.reliability],
        "chain": chain,
        "track_visibility": visibility.target_K,
        "track_visibility_frames": visibility.frames_KT,
        "track_known": visibility.known_KT,
        "track_visibility_reliability": visibility.reliability_K,
        "track_reliability": reliability_K,
        "pair_tracks": met.pairs_P2,
        "pair_descriptor": met.descriptor_PF,
        "pair_reliability": met.reliability_P,
        **_region_columns(evidence, projections),
        **evidence_cells(evidence, len(chosen), targets.grid, projections),
    }
    return Packet(**{name: np.asarray(values[name], dtype) for name, (_, dtype) in COLUMNS.items()})


def agents_of_context(evidence: Evidence, settings: TeacherSettings) -> list[int]:
    """The tracklets that are agents for a predictor: long enough within the context; the best supported if too many.

    Decided from the context alone, in order of appearance.
    """
    known = [(k, one.until(evidence.context)) for k, one in enumerate(evidence.tracklets)]
    long_enough = [(k, one) for k, one in known if len(one.frames) >= settings.tracks.min_length]
    best = sorted(long_enough, key=lambda pair: (-_support(pair[1]), pair[0]))[: settings.targets.max_agents]
    return sorted(k for k, _ in best)


def _support(tracklet: Tracklet) -> float:
    return sum(region.pixels * region.confidence for region in tracklet.regions)


def _region_columns(evidence: Evidence, projections: Projections) -> dict[str, Any]:
    """Regions of tracklets, then those of none."""
    rows: list[tuple[int, int, Region]] = []
    taken: set[tuple[int, int, int, bytes]] = set()
    for k, one in enumerate(evidence.tracklets):
        for frame, region in zip(one.frames, one.regions, strict=True):
            rows.append((frame, k, region))
            taken.add(_identity(frame, region))
    for frame, regions in enumerate(evidence.regions):
        rows += [(frame, -1, region) for region in regions if _identity(frame, region) not in taken]
    runs, counts = encode_masks([region.mask for _, _, region in rows])
    width = projections.descriptor_DE.shape[0]
    descriptors = np.array([region.descriptor for _, _, region in rows], np.float32).reshape(-1, width)
    return {
        "region_frame": [frame for frame, _, _ in rows],
        "region_track": [track for _, track, _ in rows],
        "region_place": np.array(
            [(region.left, region.top, region.mask.shape[1], region.mask.shape[0]) for _, _, region in rows]
        ).reshape(-1, 4),
        "region_confidence": [region.confidence for _, _, region in rows],
        "region_descriptor": unit(descriptors @ projections.descriptor_DE),
        "region_runs": counts,
        "runs": runs,
    }


def _identity(frame: int, region: Region) -> tuple[int, int, int, bytes]:
    return frame, region.left, region.top, np.packbits(region.mask).tobytes()


def _refuse(evidence: Evidence, settings: TeacherSettings) -> None:
    if evidence.frames > 255 or evidence.side > 65535 or settings.targets.max_agents > 255:
        raise TeacherError(
            f"packets hold windows of at most 255 frames, masks of at most 65535 pixels a side and 255 agents, not "
            f"{evidence.frames}, {evidence.side} and {settings.targets.max_agents}"
        )
