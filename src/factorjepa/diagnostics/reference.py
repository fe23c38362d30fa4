"""The frozen pretrained encoder: the space in which every method is measured (decision D5)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from ..backbones import Backbone
from ..backbones.encoder import gather_tokens
from ..backbones.masks import Grid, future_split
from ..objective import normalised_targets


@dataclass(frozen=True)
class Precision:
    """`with precision():` runs networks in bf16 where that is wanted."""

    device: torch.device
    bf16: bool

    def __call__(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)


class Reference:
    """`future(video) -> [B, t, D]` of the pretrained encoder, which no method has touched."""

    def __init__(self, backbone: Backbone, context: int, precision: Precision) -> None:
        self.encoder, self.spec = backbone.encoder.eval().requires_grad_(False), backbone.spec
        self.context, self.precision = context, precision

    def grid(self, video: Tensor) -> Grid:
        return self.encoder.grid_of(video)

    def context_grid(self, video: Tensor) -> Grid:
        _, rows, columns = self.grid(video)
        return self.context // self.spec.tubelet, rows, columns

    @torch.no_grad()
    def future(self, video: Tensor, early: int = 0) -> Tensor:
        """`Y*` of the whole clip's future tubelets and of `early` ones before them, float32 on the CPU."""
        target = future_split(self.grid(video), self.context // self.spec.tubelet - early).target
        with self.precision():
            tokens = self.encoder(video.to(self.precision.device))
        rows = gather_tokens(tokens, target.to(tokens.device).expand(len(video), -1))
        return normalised_targets(rows).float().cpu()

    def digest(self) -> str:
        """Sixteen hex digits of the weights."""
        hashed = hashlib.blake2b(digest_size=8)
        for name, tensor in sorted(self.encoder.state_dict().items()):
            hashed.update(f"{name}\t{tuple(tensor.shape)}\t{tensor.dtype}\n".encode())
            hashed.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
        return hashed.hexdigest()
