"""Where the bytes of a corpus lie: plain files in a folder, or members of tar shards, behind one interface."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol

from ..errors import CorpusError, VideoError
from ..storage import inside
from .packing import pack
from .shards import SHARDS, SIDECARS, TRUTH, ShardStore, sidecar_path

__all__ = ["SIDECARS", "TRUTH", "ClipStore", "FolderStore", "ShardStore", "open_store", "pack", "sidecar_path"]


class ClipStore(Protocol):
    """Clips and their sidecars by the manifest's relative path; safe to send to worker processes.

    A sidecar is reached by its own path: `store.read(sidecar_path(clip.path, TRUTH))`.
    """

    folder: Path

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def stamp(self, path: str) -> str:
        """Changes when the file does: its size and when it was written."""
        ...

    def open(self, path: str) -> Path | BinaryIO:
        """What `video.read_frames` and `video.probe` take."""
        ...

    def read(self, path: str) -> bytes: ...


class FolderStore:
    """Clips as plain files under a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def exists(self, path: str) -> bool:
        return inside(self.folder, path).is_file()

    def size(self, path: str) -> int:
        return self.open(path).stat().st_size

    def stamp(self, path: str) -> str:
        found = self.open(path).stat()
        return f"{found.st_size} {found.st_mtime_ns}"

    def open(self, path: str) -> Path:
        file = inside(self.folder, path)
        if not file.is_file():
            raise VideoError(f"{file}: no such file")
        return file

    def read(self, path: str) -> bytes:
        return self.open(path).read_bytes()


def open_store(folder: Path) -> ClipStore:
    """The store of a corpus folder: its shards if it has any, else its files."""
    folder = Path(folder)
    if not folder.is_dir():
        raise CorpusError(f"{folder}: no such folder")
    return ShardStore(folder) if any(folder.glob(SHARDS)) else FolderStore(folder)
