"""The frozen pretrained encoder: the space in which every method is measured (design decision 5)."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from ..backbones import Backbone
from ..backbones.encoder import gather_tokens
from ..backbones.masks import Grid, future_split
from ..objective import normalised_targets


class Reference:
    """`future(video) -> [B, t, D]` of the pretrained encoder, which no method has touched."""

    def __init__(self, backbone: Backbone, context: int, device: torch.device, precision: torch.autocast) -> None:
        self.encoder, self.spec = backbone.encoder.eval().requires_grad_(False), backbone.spec
        self.context, self.device, self.precision = context, device, precision

    def grid(self, video: Tensor) -> Grid:
        return self.encoder.grid_of(video)

    def context_grid(self, video: Tensor) -> Grid:
        _, rows, columns = self.grid(video)
        return self.context // self.spec.tubelet, rows, columns

    @torch.no_grad()
    def future(self, video: Tensor, early: int = 0) -> Tensor:
        """`Y*` of the whole clip's future tubelets and of `early` ones before them, float32 on the CPU."""
        target = future_split(self.grid(video), self.context // self.spec.tubelet - early).target
        with self.precision:
            tokens = self.encoder(video.to(self.device))
        rows = gather_tokens(tokens, target.to(self.device).expand(len(video), -1))
        return normalised_targets(rows).float().cpu()

    def digest(self) -> str:
        """Sixteen hex digits of the weights."""
        hashed = hashlib.blake2b(digest_size=8)
        for name, tensor in sorted(self.encoder.state_dict().items()):
            hashed.update(f"{name}\t{tuple(tensor.shape)}\t{tensor.dtype}\n".encode())
            hashed.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
        return hashed.hexdigest()
