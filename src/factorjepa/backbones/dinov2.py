"""DINOv2 image encoders (ViT-S/B/L/g, with and without registers): frames to patch tokens, as released.

Parameter names and shapes are the released ones. Shapes: B images, N patches in raster order, D width, H heads,
R registers.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import BackboneError
from ..words import nearest
from .blocks import NORM_EPS, Attention, Mlp
from .building import with_random_weights

PATCH = 14
_OFFSET = 0.1  # cells that the releases without registers add to the grid when they resample positions


@dataclass(frozen=True)
class Dinov2Spec:
    """Everything that decides the names and shapes of the weights and the arithmetic done with them."""

    dim: int
    depth: int
    heads: int
    registers: int = 0  # with registers, positions are resampled in the other of the two released ways
    swiglu: bool = False  # gated feed-forward layers, ViT-g only
    grid: int = 37  # side of the table of positions: 518 px

    @property
    def hidden(self) -> int:
        """Width inside a feed-forward layer: 4 D, and two thirds of that, in whole eights, where it is gated."""
        return (4 * self.dim * 2 // 3 + 7) // 8 * 8 if self.swiglu else 4 * self.dim


_SIZES = {
    "dinov2_vits14": Dinov2Spec(dim=384, depth=12, heads=6),
    "dinov2_vitb14": Dinov2Spec(dim=768, depth=12, heads=12),
    "dinov2_vitl14": Dinov2Spec(dim=1024, depth=24, heads=16),
    "dinov2_vitg14": Dinov2Spec(dim=1536, depth=40, heads=24, swiglu=True),
}
SPECS: dict[str, Dinov2Spec] = _SIZES | {
    f"{name}_reg": dataclasses.replace(spec, registers=4) for name, spec in _SIZES.items()
}


class SwiGlu(nn.Module):
    """Gate and value come from one product, `w12`; `w3` brings them back."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w12 = nn.Linear(dim, 2 * hidden)
        self.w3 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.w12(x).chunk(2, dim=-1)
        return cast(Tensor, self.w3(F.silu(gate) * value))


class LayerScale(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual + gamma * x` in one pass over memory."""
        return torch.addcmul(residual, x, self.gamma)


class Block(nn.Module):
    def __init__(self, spec: Dinov2Spec) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(spec.dim, eps=NORM_EPS)
        self.attn = Attention(spec.dim, spec.heads)
        self.ls1 = LayerScale(spec.dim)
        self.norm2 = nn.LayerNorm(spec.dim, eps=NORM_EPS)
        self.mlp = (SwiGlu if spec.swiglu else Mlp)(spec.dim, spec.hidden)
        self.ls2 = LayerScale(spec.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = self.ls1(x_BND, self.attn(self.norm1(x_BND)))
        return cast(Tensor, self.ls2(x_BND, self.mlp(self.norm2(x_BND))))


class PatchEmbedding(nn.Module):
    """The weights of a convolution; patches do not overlap, so it is one matrix product and is computed as that."""

    def __init__(self, dim: int, patch: int = PATCH) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        batch, channels, height, width = images.shape
        patch = self.proj.kernel_size[0]
        pixels = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
        pixels = pixels.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        return F.linear(pixels, self.proj.weight.flatten(1), self.proj.bias)


class Dinov2(nn.Module):
    """`dinov2(images[B,3,H,W], block=None, class_token=False) -> [B,N,D] | [B,1+N,D]`.

    `images` are ImageNet-normalised, sides multiples of 14. `block` counts from 0; None is the last. Whichever it is,
    its tokens are normalised by the final norm, and no later block is run.
    """

    def __init__(self, spec: Dinov2Spec, origin: str = "unknown") -> None:
        super().__init__()
        self.spec = spec
        self.origin = origin  # where the weights come from, for logs and reports
        self.patch_embed = PatchEmbedding(spec.dim)
        self.cls_token = nn.Parameter(torch.empty(1, 1, spec.dim))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + spec.grid**2, spec.dim))
        self.mask_token = nn.Parameter(torch.zeros(1, spec.dim))  # of its training: part of the file, never read here
        if spec.registers:
            self.register_tokens = nn.Parameter(torch.empty(1, spec.registers, spec.dim))
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.depth))
        self.norm = nn.LayerNorm(spec.dim, eps=NORM_EPS)
        self._initialise()

    def forward(self, images: Tensor, block: int | None = None, class_token: bool = False) -> Tensor:
        last = self.block_number(block)
        x_BND = self._tokens(images)
        for layer in self.blocks[: last + 1]:
            x_BND = layer(x_BND)
        patches_from = 1 + self.spec.registers
        if class_token:
            x_BND = torch.cat((x_BND[:, :1], x_BND[:, patches_from:]), dim=1)
        else:
            x_BND = x_BND[:, patches_from:]
        return cast(Tensor, self.norm(x_BND))

    def block_number(self, block: int | None) -> int:
        """The block that `block` means, or an error."""
        if block is None:
            return self.spec.depth - 1
        if not 0 <= block < self.spec.depth:
            raise BackboneError(f"dinov2: there is no block {block}; they are 0 to {self.spec.depth - 1}")
        return block

    def positions(self, rows: int, columns: int) -> Tensor:
        """The position of each patch, `[1, rows * columns, D]`, resampled as this release does at inference.

        Without registers it is bicubic with the scale of a grid that is 0.1 larger (an old guard against rounding
        that the weights' users depend on); with registers it is bicubic to the exact size, antialiased.
        """
        grid = self.spec.grid
        if (rows, columns) == (grid, grid):
            return self.pos_embed[:, 1:]
        table = self.pos_embed[:, 1:].float().reshape(1, grid, grid, -1).permute(0, 3, 1, 2)
        if self.spec.registers:
            table = F.interpolate(table, size=(rows, columns), mode="bicubic", antialias=True)
        else:
            scale = ((rows + _OFFSET) / grid, (columns + _OFFSET) / grid)
            table = F.interpolate(table, scale_factor=scale, mode="bicubic")
        return table.flatten(2).transpose(1, 2).to(self.pos_embed.dtype)

    def _tokens(self, images: Tensor) -> Tensor:
        """Class token, registers (which have no position) and patches, `[B, 1 + R + N, D]`."""
        if images.dim() != 4 or images.shape[1] != 3 or images.shape[2] % PATCH or images.shape[3] % PATCH:
            raise BackboneError(
                f"dinov2: expected images [B, 3, H, W] with sides of whole patches of {PATCH} px, got "
                f"{list(images.shape)}"
            )
        batch, _, height, width = images.shape
        patches = self.patch_embed(images) + self.positions(height // PATCH, width // PATCH)
        parts = [(self.cls_token + self.pos_embed[:, :1]).expand(batch, -1, -1)]
        if self.spec.registers:
            parts.append(self.register_tokens.expand(batch, -1, -1))
        return torch.cat((*parts, patches), dim=1)

    def _initialise(self) -> None:
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.trunc_normal_(part.weight, std=0.02)
                nn.init.zeros_(part.bias)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.normal_(self.cls_token, std=1e-6)
        if self.spec.registers:
            nn.init.normal_(self.register_tokens, std=1e-6)


def dinov2_spec(arch: str | Dinov2Spec) -> Dinov2Spec:
    """The spec that `arch` names (or is)."""
    if not isinstance(arch, str):
        return arch
    if arch not in SPECS:
        raise BackboneError(f"unknown DINOv2 model {arch!r}{nearest(arch, SPECS)}; known: {', '.join(SPECS)}")
    return SPECS[arch]


def build_dinov2(arch: str | Dinov2Spec, *, seed: int = 0, device: torch.device | str | None = None) -> Dinov2:
    """A DINOv2 with random weights: the same for the same spec and seed. `device="meta"` allocates nothing.

    >>> build_dinov2("dinov2_vits14")(torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 256, 384])
    """
    spec = dinov2_spec(arch)
    return with_random_weights(functools.partial(Dinov2, spec), "dinov2", seed, device)
