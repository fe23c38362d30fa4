"""The monolithic V-JEPA predictor: context tokens and positions to predicted tokens.

Shapes: B batch, c context tokens, t target tokens, P predictor width, W output width (4D; B and L models 1664).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, Unpack, cast

import torch
from torch import Tensor, nn

from ..errors import BackboneError
from .blocks import NORM_EPS, Block, initialise, run_block
from .rope import RotaryTables
from .spec import BackboneSpec


class Asked(TypedDict, total=False):
    """What a call may say beyond its tokens."""

    grid: tuple[int, int, int] | None  # (tubelets, rows, columns) of the clip where that is not the spec's own
    mask_token: int | None  # which learned mask token stands for a target (released: one per mask policy)
    image: bool  # the clip is one frame


class Predictor(nn.Module):
    """`predictor(context[B,c,4D], context_index[B,c], target_index[B,t]) -> (target[B,t,W], context[B,c,W])`.

    Indices address the token grid of the whole clip (`grid=encoder.grid_of(clip)` where that is not the spec's own).
    A model without its own context head (2.0) reads context tokens with the target head, as its release does.
    """

    def __init__(self, spec: BackboneSpec) -> None:
        super().__init__()
        self.spec = spec
        self.recompute = False
        width = spec.predictor_dim
        if spec.predictor_in_width == spec.dim:
            self.predictor_embed: nn.Module = nn.Linear(spec.dim, width)
        else:
            self.predictor_embed = nn.Sequential(
                nn.Linear(spec.predictor_in_width, spec.dim), nn.GELU(), nn.Linear(spec.dim, width)
            )
        self.mask_tokens = nn.ParameterList(nn.Parameter(torch.zeros(1, 1, width)) for _ in range(spec.mask_tokens))
        if spec.modalities:
            self.video_mod_embed = nn.Parameter(torch.zeros(1, 1, width))
            self.img_mod_embed = nn.Parameter(torch.zeros(1, 1, width))
        self.predictor_blocks = nn.ModuleList(
            Block(width, spec.predictor_heads, 4 * width) for _ in range(spec.predictor_depth)
        )
        self.predictor_norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.predictor_proj = nn.Linear(width, spec.predictor_out_width)
        if spec.context_head:
            self.predictor_proj_context = nn.Linear(width, spec.predictor_out_width)
        self.rotary = RotaryTables(spec, width // spec.predictor_heads)
        initialise(self, self.predictor_blocks)

    def forward(
        self, context: Tensor, context_index: Tensor, target_index: Tensor, **asked: Unpack[Asked]
    ) -> tuple[Tensor, Tensor]:
        x, kept = self.transform(context, context_index, target_index, **asked), context_index.shape[1]
        context_head = self.predictor_proj_context if self.spec.context_head else self.predictor_proj
        return self.predictor_proj(x[:, kept:]), context_head(x[:, :kept])

    def transform(
        self,
        context: Tensor,
        context_index: Tensor,
        target_index: Tensor,
        *,
        grid: tuple[int, int, int] | None = None,
        mask_token: int | None = None,
        image: bool = False,
        inject: Callable[[Tensor], Tensor] | None = None,
        targets_alone: bool = False,
    ) -> Tensor:
        """Normalised states `[B, c + t, P]` before the heads, context first; with `targets_alone`, `[B, t, P]`.

        `inject` says what to add to the target queries `[B, t, P]` before the first block.

        The released code sorts the tokens by position first. Attention does not see order, only the rotary positions,
        so sorting changes nothing but rounding, and is left out.
        """
        context = self._levels_read(context)
        x_context = self.predictor_embed(context)
        chosen = self.spec.mask_token if mask_token is None else mask_token
        x_target = self.mask_tokens[chosen % self.spec.mask_tokens].expand(*target_index.shape, -1)
        if inject is not None:
            x_target = x_target + inject(x_target)
        x = torch.cat((x_context, x_target.to(x_context.dtype)), dim=1)
        if self.spec.modalities:
            modality = self.img_mod_embed if image else self.video_mod_embed
            x = x + modality.to(x.dtype)  # under autocast x stays in bf16
        tubelets, rows, columns = grid or (1 if image else self.spec.tubelets, *self.spec.grid)
        index = torch.cat((context_index, target_index), dim=1)
        rotary = self.rotary(tubelets, rows, columns, like=x, index=index)
        for number, block in enumerate(self.predictor_blocks, start=1):
            alone = targets_alone and number == len(self.predictor_blocks)
            x = run_block(block, x, rotary, self.recompute, target_index.shape[1] if alone else None)
        return cast(Tensor, self.predictor_norm(x))

    def _levels_read(self, context: Tensor) -> Tensor:
        """B and L read the last level: given all levels, take it."""
        width, wanted = context.shape[-1], self.spec.predictor_in_width
        if width == wanted:
            return context
        if width == self.spec.levels_width:
            return context[..., -wanted:]
        raise BackboneError(
            f"predictor: context tokens are {width} wide, expected {wanted}; call the encoder with levels=True"
        )
