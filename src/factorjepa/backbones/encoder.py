"""The V-JEPA encoder: video or image to tokens, any subset of them, one level or all tapped levels.

Shapes: B batch, T frames, N tokens in time-major raster order, n kept tokens, D width, L tapped levels, S states that a
trunk leaves.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import BackboneError
from .blocks import NORM_EPS, Block, initialise, last, run_block
from .rope import RotaryTables
from .spec import BackboneSpec


class Tokeniser(nn.Module):
    """Non-overlapping tubelets of pixels to tokens.

    The weights are named and shaped as a 3-D convolution's, as released; since tubelets do not overlap it is one matrix
    product, and is computed as that: 3-D convolutions in bf16 are slow in several cuDNN versions.
    """

    def __init__(self, dim: int, patch: int, tubelet: int) -> None:
        super().__init__()
        self.size = (tubelet, patch, patch)
        self.proj = nn.Conv3d(3, dim, kernel_size=self.size, stride=self.size)

    def forward(self, video: Tensor) -> Tensor:
        tubelet, patch, _ = self.size
        batch, channels, frames, height, width = video.shape
        pixels = video.reshape(
            batch, channels, frames // tubelet, tubelet, height // patch, patch, width // patch, patch
        )
        pixels = pixels.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4).flatten(1, 3)
        return F.linear(pixels, self.proj.weight.flatten(1), self.proj.bias)


class Encoder(nn.Module):
    """`encoder(video[B,3,T,H,W], keep=None | Long[B,n], levels=False) -> [B,n,D] | [B,n,L*D]`.

    `keep` selects tokens before the first block, so hidden tokens are never seen. With a `tail` only the last so many
    tokens come out, of the last level: the last block leaves out what nobody reads. A one-frame input is an image.
    `recompute = True` trades compute for memory in the backward pass. After `freeze(k)` the tokeniser and the first k
    blocks run without autograd. `encoder.from_trunk(encoder.trunk(video, k), grid, k)` is `encoder(video)` in two:
    the first is a constant of the video while the first k blocks do not train. After `lower(k, torch.bfloat16)` the
    tokeniser and the first k blocks, weights and activations, are in bf16, under autocast or not.
    """

    def __init__(self, spec: BackboneSpec) -> None:
        super().__init__()
        self.spec = spec
        self.recompute = False
        self.frozen_blocks = 0
        self.lowered = 0
        self.patch_embed = Tokeniser(spec.dim, spec.patch, spec.tubelet)
        if spec.modalities:
            self.patch_embed_img = Tokeniser(spec.dim, spec.patch, 1)
            self.img_mod_embed = nn.Parameter(torch.zeros(1, 1, spec.dim))
            self.video_mod_embed = nn.Parameter(torch.zeros(1, 1, spec.dim))
        self.blocks = nn.ModuleList(Block(spec.dim, spec.heads, spec.mlp_hidden) for _ in range(spec.depth))
        if spec.tap_norms:
            self.norms_block = nn.ModuleList(nn.LayerNorm(spec.dim, eps=NORM_EPS) for _ in spec.taps)
        else:
            self.norm = nn.LayerNorm(spec.dim, eps=NORM_EPS)
        self.rotary = RotaryTables(spec, spec.dim // spec.heads)
        initialise(self, self.blocks)

    def forward(
        self, video: Tensor, keep: Tensor | None = None, levels: bool = False, tail: int | None = None
    ) -> Tensor:
        tubelets, rows, columns = self.grid_of(video)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.frozen_blocks == 0):
            x = self._tokens(video)
            if keep is not None:
                x = gather_tokens(x, keep)
        rotary = self.rotary(tubelets, rows, columns, like=x, index=keep)
        return self._blocks(x, rotary, 0, levels, [], tail)

    @torch.no_grad()
    def trunk(self, video: Tensor, cut: int, levels: bool = False) -> Tensor:
        """What the first `cut` blocks leave of the whole video, before any norm: `[B, S, N, D]`, see `trunk_blocks`."""
        x = self._tokens(video)
        rotary = self.rotary(*self.grid_of(video), like=x)
        kept, states = self.trunk_blocks(cut, levels), []
        for number in range(cut):
            x = self._block(number, x, rotary)
            if number in kept:
                states.append(x)
        return torch.stack(states, dim=1)

    def trunk_blocks(self, cut: int, levels: bool = False) -> tuple[int, ...]:
        """The blocks whose outputs `trunk` returns: the last below the cut, and with `levels` the taps before it."""
        if not 0 < cut <= self.spec.depth:
            raise BackboneError(f"encoder has {self.spec.depth} blocks: it has no trunk of {cut}")
        return (*(tap for tap in self.spec.taps if levels and tap < cut - 1), cut - 1)

    def from_trunk(
        self, states_BSND: Tensor, grid: tuple[int, int, int], cut: int, levels: bool = False, tail: int | None = None
    ) -> Tensor:
        """The rest of the way: what `encoder(video, levels=levels, tail=tail)` gives for a video of this `grid`."""
        kept = self.trunk_blocks(cut, levels)
        taps = self.spec.taps if levels else self.spec.taps[-1:]
        below = [self._norm_of(tap)(states_BSND[:, kept.index(tap)]) for tap in taps if tap < cut]
        x = states_BSND[:, -1]
        return self._blocks(x, self.rotary(*grid, like=x), cut, levels, below, tail)

    def _blocks(
        self, x: Tensor, rotary: Tensor, first: int, levels: bool, outputs: list[Tensor], tail: int | None
    ) -> Tensor:
        """Blocks `first` and up; the levels tapped on the way come after those already in `outputs`."""
        if levels and tail is not None:
            raise BackboneError("encoder: a tail is of the last level alone; leave out levels=True, or tail")
        if tail is not None and not 0 < tail <= x.shape[1]:
            raise BackboneError(f"encoder: there are {x.shape[1]} tokens, not the last {tail}")
        taps = self.spec.taps if levels else self.spec.taps[-1:]
        for number in range(first, self.spec.depth):
            frozen = number < self.frozen_blocks
            with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
                wanted = tail if number == self.spec.depth - 1 else None
                x = self._block(number, x, rotary, self.recompute and not frozen, wanted)
            if number in taps:
                outputs.append(self._norm_of(number)(x))
        return last(outputs[0], tail) if len(outputs) == 1 else torch.cat(outputs, dim=-1)

    def _block(
        self, number: int, x: Tensor, rotary: Tensor, recompute: bool = False, tail: int | None = None
    ) -> Tensor:
        """A lowered block runs in its own dtype: autocast would lift its norms to fp32 and write them out."""
        block = self.blocks[number]
        if number >= self.lowered:
            return run_block(block, x.float() if number == self.lowered > 0 else x, rotary, recompute, tail)
        with torch.autocast(x.device.type, enabled=False):
            return run_block(block, x.to(next(block.parameters()).dtype), rotary, recompute, tail)

    def grid_of(self, video: Tensor) -> tuple[int, int, int]:
        """(tubelets, rows, columns) of a video, or an error that says which side does not divide."""
        if video.dim() != 5 or video.shape[1] != 3:
            raise BackboneError(f"encoder: expected a video [B, 3, T, H, W], got {list(video.shape)}")
        return self.spec.grid_of(*video.shape[2:])

    def freeze(self, blocks: int) -> None:
        """Freeze the tokeniser and the first `blocks` blocks (0: everything trains), with the norms of their taps."""
        if not 0 <= blocks <= self.spec.depth:
            raise BackboneError(f"encoder has {self.spec.depth} blocks: cannot freeze {blocks} of them")
        self.frozen_blocks = blocks
        self.requires_grad_(True)
        if blocks == 0:
            return
        for name, parameter in self.named_parameters():
            if not name.startswith(("blocks.", "norms_block.", "norm.")):
                parameter.requires_grad_(False)
        for number, block in enumerate(self.blocks):
            if number < blocks:
                block.requires_grad_(False)
        for tap in self.spec.taps:
            if tap < blocks:
                self._norm_of(tap).requires_grad_(False)

    def lower(self, blocks: int, dtype: torch.dtype) -> None:
        """Keep the tokeniser and the first `blocks` blocks, which must not train any more, in a half-width `dtype`.

        Encoders that share these weights (`MomentumEncoder`) are told so too.
        """
        if not 0 < blocks <= self.spec.depth:
            raise BackboneError(f"encoder has {self.spec.depth} blocks: cannot lower {blocks} of them")
        self.lowered = blocks
        below = [f"blocks.{number}." for number in range(blocks)]
        for name, parameter in self.named_parameters():
            if name.startswith(tuple(below)) or not name.startswith(("blocks.", "norm")):
                if parameter.requires_grad:
                    raise BackboneError(f"encoder: {name} trains: in {dtype} its steps would round to nothing")
                parameter.data = parameter.data.to(dtype)

    def _tokens(self, video: Tensor) -> Tensor:
        if self.lowered:
            video = video.to(next(self.patch_embed.parameters()).dtype)
        if video.shape[2] > 1:
            x = self.patch_embed(video)
            return x + self.video_mod_embed if self.spec.modalities else cast(Tensor, x)
        if self.spec.modalities:
            return cast(Tensor, self.patch_embed_img(video) + self.img_mod_embed)
        return cast(Tensor, self.patch_embed(video.expand(-1, -1, self.spec.tubelet, -1, -1)))  # 2.0: a still video

    def _norm_of(self, tap: int) -> nn.Module:
        return self.norms_block[self.spec.taps.index(tap)] if self.spec.tap_norms else self.norm


def gather_tokens(x_BND: Tensor, index: Tensor) -> Tensor:
    """Rows `index [B, n]` of each clip's tokens, `[B, n, D]`."""
    return x_BND.gather(1, index.unsqueeze(-1).expand(-1, -1, x_BND.shape[-1]))
