"""What every generator is: latents on a grid in, frames out; which of its parameters train is said before training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from ...errors import RenderingError
from ..settings import Update


class Generator(nn.Module, ABC):
    """`generator(latents[B, s, C, h, w]) -> frames[B, T, 3, h * stride, w * stride]`, about 0 to 1, not yet clipped."""

    name: str
    origin: str  # where its weights come from; "random" before training
    channels: int  # C
    stride: int  # pixels a side of one latent place
    framewise: bool = True  # whether each frame is drawn from latents of its own

    @abstractmethod
    def steps(self, frames: int) -> int:
        """Time steps of latents for so many frames."""

    @abstractmethod
    def forward(self, latents_BsChw: Tensor, frames: int) -> Tensor:
        """The last `frames` frames that the latents give."""

    def of_frames(self, latents_BsChw: Tensor, only: Sequence[int]) -> Tensor:
        """The latents of some frames, where each frame has its own."""
        if not self.framewise:
            raise RenderingError(f"{self.name} draws frames together: it cannot draw some of them (drawn=all)")
        return latents_BsChw[:, list(only)]

    @abstractmethod
    def output_layers(self) -> list[nn.Module]:
        """What trains with `update: output`: the layers next to the pixels."""

    def set_update(self, update: Update) -> None:
        """Let no parameter train, those of the output layers, or all."""
        self.requires_grad_(update == "all")
        if update == "output":
            for layer in self.output_layers():
                layer.requires_grad_(True)
