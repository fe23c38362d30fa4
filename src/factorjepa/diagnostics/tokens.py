"""Which future tokens show an agent, by ground truth or by the teacher's regions.

Shapes: T frames, s mask grid, t target tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..teacher.packet import Packet
from ..teacher.views import agent_support
from .scene import Scene
from .truth import agent_masks, interacting_agents

SHARE = 0.1  # of a token's pixels that must show an agent
Source = Literal["truth", "teacher"]


def agent_tokens(scene: Scene, source: Source) -> Tensor:
    """`bool [B, t]`: at least a tenth of the token's pixels show an agent."""
    if source == "truth":
        return _tokens(scene, [agent_masks(scene, b) for b in range(len(scene))])
    return _tokens(scene, [agent_support(packet) for packet in scene.known.packets or ()])


def interacting_tokens(scene: Scene, source: Source) -> Tensor:
    """The same of agents that act upon each other: by counterfactual effect, or (teacher) that stand in a pair."""
    if source == "truth":
        return _tokens(scene, [agent_masks(scene, b, interacting_agents(scene, b)) for b in range(len(scene))])
    return _tokens(scene, [_paired(packet) for packet in scene.known.packets or ()])


def _paired(packet: Packet) -> NDArray[np.uint8]:
    support = np.zeros((packet.frames, int(packet.side), int(packet.side)), np.uint8)
    for track in np.unique(packet.pair_tracks).tolist():
        support |= agent_support(packet, track)
    return support


def _tokens(scene: Scene, shown: Sequence[NDArray[np.generic]]) -> Tensor:
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
