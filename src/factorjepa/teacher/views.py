"""Factor views of a window, made on the fly from its packet: D_L, D_A and D_I of the staged methods.

- D_L, layout: agents are filled in from what surrounds them, so that the scene remains without them;
- D_A, agents: the background is blurred and drawn towards its mean, agents stay, with soft edges;
- D_I, interactions: the tubes around candidate pairs stay, everything else is attenuated.

A video is `[T, H, W, 3]`, bytes or floats of any scale (also normalised ones), and comes back as it came. With no
agents D_L is the video itself, and D_A and D_I are all background.

Shapes: T frames, H x W pixels, s mask grid, K tracks.
"""

from __future__ import annotations

from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from .packet import Packet
from .regions import Floats

Video = TypeVar("Video", NDArray[np.uint8], NDArray[np.float32])

_FEATHER = 0.012  # sides: softness of edges
_FILL = 0.06  # sides: how far filling-in looks around
_BLUR = 0.03  # sides: blur of what is attenuated
_KEPT = 0.25  # contrast that remains of what is attenuated
_TUBE_MARGIN = 0.03  # sides around a pair's boxes


def layout_view(video: Video, packet: Packet, track: int | None = None) -> Video:
    """D_L: every tracked agent (or this one alone) replaced by a blur of its surroundings."""
    pairs = zip(video, agent_support(packet, track), strict=True)
    return _as(video, [_filled(frame, _scaled(mask, frame)) if mask.any() else frame for frame, mask in pairs])


def agents_view(video: Video, packet: Packet) -> Video:
    """D_A: the background attenuated behind feathered agents."""
    return _as(video, [_attenuated(f, _soft(_scaled(m, f))) for f, m in zip(video, agent_support(packet), strict=True)])


def interactions_view(video: Video, packet: Packet, min_reliability: float = 0.0) -> Video:
    """D_I: tubes around the candidate pairs with at least this reliability kept, the rest attenuated."""
    tubes_Tss = pair_tubes(packet, min_reliability)
    return _as(video, [_attenuated(f, _soft(_scaled(m, f))) for f, m in zip(video, tubes_Tss, strict=True)])


def agent_support(packet: Packet, track: int | None = None) -> NDArray[np.uint8]:
    """`[T, s, s]`: 1 where a tracked agent is seen (or this one)."""
    side = int(packet.side)
    support_Tss = np.zeros((packet.frames, side, side), np.uint8)
    chosen = packet.region_track >= 0 if track is None else packet.region_track == track
    for region, where, mask in packet.region_masks(chosen):
        support_Tss[packet.region_frame[region]][where] |= mask
    return support_Tss


def track_boxes(packet: Packet) -> Floats:
    """`[K, T, 4]` boxes in [0, 1], those of gaps interpolated; NaN before the first and after the last region."""
    boxes_KT4 = np.full((len(packet.track_visibility), packet.frames, 4), np.nan, np.float32)
    mine = packet.region_track >= 0
    place = packet.region_place[mine].astype(np.float32) / float(packet.side)
    corners = np.concatenate((place[:, :2], place[:, :2] + place[:, 2:]), axis=1)
    boxes_KT4[packet.region_track[mine], packet.region_frame[mine]] = corners
    time = np.arange(packet.frames)
    for track in boxes_KT4:
        seen = np.flatnonzero(np.isfinite(track[:, 0]))
        inside = slice(seen[0], seen[-1] + 1)
        for side in range(4):
            track[inside, side] = np.interp(time[inside], seen, track[seen, side])
    return boxes_KT4


def pair_tubes(packet: Packet, min_reliability: float = 0.0) -> NDArray[np.uint8]:
    """`[T, s, s]`: 1 inside the boxes around both agents of a pair, with a margin, in frames that track both."""
    side = int(packet.side)
    tubes_Tss = np.zeros((packet.frames, side, side), np.uint8)
    boxes_KT4 = track_boxes(packet)
    chosen = packet.pair_tracks[packet.pair_reliability >= min_reliability]
    for i, j in {(min(pair), max(pair)) for pair in chosen.tolist()}:
        together_T4 = np.concatenate(
            (np.minimum(boxes_KT4[i, :, :2], boxes_KT4[j, :, :2]) - _TUBE_MARGIN,
             np.maximum(boxes_KT4[i, :, 2:], boxes_KT4[j, :, 2:]) + _TUBE_MARGIN), axis=1,
        )  # fmt: skip
        for t in np.flatnonzero(np.isfinite(together_T4[:, 0])):
            left, top, right, bottom = np.clip(np.rint(together_T4[t] * side), 0, side).astype(int)
            tubes_Tss[t, top:bottom, left:right] = 1
    return tubes_Tss


def _filled(frame: NDArray[np.generic], mask: Floats) -> Floats:
    """Masked pixels from a weighted mean of the unmasked ones around; a second, wider mean where all is masked."""
    picture, edge = frame.astype(np.float32), _soft(np.asarray(cv2.dilate(mask, np.ones((3, 3))), np.float32))
    known = (edge < 0.02).astype(np.float32)
    fill = picture.reshape(-1, 3).mean(0) if not known.any() else picture[known > 0].mean(0)
    for reach in (4 * _FILL, _FILL):
        sigma = reach * len(frame)
        weight = _blurred(known, sigma)[..., None]
        near = _blurred(picture * known[..., None], sigma)
        trust = np.minimum(1.0, weight / 0.05)
        fill = trust * near / np.maximum(weight, 1e-6) + (1.0 - trust) * fill
    return np.asarray(picture + edge[..., None] * (fill - picture), np.float32)


def _attenuated(frame: NDArray[np.generic], keep: Floats) -> Floats:
    picture = frame.astype(np.float32)
    mean = picture.reshape(-1, 3).mean(0)
    faint = mean + _KEPT * (_blurred(picture, _BLUR * len(frame)) - mean)
    return np.asarray(faint + keep[..., None] * (picture - faint), np.float32)


def _scaled(mask: NDArray[np.uint8], frame: NDArray[np.generic]) -> Floats:
    smooth = cv2.resize(mask.astype(np.float32), frame.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    return np.asarray(smooth >= 0.5, np.float32)


def _soft(mask: Floats) -> Floats:
    """Feathered: full inside, falling off outside over a little more than the feather's width."""
    sigma = max(0.6, _FEATHER * len(mask))
    return np.asarray(np.maximum(mask, np.minimum(1.0, 1.6 * _blurred(mask, sigma))), np.float32)


def _blurred(picture: Floats, sigma: float) -> Floats:
    """Gaussian; wide ones at reduced size, where they cost little and look the same."""
    step = max(1, int(sigma / 2.5))
    if step == 1:
        return np.asarray(cv2.GaussianBlur(picture, (0, 0), sigma, borderType=cv2.BORDER_REFLECT))
    height, width = picture.shape[:2]
    small = cv2.resize(picture, (max(1, width // step), max(1, height // step)), interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), sigma / step, borderType=cv2.BORDER_REFLECT)
    return np.asarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR))


def _as(video: Video, frames: list[NDArray[np.generic]] | list[Floats]) -> Video:
    whole = np.stack(frames)
    if video.dtype == np.uint8:
        whole = np.clip(np.rint(whole), 0, 255)
    return whole.astype(video.dtype)
