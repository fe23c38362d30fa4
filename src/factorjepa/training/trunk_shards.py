"""Records of equal size by kind and clip, in shards that appear whole: a folder that fills while training reads it.

    header.json                              what the records depend on
    rank-0/target-00000.safetensors          some 128 MB of records of one kind, in the order in which they were made

Records wait in memory until a shard is full, then it is written in one step; a killed process loses at most what was
waiting, and leaves nothing half. One process writes into a `rank-N`; whoever comes second only reads. Shards that
others finish in the meantime are found. A shard says of which clips its records are: a corpus may grow, but what was
made of a clip that is another one now is refused.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import logging
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import StorageError, TrainingError
from ..storage import only_writer, remove_partials, write_atomic, write_text

log = logging.getLogger(__name__)

FORMAT = 2
HEADER = "header.json"
SHARD_BYTES = 128 * 2**20
_ABOUT, _STATES = "records", "states"
_READERS = 8  # threads: one does not keep a fast disk busy


class RecordShards:
    """The records of a folder. Read at any time; `with` it, made records are kept."""

    def __init__(
        self, folder: Path, header: Mapping[str, Any], rank: int = 0, corpus: Mapping[str, str] | None = None
    ) -> None:
        """`header` is what the records depend on; an existing folder with another one is refused.

        So are records of clips that are not in the `corpus`, clip -> identity, as they were.

        Each process of a distributed run has its own `rank` to write into, and reads those of all.
        """
        self.folder, self.header, self.rank = Path(folder), dict(header), rank
        self._corpus = corpus or {}
        self.writes = False
        self._seen: set[Path] = set()
        self._where: dict[tuple[str, str], tuple[_Shard, int]] = {}
        self._waiting: dict[str, dict[str, Tensor]] = {}
        self._exit = contextlib.ExitStack()
        self._refuse_foreign()
        self._look()

    def __enter__(self) -> RecordShards:
        own = self.folder / f"rank-{self.rank}"
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(only_writer(own, "filling the trunk cache"))
            except StorageError as error:
                if not (self.folder / HEADER).exists():
                    raise
                log.warning("%s. This run reads what is there and keeps nothing", error)
                return self
            self._refuse_foreign()  # another run may have begun it since
            if not (self.folder / HEADER).exists():
                write_text(self.folder / HEADER, json.dumps({"format": FORMAT, **self.header}, indent=1) + "\n")
            remove_partials(own)
            self.writes, self._exit = True, held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._exit:
            if kind is None:
                for waiting in list(self._waiting):
                    self._write(waiting)
            self.writes = False

    def has(self, kind: str, clip_id: str) -> bool:
        return (kind, clip_id) in self._where or clip_id in self._waiting.get(kind, {})

    def read(self, kind: str, clip_ids: Sequence[str], into_BSND: Tensor) -> list[int]:
        """Copy the records of `clip_ids` into the rows of a tensor; return the rows that have none."""
        if any(not self.has(kind, clip_id) for clip_id in clip_ids):
            self._look()
        missing = [row for row, clip_id in enumerate(clip_ids) if not self.has(kind, clip_id)]
        found = [row for row in range(len(clip_ids)) if row not in missing]
        with concurrent.futures.ThreadPoolExecutor(_READERS) as threads:
            list(threads.map(lambda row: self._copy(kind, clip_ids[row], into_BSND[row]), found))
        return missing

    def add(self, kind: str, clip_id: str, record_SND: Tensor) -> None:
        """Keep a record, if this process writes and the disk has room; it may be read at once."""
        if not self.writes:
            return
        waiting = self._waiting.setdefault(kind, {})
        waiting[clip_id] = record_SND
        if sum(record.nbytes for record in waiting.values()) >= SHARD_BYTES:
            self._write(kind)

    def _copy(self, kind: str, clip_id: str, into: Tensor) -> None:
        waiting = self._waiting.get(kind, {})
        if clip_id in waiting:
            into.copy_(waiting[clip_id])
            return
        shard, row = self._where[kind, clip_id]
        shard.copy(row, into)

    def numbers(self, kind: str) -> set[int]:
        """Those of the shards that are in this rank's folder."""
        folder = self.folder / f"rank-{self.rank}"
        return {int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{kind}-*.safetensors")}

    def save(self, kind: str, number: int, records: Mapping[str, Tensor]) -> None:
        """Write a whole shard of this rank, records by clip; also from a process that works for the one that writes."""
        checksums = [_checksum(record) for record in records.values()]
        identities = [self._corpus.get(clip_id, "") for clip_id in records]
        about = {"header": self.header, "kind": kind, "clips": list(records), "identities": identities,
                 "checksums": checksums}  # fmt: skip
        data = save({_STATES: torch.stack(list(records.values()))}, metadata={_ABOUT: json.dumps(about)})
        path = self.folder / f"rank-{self.rank}" / f"{kind}-{number:05d}.safetensors"
        write_atomic(path, lambda temporary: temporary.write_bytes(data))

    def _write(self, kind: str) -> None:
        records = self._waiting.pop(kind)
        try:
            self.save(kind, max(self.numbers(kind), default=-1) + 1, records)
        except StorageError as error:  # training is worth more than its cache
            self.writes = False
            log.warning("%s This run goes on and keeps no more of the trunk", error)
        self._look()

    def _look(self) -> None:
        """Open the shards that were finished since the last look."""
        for path in sorted(self.folder.glob("rank-*/*.safetensors")):
            if path not in self._seen:
                shard = _Shard(path)
                _refuse_other(path, shard.about["header"], self.header)
                self._refuse_other_clips(shard)
                self._seen.add(path)
                for row, clip_id in enumerate(shard.about["clips"]):
                    self._where.setdefault((shard.about["kind"], clip_id), (shard, row))

    def _refuse_other_clips(self, shard: _Shard) -> None:
        for clip_id, identity in zip(shard.about["clips"], shard.about["identities"], strict=True):
            if self._corpus.get(clip_id, "") != identity:
                how = "is another one now" if clip_id in self._corpus else "is not in it"
                raise TrainingError(
                    f"{shard.path}: was made of another corpus: clip {clip_id!r} {how}. Name another folder with "
                    "trunk_cache=..., or delete the file"
                )

    def _refuse_foreign(self) -> None:
        path = self.folder / HEADER
        if not path.exists():
            if self.folder.exists() and any(not _ours(entry) for entry in self.folder.iterdir()):
                raise TrainingError(f"{self.folder}: is not empty and holds no trunk cache; choose an empty folder")
            return
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            version = found.pop("format")
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise TrainingError(f"{path}: cannot be read ({error}); delete {self.folder}, it is made anew") from None
        if version != FORMAT:
            raise TrainingError(f"{path}: has format {version}, this version reads {FORMAT}; choose another folder")
        _refuse_other(self.folder, found, self.header)


class _Shard:
    """A shard on disk, mapped into memory. A record is compared with its checksum when it is first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            opened = cast(Any, safe_open(path, framework="pt"))
            self.about: dict[str, Any] = json.loads(opened.metadata()[_ABOUT])
            self._states = opened.get_slice(_STATES)
            if self._states.get_shape()[0] != len(self.about["clips"]):
                raise ValueError("it holds another number of records than it says")
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(str(error)) from None
        self._sound: set[int] = set()

    def copy(self, row: int, into: Tensor) -> None:
        into.copy_(cast(Tensor, self._states[row]))
        if row not in self._sound:
            if _checksum(into) != self.about["checksums"][row]:
                raise self._damaged(f"the bytes of {self.about['clips'][row]!r} have changed since it was written")
            self._sound.add(row)

    def _damaged(self, why: str) -> TrainingError:
        return TrainingError(f"{self.path}: is damaged ({why}); delete it, the next run makes its records again")


def _ours(entry: Path) -> bool:
    return entry.name.startswith((".", "rank-"))


def _checksum(record: Tensor) -> int:
    return zlib.crc32(record.contiguous().view(torch.uint8).numpy().data)


def _refuse_other(where: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    differing = [
        f"{key} is {found.get(key)!r} there and {value!r} here" for key, value in wanted.items()
        if found.get(key) != value
    ]  # fmt: skip
    if differing:
        raise TrainingError(
            f"{where}: holds the trunk of other runs: {'; '.join(differing)}. Name another folder with "
            "trunk_cache=..., or delete this one"
        )
