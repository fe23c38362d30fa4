"""Scores of one or more evaluations in one file that is small enough to be kept beside its report.

    python benchmarks/keep_scores.py study/scores more/scores --out docs/results/nano_chosen_study/scores

Values keep 12 bits of their fraction (they are off by 2.4e-4 of themselves at most), and rows lie in the order in which
they resemble each other: a quarter of the size. `factorjepa compare` reads it as any other.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from factorjepa.scores import Scores
from factorjepa.storage import write_atomic

BITS = 12
ORDER = ("diagnostic", "variant", "source", "clip_id", "method", "seed")


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(fraction * 2**BITS) / 2**BITS, exponent), np.float64)


def _codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    (chunk,) = column.chunks
    return np.asarray(chunk.indices if isinstance(chunk, pa.DictionaryArray) else chunk, np.int64)


def keep(table: pa.Table, path: Path, strip: str | None) -> None:
    at = table.column_names.index("value")
    kept = pa.array(rounded(table["value"].to_numpy()))
    table = table.set_column(at, table.schema.field(at), kept).unify_dictionaries().combine_chunks()
    table = table.take(np.lexsort([_codes(table[name]) for name in reversed(ORDER)]))
    if strip:
        about = {name: text.replace(strip.encode(), b"") for name, text in table.schema.metadata.items()}
        table = table.replace_schema_metadata(about)
    write_atomic(
        path,
        lambda temporary: pq.write_table(
            table, temporary, compression="zstd", compression_level=19, row_group_size=1 << 20,
            use_dictionary=[name for name in table.column_names if name != "value"], use_byte_stream_split=["value"],
        ),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", nargs="+", type=Path, help="folders with scores.parquet")
    parser.add_argument("--strip", help="where the runs lay: left out of the paths in their descriptions")
    parser.add_argument("--out", type=Path, required=True, help="folder for the joint one")
    arguments = parser.parse_args()
    joint = Scores.joined([Scores.read(folder) for folder in arguments.scores])
    path = arguments.out / "scores.parquet"
    with tempfile.TemporaryDirectory() as folder:  # as a table with what describes it
        whole = pq.read_table(joint.write(Path(folder) / "scores.parquet"))
    keep(whole, path, arguments.strip)
    print(f"{path}: {len(joint):,} scores, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
