"""LeJEPA ViT-L/16 as published: DINOv3's architecture, trained with LeJEPA's objective; images to patch tokens.

Registers, LayerScale, and rotary positions of patch centres; the class token and registers are not turned. The file is
a plain state dict under `encoder.model.`. What it holds beside the encoder's weights:

- `attn.qkv.bias_mask`: ones, and zeros where keys have no bias. The mask is multiplied in once, on loading.
- `rope_embed.periods`: the periods of the rotation, which replace those computed here.
- `mask_token`: of another objective; never read.

Shapes: B images, N patches in raster order, R registers, D width, E head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ..errors import BackboneError
from .blocks import Attention, Mlp
from .dinov2 import LayerScale, PatchEmbedding
from .rope import rotate_halves

_EPS = 1e-5  # DINOv3's; the other encoders here have 1e-6
_BASE = 100.0  # of the rotation's periods


@dataclass(frozen=True)
class LejepaSpec:
    """Everything that decides the names and shapes of the weights and the arithmetic done with them."""

    dim: int
    depth: int
    heads: int
    patch: int = 16
    registers: int = 4
    side: int = 224  # pixels that it is used at; positions do not limit it

    @property
    def head_width(self) -> int:
        return self.dim // self.heads


SPECS = {"lejepa_vitl16": LejepaSpec(dim=1024, depth=24, heads=16)}


class Block(nn.Module):
    def __init__(self, spec: LejepaSpec) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(spec.dim, eps=_EPS)
        self.attn = Attention(spec.dim, spec.heads, rotate_halves)
        self.ls1 = LayerScale(spec.dim)
        self.norm2 = nn.LayerNorm(spec.dim, eps=_EPS)
        self.mlp = Mlp(spec.dim, 4 * spec.dim)
        self.ls2 = LayerScale(spec.dim)

    def forward(self, x_BND: Tensor, rotary: Tensor) -> Tensor:
        x_BND = self.ls1(x_BND, self.attn(self.norm1(x_BND), rotary))
        return cast(Tensor, self.ls2(x_BND, self.mlp(self.norm2(x_BND))))


class Lejepa(nn.Module):
    """`lejepa(images[B,3,H,W]) -> [B,N,D]`: ImageNet-normalised images, sides of whole patches."""

    periods: Tensor

    def __init__(self, spec: LejepaSpec, origin: str = "unknown") -> None:
        super().__init__()
        self.spec = spec
        self.origin = origin  # where the weights come from, for logs and reports
        self.patch_embed = PatchEmbedding(spec.dim, spec.patch)
        self.cls_token = nn.Parameter(torch.empty(1, 1, spec.dim))
        self.storage_tokens = nn.Parameter(torch.empty(1, spec.registers, spec.dim))
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.depth))
        self.norm = nn.LayerNorm(spec.dim, eps=_EPS)
        self.register_buffer("periods", released_periods(spec), persistent=False)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.trunc_normal_(part.weight, std=0.02)
                nn.init.zeros_(part.bias)
        nn.init.normal_(self.cls_token, std=0.02)
        nn.init.normal_(self.storage_tokens, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        patch = self.spec.patch
        if images.dim() != 4 or images.shape[1] != 3 or images.shape[2] % patch or images.shape[3] % patch:
            raise BackboneError(
                f"lejepa: expected images [B, 3, H, W] with sides of whole patches of {patch} px, got "
                f"{list(images.shape)}"
            )
        x_BND = self.patch_embed(images)
        prefix = torch.cat((self.cls_token, self.storage_tokens), dim=1).expand(len(images), -1, -1)
        x_BND = torch.cat((prefix, x_BND), dim=1)
        rotary = self.rotary(images.shape[2] // patch, images.shape[3] // patch).to(x_BND.dtype)
        for block in self.blocks:
            x_BND = block(x_BND, rotary)
        return cast(Tensor, self.norm(x_BND[:, prefix.shape[1] :]))

    def rotary(self, rows: int, columns: int) -> Tensor:
        """Cosine and signed sine of every token, fp32 `[2, 1 + R + N, E]`; the tokens before patches are not turned.

        A patch's angle is `2 pi` times its centre's place in [-1, 1], along rows and then columns, over the periods.
        """
        place = [
            (torch.arange(count, device=self.periods.device, dtype=torch.float32) + 0.5) / count * 2 - 1
            for count in (rows, columns)
        ]
        centre_N2 = torch.stack(torch.meshgrid(*place, indexing="ij"), dim=-1).reshape(-1, 2)
        angle_Nh = (2 * math.pi * centre_N2[:, :, None] / self.periods.float()).flatten(1)
        still = angle_Nh.new_zeros(1 + self.spec.registers, angle_Nh.shape[1])
        angle = torch.cat((still, angle_Nh))
        return torch.stack((angle.cos().repeat(1, 2), torch.cat((-angle.sin(), angle.sin()), dim=1)))


def released_periods(spec: LejepaSpec) -> Tensor:
    """Periods of the quarter of a head's dims that turn with one axis, `[E / 4]`."""
    quarter = spec.head_width // 4
    return _BASE ** (torch.arange(quarter, dtype=torch.float32) / quarter)
