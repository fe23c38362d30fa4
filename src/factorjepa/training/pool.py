"""Windows of the simulated world in a folder that grows while training reads from it.

The simulator makes windows slower than a GPU eats them, so windows are kept and used again. Which windows a step may
draw from depends on the step alone, never on how fast they were made: a run is the same on any machine, and a resumed
one finds the files of its first half. One file per source video, written whole.
"""

from __future__ import annotations

import io
import math
import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TrainingError
from ..storage import write_atomic
from ..workers import begin_worker, single_threaded
from ..world import WorldSettings
from ..world.windows import source_windows

Windows = NDArray[np.uint8]  # [n, T, H, W, 3]
_PATIENCE = 600.0  # seconds without a new file before we say that something is wrong


class WindowPool:
    """Sources `first, first + 1, ...` of a world, made in worker processes in that order; a context manager.

    Reading a source waits until it has been made.
    """

    def __init__(
        self,
        folder: Path,
        world: WorldSettings,
        seed: int,
        sources: int,
        workers: int,
        frames: int = 16,
        first: int = 0,
    ) -> None:
        self.folder, self.sources, self.first = Path(folder), sources, first
        self._job = (str(folder), world.model_dump(), seed, frames)
        self._workers = max(1, workers)
        self._shape = (frames, world.size, world.size, 3)
        self._header = _header_bytes(self._shape)
        self._counts: dict[int, int] = {}
        self._made: list[Any] = []

    def __enter__(self) -> WindowPool:
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = [s for s in range(self.first, self.first + self.sources) if not _path(self.folder, s).exists()]
        with single_threaded():
            self._processes = multiprocessing.get_context("spawn").Pool(self._workers, initializer=begin_worker)
        self._made = [self._processes.apply_async(make_source, (*self._job, source)) for source in wanted]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.terminate()
        self._processes.join()

    def windows(self, source: int) -> Windows:
        """All windows of the n-th source of this pool."""
        return np.stack([self._read(source, row) for row in range(self._count(source))])

    def batch(self, count: int, ready: int, random: np.random.Generator) -> Windows:
        """`count` windows of the first `ready` sources, each source as likely as any other; threads may call it."""
        chosen, found = np.empty((count, *self._shape), np.uint8), 0
        while found < count:
            source = int(random.integers(ready))
            if rows := self._count(source):
                chosen[found] = self._read(source, int(random.integers(rows)))
                found += 1
        return chosen

    def _count(self, source: int) -> int:
        if source not in self._counts:
            path = self._path(source)
            self._wait_for(path)
            self._counts[source] = (path.stat().st_size - self._header) // math.prod(self._shape)
        return self._counts[source]

    def _read(self, source: int, row: int) -> Windows:
        """One window by its place in the file: thousands of mapped files would exhaust the file descriptors."""
        size = math.prod(self._shape)
        flat = np.fromfile(self._path(source), np.uint8, size, offset=self._header + row * size)
        return flat.reshape(self._shape)

    def _path(self, source: int) -> Path:
        return _path(self.folder, self.first + source)

    def _wait_for(self, path: Path) -> None:
        started = time.monotonic()
        while not path.exists():
            for made in self._made:
                if made.ready():
                    made.get()  # raises what a worker raised
            if time.monotonic() - started > _PATIENCE:
                raise TrainingError(f"{path}: not made within {_PATIENCE:.0f} s; is the disk full, or a worker dead?")
            time.sleep(0.05)


def make_source(folder: str, world: dict[str, Any], seed: int, frames: int, source: int) -> None:
    """Write all windows of one source as one `.npy` file; runs in a worker."""
    settings = WorldSettings.model_validate(world)
    videos: Sequence[Windows] = [window.video for window in source_windows(settings, seed, source, frames)]
    shape = (0, frames, settings.size, settings.size, 3)
    stacked = np.stack(videos) if videos else np.empty(shape, np.uint8)

    def save(temporary: Path) -> None:
        with open(temporary, "wb") as opened:
            np.save(opened, stacked)

    write_atomic(_path(Path(folder), source), save)


def _header_bytes(shape: tuple[int, ...]) -> int:
    """Length of the header that `np.save` writes; it is padded, and so the same for any number of windows."""
    written = io.BytesIO()
    np.save(written, np.empty((0, *shape), np.uint8))
    return written.tell()


def _path(folder: Path, source: int) -> Path:
    return folder / f"source-{source:06d}.npy"
