"""`mini`: our own small generator, trained from nothing with the transport. Each frame on its own, 3 x 3 convolutions.

Shapes: B clips, s = T frames, C channels, h x w places.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import RenderingError
from .generator import Generator


class Mini(Generator):
    """Residual blocks at every scale, doubling the side until a place has as many pixels as a token's patch."""

    name, origin = "mini", "random"

    def __init__(self, channels: int, widths: tuple[int, ...], patch: int) -> None:
        super().__init__()
        doublings = patch.bit_length() - 1
        if 2**doublings != patch:
            raise RenderingError(f"mini doubles the side until it reaches the patch: {patch} px is no power of two")
        widths = (*widths, *[widths[-1]] * (doublings + 1 - len(widths)))[: doublings + 1]
        self.channels, self.stride = channels, patch
        self.enter = _conv(channels, widths[0])
        self.rough = _Residual(widths[0])
        self.grow = nn.ModuleList(_Double(a, b) for a, b in itertools.pairwise(widths))
        self.leave = _conv(widths[-1], 3)

    def steps(self, frames: int) -> int:
        return frames

    def forward(self, latents_BsChw: Tensor, frames: int) -> Tensor:
        B, s = latents_BsChw.shape[:2]
        x = self.rough(self.enter(latents_BsChw.flatten(0, 1)))
        for double in self.grow:
            x = double(x)
        pixels: Tensor = torch.sigmoid(self.leave(F.gelu(x)))
        return pixels.reshape(B, s, *pixels.shape[1:])

    def output_layers(self) -> list[nn.Module]:
        return [self.leave]


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.GroupNorm(4, width), _conv(width, width), _conv(width, width)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.second(F.gelu(self.first(self.norm(x))))
        return x + added


class _Double(nn.Module):
    """Twice the side; the convolution gives four pixels a place, so that it works on the smaller grid."""

    def __init__(self, width: int, to: int) -> None:
        super().__init__()
        self.widen, self.refine = _conv(width, 4 * to), _Residual(to)

    def forward(self, x: Tensor) -> Tensor:
        refined: Tensor = self.refine(F.pixel_shuffle(self.widen(x), 2))
        return refined


def _conv(a: int, b: int) -> nn.Conv2d:
    return nn.Conv2d(a, b, 3, padding=1)
