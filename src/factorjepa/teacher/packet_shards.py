"""Many packets in one file: every column of all of them concatenated, with offsets, as safetensors.

A shard is written whole or not at all and read by memory map: a packet is a handful of slices of it, wherever it lies.
"""

from __future__ import annotations

import itertools
import json
import mmap
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from ..errors import TeacherError
from ..storage import write_atomic
from .packet import COLUMNS, TABLES, Packet

FORMAT = 1
_ABOUT = "packets"  # one key only: safetensors writes several in no fixed order
_TYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16,
    "U32": np.uint32, "U16": np.uint16, "U8": np.uint8,
}  # fmt: skip


def write_shard(path: Path, clip_ids: Sequence[str], packets: Sequence[Packet], about: dict[str, Any]) -> None:
    """Write the packets of `clip_ids`; `about` says what made them and is handed back by `Shard.about`."""
    columns: dict[str, NDArray[Any]] = {}
    for table in TABLES:
        first = next(name for name, (of, _) in COLUMNS.items() if of == table)
        counts = [len(getattr(packet, first)) for packet in packets]
        columns[f"offset.{table}"] = np.cumsum([0, *counts], dtype=np.int64)
    for name, (where, _) in COLUMNS.items():
        values = [getattr(packet, name) for packet in packets]
        columns[name] = np.stack(values) if where is None else np.concatenate(values)
    notes = {"format": FORMAT, **about, "clips": list(clip_ids), "checksum": _checksum(columns)}
    data = save(columns, metadata={_ABOUT: json.dumps(notes)})
    write_atomic(path, lambda temporary: temporary.write_bytes(data))


class UnreadableError(TeacherError):
    """The system did not give a shard out: nothing is known about what it holds."""


class Shard:
    """A shard on disk, mapped into memory. It can be sent to another process, which maps it again."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._columns, self.about = self._read_header()
            self.clips: list[str] = self.about["clips"]
            self._check()
        except OSError as error:
            raise UnreadableError(f"{self.path}: cannot be read ({error.strerror or error})") from None
        except (ValueError, KeyError, TypeError) as error:  # an empty file, a cut one, a header that is none
            raise TeacherError(
                f"{self.path}: is damaged ({error}); delete it and run factorjepa targets again to make it anew"
            ) from None
        self._offsets = {table: self._columns[f"offset.{table}"].tolist() for table in TABLES}
        self._whole = [(name, self._columns[name]) for name, (table, _) in COLUMNS.items() if table is None]
        self._ragged = [(name, self._columns[name], table) for name, (table, _) in COLUMNS.items() if table is not None]

    def __len__(self) -> int:
        return len(self.clips)

    def packet(self, row: int) -> Packet:
        """The packet of `clips[row]`; its arrays are views of the file."""
        bounds = {table: slice(*offsets[row : row + 2]) for table, offsets in self._offsets.items()}
        values = {name: column[row] for name, column in self._whole}
        values.update({name: column[bounds[table]] for name, column, table in self._ragged})
        return Packet(**values)

    def verify(self) -> None:
        """Read everything and compare with the checksum taken when it was written."""
        if _checksum(self._columns) != self.about["checksum"]:
            raise TeacherError(
                f"{self.path}: its bytes have changed since it was written; run factorjepa targets again to make it "
                "anew"
            )

    def __reduce__(self) -> tuple[type[Shard], tuple[Path]]:
        return Shard, (self.path,)

    def _read_header(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        size = int.from_bytes(self._data[:8], "little")
        if not 0 < size <= len(self._data) - 8:
            raise ValueError("it is cut short")
        header = json.loads(self._data[8 : 8 + size])
        about = json.loads(header.pop("__metadata__")[_ABOUT])
        if about["format"] != FORMAT:
            raise ValueError(f"it has format {about['format']}, this version reads {FORMAT}")
        start = 8 + size
        if start + max(where["data_offsets"][1] for where in header.values()) != len(self._data):
            raise ValueError("its length is not what its header says")
        columns = {}
        for name, where in header.items():
            begin, shape = start + where["data_offsets"][0], where["shape"]
            values = np.frombuffer(self._data, _TYPES[where["dtype"]], int(np.prod(shape)), begin)
            columns[name] = values.reshape(shape)
        return columns, about

    def _check(self) -> None:
        for name, (table, dtype) in COLUMNS.items():
            column = self._columns[name]
            rows = len(self.clips) if table is None else int(self._columns[f"offset.{table}"][-1])
            if column.dtype != dtype or len(column) != rows:
                raise ValueError(f"its column {name} has {len(column)} rows of {column.dtype} instead of {rows}")
        for table in TABLES:
            offsets = self._columns[f"offset.{table}"]
            if len(offsets) != len(self.clips) + 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
                raise ValueError(f"its offsets of {table} do not ascend")


def _checksum(columns: dict[str, NDArray[Any]]) -> int:
    value = 0
    for name in itertools.chain(COLUMNS, (f"offset.{table}" for table in TABLES)):
        value = zlib.crc32(columns[name].tobytes(), value)
    return value
