"""What a simulated corpus is made of. Presets: `configs/dense.yaml`, `configs/sparse.yaml`."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, field_validator

from ..config import Settings
from .cities import CITIES

CaptureMode = Literal["drive", "walk", "aerial"]
SceneType = Literal["residential", "promenade", "market", "heritage", "flyover", "commercial", "junction", "transit"]
Illumination = Literal["day", "dusk", "night"]
Weather = Literal["clear", "rain", "haze"]

CAPTURE_MODES: tuple[CaptureMode, ...] = ("drive", "walk", "aerial")


class WorldSettings(Settings):
    """One regime of the simulated world. Everything random is drawn from the seed and the clip's address."""

    regime: Literal["dense", "sparse"] = "dense"
    size: int = Field(default=128, ge=32, le=1024, description="side of the square frame in pixels, even")
    fps: float = Field(default=12.0, ge=2, le=30, description="frames per second of the clips")
    seconds: tuple[float, float] = Field(default=(6.0, 13.0), description="shortest and longest clip")
    density: float = Field(default=1.0, gt=0, le=3, description="multiplies the regime's agents per square metre")
    disorder: float = Field(
        default=1.0, ge=0, le=1, description="0: lanes, signals and footpaths are kept; 1: negotiated"
    )
    clutter: float = Field(default=1.0, ge=0, le=2, description="multiplies stalls, parked vehicles, poles and trees")
    cities: tuple[str, ...] = Field(default=tuple(CITIES), min_length=1)
    capture_modes: dict[CaptureMode, float] = Field(default={"drive": 0.45, "walk": 0.35, "aerial": 0.20}, min_length=1)
    scene_types: dict[SceneType, float] = Field(default=
        {
            "residential": 0.12, "promenade": 0.08, "market": 0.18, "heritage": 0.10,
            "flyover": 0.10, "commercial": 0.16, "junction": 0.14, "transit": 0.12,
        },
        min_length=1,
    )  # fmt: skip
    illumination: dict[Illumination, float] = Field(default={"day": 0.62, "dusk": 0.20, "night": 0.18}, min_length=1)

    @field_validator("size")
    @classmethod
    def _even(cls, size: int) -> int:
        if size % 2:
            raise ValueError("must be even: H.264 stores colour at half resolution")
        return size

    @field_validator("cities")
    @classmethod
    def _known(cls, cities: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in cities if name not in CITIES]
        if unknown:
            raise ValueError(f"unknown cities {', '.join(unknown)}; cities: {', '.join(CITIES)}")
        if len(set(cities)) != len(cities):
            raise ValueError("names a city twice")
        return cities

    @field_validator("capture_modes", "scene_types", "illumination")
    @classmethod
    def _weights(cls, weights: dict[str, float]) -> dict[str, float]:
        if not all(0 <= weight < math.inf for weight in weights.values()) or sum(weights.values()) <= 0:
            raise ValueError("weights must be finite and not negative, and at least one must be positive")
        return weights

    @field_validator("seconds")
    @classmethod
    def _durations(cls, seconds: tuple[float, float]) -> tuple[float, float]:
        shortest, longest = seconds
        if not 1.0 <= shortest <= longest <= 60.0:
            raise ValueError("must satisfy 1 <= shortest <= longest <= 60")
        return seconds
