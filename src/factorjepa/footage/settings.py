"""Everything that decides what becomes of a source video. Defaults are the paper's where it gives a number."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ..config import Settings


class ShotSettings(Settings):
    """PySceneDetect's AdaptiveDetector with the corpus-wide configuration of the appendix."""

    adaptive_threshold: float = Field(default=3.0, gt=0)  # change relative to its neighbours'
    min_content_val: float = Field(default=15.0, ge=0)  # change in hue, saturation and luminance, at least
    window_width: int = Field(default=2, ge=1)  # neighbours on each side
    min_scene_len: int = Field(default=15, ge=1)  # frames of the source
    max_gap: float = Field(default=1.0, gt=0)  # seconds without a frame that end a shot, whatever the pictures say


class ClipSettings(Settings):
    """How a shot is divided: wholly, into clips of `seconds`, the last ones longer or shorter."""

    min_seconds: float = Field(default=6.0, gt=0)
    seconds: float = Field(default=10.0, gt=0)
    max_seconds: float = Field(default=13.0, gt=0)
    fps: float = Field(default=12.0, gt=0, le=240)  # of every clip; a multiple of the protocol's 4 keeps windows even
    short_side: int = Field(default=480, ge=32)  # pixels; smaller pictures are left as they are
    margin: float = Field(default=1.0, ge=0)  # seconds of the shot around a clip that privacy sees as well

    @model_validator(mode="after")
    def _divides_any_shot(self) -> ClipSettings:
        if not self.min_seconds <= self.seconds <= self.max_seconds:
            raise ValueError("must be min_seconds <= seconds <= max_seconds")
        if self.max_seconds < 2 * self.min_seconds:
            raise ValueError("max_seconds must be at least twice min_seconds, or some shots cannot be divided")
        return self


class QualitySettings(Settings):
    """What a clip must be to be kept; see `measuring` and `duplicates` for the measures. 0 or 1 switches one off."""

    min_sharpness: float = Field(default=0.35, ge=0, le=1)
    min_brightness: float = Field(default=0.03, ge=0, le=1)  # mean luma, 0 black to 1 white
    max_brightness: float = Field(default=0.94, ge=0, le=1)
    max_clipped: float = Field(default=0.6, ge=0, le=1)  # share of the picture that is black or white altogether
    min_motion: float = Field(default=0.0005, ge=0, le=1)  # share of the picture that changes within half a second
    max_similarity: float = Field(default=0.65, ge=0, le=1)  # with another clip, at the best alignment in time


class LimitSettings(Settings):
    """What one source may cost before it is refused: a file from elsewhere may be made to hurt."""

    pixels: int = Field(default=8192 * 4320, ge=1)  # of a picture
    min_fps: float = Field(default=4.0, ge=0)  # slower footage would be repeated pictures
    patience: int = Field(default=300, ge=1)  # seconds without a decoded frame
    privacy_patience: int = Field(default=3600, ge=1)  # seconds that the privacy filter may look at one clip
    memory_gib: float = Field(default=8.0, gt=0)  # of the process that decodes it


class SplitSettings(Settings):
    """Who may see a source: dealt before anything is cut (appendix, Partitioning)."""

    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)  # train, validation, test
    by: Literal["source", "session"] = (
        "source"  # what is never divided; a session where cameras cut files by the minute
    )
    audit_cities: tuple[str, ...] = ()  # seen by no other split
    seed: int = Field(default=0, ge=0)


class StoreSettings(Settings):
    """How clips lie on disk; their bytes are the same."""

    kind: Literal["folder", "shards"] = "folder"  # plain files, or tar shards (webdataset layout)
    shard_mb: int = Field(default=1000, ge=1)  # megabytes of a shard


class IngestSettings(Settings):
    """The ingest configuration."""

    clips: ClipSettings = ClipSettings()
    shots: ShotSettings = ShotSettings()
    quality: QualitySettings = QualitySettings()
    splits: SplitSettings = SplitSettings()
    limits: LimitSettings = LimitSettings()
    store: StoreSettings = StoreSettings()

    def deciding(self) -> dict[str, Any]:
        """Everything that decides what becomes of footage; patience and memory only say how it may be found out."""
        limits = {"patience", "privacy_patience", "memory_gib"}
        return self.model_dump(mode="json", exclude={"limits": limits, "store": True})
