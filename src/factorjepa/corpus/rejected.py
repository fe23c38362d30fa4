"""What did not become clips, and why: `rejected.parquet` beside the manifest, one row per file, shot or clip.

`rejected.csv` says the same to whoever has a spreadsheet; programs read the other. Rows that are `partial` say of a
file that it could not be read to its end or without gaps: what could be read of it was used.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorpusError
from ..storage import write_atomic, write_text

REJECTED, REJECTED_CSV = "rejected.parquet", "rejected.csv"
DAMAGED, SHORTER, REST = "damaged", "shorter than stated", "unreadable rest"
_PARTIAL = {DAMAGED, SHORTER, REST}
_SCHEMA = pa.schema(
    [
        ("file", pa.string()), ("source", pa.string()), ("clip_id", pa.string()), ("shot", pa.int64()),
        ("t_start", pa.float64()), ("t_end", pa.float64()), ("stage", pa.string()), ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Rejected:
    """One thing that was left out. What concerns a whole file has no source, shot or times."""

    file: str
    stage: str  # reading, shots, quality, privacy, writing
    reason: str  # a word or two, to be counted
    detail: str = ""
    source: str | None = None
    clip_id: str | None = None
    shot: int | None = None
    t_start: float | None = None
    t_end: float | None = None

    @property
    def seconds(self) -> float:
        return self.t_end - self.t_start if self.t_start is not None and self.t_end is not None else 0.0

    @property
    def partial(self) -> bool:
        """Whether this says that a file was read in part, and not what was left out of it."""
        return self.stage == "reading" and self.reason in _PARTIAL


@dataclass(frozen=True)
class RejectedAmount:
    """How much was left out for one reason."""

    stage: str
    reason: str
    count: int
    seconds: float
    files: tuple[str, ...]  # that it was left out of, or that were left out


def amounts_rejected(rows: Iterable[Rejected]) -> list[RejectedAmount]:
    """By stage, in the order in which they judge, and by reason, the most frequent first."""
    rows = [row for row in rows if not row.partial]
    counts = Counter((row.stage, row.reason) for row in rows)
    stages = ("reading", "shots", "quality", "privacy", "writing")
    order = sorted(counts.items(), key=lambda item: (stages.index(item[0][0]), -item[1], item[0][1]))
    amounts = []
    for (stage, reason), count in order:
        its = [row for row in rows if (row.stage, row.reason) == (stage, reason)]
        files = tuple(dict.fromkeys(row.file for row in its))
        amounts.append(RejectedAmount(stage, reason, count, sum(row.seconds for row in its), files))
    return amounts


def read_in_part(rows: Iterable[Rejected]) -> list[str]:
    """Files of which only a part could be read, each once; one of which nothing could be read is left out instead."""
    rows = list(rows)
    nothing = {row.file for row in rows if row.stage == "reading" and not row.partial}
    return list(dict.fromkeys(row.file for row in rows if row.partial and row.file not in nothing))


def write_rejected(folder: Path, rows: Sequence[Rejected]) -> None:
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=_SCHEMA)
    text = io.StringIO()
    writer = csv.DictWriter(text, _SCHEMA.names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_text(folder / REJECTED_CSV, text.getvalue())
    write_atomic(folder / REJECTED, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def read_rejected(folder: Path) -> list[Rejected]:
    """The rows of a corpus' table; none where there is no table, as in a simulated corpus."""
    path = folder / REJECTED
    if not path.is_file():
        return []
    try:
        return [Rejected(**row) for row in pq.ParquetFile(path).read().select(_SCHEMA.names).to_pylist()]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CorpusError(f"{path}: cannot be read ({error}); run ingest again") from None
