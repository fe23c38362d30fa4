"""Encoders whose positions are a table that is added to the tokens: V-JEPA 1, I-JEPA, and LeJEPA in timm's layout.

They share the block (pre-norm, exact GELU) and differ in what a token is (a patch, or a tubelet of two frames), in
whether a class token stands before the patches, and in size. Parameter names and shapes are the released ones.

Shapes: B clips or images, T frames, N tokens in time-major raster order, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import BackboneError
from .blocks import NORM_EPS, Block, initialise
from .dinov2 import PatchEmbedding
from .encoder import Tokeniser


@dataclass(frozen=True)
class AbsoluteSpec:
    """Everything that decides the names and shapes of the weights and the arithmetic done with them."""

    dim: int
    depth: int
    heads: int
    patch: int
    grid: int  # patches a side, of the table of positions
    frames: int = 1  # of the table; 1: an image encoder
    tubelet: int = 1  # frames in a token
    class_token: bool = False
    mlp_hidden: int | None = None  # None: 4 D

    @property
    def hidden(self) -> int:
        return self.mlp_hidden or 4 * self.dim

    @property
    def side(self) -> int:
        """Pixels."""
        return self.grid * self.patch

    @property
    def positions(self) -> int:
        return self.class_token + self.frames // self.tubelet * self.grid**2


def _vjepa1(dim: int, depth: int, grid: int) -> AbsoluteSpec:
    """16 heads whatever the width; tables of 16 frames."""
    return AbsoluteSpec(dim, depth, heads=16, patch=16, grid=grid, frames=16, tubelet=2)


_IJEPA_H14 = AbsoluteSpec(1280, 32, heads=16, patch=14, grid=16)

SPECS: dict[str, AbsoluteSpec] = {
    "vjepa1_vit_large": _vjepa1(1024, 24, grid=14),
    "vjepa1_vit_huge": _vjepa1(1280, 32, grid=14),
    "vjepa1_vit_huge_384": _vjepa1(1280, 32, grid=24),
    "ijepa_vith14_1k": _IJEPA_H14,
    "ijepa_vith14_22k": _IJEPA_H14,  # other data, the same shapes
    "ijepa_vith16_448_1k": AbsoluteSpec(1280, 32, heads=16, patch=16, grid=28),
    "ijepa_vitg16_22k": AbsoluteSpec(1408, 40, heads=16, patch=16, grid=14, mlp_hidden=6144),
    "lejepa_vits16": AbsoluteSpec(384, 12, heads=6, patch=16, grid=14, class_token=True),
    "lejepa_vitb16": AbsoluteSpec(768, 12, heads=12, patch=16, grid=14, class_token=True),
}


class AbsoluteViT(nn.Module):
    """`vit(video[B,3,T,H,W]) -> [B,N,D]`, an image encoder `vit(images[B,3,H,W]) -> [B,N,D]`: tokens of patches.

    Pixels are ImageNet-normalised and as many as the table has positions for. A clip of another length than the
    table's gets its positions from the table by interpolation along time, as released.
    """

    def __init__(self, spec: AbsoluteSpec, origin: str = "unknown") -> None:
        super().__init__()
        self.spec = spec
        self.origin = origin  # where the weights come from, for logs and reports
        self.patch_embed: nn.Module = (
            PatchEmbedding(spec.dim, spec.patch) if spec.frames == 1 else Tokeniser(spec.dim, spec.patch, spec.tubelet)
        )
        if spec.class_token:
            self.cls_token = nn.Parameter(torch.empty(1, 1, spec.dim))
        self.pos_embed = nn.Parameter(torch.empty(1, spec.positions, spec.dim))
        self.blocks = nn.ModuleList(Block(spec.dim, spec.heads, spec.hidden) for _ in range(spec.depth))
        self.norm = nn.LayerNorm(spec.dim, eps=NORM_EPS)
        initialise(self, self.blocks)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        if spec.class_token:
            nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, pixels: Tensor) -> Tensor:
        prefix = int(self.spec.class_token)
        table = self._table(pixels)
        x_BND = self.patch_embed(pixels) + table
        if prefix:
            x_BND = torch.cat(((self.cls_token + self.pos_embed[:, :1]).expand(len(x_BND), -1, -1), x_BND), dim=1)
        for block in self.blocks:
            x_BND = block(x_BND)
        return cast(Tensor, self.norm(x_BND[:, prefix:]))

    def _table(self, pixels: Tensor) -> Tensor:
        """Positions of the patches, `[1, N, D]`, or an error that says which pixels they are for."""
        spec = self.spec
        table = self.pos_embed[:, int(spec.class_token) :]
        sides = (spec.side, spec.side)
        if spec.frames == 1:
            if pixels.dim() != 4 or pixels.shape[1] != 3 or pixels.shape[2:] != sides:
                raise BackboneError(
                    f"expected images [B, 3, {spec.side}, {spec.side}], which the positions are for, got "
                    f"{list(pixels.shape)}"
                )
            return table
        if pixels.dim() != 5 or pixels.shape[1] != 3 or pixels.shape[3:] != sides or pixels.shape[2] % spec.tubelet:
            raise BackboneError(
                f"expected a video [B, 3, T, {spec.side}, {spec.side}] of whole tubelets of {spec.tubelet} frames, got "
                f"{list(pixels.shape)}"
            )
        tubelets = pixels.shape[2] // spec.tubelet
        if tubelets * spec.tubelet == spec.frames:
            return table
        cube = table.float().reshape(1, -1, spec.grid, spec.grid, spec.dim).permute(0, 4, 1, 2, 3)
        cube = F.interpolate(cube, size=(tubelets, spec.grid, spec.grid), mode="trilinear")
        return cube.flatten(2).transpose(1, 2).to(table.dtype)
