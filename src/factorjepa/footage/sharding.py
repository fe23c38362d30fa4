"""Clips of a corpus that ingest keeps in tar shards: made as plain files, then laid into shards, a shard at a time.

A shard is whole or absent, and a plain file goes when its shard is there: whatever is interrupted, every clip lies in
one of the two. A corpus that grows gets new shards; those that it has are left as they are.
"""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..corpus.packing import Member, fill, write_shard
from ..corpus.shards import SHARDS, ShardStore, index_of, shard_name, sidecar_path
from ..errors import CorpusError, VideoError
from ..storage import write_atomic

NOTES = ".json"  # what a clip's own file says of it, beside the video
Entry = Mapping[str, Any]  # of a clip in the record of its source


def held(out: Path, path: str) -> bytes | None:
    """The bytes of a clip or its notes, as a plain file or in a shard; None where it is in neither."""
    with contextlib.suppress(FileNotFoundError):
        return (out / path).read_bytes()
    with contextlib.suppress(VideoError):
        return _shards(out, out.stat().st_mtime_ns).read(path)
    return None


def damage_of(out: Path, clip: Entry) -> str:
    """How a clip's video differs from what was written: nothing, or in words."""
    data, where = held(out, clip["path"]), out / clip["path"]
    if data is None:
        return f"{where}: was missing"
    if len(data) != clip["size"]:
        return f"{where}: had {len(data)} of {clip['size']} bytes"
    return "" if zlib.crc32(data) == clip["crc32"] else f"{where}: its bytes had changed"


def discard_unreadable(out: Path) -> list[str]:
    """Remove shards that are cut short or no archives, so that their clips are made again; which those were."""
    wrong = []
    for shard in sorted(out.glob(SHARDS)):
        try:
            index_of(shard)
        except CorpusError:
            wrong.append(f"{shard}: was damaged or cut short")
            _remove(shard)
    return wrong


def lay_into_shards(out: Path, clips: Sequence[Entry], shard_bytes: int) -> None:
    """Bring the corpus to the state in which every clip lies in a shard, and nothing else does."""
    wanted = {clip["path"]: clip for clip in clips}
    there: set[str] = set()
    for shard in sorted(out.glob(SHARDS)):
        videos = [name for name in index_of(shard) if not name.endswith(NOTES)]
        kept = [name for name in videos if name in wanted]
        made_again = [name for name in kept if (out / name).exists() and not _is_sound(shard, wanted[name])]
        if made_again or len(kept) < len(videos):
            _rewrite(out, shard, kept, made_again)
        _forget(out, kept)
        there.update(kept)
    missing = [[*_members(out, clip["path"])] for clip in clips if clip["path"] not in there]
    number = 0
    for members in fill(missing, shard_bytes):
        while (out / shard_name(number)).exists():
            number += 1
        write_shard(out / shard_name(number), members)
        index_of(out / shard_name(number))
        _forget(out, [clip[0].name for clip in members])


def _members(out: Path, path: str) -> tuple[Member, Member]:
    return Member.of(path, out / path), Member.of(notes := sidecar_path(path, NOTES), out / notes)


def _rewrite(out: Path, shard: Path, kept: Sequence[str], made_again: Sequence[str]) -> None:
    """A shard under its own name with what was made again, and without what is no clip any more."""
    for name in kept:
        if name not in made_again:
            for part in (name, sidecar_path(name, NOTES)):
                data = _part(shard, part)
                write_atomic(out / part, lambda temporary, data=data: temporary.write_bytes(data))  # type: ignore[misc]
    if kept:
        write_shard(shard, [[*_members(out, name)] for name in kept])
        index_of(shard)
    else:
        _remove(shard)


def _is_sound(shard: Path, clip: Entry) -> bool:
    return bool(zlib.crc32(_part(shard, clip["path"])) == clip["crc32"])


def _part(shard: Path, name: str) -> bytes:
    offset, size = index_of(shard)[name]
    with open(shard, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _forget(out: Path, paths: Sequence[str]) -> None:
    """Remove plain files that lie in a shard, and the folders that are empty then."""
    for path in paths:
        for file in (out / path, out / sidecar_path(path, NOTES)):
            file.unlink(missing_ok=True)
        for folder in (out / path).relative_to(out).parents[:-1]:
            with contextlib.suppress(OSError):
                (out / folder).rmdir()


def _remove(shard: Path) -> None:
    shard.unlink()
    shard.with_suffix(".index.json").unlink(missing_ok=True)


@functools.lru_cache(maxsize=1)
def _shards(out: Path, changed: int) -> ShardStore:
    """Of this process, until a shard is added or removed."""
    return ShardStore(out)
