"""`cosmos`: the decoder of NVIDIA's Cosmos tokenizer through diffusers, from a user's checkpoint (appendix H).

The tokenizer is causal: s latents give f (s - 1) + 1 frames, f its temporal ratio. The last frames are taken; the
first one of the stretch, which it reconstructs alone, stands for the moment before the future.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...errors import RenderingError
from .generator import Generator


class Cosmos(Generator):
    """diffusers' `AutoencoderKLCosmos` without its encoder."""

    name, framewise = "cosmos", False

    def __init__(self, model: Any, origin: str) -> None:
        super().__init__()
        self.origin = origin
        self.post_quant_conv, self.decoder = model.post_quant_conv, model.decoder
        self.channels = int(model.config.latent_channels)
        self.stride = int(model.config.spatial_compression_ratio)
        self.ratio = int(model.config.temporal_compression_ratio)

    @classmethod
    def load(cls, path: str | Path) -> Cosmos:
        """A folder as diffusers saves it (`config.json` and weights), or a `vae` folder inside it."""
        try:
            from diffusers import AutoencoderKLCosmos
        except ImportError:
            raise RenderingError(
                "the cosmos decoder needs diffusers: pip install 'factorjepa[cosmos]' (mini and taef2 need nothing)"
            ) from None
        folder = Path(path)
        folder = folder / "vae" if (folder / "vae" / "config.json").is_file() else folder
        if not (folder / "config.json").is_file():
            raise RenderingError(f"{path}: has no config.json; a Cosmos tokenizer is a folder as diffusers saves it")
        try:
            tokenizer: Any = AutoencoderKLCosmos
            model = tokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # whatever is wrong with the folder, the remedy is the same
            raise RenderingError(f"{path}: cannot be read as a Cosmos tokenizer ({error})") from None
        return cls(model, folder.name)

    def steps(self, frames: int) -> int:
        return -(-frames // self.ratio) + 1

    def forward(self, latents_BsChw: Tensor, frames: int) -> Tensor:
        x = self.post_quant_conv(latents_BsChw.transpose(1, 2))
        pixels: Tensor = self.decoder(x).transpose(1, 2)  # [B, f (s - 1) + 1, 3, H, W] from -1 to 1
        return (pixels[:, -frames:] + 1) / 2

    def output_layers(self) -> list[nn.Module]:
        return [self.decoder.norm_out, self.decoder.conv_out]
