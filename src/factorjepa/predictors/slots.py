"""Agents without a teacher: learned queries that share the context's tokens among themselves.

Shapes: B clips, c context tokens, K slots, W query width, E descriptor width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones.spec import BackboneSpec
from ..teacher.states import ObjectStates
from .geometry import Grid, constant, frames_after, token_places
from .options import AgentOptions
from .precision import full

_MEMORY = 4.0  # frames over which a slot's place and velocity forget
_FASTEST = 0.1  # sides of the picture per frame
_WAVES = 4  # sine and cosine pairs per axis that tell a token's place


class SlotAgents(nn.Module):
    """Slot attention: tokens choose among slots, slots average their tokens; place, velocity and size follow from where
    a slot's tokens lie over time. The answer is `ObjectStates`, so that whatever reads tracklets reads slots.

    `own_velocity` equals the velocity in the picture (no camera motion is known) and `slot_BN` is -1: no agent of a
    teacher's packet belongs to a slot, so L_V has nothing to say about it.
    """

    def __init__(self, spec: BackboneSpec, options: AgentOptions) -> None:
        super().__init__()
        width = spec.predictor_dim
        self.spec = spec
        self.options = options
        self.read = nn.Sequential(nn.LayerNorm(spec.dim), nn.Linear(spec.dim, width))
        self.place = nn.Linear(3 * 2 * _WAVES, width, bias=False)
        self.norm_tokens = nn.LayerNorm(width)
        self.queries = nn.Parameter(torch.randn(1, options.slots, width) * width**-0.5)
        self.norm_slots = nn.LayerNorm(width)
        self.ask = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.refine = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.descriptor = nn.Linear(width, options.descriptor_width)

    def forward(self, context: Tensor, context_index: Tensor, grid: Grid) -> ObjectStates:
        tubelet_Bc, place_Bc2 = token_places(context_index, grid)
        time_Bc = frames_after(tubelet_Bc, self.spec.tubelet, self.options.context_frames)
        where_Bc3 = torch.cat((place_Bc2, time_Bc[..., None] / self.options.context_frames), dim=-1)
        waves = torch.pi * 2.0 ** torch.arange(_WAVES, device=context.device)
        angles = (where_Bc3[..., None] * waves).flatten(-2)
        tokens = self.read(context[..., -self.spec.dim :]) + self.place(torch.cat((angles.sin(), angles.cos()), -1))
        tokens = self.norm_tokens(tokens)
        key, value = self.key(tokens), self.value(tokens)
        slots = self.queries.expand(len(context), -1, -1)
        share_BKc = torch.zeros(())
        for _ in range(self.options.slot_iterations):
            scores_BKc = self.ask(self.norm_slots(slots)) @ key.transpose(1, 2) * key.shape[-1] ** -0.5
            share_BKc = full(scores_BKc).softmax(dim=1)  # tokens choose: slots compete
            mean_BKc = share_BKc / (share_BKc.sum(-1, keepdim=True) + 1e-6)
            slots = slots + mean_BKc.to(value.dtype) @ value
            slots = slots + self.refine(slots)
        geometry_BKG = self._geometry(share_BKc, place_Bc2, time_Bc, grid)
        pairs_BP2 = self._nearest(geometry_BKG[..., :2].detach())
        here = context.device
        return ObjectStates(
            descriptor_BNE=F.normalize(full(self.descriptor(slots)), dim=-1),
            geometry_BNG=geometry_BKG,
            valid_BN=torch.ones(geometry_BKG.shape[:2], dtype=torch.bool, device=here),
            slot_BN=torch.full(geometry_BKG.shape[:2], -1, device=here),
            pairs_BP2=pairs_BP2,
            pair_valid_BP=torch.ones(pairs_BP2.shape[:2], dtype=torch.bool, device=here),
            context=self.options.context_frames,
        )

    def _geometry(self, share_BKc: Tensor, place_Bc2: Tensor, time_Bc: Tensor, grid: Grid) -> Tensor:
        """Fields of GEOMETRY from a line fitted through each slot's tokens, recent ones weighing more."""
        weight = share_BKc * torch.exp(time_Bc / _MEMORY)[:, None]
        weight = (weight / (weight.sum(-1, keepdim=True) + 1e-6))[..., None]  # [B, K, c, 1]
        time, place = time_Bc[:, None, :, None], place_Bc2[:, None]
        mean_time, mean_place = (weight * time).sum(2), (weight * place).sum(2)
        spread = (weight * (time - mean_time[:, :, None]).square()).sum(2) + 1.0
        slope = (weight * (time - mean_time[:, :, None]) * (place - mean_place[:, :, None])).sum(2) / spread
        velocity = _FASTEST * torch.tanh(slope / _FASTEST)
        centre = mean_place - velocity * mean_time
        along = mean_place[:, :, None] + velocity[:, :, None] * (time - mean_time[:, :, None])
        token = constant((1 / grid[2], 1 / grid[1]), place)
        # A box is as wide as the uniform density of the same spread: sqrt(12) standard deviations.
        size = (12 * (weight * (place - along).square()).sum(2) + token.square()).sqrt()
        area = size.prod(-1, keepdim=True)
        seen, fresh = torch.ones_like(area), torch.zeros_like(area)
        return torch.cat((centre, size, velocity, velocity, area, seen, seen, seen, fresh, fresh), dim=-1)

    def _nearest(self, centre_BK2: Tensor) -> Tensor:
        """Each slot with its nearest others, `[B, K * neighbours, 2]`."""
        distance_BKK = (centre_BK2[:, :, None] - centre_BK2[:, None]).square().sum(-1)
        own = torch.eye(self.options.slots, dtype=torch.bool, device=centre_BK2.device)
        nearest = distance_BKK.masked_fill(own, torch.inf).topk(self.options.slot_neighbours, largest=False).indices
        first = torch.arange(self.options.slots, device=centre_BK2.device)[:, None].expand_as(nearest)
        return torch.stack((first, nearest), dim=-1).flatten(1, 2)
