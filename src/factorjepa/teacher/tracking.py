"""Regions of single frames become tracklets (Panel A, temporal association).

Frame by frame, every running track is moved to where it should be now (the camera's motion, then its own constant
velocity) and the regions of the frame are given to the tracks by optimal assignment with the paper's cost,
`0.45 (1 - box IoU) + 0.35 (1 - mask IoU) + 0.20 (1 - cos)`; a match dearer than `max_cost` is none.

At 4 frames per second an agent can move by its own width between two frames, so the cost alone loses whoever has no
velocity yet, turns or starts. Tracks and regions that are left over meet a second time: the prediction may slide onto
the region, by no more than a reach that is relative to the agent's size, and pays for the share of the reach that it
uses. Shape and appearance then decide, by the same weights and the same gate.

What is decided for a frame never changes later, and no track crosses a cut.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ..detectors.boxes import box_iou
from .camera import moved
from .proposals import corners, mask_iou
from .regions import Floats, Region, Tracklet
from .settings import TrackSettings

Costs = NDArray[np.float64]

_REACH_NEW = 1.0  # body sizes (root of the box's area) that a track without a velocity may slide per frame
_REACH_KNOWN = 0.6  # the same with one
_SLIDE_PRICE = 0.5  # cost of sliding by the whole reach
_LARGEST_GROWTH = 2.0  # of a body's size between two sightings
_TRUST = 0.5  # weight of the newest displacement and descriptor in a track's running ones


@dataclass
class _Track:
    """A track while it runs. Places are in [0, 1] of the current frame."""

    frames: list[int]
    regions: list[Region]
    anchor: NDArray[np.float64]  # [2] centre when last seen, carried along by the camera since
    size: NDArray[np.float64]  # [2] width and height, likewise
    descriptor: Floats
    velocity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))  # own, sides per frame

    def carried(self, affine: Floats) -> None:
        """Into the next frame with the static scene."""
        self.anchor = moved(self.anchor, affine)
        self.velocity = np.asarray(affine[:, :2] @ self.velocity, dtype=np.float64)
        self.size = self.size * float(np.sqrt(abs(np.linalg.det(affine[:, :2]))))

    def centre(self, frame: int) -> NDArray[np.float64]:
        """Where it should be if it kept its velocity."""
        return self.anchor + self.velocity * (frame - self.frames[-1])

    def extend(self, frame: int, region: Region, side: int) -> None:
        centre, size = _centre_size(region, side)
        displacement = (centre - self.anchor) / (frame - self.frames[-1])
        trust = _TRUST if len(self.frames) > 1 else 1.0
        self.velocity = trust * displacement + (1 - trust) * self.velocity
        mixed = _TRUST * region.descriptor + (1 - _TRUST) * self.descriptor
        self.descriptor = (mixed / max(float(np.linalg.norm(mixed)), 1e-12)).astype(np.float32)
        self.anchor, self.size = centre, size
        self.frames.append(frame)
        self.regions.append(region)


def associate(
    regions: Sequence[Sequence[Region]],
    camera: Floats,
    settings: TrackSettings,
    side: int,
    cuts: Collection[int] = (),
    context: int | None = None,
) -> tuple[Tracklet, ...]:
    """Tracklets of one window in order of first appearance. `camera` is `[T, 2, 3]`, `cuts` begin new shots.

    A tracklet has at least `min_length` regions. With a `context`, one that starts in the context must have them there:
    whether an agent of the context exists may not depend on what comes after. If it has them only afterwards, it starts
    afterwards.
    """
    finished: list[_Track] = []
    running: list[_Track] = []
    for t, unordered in enumerate(regions):
        here = sorted(unordered, key=_order)
        if t in cuts:
            finished += running
            running = []
        for track in running:
            track.carried(camera[t])
        over = [t - track.frames[-1] - 1 > settings.max_gap for track in running]
        finished += [track for track, is_over in zip(running, over, strict=True) if is_over]
        running = [track for track, is_over in zip(running, over, strict=True) if not is_over]
        taken = _assign(running, here, t, settings, side)
        for i, j in taken:
            running[i].extend(t, here[j], side)
        new = sorted(set(range(len(here))) - {j for _, j in taken})
        running += [_Track([t], [here[k]], *_centre_size(here[k], side), here[k].descriptor) for k in new]
    whole = [Tracklet(tuple(track.frames), tuple(track.regions)) for track in finished + running]
    confirmed = [cut for track in whole if (cut := _confirmed(track, settings.min_length, context)) is not None]
    return tuple(sorted(confirmed, key=lambda track: (track.frames[0], _order(track.regions[0]))))


def _confirmed(track: Tracklet, min_length: int, context: int | None) -> Tracklet | None:
    if context is not None and 0 < len(track.until(context).frames) < min_length:
        early = len(track.until(context).frames)
        track = Tracklet(track.frames[early:], track.regions[early:])
    return track if len(track.frames) >= min_length else None


def _assign(
    tracks: Sequence[_Track], regions: Sequence[Region], frame: int, settings: TrackSettings, side: int
) -> list[tuple[int, int]]:
    """Pairs (track, region): first at the predicted places, then the left-over ones within reach."""
    if not tracks or not regions:
        return []
    centres, sizes = (np.array(v) for v in zip(*(_centre_size(r, side) for r in regions), strict=True))
    places, bodies = np.array([t.centre(frame) for t in tracks]), np.array([t.size for t in tracks])
    unlike = 1 - (np.array([t.descriptor for t in tracks]) @ np.array([r.descriptor for r in regions]).T).clip(0, 1)

    predicted = [_placed(t.regions[-1], c, s, side) for t, c, s in zip(tracks, places, bodies, strict=True)]
    overlap = box_iou(_boxes(places, bodies), corners(regions) / side)
    costs = (
        settings.box_weight * (1 - overlap)
        + settings.mask_weight * (1 - mask_iou(predicted, regions))
        + settings.descriptor_weight * unlike
    )
    pairs = _cheapest(costs, settings.max_cost)

    late = np.array([frame - t.frames[-1] for t in tracks])
    reach = np.where([len(t.frames) > 1 for t in tracks], _REACH_KNOWN, _REACH_NEW) * late
    body = np.sqrt(bodies.prod(axis=1))
    slide = np.hypot(*(centres[None] - places[:, None]).transpose(2, 0, 1)) / (reach * body)[:, None]
    growth = np.sqrt(sizes.prod(axis=1)) / body[:, None]
    possible = (slide <= 1) & (growth < _LARGEST_GROWTH) & (growth > 1 / _LARGEST_GROWTH)
    possible[[i for i, _ in pairs]] = False
    possible[:, [j for _, j in pairs]] = False
    slid = np.full(possible.shape, np.inf)
    for i, j in zip(*np.nonzero(possible), strict=True):
        onto = _placed(tracks[i].regions[-1], centres[j], bodies[i], side)
        shape = box_iou(_boxes(centres[j : j + 1], bodies[i : i + 1]), corners(regions[j : j + 1]) / side)
        slid[i, j] = (
            settings.box_weight * (1 - shape[0, 0])
            + settings.mask_weight * (1 - mask_iou([onto], regions[j : j + 1])[0, 0])
            + settings.descriptor_weight * unlike[i, j]
            + _SLIDE_PRICE * slide[i, j]
        )
    return pairs + _cheapest(slid, settings.max_cost)


def _cheapest(costs: Costs, gate: float) -> list[tuple[int, int]]:
    """The assignment of least cost, where to leave a track and a region alone costs as much as the dearest match."""
    rows, columns = linear_sum_assignment(np.minimum(costs, gate))
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if costs[i, j] < gate]


def _placed(region: Region, centre: NDArray[np.float64], size: NDArray[np.float64], side: int) -> Region:
    """The region's mask at another place and size; it may reach beyond the picture."""
    width, height = (max(1, round(float(v) * side)) for v in size)
    mask = region.mask
    if mask.shape != (height, width):
        mask = cv2.resize(mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST) > 0
    left, top = round(float(centre[0]) * side - width / 2), round(float(centre[1]) * side - height / 2)
    return Region(mask, left, top, region.descriptor, region.confidence)


def _boxes(centres: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)


def _centre_size(region: Region, side: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    left, top, right, bottom = region.box(side)
    return np.array([(left + right) / 2, (top + bottom) / 2]), np.array([right - left, bottom - top])


def _order(region: Region) -> tuple[object, ...]:
    """An order of regions that does not depend on how they were listed."""
    return (
        region.left,
        region.top,
        region.mask.shape,
        -region.confidence,
        region.mask.tobytes(),
        region.descriptor.tobytes(),
    )
