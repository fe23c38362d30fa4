"""From settings to a filter, or to an error that says what to do."""

from __future__ import annotations

from ...config import Settings
from ...detectors.session import Device, open_session
from ...errors import DetectorError
from .association import require_bytetrack
from .detection import OnnxFinder, Together, opened
from .filter import Off, Redaction
from .interface import PrivacyFilter
from .licences import described
from .settings import PrivacySettings


def build(settings: PrivacySettings) -> PrivacyFilter:
    """The filter; a ConfigError where a detector is missing or cannot be used."""
    if settings.mode == "off":
        return Off()
    require_bytetrack()
    settings = placed(settings)
    device: Device = "cuda" if settings.device == "cuda" else "cpu"
    models = {
        "face": opened(settings.faces, "face", settings.face_detection, device),
        "plate": opened(settings.plates, "plate", settings.plate_detection, device),
    }
    finders = {kind: found[0] if len(found) == 1 else Together(found) for kind, found in models.items()}
    return Redaction(finders, settings, _statement(settings, models))


def placed(settings: PrivacySettings) -> PrivacySettings:
    """The settings with the device decided: to be asked once, so that all workers of a run take the same."""
    if settings.mode == "off" or settings.device != "auto" or not settings.faces:
        return settings
    try:
        open_session(settings.faces[0], "cuda")
    except DetectorError:
        return settings.model_copy(update={"device": "cpu"})
    return settings.model_copy(update={"device": "cuda"})


def notices(privacy: PrivacyFilter) -> list[str]:
    """What a user is told before footage is processed: detectors, their licences and device, or that there are none."""
    told = privacy.statement
    if told["privacy"] != "on":
        return [f"privacy: {told['privacy']}"]
    where = {"cpu": "the CPU; onnxruntime-gpu in place of onnxruntime would take a GPU", "cuda": "the GPU"}
    lines = [f"{kind}: {told[kind]}" for kind in ("faces", "plates")]
    return [*lines, f"detectors run on {where[told['device']]}"]


def _statement(settings: PrivacySettings, models: dict[str, list[OnnxFinder]]) -> dict[str, str]:
    return {
        "privacy": "on",
        "faces": _all_described(models["face"]),
        "plates": _all_described(models["plate"]),
        "device": settings.device,
        "face detection": _listed(settings.face_detection),
        "plate detection": _listed(settings.plate_detection),
        "tracking": f"ByteTrack forwards and backwards; {_listed(settings.tracking)}",
        "blur": f"means of cells, then Gaussian; {_listed(settings.blur)}",
        "checks": _listed(settings.checks),
    }


def _all_described(models: list[OnnxFinder]) -> str:
    return ", and ".join(described(model.sha256, model.layout) for model in models)


def _listed(section: Settings) -> str:
    values = section.model_dump(mode="json").items()
    return ", ".join(f"{name} {value}" for name, value in values if value not in (None, []))
