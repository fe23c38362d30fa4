"""From settings to a filter, or to an error that says what to do."""

from __future__ import annotations

from ...config import Settings
from .association import require_bytetrack
from .detection import OnnxFinder, opened
from .filter import Off, Redaction
from .interface import PrivacyFilter
from .licences import described
from .settings import PrivacySettings


def build(settings: PrivacySettings) -> PrivacyFilter:
    """The filter; a ConfigError where a detector is missing or cannot be used."""
    if settings.mode == "off":
        return Off()
    require_bytetrack()
    finders = {
        "face": opened(settings.faces, "face", settings.face_detection),
        "plate": opened(settings.plates, "plate", settings.plate_detection),
    }
    return Redaction(finders, settings, _statement(settings, finders))


def notices(privacy: PrivacyFilter) -> list[str]:
    """What a user is told before footage is processed: the detectors and their licences, or that there are none."""
    told = privacy.statement
    return [f"{kind}: {told[kind]}" for kind in ("faces", "plates", "privacy") if kind in told and told[kind] != "on"]


def _statement(settings: PrivacySettings, finders: dict[str, OnnxFinder]) -> dict[str, str]:
    return {
        "privacy": "on",
        "faces": described(finders["face"].sha256, finders["face"].layout),
        "plates": described(finders["plate"].sha256, finders["plate"].layout),
        "face detection": _listed(settings.face_detection),
        "plate detection": _listed(settings.plate_detection),
        "tracking": f"ByteTrack forwards and backwards; {_listed(settings.tracking)}",
        "blur": f"means of cells, then Gaussian; {_listed(settings.blur)}",
        "checks": _listed(settings.checks),
    }


def _listed(section: Settings) -> str:
    values = section.model_dump(mode="json").items()
    return ", ".join(f"{name} {value}" for name, value in values if value not in (None, []))
