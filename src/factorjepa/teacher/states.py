"""Object states `o_i` for the predictor: what the context shows of each agent, and no more than the mask leaves.

Shapes: B clips, N agents (padded), P pairs (padded), E descriptor width, G geometry fields.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GEOMETRY = (
    "centre_x", "centre_y", "width", "height",  # box of the visible support when last seen, in [0, 1]
    "velocity_x", "velocity_y",  # of the centre in the picture, sides per frame
    "own_velocity_x", "own_velocity_y",  # the same without the camera's motion
    "area",  # visible support when last seen, share of the picture
    "visibility",  # that area over the largest seen in the context, at most 1
    "confidence",  # mean over the regions seen
    "age",  # frames since first seen, over the context's length
    "gap",  # frames since last seen, over the context's length
    "truncated",  # 1 if the box touches the border
)  # fmt: skip


@dataclass(frozen=True)
class ObjectStates:
    """Agents and candidate pairs of a batch. Padding is zeros with `valid` False, behind the real ones."""

    descriptor_BNE: Tensor  # float32, unit length
    geometry_BNG: Tensor  # float32, fields of GEOMETRY
    valid_BN: Tensor  # bool
    slot_BN: Tensor  # int64, which agent of the packet it is: gathers per-agent targets
    pairs_BP2: Tensor  # int64, places in N: (i, j), i is the one acted upon
    pair_valid_BP: Tensor  # bool
    context: int  # frames of the context: `age` and `gap` are shares of it

    def extrapolated_boxes(self, frames_ahead_K: Tensor) -> Tensor:
        """Where each agent would be if it went on as last seen: `[B, N, K, 4]`, centre and size of its box.

        `frames_ahead` count from the last context frame; the time since an agent was last seen is made up for.
        """
        unseen_BN1 = self.geometry_BNG[..., GEOMETRY.index("gap"), None] * self.context
        ahead_BNK1 = (frames_ahead_K + unseen_BN1)[..., None]
        centre_BNK2 = self.geometry_BNG[..., None, 0:2] + self.geometry_BNG[..., None, 4:6] * ahead_BNK1
        return torch.cat((centre_BNK2, self.geometry_BNG[..., None, 2:4].expand_as(centre_BNK2)), dim=-1)
