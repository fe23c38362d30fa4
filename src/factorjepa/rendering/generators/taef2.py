"""`taef2`: the decoder of a tiny VAE for FLUX.2's latents (32 channels, 8 px a place), from a user's file.

Layer numbers are those of the released file, so that it loads strictly. Written from the released weights' names and
shapes; the file's encoder, run through this decoder, gives the picture back (tests).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...backbones.weights import sha256_of
from ...errors import RenderingError
from ...words import counted
from .generator import Generator

_WIDTH, _LATENTS = 64, 32


class Taef2(Generator):
    """Three scales of residual blocks; the first three blocks add a pointwise normalised path."""

    name, channels, stride = "taef2", _LATENTS, 8

    def __init__(self) -> None:
        super().__init__()
        self.origin = "random"
        self.layers = decoder_layers()

    @classmethod
    def load(cls, path: str | Path) -> Taef2:
        """With a released decoder's weights; every key must fit."""
        state = read_state(Path(path))
        generator = cls()
        if other := _differences(generator.layers.state_dict(), state):
            more = f" and {counted(len(other) - 1, 'other difference')}" if len(other) > 1 else ""
            raise RenderingError(
                f"{path}: is not a taef2 decoder: {other[0]}{more}. Give the file of a released taef2 decoder, such as "
                "taef2_decoder.pth"
            )
        generator.layers.load_state_dict(state, strict=True)
        generator.origin = f"{Path(path).name} (sha256 {sha256_of(Path(path))[:16]})"
        return generator

    def steps(self, frames: int) -> int:
        return frames

    def forward(self, latents_BsChw: Tensor, frames: int) -> Tensor:
        B, s = latents_BsChw.shape[:2]
        pixels: Tensor = self.layers(latents_BsChw.flatten(0, 1))
        return pixels.reshape(B, s, *pixels.shape[1:])

    def output_layers(self) -> list[nn.Module]:
        return [self.layers[18], self.layers[19]]


def read_state(path: Path) -> dict[str, Tensor]:
    """Tensors of a `.pth` or `.safetensors` file, float32; nothing in it is executed."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file fails in many ways
        raise RenderingError(f"{path}: cannot be read as weights ({error})") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise RenderingError(f"{path}: holds no plain table of weights")
    return {name: value.float() for name, value in state.items()}


def _differences(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    """In words: tensors that are not there, of another shape, or too many."""
    lacking = [f"it has no {name!r}" for name in wanted if name not in found]
    other = [
        f"{name!r} is {list(found[name].shape)}, not {list(one.shape)}"
        for name, one in wanted.items()
        if name in found and found[name].shape != one.shape
    ]
    return [*lacking, *other, *(f"nothing is called {name!r}" for name in found if name not in wanted)]


def decoder_layers() -> nn.Sequential:
    """Numbered as in the file: 0 soft clamp, 1-2 entry, 3-5 | 8-10 | 13-15 | 18 blocks, 19 pixels."""
    layers: list[nn.Module] = [_SoftClamp(), _conv(_LATENTS, _WIDTH), nn.ReLU()]
    for scale in range(3):
        layers += [Block(pointwise=scale == 0) for _ in range(3)]
        layers += [nn.Upsample(scale_factor=2), _conv(_WIDTH, _WIDTH, bias=False)]
    return nn.Sequential(*layers, Block(), _conv(_WIDTH, 3))


class _SoftClamp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * torch.tanh(x / 3)


class Block(nn.Module):
    """Three convolutions and the identity; `pool` first adds what a normalised pointwise path makes of the input."""

    def __init__(self, pointwise: bool = False) -> None:
        super().__init__()
        self.conv = nn.Sequential(_conv(), nn.ReLU(), _conv(), nn.ReLU(), _conv())
        wide = 4 * _WIDTH
        self.pool = (
            nn.Sequential(nn.Conv2d(_WIDTH, wide, 1, bias=False), nn.GroupNorm(4, wide), nn.ReLU(),
                          nn.Conv2d(wide, _WIDTH, 1, bias=False))
            if pointwise
            else None
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        if self.pool is not None:
            x = x + self.pool(x)
        return torch.relu(self.conv(x) + x)


def _conv(a: int = _WIDTH, b: int = _WIDTH, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(a, b, 3, padding=1, bias=bias)
