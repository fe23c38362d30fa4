"""What a worker is told of a source, where in the corpus the things it makes lie, and how long it took to make them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .. import __version__
from .planning import PlannedSource
from .privacy.interface import PrivacyFilter
from .settings import IngestSettings

RECORDS, AUDIT = "records", "audit"
Build = Callable[[], PrivacyFilter]  # makes the filter in the process that uses it


@dataclass(frozen=True)
class SourceJob:
    """All that a worker needs to know of one source."""

    out: Path
    path: Path
    source: PlannedSource
    settings: IngestSettings
    build: Build
    statement: dict[str, str]
    audit: bool = False
    cores: int = 1  # that it may keep busy; its clips are the same whatever they are

    @property
    def identity(self) -> str:
        """What decides the bytes of this source's clips."""
        parts = [__version__, self.settings.deciding(), self.statement, asdict(self.source)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def sheet_path(out: Path, clip_id: str) -> Path:
    source, _, place = clip_id.rpartition("#")
    return out / AUDIT / source / f"{place.replace('.', '-')}.png"


def record_path(out: Path, source: str) -> Path:
    return out / RECORDS / f"{source}.json"


@contextlib.contextmanager
def timing(spent: dict[str, float], stage: str) -> Iterator[None]:
    """Add the seconds within to those of the stage."""
    began = time.perf_counter()
    try:
        yield
    finally:
        spent[stage] = spent.get(stage, 0.0) + time.perf_counter() - began
