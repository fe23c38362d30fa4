"""Clips in tar shards (webdataset layout), read at random by offset.

A shard holds `<key>.mp4`, `<key>.truth.npz` and `<key>.json` side by side, uncompressed, so a member is a stretch of
the file. Where each stretch lies is kept in `shard-00000.index.json` beside the shard and rebuilt when the shard has
changed. Shards come from elsewhere: only plain files with names inside the archive are accepted.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ..errors import CorpusError, StorageError, VideoError
from ..storage import write_text
from .checks import unsafe_path

TRUTH = ".truth.npz"
SIDECARS = (TRUTH, ".json")  # what travels with a clip: ground truth where there is one, and notes
SHARDS = "shard-*.tar"

_END = 1024  # two empty blocks close an archive


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.tar"


def sidecar_path(path: str, suffix: str) -> str:
    """`clips/a/1.mp4`, `.json` -> `clips/a/1.json`."""
    return str(PurePosixPath(path).with_suffix("")) + suffix


class ShardStore:
    """Clips in the tar shards of a folder.

    It holds no open file, so it can be forked or pickled into worker processes, and reads do not share a position.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._shards = sorted(self.folder.glob(SHARDS))
        self._members: dict[str, tuple[int, int, int]] = {}
        for number, shard in enumerate(self._shards):
            for name, (offset, size) in index_of(shard).items():
                if name in self._members:
                    other = self._shards[self._members[name][0]].name
                    raise CorpusError(f"{shard}: member {name!r} is also in {other}; pack the corpus again")
                self._members[name] = (number, offset, size)

    def exists(self, path: str) -> bool:
        return str(PurePosixPath(path)) in self._members

    def size(self, path: str) -> int:
        return self._where(path)[2]

    def stamp(self, path: str) -> str:
        number, offset, size = self._where(path)
        return f"{size} {offset} {self._shards[number].stat().st_mtime_ns}"

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def read(self, path: str) -> bytes:
        number, offset, size = self._where(path)
        try:
            with open(self._shards[number], "rb") as shard:
                shard.seek(offset)
                data = shard.read(size)
        except OSError as error:
            raise VideoError(f"{path}: cannot be read from {self._shards[number]} ({error.strerror})") from None
        if len(data) != size:
            raise VideoError(f"{path}: {self._shards[number]} has become shorter; pack or copy the corpus again")
        return data

    def _where(self, path: str) -> tuple[int, int, int]:
        try:
            return self._members[str(PurePosixPath(path))]
        except KeyError:
            raise VideoError(f"{path}: is in none of the {len(self._shards)} shards of {self.folder}") from None


def index_of(shard: Path) -> dict[str, tuple[int, int]]:
    """Member name -> (offset, size), from the cache beside `shard` if that describes this very file."""
    cache = shard.with_suffix(".index.json")
    state = shard.stat()
    stamp = {"size": state.st_size, "mtime_ns": state.st_mtime_ns}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        cached = json.loads(cache.read_text(encoding="utf-8"))
        if cached["shard"] == stamp:
            return {str(name): _stretch(where, state.st_size) for name, where in cached["members"].items()}
    members = scan(shard)
    with contextlib.suppress(StorageError):  # a read-only corpus is indexed again by every process that opens it
        write_text(cache, json.dumps({"shard": stamp, "members": members}))
    return members


def scan(shard: Path) -> dict[str, tuple[int, int]]:
    """Read the headers of `shard` and refuse anything that is not a plain file inside it."""
    members: dict[str, tuple[int, int]] = {}
    size = shard.stat().st_size
    end = 0
    try:
        with tarfile.open(shard, "r:") as archive:
            for member in archive:
                end = member.offset_data
                if member.isdir():
                    continue
                if reason := _refusal(member, members):
                    raise CorpusError(f"{shard}: member {member.name!r} {reason}; this shard is not safe to read")
                members[str(PurePosixPath(member.name))] = (member.offset_data, member.size)
                end += -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise CorpusError(f"{shard}: cannot be read as a tar archive ({error}); pack or copy it again") from None
    if end + _END > size:
        raise CorpusError(f"{shard}: is cut short at {size} bytes; pack or copy it again")
    return members


def _refusal(member: tarfile.TarInfo, seen: dict[str, tuple[int, int]]) -> str:
    if unsafe_path(member.name):
        return "has a name that leaves its folder"
    if member.issym() or member.islnk():
        return f"is a link to {member.linkname!r}"
    if not member.isreg() or member.issparse():
        return "is a device, a pipe or a sparse file, not a plain one"
    if str(PurePosixPath(member.name)) in seen:
        return "appears twice"
    return ""


def _stretch(where: Sequence[int], end: int) -> tuple[int, int]:
    offset, size = where
    if not 0 <= offset <= offset + size <= end:
        raise ValueError("the index points outside its shard")
    return offset, size


def member_key(path: str) -> str:
    """The webdataset key of a clip: everything before the first dot of the name is the key, so it may hold no dot."""
    stem = PurePosixPath(path).with_suffix("")
    return str(stem.with_name(stem.name.replace(".", "_")))


def add_member(archive: tarfile.TarFile, name: str, file_path: Path) -> None:
    """Add a file as `name` with nothing of this machine in the header, so that equal clips give equal shards."""
    with open(file_path, "rb") as file:
        member = tarfile.TarInfo(name)
        member.size = os.fstat(file.fileno()).st_size
        member.mode = 0o644
        archive.addfile(member, file)
