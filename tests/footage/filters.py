"""Privacy filters, and work, that do something a test can see. Loaded in worker processes: nothing heavy here."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import ClassVar

from factorjepa.errors import StorageError
from factorjepa.footage.privacy import Filtered
from factorjepa.video import Frames


class Unfiltered:
    """Leaves everything as it is."""

    statement: ClassVar[dict[str, str]] = {"privacy": "off: for a test"}

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        return Filtered(frames)


class Recorder(Unfiltered):
    """Blackens the upper half of what it is given, and remembers how much that was."""

    statement: ClassVar[dict[str, str]] = {"privacy": "on", "faces": "upper halves"}
    given: ClassVar[list[int]] = []

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        self.given.append(len(frames))
        filtered = frames.copy()
        filtered[:, : frames.shape[1] // 2] = 0
        return Filtered(filtered, counts={"face_tracks": 2}, audit=b"a sheet" if audit else b"")


class Signing(Unfiltered):
    """Leaves a file named after its process, refuses bright clips, and blackens the left half of the others.

    A file named `mortal` kills one process that meets it.
    """

    statement: ClassVar[dict[str, str]] = {"privacy": "on", "faces": "left halves"}

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        (self._folder / f"pid-{os.getpid()}").touch()
        with contextlib.suppress(FileNotFoundError):
            (self._folder / "mortal").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if frames.mean() > 150:
            return Filtered(frames, ("bright",), audit=b"a bright sheet")
        frames[:, :, : frames.shape[2] // 2] = 0  # in place: nobody else needs them
        return Filtered(frames, counts={"face_tracks": len(frames)}, audit=b"a sheet")


class Failing(Unfiltered):
    statement: ClassVar[dict[str, str]] = {"privacy": "on"}

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        return Filtered(frames, ("track broken at 2.1 s",), audit=b"a sheet" if audit else b"")


class Raising(Unfiltered):
    statement: ClassVar[dict[str, str]] = {"privacy": "on", "faces": "raises"}

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        raise RuntimeError("out of anchors")


class Shrinking(Unfiltered):
    statement: ClassVar[dict[str, str]] = {"privacy": "on", "faces": "shrinks"}

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        return Filtered(frames[:-1])


class Deadly(Unfiltered):
    """Dies on one file: kills its process, as a decoder may, when it sees a bright frame."""

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        if frames.mean() > 170:
            os.kill(os.getpid(), signal.SIGSEGV)
        return Filtered(frames)


class Endless(Unfiltered):
    """Hangs on one file."""

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        if frames.mean() > 170:
            time.sleep(60)
        return Filtered(frames)


class Patient(Unfiltered):
    """Goes on from its second clip when somebody has seen how far it is."""

    statement: ClassVar[dict[str, str]] = {"privacy": "off: for a test of progress"}

    def __init__(self, seen: Path) -> None:
        self._seen, self._clips = seen, 0

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        self._clips += 1
        deadline = time.monotonic() + 60
        while self._clips > 1 and not self._seen.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return Filtered(frames)


class Mortal(Unfiltered):
    """Kills the process it runs in, once."""

    statement: ClassVar[dict[str, str]] = {"privacy": "off: for a test of workers that die"}

    def __init__(self, folder: Path) -> None:
        self._died = folder / "died"

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        with contextlib.suppress(FileExistsError):
            self._died.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return Filtered(frames)


def refuses(job: int) -> int:
    """Work of an engine that fails with an error of ours."""
    if job == 1:
        raise StorageError("the disk is full")
    return job
