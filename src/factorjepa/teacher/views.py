"""Factor views of a window, made on the fly from its packet: D_L, D_A and D_I of the staged methods.

- D_L, layout: agents are filled in from what surrounds them, so that the scene remains without them;
- D_A, agents: the background is blurred and drawn towards its mean, agents stay, with soft edges;
- D_I, interactions: the tubes around candidate pairs stay, everything else is attenuated.

A video is `[T, 3, H, W]`, floats of any scale (also normalised ones), on any device: the views are made where training
is. Several clips may come after one another, with their packets: on a GPU that takes hardly longer than one. With no
agents D_L is the video itself, and D_A and D_I are all background. `bytes_view` is for pictures.

Shapes: T frames (of all clips), H x W pixels, C channels, s mask grid, K tracks, P pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..runlengths import set_pixels
from ..transfer import sent
from .packet import Packet
from .regions import Floats

_FEATHER = 0.012  # sides: softness of edges
_FILL = 0.06  # sides: how far filling-in looks around
_BLUR = 0.03  # sides: blur of what is attenuated
_KEPT = 0.25  # contrast that remains of what is attenuated
_TUBE_MARGIN = 0.03  # sides around a pair's boxes


def layout_view(video: Tensor, *packets: Packet, tracks: Sequence[int] | None = None) -> Tensor:
    """D_L: every tracked agent (or one of each clip, of `tracks`) replaced by a blur of its surroundings."""
    chosen = [None] * len(packets) if tracks is None else tracks
    return _filled(video, _scaled([agent_support(*one) for one in zip(packets, chosen, strict=True)], video))


def agents_view(video: Tensor, *packets: Packet) -> Tensor:
    """D_A: the background attenuated behind feathered agents."""
    return _attenuated(video, _soft(_scaled([agent_support(packet) for packet in packets], video)))


def interactions_view(video: Tensor, *packets: Packet, min_reliability: float = 0.0) -> Tensor:
    """D_I: tubes around the candidate pairs with at least this reliability kept, the rest attenuated."""
    return _attenuated(video, _soft(_scaled([pair_tubes(packet, min_reliability) for packet in packets], video)))


def bytes_view(view: Callable[[Tensor], Tensor], frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A view of pictures `[T, H, W, 3]`."""
    seen = view(torch.from_numpy(frames).permute(0, 3, 1, 2).float())
    return seen.permute(0, 2, 3, 1).round().clamp(0, 255).to(torch.uint8).contiguous().numpy()


def agent_support(packet: Packet, track: int | None = None) -> NDArray[np.uint8]:
    """`[T, s, s]`: 1 where a tracked agent is seen (or this one)."""
    side = int(packet.side)
    support_Tss = np.zeros((packet.frames, side, side), np.uint8)
    chosen = packet.region_track >= 0 if track is None else packet.region_track == track
    number_n, place_n = set_pixels(packet.runs[np.repeat(chosen, packet.region_runs)], packet.region_runs[chosen])
    left_n, top_n, width_n, _ = packet.region_place[chosen].astype(np.int64)[number_n].T
    row_n, column_n = np.divmod(place_n, width_n)
    support_Tss[packet.region_frame[chosen][number_n], top_n + row_n, left_n + column_n] = 1
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
    first_P, second_P = np.unique(np.sort(chosen, axis=1), axis=0).reshape(-1, 2).T
    corner_PT2 = np.minimum(boxes_KT4[first_P, :, :2], boxes_KT4[second_P, :, :2]) - _TUBE_MARGIN
    across_PT2 = np.maximum(boxes_KT4[first_P, :, 2:], boxes_KT4[second_P, :, 2:]) + _TUBE_MARGIN
    together_PT4 = np.concatenate((corner_PT2, across_PT2), axis=2)
    tracked_PT = np.isfinite(together_PT4[..., 0])
    places_n4 = np.clip(np.rint(together_PT4[tracked_PT] * side), 0, side).astype(int)
    for t, (left, top, right, bottom) in zip(np.nonzero(tracked_PT)[1].tolist(), places_n4.tolist(), strict=True):
        tubes_Tss[t, top:bottom, left:right] = 1
    return tubes_Tss


def _filled(video: Tensor, mask_T1HW: Tensor) -> Tensor:
    """Masked pixels from a weighted mean of the unmasked ones around; a second, wider mean where all is masked."""
    edge = _soft(F.max_pool2d(mask_T1HW, 3, stride=1, padding=1))
    known = (edge < 0.02).to(video.dtype)
    count = known.sum((2, 3), keepdim=True)
    fill = torch.where(count > 0, _sum(video * known) / count.clamp(min=1), _mean(video))
    for reach in (4 * _FILL, _FILL):
        sigma = reach * video.shape[2]
        weight, near = _blurred(known, sigma), _blurred(video * known, sigma)
        trust = (weight / 0.05).clamp(max=1.0)
        fill = trust * near / weight.clamp(min=1e-6) + (1.0 - trust) * fill
    return video + edge * (fill - video)


def _attenuated(video: Tensor, keep_T1HW: Tensor) -> Tensor:
    mean = _mean(video)
    faint = mean + _KEPT * (_blurred(video, _BLUR * video.shape[2]) - mean)
    return torch.where(keep_T1HW == 1, video, faint + keep_T1HW * (video - faint))


def _sum(video: Tensor) -> Tensor:
    return video.sum((2, 3), keepdim=True)


def _mean(video: Tensor) -> Tensor:
    return video.mean((2, 3), keepdim=True)


def _scaled(masks: Sequence[NDArray[np.uint8]], video: Tensor) -> Tensor:
    """Masks of the clips, on their packets' grids, at the video's size, `[T, 1, H, W]`, 0 or 1."""
    if len({mask.shape[1:] for mask in masks}) > 1:
        return torch.cat([_scaled([mask], video) for mask in masks])
    mask = sent(torch.from_numpy(np.concatenate(masks)), video.device)[:, None].to(video.dtype)
    return (F.interpolate(mask, video.shape[2:], mode="bilinear") >= 0.5).to(video.dtype)


def _soft(mask_T1HW: Tensor) -> Tensor:
    """Feathered: full inside, falling off outside over a little more than the feather's width."""
    sigma = max(0.6, _FEATHER * mask_T1HW.shape[2])
    return torch.maximum(mask_T1HW, (1.6 * _blurred(mask_T1HW, sigma)).clamp(max=1.0))


def _blurred(picture: Tensor, sigma: float) -> Tensor:
    """Gaussian over `[T, C, H, W]`; wide ones at reduced size, where they cost little and look the same."""
    step = max(1, int(sigma / 2.5))
    if step == 1:
        return _gaussian(picture, sigma)
    height, width = picture.shape[2:]
    small = F.interpolate(picture, (max(1, height // step), max(1, width // step)), mode="area")
    return F.interpolate(_gaussian(small, sigma / step), (height, width), mode="bilinear")


def _gaussian(picture: Tensor, sigma: float) -> Tensor:
    """As two matrix products: a convolution of many planes with one channel each is slow on every device."""
    rows, columns = (_kernel(size, sigma, picture.device, picture.dtype) for size in picture.shape[2:])
    return rows @ picture @ columns.T


@functools.lru_cache(maxsize=64)
def _kernel(size: int, sigma: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """`[size, size]`: what each pixel takes of the others in its row; what lies beyond the border is its last pixel."""
    radius = max(1, round(3 * sigma))
    offset = np.arange(-radius, radius + 1)
    weight = np.exp(-0.5 * (offset / sigma) ** 2)
    taken = np.zeros((size, size))
    at = np.clip(np.arange(size)[:, None] + offset, 0, size - 1)
    np.add.at(taken, (np.arange(size)[:, None], at), weight / weight.sum())
    return torch.from_numpy(taken).to(device, dtype)
