"""Features from frozen networks: DINOv2, and this project's nano encoder where no DINOv2 weights are at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from .. import pixels
from ..backbones import load
from ..backbones.blocks import fastest_attention
from ..backbones.dinov2 import PATCH
from ..backbones.dinov2_weights import load_dinov2, released_url
from ..backbones.packaged import packaged_weights
from ..backbones.weights import sha256_of
from ..errors import TeacherError
from .features import square_frames
from .regions import Floats

if TYPE_CHECKING:
    from .settings import FeatureSettings


# Frames that a GPU sees at once. A CPU gains nothing from several (one frame fills its caches), and taking them one by
# one makes a frame's features the same to the bit however many frames came with it.
_GPU_BATCH = 32


class NetworkFeatures:
    """Unit-length patch tokens of a frozen network that takes images `[B, 3, size, size]` to `[B, N, D]`."""

    def __init__(
        self, name: str, width: int, size: int, device: torch.device, tokens: Callable[[Tensor], Tensor]
    ) -> None:
        self.name = name
        self.width = width
        self.size = size
        self.device = device
        self.dtype = precision_on(device)
        self._tokens = tokens
        self.batch = _GPU_BATCH if device.type == "cuda" else 1

    def __call__(self, frames: NDArray[np.uint8]) -> Floats:
        seen = pixels.resize_to_cover(square_frames(frames), self.size, self.size)
        described = [self._describe(seen[first : first + self.batch]) for first in range(0, len(seen), self.batch)]
        return np.concatenate(described)

    @torch.inference_mode()
    def _describe(self, frames: NDArray[np.uint8]) -> Floats:
        images = torch.from_numpy(pixels.normalise(frames)).transpose(0, 1)
        images = images.to(self.device, self.dtype)
        # A batch that is not full is filled up: other sizes may be computed by other kernels, with other roundings.
        filling = images[:1].expand(self.batch - len(frames), -1, -1, -1)
        with fastest_attention():
            tokens_BND = self._tokens(torch.cat((images, filling)))[: len(frames)]
        unit_BND = F.normalize(tokens_BND.float(), dim=-1)
        side = round(unit_BND.shape[1] ** 0.5)
        described: Floats = unit_BND.reshape(len(frames), side, side, -1).cpu().numpy()
        return described


def open_dinov2(settings: FeatureSettings, device: torch.device | str | None = None) -> NetworkFeatures:
    """DINOv2 at `settings.size` pixels; `settings.layer` counts blocks from 0."""
    if settings.weights is None:
        raise TeacherError(
            f"features.kind is dinov2, but features.weights does not say where {settings.arch}'s weights are; fetch "
            f"{released_url(settings.arch)} and set features.weights to its path"
        )
    if settings.size % PATCH:
        below = settings.size // PATCH * PATCH
        raise TeacherError(
            f"features.size {settings.size} is not a multiple of DINOv2's patch of {PATCH} px; the nearest are {below} "
            f"and {below + PATCH}"
        )
    place = _device(device)
    path = Path(settings.weights)
    model = load_dinov2(path, settings.arch, device=place, dtype=precision_on(place)).eval().requires_grad_(False)
    block = model.block_number(settings.layer)
    name = f"{settings.arch} block {block} at {settings.size} px ({path.name}, {_checksum(path)})"
    return NetworkFeatures(name, model.spec.dim, settings.size, place, lambda images: model(images, block=block))


def open_nano(settings: FeatureSettings, device: torch.device | str | None = None) -> NetworkFeatures:
    """The nano encoder; each frame is shown to it as a clip that stands still."""
    path = packaged_weights("nano") if settings.weights is None else Path(settings.weights)
    if path is None or not path.is_file():
        where = "this installation carries no nano weights" if settings.weights is None else f"there is no {path}"
        raise TeacherError(
            f"features.kind is nano, but {where}; set features.weights to the safetensors of a trained nano backbone, "
            "or features.kind to classical, which needs no weights"
        )
    place = _device(device)
    backbone = load(path, "nano", device=place, dtype=precision_on(place)).eval().requires_grad_(False)
    spec = backbone.spec
    tap = spec.taps[-1] if settings.layer is None else settings.layer
    if tap not in spec.taps:
        raise TeacherError(
            f"features.layer {tap}: nano has normalised tokens after blocks {', '.join(map(str, spec.taps))} only"
        )
    first = spec.taps.index(tap) * spec.dim

    def tokens(images: Tensor) -> Tensor:
        still = images.unsqueeze(2).expand(-1, -1, spec.tubelet, -1, -1)
        levels: Tensor = backbone.encoder(still, levels=True)
        return levels[..., first : first + spec.dim]

    name = f"nano block {tap} at {spec.pixels[0]} px ({path.name}, {_checksum(path)})"
    return NetworkFeatures(name, spec.dim, spec.pixels[0], place, tokens)


def precision_on(device: torch.device) -> torch.dtype:
    """bf16 where it is fast, fp32 elsewhere."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def _device(device: torch.device | str | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _checksum(path: Path) -> str:
    return f"sha256 {sha256_of(path)[:8]}"
