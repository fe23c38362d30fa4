"""What decides a decoder's weights: its sizes, its objective, how long it trains and on what."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from ..config import Settings
from ..corpus.windows import WindowSpec

Kind = Literal["mini", "taef2", "cosmos"]
Update = Literal["none", "output", "all"]


class DecoderSettings(Settings):
    """Transport and generator. `mini` is ours; the others begin from a user's pretrained file."""

    kind: Kind = "mini"
    weights: str | None = None  # of taef2 (a file) or cosmos (a folder or file of diffusers)
    update: Update = "all"  # psi_C^adapt: which of the generator's parameters train; fixed before training
    width: int = Field(default=192, ge=8)  # of the transport stack
    depth: int = Field(default=3, ge=1)
    heads: int = Field(default=6, ge=1)
    channels: int = Field(default=96, ge=4)  # d_C of mini; a pretrained generator has its own
    widths: tuple[int, ...] = Field(default=(96, 64, 40, 24), min_length=2)  # of mini, from latents to pixels

    @model_validator(mode="after")
    def _fits(self) -> DecoderSettings:
        if self.width % (4 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of 4 * heads ({4 * self.heads})")
        if self.kind == "mini" and self.weights is not None:
            raise ValueError("mini is trained from nothing: it takes no weights")
        if self.kind == "mini" and self.update != "all":
            raise ValueError("mini is trained from nothing: update must be all")
        if self.kind != "mini" and self.weights is None:
            raise ValueError(f"{self.kind} begins from a pretrained file: name it (decoder.weights=PATH)")
        return self


class ObjectiveWeights(Settings):
    """The lambdas of L_decode. A term of weight 0 is disabled, and the decoder's record says so."""

    pixel: float = Field(default=1.0, ge=0)  # L_char
    perceptual: float = Field(default=0.0, ge=0)  # L_LPIPS; needs `lpips`
    structure: float = Field(default=0.2, ge=0)  # L_SSIM
    motion: float = Field(default=0.0, ge=0)  # L_motion
    regularisation: float = Field(default=0.0, ge=0)  # R(Omega)

    @model_validator(mode="after")
    def _some(self) -> ObjectiveWeights:
        if not any(self.model_dump().values()):
            raise ValueError("every term of the objective is disabled")
        return self


class DecodeSettings(Settings):
    """One decoder of one backbone. Defaults are those of `mini` for nano."""

    data: str
    arch: str = "nano"
    weights: str | None = None  # of the backbone; None: those that come with the package
    frames: int = Field(default=16, ge=2)
    fps: float = Field(default=4.0, gt=0, allow_inf_nan=False)
    sizes: tuple[int, ...] = Field(default=(64, 128), min_length=1)  # pixels; updates take turns
    context: int = Field(default=12, ge=1)
    decoder: DecoderSettings = DecoderSettings()
    losses: ObjectiveWeights = ObjectiveWeights()
    lpips: str | None = None  # weights of the perceptual term
    seed: int = 0
    updates: int = Field(default=2000, ge=1)
    batch: int = Field(default=16, ge=1)
    lr: float = Field(default=1e-3, gt=0)
    floor: float = Field(default=0.02, ge=0, le=1)  # of the rate at the end
    warmup: int = Field(default=100, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float = Field(default=1.0, gt=0)  # global gradient norm
    drawn: PositiveInt | Literal["auto", "all"] = "auto"  # frames of each clip that an update draws; see `drawn_frames`
    replications: int = Field(default=2, ge=1)  # windows of each clip, by turns
    mirrored: bool = True  # every other epoch sees left and right exchanged
    validate_every: int = Field(default=250, ge=1)  # a checkpoint is kept then, too
    validation_clips: int = Field(default=48, ge=1)
    workers: int = Field(default=0, ge=0)
    memory_gb: float = Field(default=4.0, ge=0)  # of latents and frames that are kept; beyond it they are made again

    @model_validator(mode="after")
    def _fits(self) -> DecodeSettings:
        if self.context >= self.frames:
            raise ValueError(f"a context of {self.context} of {self.frames} frames leaves no future")
        if self.losses.perceptual and self.lpips is None:
            raise ValueError("the perceptual term needs the weights of LPIPS (lpips=PATH)")
        return self

    def drawn_frames(self, frames: int, framewise: bool) -> int:
        """Neighbouring frames look alike, and a generator's time goes with their number: `auto` draws one, at random.

        A generator that draws frames together draws all of them.
        """
        if self.drawn == "auto":
            return 1 if framewise else frames
        return frames if self.drawn == "all" else min(self.drawn, frames)

    def window(self, size: int) -> WindowSpec:
        return WindowSpec(frames=self.frames, fps=self.fps, size=size)
