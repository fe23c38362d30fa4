"""The teacher's configuration: everything that decides a target. Its hash is in every packet cache."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import Field, model_validator

from ..config import Settings

# COCO's names of what moves by itself on a street.
STREET_AGENTS = (
    "person", "bicycle", "car", "motorcycle", "bus", "truck", "cat", "dog", "horse", "sheep", "cow", "elephant",
)  # fmt: skip


class FeatureSettings(Settings):
    """Which frozen network looks at the frames."""

    kind: Literal["dinov2", "nano", "classical"] = "classical"
    arch: str = "dinov2_vitg14_reg"  # of `dinov2`: dinov2_vit{s,b,l,g}14[_reg]
    weights: str | None = None  # path of the released .pth (dinov2) or of our safetensors (nano)
    size: int = Field(default=518, ge=28)  # pixels of the square that the network sees (dinov2; others bring their own)
    layer: int | None = None  # block whose normalised patch tokens are used; None: the last


class RegionSettings(Settings):
    """Which regions exist, and which are kept (Panel A, region retention)."""

    kind: Literal["unsupervised", "detector", "street", "truth"] = "unsupervised"  # street: of simulated clips
    detector: str | None = None  # path of an ONNX detector
    classes: tuple[str, ...] = STREET_AGENTS  # of the detector that are agents
    tiles: bool = True  # the detector also looks at four enlarged parts: street agents are small
    side: int = Field(default=256, ge=32)  # pixels of the mask grid; never more than the clip has
    min_confidence: float = Field(default=0.55, ge=0, le=1)
    min_area: float = Field(default=0.001, ge=0, lt=1)  # share of the valid picture
    duplicate_iou: float = Field(default=0.70, gt=0, le=1)  # of two masks


class TrackSettings(Settings):
    """Temporal association (Panel A)."""

    box_weight: float = Field(default=0.45, ge=0)
    mask_weight: float = Field(default=0.35, ge=0)
    descriptor_weight: float = Field(default=0.20, ge=0)
    max_cost: float = Field(default=0.70, gt=0)  # gate: a dearer match is no match
    max_gap: int = Field(default=4, ge=0)  # frames without a region inside a tracklet
    min_length: int = Field(default=3, ge=1)  # frames with a region


class Exclusions(Settings):
    """tau_k: a target less reliable than this is left out of its loss; it is never a negative."""

    layout: float = Field(default=0.2, ge=0, le=1)
    agents: float = Field(default=0.2, ge=0, le=1)
    visibility: float = Field(default=0.2, ge=0, le=1)
    interactions: float = Field(default=0.2, ge=0, le=1)


class TargetSettings(Settings):
    """The structural maps and their reliabilities."""

    width: int = Field(default=256, ge=8, le=16384)  # of T_L, T_A and T_I
    descriptor_width: int = Field(default=64, ge=4, le=16384)  # of the object states' projected descriptors
    projection_seed: int = 0
    grid: int = Field(default=16, ge=1, le=256)  # evidence cells a side: the backbone's token grid, or a multiple of it
    max_agents: int = Field(default=64, ge=1)  # the best supported are kept
    pair_distance: float = Field(default=0.25, gt=0)  # between box centres, in sides of the picture
    max_neighbours: int = Field(default=12, ge=1)
    min_reliability: float = Field(default=0.10, ge=0, le=1)  # omega lies in [min_reliability, 1]
    exclude_below: Exclusions = Exclusions()


class TeacherSettings(Settings):
    """The whole teacher. `context` frames are what a predictor may know about."""

    features: FeatureSettings = FeatureSettings()
    regions: RegionSettings = RegionSettings()
    tracks: TrackSettings = TrackSettings()
    targets: TargetSettings = TargetSettings()
    frames: int = Field(default=16, ge=1)  # of a window
    fps: float = Field(default=4.0, gt=0, allow_inf_nan=False)
    size: int = Field(default=518, ge=32)  # pixels of the square that the teacher sees; never more than the clip has
    context: int = Field(default=12, ge=1)

    @model_validator(mode="after")
    def _context_within_window(self) -> TeacherSettings:
        if self.context >= self.frames:
            raise ValueError(f"a context of {self.context} leaves no future in a window of {self.frames} frames")
        return self

    def digest(self) -> str:
        """Sixteen hex digits that change with every setting."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
