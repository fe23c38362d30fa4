"""`measures.parquet`: what was measured of every clip, as sums over eligible frames and their numbers.

Sums and numbers are all that later steps need: a source's value is the sum over its matched clips by the number, for
every measure and every variant of the thresholds alike.

Legend: C clips; V variants (primary, the grid, the controls); M measures.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import RegimeError
from ..storage import write_atomic
from .axes import NAMES
from .domain import BINS, COUNTS, DomainCounts
from .scene import Array

FILE = "measures.parquet"
FORMAT = 1
COLUMNS = (*NAMES, "consistency", "contiguity")  # M
_ABOUT = b"regime"


@dataclass(frozen=True)
class About:
    """How a table was made; two tables are comparable only if these agree."""

    source: str  # truth or teacher
    measured_by: str  # in words: ground truth, or the teacher's features and regions
    thresholds: dict[str, Any]
    variants: tuple[str, ...]
    unavailable: tuple[str, ...]  # measures that the source cannot give
    corpus: str  # identity of the clips

    def lacks(self, measure: str) -> str:
        return f"{measure}: unavailable, because what saw the agents ({self.measured_by}) does not tell their kinds"


@dataclass(frozen=True)
class RegimeTable:
    clip_ids: tuple[str, ...]
    totals_CVM: Array
    terms_CVM: Array  # eligible frames; cosines and steps for the last two columns
    frames_C: Array  # sampled frames
    domain: tuple[DomainCounts, ...]  # C
    about: About

    def variant(self, name: str) -> tuple[Array, Array]:
        """Totals and terms, [C, M] each."""
        v = self.about.variants.index(name)
        return self.totals_CVM[:, v], self.terms_CVM[:, v]

    def means(self, name: str) -> Array:
        """Of each clip, [C, M]; NaN where no frame is eligible."""
        totals, terms = self.variant(name)
        return np.where(terms > 0, totals / np.where(terms > 0, terms, 1), np.nan)

    def write(self, folder: Path) -> Path:
        path, clips = Path(folder) / FILE, len(self.clip_ids)
        flat = {name: values.reshape(clips, -1) for name, values in
                (("totals", self.totals_CVM), ("terms", self.terms_CVM),
                 ("domain", np.array([[*one.counts, *one.confidence] for one in self.domain])))}  # fmt: skip
        columns = {"clip_id": pa.array(self.clip_ids, pa.string()), "frames": pa.array(self.frames_C)}
        for name, values in flat.items():
            columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        table = pa.table(columns).replace_schema_metadata(
            {_ABOUT: json.dumps({"format": FORMAT, **asdict(self.about)})}
        )
        write_atomic(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
        return path

    @classmethod
    def read(cls, folder: Path) -> RegimeTable:
        path = Path(folder) / FILE
        try:
            table = pq.ParquetFile(path).read()
            told = json.loads(table.schema.metadata[_ABOUT])
            if told.pop("format") != FORMAT:
                raise RegimeError(f"{path}: was written by another version; run factorjepa regime measure again")
            values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in told.items()}
            about = About(**values)
            shape = (table.num_rows, len(about.variants), len(COLUMNS))
            totals, terms = (_flat(table, name).reshape(shape) for name in ("totals", "terms"))
            counted = _flat(table, "domain").reshape(-1, len(COUNTS) + BINS)
        except FileNotFoundError:
            raise RegimeError(f"{folder}: holds no {FILE}; run factorjepa regime measure first") from None
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise RegimeError(f"{path}: is damaged ({error}); delete it and measure again") from None
        domain = tuple(DomainCounts(row[: len(COUNTS)], row[len(COUNTS) :]) for row in counted)
        return cls(tuple(table["clip_id"].to_pylist()), totals, terms, table["frames"].to_numpy(), domain, about)


def _flat(table: Any, name: str) -> Array:
    return np.asarray(table[name].combine_chunks().flatten().to_numpy(), np.float64)
