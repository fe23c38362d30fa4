"""Any frozen encoder behind one small interface: bytes in, tokens in time order out.

Video encoders see a clip and give tokens of tubelets; image encoders see its frames one by one and give tokens of
frames. Each resizes to the size it was trained for; all were trained on ImageNet-normalised pixels.

Shapes: B clips, T frames, S steps (tubelets or frames), N patches in raster order, D width.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import BackboneError
from ..pixels import normalise, resize_to_cover
from ..words import nearest
from .absolute import AbsoluteViT
from .checkpoint import load
from .dinov2 import PATCH, Dinov2, Dinov2Spec
from .encoder import Encoder
from .families import ENCODERS, Model, Spec, load_encoder
from .lejepa import Lejepa
from .packaged import how_to_get, packaged_weights
from .releases import RELEASES
from .spec import BackboneSpec, names, resolve
from .weights import weights_folder

_DINOV2_SIDE = 16 * PATCH  # 224 px, as its publishers evaluate it
_IMAGES = 32  # at a time: the frames of many clips would not fit at once


class FrozenEncoder:
    """`tokens(frames) -> [B, S, N, D]` and `pooled(frames) -> [B, D]` of `uint8 [B, T, H, W, 3]`, without gradients.

    `name` is the architecture, `origin` says where the weights come from, `step` is how many frames make one step.
    """

    def __init__(self, name: str, model: Encoder | Model, origin: str) -> None:
        self.name, self.origin = name, origin
        self.model: nn.Module = model.eval().requires_grad_(False)
        self.dim = model.spec.dim
        self.step, self.side = _step(model), _pixels(model.spec)
        self.patch = PATCH if isinstance(model, Dinov2) else model.spec.patch
        self._images = isinstance(model, Dinov2 | Lejepa) or (isinstance(model, AbsoluteViT) and model.spec.frames == 1)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches in a step."""
        return self.side[0] // self.patch, self.side[1] // self.patch

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @torch.inference_mode()
    def tokens(self, frames: NDArray[np.uint8]) -> Tensor:
        """`[B, S, N, D]`, float32, where the model is."""
        if frames.ndim != 5 or frames.shape[-1] != 3 or frames.dtype != np.uint8:
            raise BackboneError(
                f"{self.name}: expected frames uint8 [B, T, H, W, 3], got {frames.dtype} {list(frames.shape)}"
            )
        clips, length = frames.shape[:2]
        if length % self.step or not length:
            raise BackboneError(f"{self.name}: {length} frames are not whole steps of {self.step}")
        video = torch.from_numpy(np.stack([normalise(resize_to_cover(clip, *self.side)) for clip in frames]))
        video = video.to(self.device, next(self.model.parameters()).dtype)
        if self._images:
            images = video.transpose(1, 2).flatten(0, 1)
            made = torch.cat([self.model(some).float() for some in torch.split(images, _IMAGES)])
        else:
            made = self.model(video).float()
        return made.reshape(clips, length // self.step, -1, self.dim)

    def steps(self, frames: NDArray[np.uint8]) -> Tensor:
        """Mean token of each step, `[B, S, D]`."""
        return self.tokens(frames).mean(2)

    def pooled(self, frames: NDArray[np.uint8]) -> Tensor:
        """Mean token of each clip, `[B, D]`."""
        return self.tokens(frames).mean((1, 2))


def encoder_names() -> tuple[str, ...]:
    """Every architecture that `open_encoder` knows."""
    return (*names(), *ENCODERS)


def side_of(arch: str) -> int:
    """Pixels of the longer side of what an encoder sees."""
    return max(_pixels(ENCODERS[arch] if arch in ENCODERS else resolve(_known(arch))))


def open_encoder(
    arch: str,
    weights: Path | str | None = None,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> FrozenEncoder:
    """The frozen encoder `arch`, with the weights in a file, or those in the package, or those that were fetched.

    >>> open_encoder("nano").tokens(np.zeros((1, 16, 128, 128, 3), np.uint8)).shape
    torch.Size([1, 8, 256, 192])
    """
    path = Path(weights) if weights is not None else _at_hand(_known(arch))
    if _known(arch) in ENCODERS:
        model = load_encoder(path, arch, device=device, dtype=dtype)
        return FrozenEncoder(arch, model, model.origin)
    backbone = load(path, arch, parts="encoder", device=device, dtype=dtype)
    return FrozenEncoder(arch, backbone.encoder, backbone.origin)


def _known(arch: str) -> str:
    if arch not in encoder_names():
        meant = nearest(arch, encoder_names())
        raise BackboneError(f"unknown encoder {arch!r}{meant}; known: {', '.join(encoder_names())}")
    return arch


def _at_hand(arch: str) -> Path:
    packaged = packaged_weights(arch)
    if packaged is not None:
        return packaged
    path = weights_folder() / RELEASES[arch].file if arch in RELEASES else None
    if path is None or not path.is_file():
        raise BackboneError(f"no weights of {arch}: give a file ({arch}=FILE), or {how_to_get(arch)}")
    return path


def _step(model: Encoder | Model) -> int:
    return model.spec.tubelet if isinstance(model, Encoder | AbsoluteViT) else 1


def _pixels(spec: BackboneSpec | Spec) -> tuple[int, int]:
    """(height, width) of what the encoder sees."""
    if isinstance(spec, BackboneSpec):
        return spec.pixels
    side = _DINOV2_SIDE if isinstance(spec, Dinov2Spec) else spec.side
    return side, side
