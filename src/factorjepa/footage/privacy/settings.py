"""Privacy's configuration: everything that decides which pixels are blurred and which spans are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ...config import Settings

LayoutName = Literal[
    "scrfd", "yunet", "centerface", "retinaface", "retinaplate", "yolox", "yolov5", "yolov8", "suppressed"
]


def _as_word(given: Any) -> Any:
    """YAML takes a bare `off` or `on` for a boolean."""
    return ("on" if given else "off") if isinstance(given, bool) else given


def _as_several(given: Any) -> Any:
    if given is None:
        return ()
    return (given,) if isinstance(given, str | Path) else given


Models = Annotated[tuple[Path, ...], BeforeValidator(_as_several)]  # one ONNX file, or several that see more together


class DetectionSettings(Settings):
    """How one detector looks at a frame."""

    layout: LayoutName | None = None  # None: recognised by the model's outputs
    classes: tuple[str, ...] = ()  # of a model with several; empty: those named after what is sought
    threshold: float = Field(default=0.5, gt=0, le=1)  # a box this sure is blurred, tracked or not
    low: float = Field(default=0.2, gt=0, le=1)  # a box between the two is blurred if ByteTrack joins it to a track
    side: int = Field(default=1920, ge=64)  # px of the longer side that a model of any size sees, at most
    tiles: int | None = Field(default=None, ge=1, le=6)  # 2: also four enlarged parts; None: where the input is small
    batch: int = Field(default=4, ge=1)  # frames in one run, where the model takes several

    @model_validator(mode="after")
    def _low_is_lower(self) -> DetectionSettings:
        if self.low > self.threshold:
            raise ValueError(f"low {self.low} is above the threshold {self.threshold}")
        return self


class TrackingSettings(Settings):
    """Temporal association by ByteTrack, forwards and backwards."""

    min_iou: float = Field(default=0.1, gt=0, lt=1)  # of a predicted and a found box to be the same object
    reach: float = Field(default=0.25, ge=0)  # of the sides, added for matching: small faces move by their own size
    gap_seconds: float = Field(default=1.0, ge=0)  # without a detection inside a track; filled by interpolation
    extend_seconds: float = Field(default=0.8, ge=0)  # beyond both ends of a track
    border_seconds: float = Field(default=4.0, ge=0)  # the same at the picture's border, until it must have left


class BlurSettings(Settings):
    """B_sigma: what is done to a region."""

    margin: float = Field(default=0.25, ge=0)  # of the box's sides, added on each side
    cells: int = Field(default=5, ge=1, le=16)  # of the longer side that are left of a region before the Gaussian
    sigma: float = Field(default=0.6, gt=0)  # of the Gaussian, in cells
    feather: float = Field(default=0.1, ge=0)  # of the longer side: the blur fades out over this, outside the region


class CheckSettings(Settings):
    """Automated checks. A span that fails one is excluded."""

    max_jump: float = Field(default=1.0, gt=0)  # sides of the box per frame; a track that moves faster is broken
    max_growth: float = Field(default=2.0, gt=1)  # of the box's side between two sightings; more is broken, too
    max_broken: float = Field(default=0.05, ge=0, le=1)  # share of a kind's links that may be broken
    max_unmatched: float = Field(default=0.25, ge=0, le=1)  # share of a kind's sure boxes that may belong to no track
    max_truncated: float = Field(default=0.1, ge=0, le=1)  # share of tracks lost at the border and not seen to leave
    recheck_every: int = Field(default=4, ge=1)  # frames: how often the detectors look at what was blurred
    max_redetected: float = Field(default=0.05, ge=0, le=1)  # share of blurred boxes that are found again
    repairs: int = Field(default=2, ge=0)  # times that boxes found after blurring, where nothing was blurred, are added
    max_uncovered: int = Field(default=0, ge=0)  # such boxes that are left then
    few: int = Field(default=10, ge=1)  # links or sure boxes: of fewer, shares are not judged


class PrivacySettings(Settings):
    """Faces and registration plates are found, followed and blurred before anything is written."""

    mode: Annotated[Literal["on", "off"], BeforeValidator(_as_word)] = "on"
    faces: Models = ()  # what any of them finds is blurred
    plates: Models = ()
    device: Literal["auto", "cpu", "cuda"] = "auto"  # of the detectors; auto: CUDA where onnxruntime has it
    face_detection: DetectionSettings = DetectionSettings()
    plate_detection: DetectionSettings = DetectionSettings()
    tracking: TrackingSettings = TrackingSettings()
    blur: BlurSettings = BlurSettings()
    checks: CheckSettings = CheckSettings()

    @model_validator(mode="after")
    def _off_has_no_detectors(self) -> PrivacySettings:
        given = [name for name in ("faces", "plates") if getattr(self, name)]
        if self.mode == "off" and given:
            raise ValueError(
                f"mode is off, and detectors are given ({', '.join(given)}): leave the detectors out if nothing is to "
                "be blurred, or leave off out and faces and plates are"
            )
        return self
