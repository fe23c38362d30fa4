"""Turn a corpus folder into tar shards: killed at any moment it can be run again, and only whole shards are ever seen.

Which clip goes into which shard is decided before the first byte is written and depends on the corpus and the shard
size only. `pack.json` remembers that plan, so a second run continues it and a run with another plan is refused. The
manifest is written last: a folder that has one is finished.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import CorpusError
from ..storage import atomic_path, inside, only_writer, remove_partials, write_text
from ..words import counted
from .manifest import MANIFEST, Clip, Manifest
from .shards import SHARDS, SIDECARS, add_member, index_of, member_key, shard_name, sidecar_path

_PLAN = "pack.json"
_NOTES = (
    ".yaml",
    ".yml",
    ".json",
    ".md",
    ".txt",
    ".csv",
    ".parquet",
)  # what describes a corpus beside its manifest moves along


@dataclass(frozen=True)
class Member:
    """A file on its way into a shard."""

    name: str
    file: Path
    size: int
    modified: int

    @classmethod
    def of(cls, name: str, file: Path) -> Member:
        state = file.stat()
        return cls(name, file, state.st_size, state.st_mtime_ns)


Shard = list[list[Member]]  # the members of one shard, clip by clip


def pack(
    folder: Path,
    out: Path,
    shard_bytes: int = 1_000_000_000,
    progress: Callable[[int, int], object] | None = None,
) -> Manifest:
    """Write the clips of `folder`, with their sidecars, as shards of about `shard_bytes` into `out`.

    Returns the manifest of `out`; `progress(done, total)` counts clips. Run it again after an interruption.
    """
    folder, out = Path(folder), Path(out)
    if shard_bytes < 1:
        raise CorpusError(f"shard_bytes must be at least 1, got {shard_bytes}")
    if any(folder.glob(SHARDS)):
        raise CorpusError(f"{folder}: is packed already; name a corpus whose clips are plain files")
    manifest = Manifest.read(folder)
    if not len(manifest):
        raise CorpusError(f"{folder}: has no clips to pack")
    packed = Manifest(replace(clip, path=f"{member_key(clip.path)}{Path(clip.path).suffix}") for clip in manifest)
    shards = list(fill(_members(folder, manifest, packed), shard_bytes))
    with only_writer(out, "packing"):
        _claim(out, folder, shards, shard_bytes)
        remove_partials(out)
        done = 0
        for number, shard in enumerate(shards):
            path = out / shard_name(number)
            if not path.exists():
                write_shard(path, shard)
            index_of(path)
            done += len(shard)
            if progress is not None:
                progress(done, len(manifest))
        for note in _notes(folder):
            with atomic_path(out / note.name) as temporary:
                shutil.copyfile(note, temporary)
        packed.write(out)
    return packed


def _members(folder: Path, manifest: Manifest, packed: Manifest) -> list[list[Member]]:
    """For every clip its files under the names they get in the archive: the video first, then what belongs to it."""
    missing: list[Clip] = []
    clips = []
    for clip, renamed in zip(manifest, packed, strict=True):
        names = {clip.path: renamed.path}
        names |= {sidecar_path(clip.path, suffix): sidecar_path(renamed.path, suffix) for suffix in SIDECARS}
        members = []
        for path, name in names.items():
            file = inside(folder, path)
            with contextlib.suppress(FileNotFoundError):
                members.append(Member.of(name, file))
        if not members or members[0].name != renamed.path:
            missing.append(clip)
        clips.append(members)
    if missing:
        raise CorpusError(
            f"{folder}: the files of {counted(len(missing), 'clip')} are missing, first {missing[0].path!r}; "
            "produce them again or take the clips out of the manifest"
        )
    return clips


def fill(clips: list[list[Member]], shard_bytes: int) -> Iterator[Shard]:
    """Close a shard before the clip that would make it too large; a clip is never divided."""
    shard: Shard = []
    filled = 0
    for members in clips:
        size = sum(member.size for member in members)
        if shard and filled + size > shard_bytes:
            yield shard
            shard, filled = [], 0
        shard.append(members)
        filled += size
    if shard:
        yield shard


def _claim(out: Path, folder: Path, shards: list[Shard], shard_bytes: int) -> None:
    """Record the plan in an empty `out`, or make sure that `out` holds a part of this very plan."""
    plan = hashlib.blake2b(digest_size=16)
    plan.update((folder / MANIFEST).read_bytes())
    for number, shard in enumerate(shards):
        for members in shard:
            for member in members:
                plan.update(f"{number}\0{member.name}\0{member.size}\0{member.modified}\0".encode())
    text = json.dumps({"plan": plan.hexdigest(), "shards": len(shards), "shard_bytes": shard_bytes}, indent=2)
    path = out / _PLAN
    if path.exists():
        if path.read_text(encoding="utf-8") != text:
            raise CorpusError(
                f"{out}: holds shards of another corpus, of an earlier state of {folder}, or of another size than "
                f"{shard_bytes} bytes; choose an empty folder"
            )
    elif any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise CorpusError(f"{out}: is not empty and was not begun by packing; choose an empty folder")
    else:
        write_text(path, text)


def write_shard(path: Path, shard: Shard) -> None:
    with atomic_path(path) as temporary, tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as archive:
        for members in shard:
            for member in members:
                add_member(archive, member.name, member.file)


def _notes(folder: Path) -> list[Path]:
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_file()
        and entry.suffix in _NOTES
        and not entry.name.startswith(".")
        and entry.name not in (_PLAN, MANIFEST)
    )
