"""The manifest: one row per clip with its full provenance, in `manifest.parquet` at the top of a corpus folder.

Every clip is its own file; `path` is relative to the corpus folder, and second 0 of the file is `t_start` of the
source video. Columns beyond the fixed ones are attributes (`scene_type`, `weather`, ...): strings, whole numbers,
floats or booleans, null where a clip does not have one. Text that lists several values has `; ` between them.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, overload

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorpusError
from ..seeding import seed_of
from ..storage import write_atomic
from ..words import counted
from .balance import balanced_sequence
from .checks import report, row_problems
from .splits import Split

MANIFEST = "manifest.parquet"
SEPARATOR = "; "
Attribute = str | int | float | bool
PROVENANCE = (
    "source_file",
    "source_sha256",
    "transforms",
)  # attributes that say where a clip comes from, not what it is

_COLUMNS = {
    "clip_id": pa.string(),
    "city": pa.string(),
    "session": pa.string(),
    "source": pa.string(),
    "shot": pa.int64(),
    "capture_mode": pa.string(),
    "t_start": pa.float64(),
    "t_end": pa.float64(),
    "fps": pa.float64(),
    "width": pa.int64(),
    "height": pa.int64(),
    "path": pa.string(),
    "split": pa.string(),
}
_ATTRIBUTE_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


@dataclass(frozen=True)
class Clip:
    """One clip and where it comes from: city -> session -> source video -> shot -> clip."""

    clip_id: str  # "navapur/s03/v17#4.1": city/session/source#shot.clip; the same in every run
    city: str
    session: str
    source: str  # "navapur/s03/v17", unique in the whole corpus
    shot: int
    capture_mode: str  # drive, walk or aerial
    t_start: float  # seconds in the source video
    t_end: float
    fps: float
    width: int
    height: int
    path: str  # relative to the corpus folder
    split: Split
    attributes: Mapping[str, Attribute] = field(default_factory=dict, hash=False)

    @property
    def seconds(self) -> float:
        return self.t_end - self.t_start


def listed(value: str) -> list[str]:
    """The values of a text attribute that lists several: "pedestrian; pedal cycle"; none of an empty one."""
    return [word for word in (part.strip() for part in value.split(SEPARATOR.strip())) if word]


class Manifest(Sequence[Clip]):
    """An immutable, checked list of clips; `read` and `write` keep it as Parquet."""

    def __init__(self, clips: Iterable[Clip]) -> None:
        self._clips = tuple(clips)
        if problems := row_problems(self._clips):
            raise CorpusError(report("the manifest", problems))

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read and check `folder/manifest.parquet`; everything that is wrong with it is listed at once."""
        path = Path(folder) / MANIFEST
        table = _read_table(path)
        problems = [
            f"column {name!r} is missing (expected {kind})"
            for name, kind in _COLUMNS.items()
            if name not in table.column_names
        ]
        columns: dict[str, list[Any]] = {}
        for name in table.column_names:
            try:
                columns[name] = _cast(table[name], _COLUMNS.get(name)).to_pylist()
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # told below, with all that is wrong
                wanted = _COLUMNS.get(name, "a string, whole number, float or boolean")
                problems.append(f"column {name!r} is {table.schema.field(name).type}, not {wanted}")
        problems += [
            f"column {name!r} is null in {values.count(None)} rows, first row {values.index(None)}"
            for name, values in columns.items()
            if name in _COLUMNS and None in values
        ]
        if problems:
            raise CorpusError(report(str(path), problems))
        clips = tuple(_rows(columns, table.num_rows))
        if problems := row_problems(clips):
            raise CorpusError(report(str(path), problems))
        return cls._checked(clips)

    def write(self, folder: Path) -> Path:
        """Write `folder/manifest.parquet` in one step and return its path."""
        path = Path(folder) / MANIFEST
        table = self._table()
        write_atomic(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
        return path

    def clip(self, clip_id: str) -> Clip:
        """The clip with this id."""
        for clip in self._clips:
            if clip.clip_id == clip_id:
                return clip
        near = difflib.get_close_matches(clip_id, (clip.clip_id for clip in self._clips), n=3, cutoff=0.3)
        raise CorpusError(f"there is no clip {clip_id!r}" + (f"; the nearest are {', '.join(near)}" if near else ""))

    def select(
        self,
        split: Split | str | None = None,
        city: str | Collection[str] | None = None,
        capture_mode: str | None = None,
    ) -> Manifest:
        """The clips that match every condition given, in the same order."""
        if split is not None and split not in tuple(Split):
            raise CorpusError(f"there is no split {split!r}: choose {', '.join(Split)}")
        cities = {city} if isinstance(city, str) else city
        return self._checked(
            clip
            for clip in self._clips
            if (split is None or clip.split == split)
            and (cities is None or clip.city in cities)
            and (capture_mode is None or clip.capture_mode == capture_mode)
        )

    def subset(self, n: int, seed: int) -> Manifest:
        """`n` clips in proportion to city x capture mode: each stratum is within one clip of its share.

        With the same seed a smaller subset lies inside every larger one (largest remainders alone would not nest).
        """
        if not 0 < n <= len(self):
            raise CorpusError(f"cannot take a subset of {n} clips: there are {len(self)}; ask for 1 to {len(self)}")
        strata: dict[tuple[str, str], list[int]] = {}
        for index, clip in enumerate(self._clips):
            strata.setdefault((clip.city, clip.capture_mode), []).append(index)
        ordered = sorted(strata.items(), key=lambda item: seed_of(seed, "subset", *item[0]))
        queues = [
            iter(sorted(members, key=lambda index: seed_of(seed, "subset", self._clips[index].clip_id)))
            for _, members in ordered
        ]
        dealt = islice(balanced_sequence([len(members) for _, members in ordered]), n)
        taken = {next(queues[stratum]) for stratum in dealt}
        return self._checked(clip for index, clip in enumerate(self._clips) if index in taken)

    @classmethod
    def _checked(cls, clips: Iterable[Clip]) -> Manifest:
        """Skip the checks: any part of a sound manifest is sound."""
        manifest = cls.__new__(cls)
        manifest._clips = tuple(clips)
        return manifest

    def _table(self) -> Any:
        columns = {
            name: pa.array([getattr(clip, name) for clip in self._clips], kind) for name, kind in _COLUMNS.items()
        }
        names = sorted({name for clip in self._clips for name in clip.attributes})
        for name in names:
            values = [clip.attributes.get(name) for clip in self._clips]
            kind = next(_attribute_type(value) for value in values if value is not None)
            columns[name] = pa.array(values, _ATTRIBUTE_TYPES[kind])
        return pa.table(columns)

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> Manifest: ...
    def __getitem__(self, index: int | slice) -> Clip | Manifest:
        return self._checked(self._clips[index]) if isinstance(index, slice) else self._clips[index]

    def __len__(self) -> int:
        return len(self._clips)

    def __iter__(self) -> Iterator[Clip]:
        return iter(self._clips)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and self._clips == other._clips

    def __hash__(self) -> int:
        return hash(self._clips)

    def __repr__(self) -> str:
        return f"Manifest({counted(len(self), 'clip')})"


def _attribute_type(value: Attribute) -> type:
    return next(kind for kind in _ATTRIBUTE_TYPES if isinstance(value, kind))


def _read_table(path: Path) -> Any:
    if not path.parent.exists():
        raise CorpusError(f"{path.parent}: there is no such folder")
    if not path.is_file():
        raise CorpusError(
            f"{path.parent}: holds no {path.name}, so it is not a corpus; name the folder that was simulated, cut or "
            "packed into (an interrupted run writes its manifest last: run it again to finish)"
        )
    try:
        return pq.ParquetFile(path).read()  # not read_table: it would infer extra columns from folder names
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{path}: cannot be read as Parquet ({error}); produce the corpus again") from None


def _cast(column: Any, wanted: Any) -> Any:
    """The column as `wanted`, or for an attribute as the one of the four types that holds it without loss."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if wanted is None:
        if pa.types.is_null(kind) or pa.types.is_boolean(kind):
            wanted = kind
        elif pa.types.is_integer(kind):
            wanted = pa.int64()
        elif pa.types.is_floating(kind):
            wanted = pa.float64()
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            wanted = pa.string()
        else:
            raise pa.ArrowInvalid(f"no attribute type holds {kind}")
    elif pa.types.is_string(wanted) != (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise pa.ArrowInvalid("text is not a number, and a number is not an identifier")
    return column.cast(wanted)


def _rows(columns: Mapping[str, list[Any]], count: int) -> Iterator[Clip]:
    names = [item.name for item in fields(Clip) if item.name in _COLUMNS]
    extra = {name: values for name, values in columns.items() if name not in _COLUMNS}
    known = {str(split): split for split in Split}
    for row in range(count):
        values = {name: columns[name][row] for name in names}
        values["split"] = known.get(values["split"], values["split"])  # an unknown word is reported with the others
        yield Clip(**values, attributes={key: cells[row] for key, cells in extra.items() if cells[row] is not None})
