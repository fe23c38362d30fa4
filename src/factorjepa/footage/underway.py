"""How far a source is, told through a file: those who wait can show it, and a process that dies leaves what it was at.

A file and not a message, because it reaches from any process to any other, also across a cluster, and outlives its
writer. The folder holds a file for each source that is being made now, and is gone when all are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ..storage import write_text

FOLDER = "underway"
_EVERY = 1.0  # seconds between two looks


class Underway:
    """Of one source, in the process that makes it."""

    def __init__(self, out: Path, source: str) -> None:
        self._path = _folder(out) / f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.json"
        self._source, self._seconds = source, 0.0

    def died_making_a_clip(self) -> bool:
        """Whether a process that made clips of this source itself ended in the middle of one."""
        return bool(_read(self._path).get("making"))

    def reached(self, seconds: float) -> None:
        """So many seconds of it are clips now, or left out."""
        self._seconds = seconds
        self.tell()

    def tell(self, making: bool = False) -> None:
        told = {"source": self._source, "seconds": self._seconds, "making": making}
        write_text(self._path, json.dumps(told, ensure_ascii=False))

    def done(self) -> None:
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def watched(out: Path, look: Callable[[Mapping[str, float]], None]) -> Iterator[None]:
    """Within: `look` is called now and then, in a thread, with the seconds that each source underway has reached."""
    shutil.rmtree(_folder(out), ignore_errors=True)  # of a run that was interrupted
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_EVERY):
            found = [_read(path) for path in _folder(out).glob("*.json")]
            look({str(one["source"]): float(one["seconds"]) for one in found if one})

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        shutil.rmtree(_folder(out), ignore_errors=True)


def _folder(out: Path) -> Path:
    return out / FOLDER


def _read(path: Path) -> dict[str, str | float | bool]:
    """Nothing where it is gone by now."""
    try:
        found: dict[str, str | float | bool] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
