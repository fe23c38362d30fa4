"""The transport operator T_omega: future JEPA tokens to what a generator reads (appendix H, "Latent Transport").

    U = reshape[W_in LN(Y)]     Z = B(U + E_space + E_time)     T(Y) = W_out LN(Z), interpolated

Positions are sines of the place in the picture and of the time ahead, so that one operator serves every grid.

Shapes: B clips, y future tubelets, r x c token rows and columns, t = y * r * c tokens, D width of the backbone,
W width of the stack, C channels of the generator, s time steps that it reads.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import RenderingError
from .settings import DecoderSettings

Grid = tuple[int, int, int]


class Transport(nn.Module):
    """`transport(tokens[B, t, D], grid, steps, size) -> [B, s, C, *size]`. The same for every source of latents."""

    def __init__(self, dim: int, channels: int, per_tubelet: int, settings: DecoderSettings) -> None:
        super().__init__()
        W = settings.width
        self.dim, self.channels, self.per_tubelet = dim, channels, per_tubelet
        self.norm_in, self.project_in = nn.LayerNorm(dim), nn.Linear(dim, W)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                W, settings.heads, 4 * W, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(settings.depth)
        )
        self.norm_out, self.project_out = nn.LayerNorm(W), nn.Linear(W, per_tubelet * channels)

    def forward(self, tokens_BtD: Tensor, grid: Grid, steps: int, size: tuple[int, int]) -> Tensor:
        y, r, c = grid
        if tokens_BtD.shape[1:] != (y * r * c, self.dim):
            raise RenderingError(
                f"the decoder reads {y * r * c} tokens of width {self.dim} ({y} x {r} x {c}), not "
                f"{tuple(tokens_BtD.shape[1:])}: it belongs to another backbone, or the tokens to another grid"
            )
        x_BtW = self.project_in(self.norm_in(tokens_BtD))
        x_BtW = x_BtW + positions(grid, x_BtW.shape[-1], x_BtW.device).to(x_BtW.dtype)
        for block in self.blocks:
            x_BtW = block(x_BtW)
        out = self.project_out(self.norm_out(x_BtW))
        B, k, C = len(out), self.per_tubelet, self.channels
        latents = out.reshape(B, y, r, c, k, C).permute(0, 1, 4, 5, 2, 3).reshape(B, y * k, C, r, c)
        return interpolated(latents, steps, size)


def interpolated(latents_BsCrc: Tensor, steps: int, size: tuple[int, int]) -> Tensor:
    """In time and space, where the generator's grid is not the backbone's."""
    if latents_BsCrc.shape[1] == steps and latents_BsCrc.shape[3:] == size:
        return latents_BsCrc
    swapped = F.interpolate(latents_BsCrc.transpose(1, 2), (steps, *size), mode="trilinear", align_corners=False)
    return swapped.transpose(1, 2)


def positions(grid: Grid, width: int, device: torch.device) -> Tensor:
    """E_space + E_time as one code `[t, W]`: half of it sines of the time ahead, a quarter each of row and column.

    Rows and columns count from 0 to 1 over the picture, tubelets from 1.
    """
    y, r, c = grid
    place = torch.stack(torch.meshgrid(
        torch.arange(1, y + 1, device=device, dtype=torch.float32) / 16,
        (torch.arange(r, device=device, dtype=torch.float32) + 0.5) / r,
        (torch.arange(c, device=device, dtype=torch.float32) + 0.5) / c, indexing="ij",
    ), -1).reshape(-1, 3)  # fmt: skip
    parts = []
    for axis, share in enumerate((width // 2, width // 4, width // 4)):
        waves = torch.exp(torch.linspace(0, math.log(64), share // 2, device=device)) * math.pi
        phase = place[:, axis, None] * waves
        parts += [phase.sin(), phase.cos()]
    return torch.cat(parts, -1)
