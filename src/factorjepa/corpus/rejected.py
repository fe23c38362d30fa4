"""What did not become clips, and why: `rejected.parquet` beside the manifest, one row per file, shot or clip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorpusError
from ..storage import write_atomic

REJECTED = "rejected.parquet"
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


@dataclass(frozen=True)
class RejectedAmount:
    """How much was left out for one reason."""

    stage: str
    reason: str
    count: int
    seconds: float


def amounts_rejected(rows: Iterable[Rejected]) -> list[RejectedAmount]:
    """By stage, in the order in which they judge, and by reason, the most frequent first."""
    rows = list(rows)
    counts = Counter((row.stage, row.reason) for row in rows)
    stages = ("reading", "shots", "quality", "privacy", "writing")
    order = sorted(counts.items(), key=lambda item: (stages.index(item[0][0]), -item[1], item[0][1]))
    return [
        RejectedAmount(stage, reason, count, sum(r.seconds for r in rows if (r.stage, r.reason) == (stage, reason)))
        for (stage, reason), count in order
    ]


def write_rejected(folder: Path, rows: Sequence[Rejected]) -> None:
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=_SCHEMA)
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
