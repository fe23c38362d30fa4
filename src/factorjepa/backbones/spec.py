"""Backbone sizes as values: the released V-JEPA 2.1 and 2.0 models, and our own `nano` and `small`.

A `BackboneSpec` says everything that decides the names and shapes of the weights and the arithmetic done with them.
It is a plain frozen dataclass, so that benchmarks can import it where pydantic is absent.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import BackboneError
from ..words import nearest

RopeForm = Literal["interleaved", "tiled"]


@dataclass(frozen=True)
class BackboneSpec:
    """Sizes of an encoder and its predictor.

    `grid` is (rows, columns) of patches and `frames` the clip length of the protocol; both are defaults, not limits:
    the encoder takes any multiple of `patch` and `tubelet`. Fields after `mask_tokens` separate the releases; their
    defaults are those of V-JEPA 2.1 ViT-g and ViT-G.
    """

    dim: int
    depth: int
    heads: int
    mlp_hidden: int
    taps: tuple[int, ...]  # 0-based blocks whose normalised outputs are the levels
    patch: int
    tubelet: int
    grid: tuple[int, int]  # an int is taken as a square grid
    frames: int
    predictor_dim: int
    predictor_depth: int
    predictor_heads: int
    mask_tokens: int
    rope: RopeForm = "interleaved"  # 2.0 tiles the frequencies instead: same shapes, other numbers
    rope_reference: int | None = 16  # patches that positions are interpolated to; None: positions as they are (2.0)
    modalities: bool = True  # an image tokeniser and learned image / video embeddings (2.0: neither)
    tap_norms: bool = True  # one LayerNorm per tap; 2.0 has one final `norm` that serves every tap
    predictor_levels: int | None = None  # levels the predictor reads; None: all taps. One level: a single Linear
    predictor_out: int | None = None  # output width; None: as wide as its input. B and L predict a 1664-wide teacher
    context_head: bool = True  # a second output projection for context tokens (2.0: none)
    mask_token: int = 0  # which mask token stands for a target unless told; 2.0's own default is its second

    def __post_init__(self) -> None:
        grid = (self.grid, self.grid) if isinstance(self.grid, int) else tuple(self.grid)
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "taps", tuple(self.taps))
        for problem in self._problems():
            raise BackboneError(f"backbone spec: {problem}")

    def _problems(self) -> list[str]:
        problems = []
        optional = {"rope_reference", "predictor_levels", "predictor_out"}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value < (field.name != "mask_token"):
                problems.append(f"{field.name} is too small: {value}")
            if value is None and field.name not in optional:
                problems.append(f"{field.name} must be set")
        if problems:
            return problems
        for width, heads, owner in (
            (self.dim, self.heads, ""),
            (self.predictor_dim, self.predictor_heads, "predictor_"),
        ):
            if width % heads or width // heads < 6 or (width // heads) % 2:
                problems.append(
                    f"{owner}dim {width} over {owner}heads {heads} must give an even head width of at least 6 "
                    "(three rotary axes of two)"
                )
        if len(self.grid) != 2 or min(self.grid) < 1:
            problems.append(f"grid must be (rows, columns) of at least 1, got {self.grid}")
        if not self.taps or list(self.taps) != sorted(set(self.taps)) or self.taps[0] < 0:
            problems.append(f"taps must be ascending block numbers from 0, got {self.taps}")
        elif self.taps[-1] != self.depth - 1:
            problems.append(f"the last tap must be the last block ({self.depth - 1}), got {self.taps}")
        if self.frames % self.tubelet:
            problems.append(f"frames {self.frames} is not a multiple of tubelet {self.tubelet}")
        if self.rope not in ("interleaved", "tiled"):
            problems.append(f"rope must be 'interleaved' or 'tiled', got {self.rope!r}")
        if self.predictor_levels is not None and self.predictor_levels not in (1, len(self.taps)):
            problems.append(f"predictor_levels must be 1 or the number of taps, got {self.predictor_levels}")
        return problems

    def grid_of(self, frames: int, height: int, width: int) -> tuple[int, int, int]:
        """(tubelets, rows, columns) of a video, or an error that says which side does not divide."""
        if height % self.patch or width % self.patch:
            raise BackboneError(
                f"encoder: {height}x{width} pixels are not whole patches of {self.patch}; resize or crop the video"
            )
        if frames > 1 and frames % self.tubelet:
            raise BackboneError(
                f"encoder: {frames} frames are not whole tubelets of {self.tubelet} (one frame is taken as an image)"
            )
        return max(1, frames // self.tubelet), height // self.patch, width // self.patch

    @property
    def levels(self) -> int:
        return len(self.taps)

    @property
    def levels_width(self) -> int:
        """Width of `encoder(..., levels=True)`."""
        return self.dim * len(self.taps)

    @property
    def predictor_in_width(self) -> int:
        return self.dim * (self.predictor_levels or len(self.taps))

    @property
    def predictor_out_width(self) -> int:
        return self.predictor_out or self.predictor_in_width

    @property
    def pixels(self) -> tuple[int, int]:
        """(height, width) in pixels of the default grid."""
        return self.grid[0] * self.patch, self.grid[1] * self.patch

    @property
    def tubelets(self) -> int:
        return self.frames // self.tubelet

    def replace(self, **overrides: Any) -> BackboneSpec:
        """A copy with some fields changed; an unknown field is an error that names the nearest one."""
        fields = [field.name for field in dataclasses.fields(self)]
        for key in overrides:
            if key not in fields:
                raise BackboneError(
                    f"backbone spec has no field {key!r}{nearest(key, fields)}; fields: {', '.join(fields)}"
                )
        return dataclasses.replace(self, **overrides)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BackboneSpec:
        return cls(**json.loads(text))


def names() -> tuple[str, ...]:
    """Every architecture that `build` and `load` know by name."""
    return tuple(_REGISTRY)


def resolve(arch: str | BackboneSpec, **overrides: Any) -> BackboneSpec:
    """The spec that `arch` names (or is), with `overrides` of its fields."""
    if isinstance(arch, str):
        if arch not in _REGISTRY:
            raise BackboneError(f"unknown backbone {arch!r}{nearest(arch, names())}; known: {', '.join(names())}")
        arch = _REGISTRY[arch]
    return arch.replace(**overrides) if overrides else arch


def name_of(spec: BackboneSpec) -> str | None:
    """The registered name of exactly these sizes, if there is one."""
    return next((name for name, known in _REGISTRY.items() if known == spec), None)


def _vjepa21(dim: int, depth: int, heads: int, mlp_hidden: int, taps: tuple[int, ...], **rest: Any) -> BackboneSpec:
    """V-JEPA 2.1 at 384 px; 16 frames is this project's clip, the weights do not depend on it."""
    return BackboneSpec(
        dim=dim, depth=depth, heads=heads, mlp_hidden=mlp_hidden, taps=taps, patch=16, tubelet=2, grid=(24, 24),
        frames=16, predictor_dim=384, predictor_heads=12, mask_tokens=8, **rest,
    )  # fmt: skip


def _vjepa20(dim: int, depth: int, heads: int, mlp_hidden: int, grid: int) -> BackboneSpec:
    """V-JEPA 2.0: tiled RoPE on raw positions, one final norm, one level, ten mask tokens, no image tokeniser."""
    return BackboneSpec(
        dim=dim, depth=depth, heads=heads, mlp_hidden=mlp_hidden, taps=(depth - 1,), patch=16, tubelet=2,
        grid=(grid, grid), frames=16, predictor_dim=384, predictor_depth=12, predictor_heads=12, mask_tokens=10,
        rope="tiled", rope_reference=None, modalities=False, tap_norms=False, context_head=False,
        mask_token=1,
    )  # fmt: skip


# B and L were distilled from ViT-G: their predictor reads the last level only and predicts the teacher's 1664 wide one.
_DISTILLED: dict[str, Any] = {"predictor_depth": 12, "predictor_levels": 1, "predictor_out": 1664}

# nano: what one CPU core can train and a test can run, with the structure of the large ones (four taps, two-layer
# predictor embedding, both heads; head width 32 as in the released predictor). Patches of 8 px at 128 px give a
# 16 x 16 grid: with 16 px patches a pedestrian or two-wheeler of the simulated streets would share its token with the
# road and its neighbours, and what the paper asks about agents could not be seen. 16 is also the reference grid of
# the rotary positions, so they are whole numbers. 64 px (8 x 8) runs with the same weights at a quarter of the tokens.
_NANO = BackboneSpec(
    dim=192, depth=8, heads=6, mlp_hidden=768, taps=(1, 3, 5, 7), patch=8, tubelet=2, grid=(16, 16), frames=16,
    predictor_dim=128, predictor_depth=6, predictor_heads=4, mask_tokens=8,
    mask_token=2,  # the one that stood for the future in its pretraining
)  # fmt: skip

# small: nano four times over (20.9 M parameters), wider and deeper, with its patches, grid, taps at every quarter of
# the depth and heads of 32: the second scale of a study, so that methods can be ranked on two.
_SMALL = _NANO.replace(
    dim=320, depth=12, heads=10, mlp_hidden=1280, taps=(2, 5, 8, 11), predictor_dim=224, predictor_depth=8,
    predictor_heads=7,
)  # fmt: skip

_REGISTRY: dict[str, BackboneSpec] = {
    "vjepa2_1_vit_base_384": _vjepa21(768, 12, 12, 3072, (2, 5, 8, 11), **_DISTILLED),
    "vjepa2_1_vit_large_384": _vjepa21(1024, 24, 16, 4096, (5, 11, 17, 23), **_DISTILLED),
    "vjepa2_1_vit_giant_384": _vjepa21(1408, 40, 22, 6144, (9, 19, 29, 39), predictor_depth=24),
    "vjepa2_1_vit_gigantic_384": _vjepa21(1664, 48, 26, 8192, (11, 23, 37, 47), predictor_depth=24),
    "vjepa2_vit_large": _vjepa20(1024, 24, 16, 4096, grid=16),
    "vjepa2_vit_huge": _vjepa20(1280, 32, 16, 5120, grid=16),
    "vjepa2_vit_giant": _vjepa20(1408, 40, 22, 6144, grid=16),
    "vjepa2_vit_giant_384": _vjepa20(1408, 40, 22, 6144, grid=24),
    "nano": _NANO,
    "small": _SMALL,
}
