"""What a corpus remembers of how it was ingested: `ingest.yaml`."""

from __future__ import annotations

from pathlib import Path

from .. import __version__
from ..config import Settings, resolve
from .settings import IngestSettings

PLAN = "ingest.yaml"


class IngestPlan(Settings):
    """Everything that determines the corpus but the sources, kept beside it."""

    version: str = __version__
    settings: IngestSettings = IngestSettings()
    privacy: dict[str, str]  # the filter's own statement


def read_statement(folder: Path) -> dict[str, str]:
    """What the privacy filter of a corpus says of itself; nothing where the corpus was not ingested."""
    path = folder / PLAN
    return resolve(IngestPlan, path).privacy if path.is_file() else {}
