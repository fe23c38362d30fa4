"""D_Omega = G_psi(T_omega(Y)): one decoder per backbone, the same for every source of latents; and its file.

    decoder.safetensors   weights; its header holds the contract: settings, backbone, what trained, how it was chosen

Shapes: B clips, t future tokens, D width, T future frames, H x W pixels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..backbones.packaged import packaged_weights
from ..corpus.windows import WindowSpec
from ..decoded import DECODER
from ..errors import RenderingError
from ..storage import write_atomic
from .generators import open_generator
from .settings import DecoderSettings
from .transport import Grid, Transport

_HEADER = "factorjepa decoder"


@dataclass(frozen=True)
class Latents:
    """The space that a decoder reads: which backbone's tokens, and the future that they show."""

    arch: str
    encoder: str  # digest of the frozen target encoder's weights
    dim: int  # d_J
    patch: int
    tubelet: int


class Decoder(nn.Module):
    """`decoder(tokens[B, t, D], grid) -> frames[B, T, 3, H, W]`; `render` clips them to what can be shown."""

    def __init__(self, settings: DecoderSettings, latents: Latents, *, pretrained: bool = True) -> None:
        super().__init__()
        self.settings, self.latents = settings, latents
        self.generator = open_generator(settings, latents.patch, pretrained=pretrained)
        per_tubelet = max(1, self.generator.steps(latents.tubelet * 2) // 2)
        self.transport = Transport(latents.dim, self.generator.channels, per_tubelet, settings)
        self.generator.set_update(settings.update)

    def forward(self, tokens_BtD: Tensor, grid: Grid, only: Sequence[int] | None = None) -> Tensor:
        """`grid`: future tubelets, rows and columns. `only` these frames are drawn, by a generator that can."""
        frames = grid[0] * self.latents.tubelet
        height, width = (side * self.latents.patch for side in grid[1:])
        stride = self.generator.stride
        if height % stride or width % stride:
            raise RenderingError(f"{self.generator.name} draws {stride} px a place: {height} x {width} px does not fit")
        size = (height // stride, width // stride)
        latents = self.transport(tokens_BtD, grid, self.generator.steps(frames), size)
        if only is not None:
            latents, frames = self.generator.of_frames(latents, only), len(only)
        pixels: Tensor = self.generator(latents, frames)
        if pixels.shape[1:] != (frames, 3, height, width):
            raise RenderingError(
                f"{self.generator.name} ({self.generator.origin}) drew {tuple(pixels.shape[1:])} where "
                f"{(frames, 3, height, width)} was asked for: its file states another compression than it has"
            )
        return pixels

    @torch.no_grad()
    def render(self, tokens_BtD: Tensor, grid: Grid) -> Tensor:
        """Frames from 0 to 1, float32 on the CPU: the same clipping for every source of latents."""
        device = next(self.parameters()).device
        drawn: Tensor = self(tokens_BtD.to(device, torch.float32), grid)
        return drawn.clamp(0, 1).float().cpu()

    def scope(self) -> dict[str, Any]:
        """Which modules train and which are frozen, with their parameters."""
        modules: dict[str, nn.Module] = {"transport": self.transport}
        modules |= {f"generator.{name}": child for name, child in self.generator.named_children()}
        counts = {
            name: (sum(p.numel() for p in module.parameters() if p.requires_grad), _count(module))
            for name, module in modules.items()
        }
        return {
            "trainable": {name: trained for name, (trained, _) in counts.items() if trained},
            "frozen": {name: whole - trained for name, (trained, whole) in counts.items() if whole > trained},
        }


@dataclass(frozen=True)
class StoredDecoder:
    """A decoder that was chosen, frozen, with what is known about it."""

    decoder: Decoder
    contract: dict[str, Any]
    digest: str  # sixteen hex digits of the file

    @property
    def name(self) -> str:
        return f"{self.decoder.settings.kind} for {self.decoder.latents.arch}"

    def never_met(self, window: WindowSpec, context: int) -> str:
        """What its training had not of such a window, in words; nothing where it had all or nobody knows."""
        known = self.contract.get("settings", {})
        sizes = known.get("sizes", [window.size])
        met = tuple(known.get(name, now) for name, now in zip(_SPAN, _span(window, context), strict=True))
        strange = []
        if window.size not in sizes:
            strange.append(f"{window.size} px (it was trained at {', '.join(map(str, sizes))})")
        if met != _span(window, context):
            strange.append(f"{_in_words(*_span(window, context))} (it was trained on {_in_words(*met)})")
        return " and ".join(strange)


_SPAN = ("frames", "fps", "context")


def _span(window: WindowSpec, context: int) -> tuple[int, float, int]:
    return window.frames, window.fps, context


def _in_words(frames: int, fps: float, context: int) -> str:
    return f"{frames - context} frames after {context} at {fps:g} fps"


def save_decoder(path: Path, decoder: Decoder, contract: dict[str, Any], dtype: torch.dtype | None = None) -> Path:
    """One file; `dtype` float16 halves it."""
    header = {"decoder": decoder.settings.model_dump(), "latents": vars(decoder.latents), "contract": contract}
    weights = {
        name: tensor.detach().to("cpu", dtype or tensor.dtype).contiguous()
        for name, tensor in decoder.state_dict().items()
    }
    write_atomic(path, lambda temporary: save_file(weights, temporary, {_HEADER: json.dumps(header)}))
    return path


def load_decoder(path: Path | None, arch: str, device: torch.device | str = "cpu") -> StoredDecoder:
    """A file, a folder of `decode train`, or (None) the one that comes with the package for this backbone."""
    if path is None:
        path = packaged_weights(f"{arch}.decoder")
        if path is None:
            raise RenderingError(
                f"no decoder comes with the package for {arch!r}: train one with `factorjepa decode train CORPUS "
                f"--out DECODER arch={arch}` and name it (--decoder DECODER)"
            )
    path = path / DECODER if path.is_dir() else path
    if not path.is_file():
        raise RenderingError(f"{path}: there is no decoder; `factorjepa decode train` writes one when it is finished")
    try:
        with safe_open(path, framework="pt") as opened:
            header = json.loads((opened.metadata() or {})[_HEADER])
            state = {name: opened.get_tensor(name).float() for name in opened.keys()}  # noqa: SIM118 (no mapping)
        settings = DecoderSettings.model_validate(header["decoder"])
        decoder = Decoder(settings, Latents(**header["latents"]), pretrained=False)
        decoder.load_state_dict(state, strict=True)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError, ValidationError) as error:
        raise RenderingError(f"{path}: is not a decoder that `factorjepa decode train` wrote ({error})") from None
    digest = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return StoredDecoder(decoder.to(device).eval().requires_grad_(False), header["contract"], digest)


def refuse_other_latents(stored: StoredDecoder, path: str, arch: str, encoder: str) -> None:
    """A decoder reads the tokens of one encoder: those of another look alike and mean something else."""
    if stored.decoder.latents.encoder != encoder:
        raise RenderingError(
            f"{path}: was trained on the target encoder {stored.decoder.latents.encoder} of "
            f"{stored.decoder.latents.arch}, and these runs predict the tokens of {encoder} ({arch}): train a decoder "
            "for it with `factorjepa decode train`"
        )


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
