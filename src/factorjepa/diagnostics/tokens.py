"""Which future tokens show an agent, by ground truth or by the teacher's regions.

Shapes: B clips, T frames, s mask grid, t target tokens.
"""

from __future__ import annotations

from typing import Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..teacher.annotations import true_interactions
from ..teacher.views import agent_support
from ..video import frame_index
from ..world import ClipTruth
from .scene import Scene

SHARE = 0.1  # of a token's pixels that must show an agent
Source = Literal["truth", "teacher"]


def agent_tokens(scene: Scene, source: Source) -> Tensor:
    """`bool [B, t]`: at least a tenth of the token's pixels show an agent."""
    if source == "truth":
        assert scene.known.truths is not None
        shown = [_true_support(scene, b, truth, None) for b, truth in enumerate(scene.known.truths)]
    else:
        assert scene.known.packets is not None
        shown = [agent_support(packet) for packet in scene.known.packets]
    return _tokens(scene, shown)


def interacting_tokens(scene: Scene, source: Source) -> Tensor:
    """The same of agents that act upon each other: by counterfactual effect, or (teacher) that stand in a pair."""
    shown = []
    if source == "truth":
        assert scene.known.truths is not None
        for b, truth in enumerate(scene.known.truths):
            pairs = true_interactions(truth, *window_span(scene, b))
            shown.append(_true_support(scene, b, truth, {agent for pair in pairs for agent in pair}))
    else:
        assert scene.known.packets is not None
        for packet in scene.known.packets:
            support = np.zeros((packet.frames, int(packet.side), int(packet.side)), np.uint8)
            for track in np.unique(packet.pair_tracks).tolist():
                support |= agent_support(packet, track)
            shown.append(support)
    return _tokens(scene, shown)


def window_span(scene: Scene, b: int) -> tuple[float, float]:
    """Seconds of the clip at which the window begins and ends."""
    times = scene.times_BT[b]
    return float(times[0]), float(2 * times[-1] - times[-2])


def true_frames(scene: Scene, b: int, truth: ClipTruth) -> list[int]:
    """Numbers of the window's frames in the ground truth."""
    numbers: list[int] = np.minimum(frame_index(scene.times_BT[b], truth.fps), truth.frames - 1).tolist()
    return numbers


def _true_support(scene: Scene, b: int, truth: ClipTruth, ids: set[int] | None) -> NDArray[np.uint8]:
    """`[T, s, s]`: 1 where an agent (or one of these) is seen."""
    wanted = np.isin(truth.agent_ids, list(ids)) if ids is not None else np.ones(len(truth.agent_ids), bool)
    table = np.concatenate(([False], wanted)).astype(np.uint8)
    return np.stack([table[truth.instances(number)] for number in true_frames(scene, b, truth)])


def _tokens(scene: Scene, shown: list[NDArray[np.uint8]]) -> Tensor:
    """Supports `[T, s, s]` of every clip, of any s, as future tokens."""
    tubelets, rows, columns = scene.grid
    first = scene.context_grid[0]
    marked = []
    for support in shown:
        seen = support.astype(np.float32)
        share = np.stack([cv2.resize(frame, (columns, rows), interpolation=cv2.INTER_AREA) for frame in seen])
        of_tubelet = share.reshape(tubelets, -1, rows * columns).mean(1)
        marked.append(of_tubelet[first:].reshape(-1) >= SHARE)
    return torch.from_numpy(np.stack(marked))
