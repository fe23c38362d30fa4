"""Which streets of one simulated corpus another one of the same streets had in which split, and scores without some.

    python benchmarks/seen_before.py --clips 3000 --before 6200 --scores docs/results/nano_look/scores --out without

Splits are dealt along a line of all sources: with another number of clips the same street may lie in another split.
What was chosen on validation clips of one corpus and measured on test clips of the other has then been judged, in part,
by streets that were looked at. `--out` gets the scores without those, for `factorjepa compare`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from factorjepa.config import resolve
from factorjepa.corpus.simulated import planned, splits_of
from factorjepa.corpus.splits import Split
from factorjepa.storage import write_atomic
from factorjepa.study import StudySettings
from factorjepa.world import WorldSettings

LOOKED_AT = (Split.VALIDATION, Split.TEST)


def splits(preset: str, clips: int) -> dict[str, Split]:
    study = resolve(StudySettings, preset, [f"clips={clips}"])
    world = resolve(WorldSettings, study.world, study.street)
    plan = planned(world, study.world_seed, clips, study.clips_per_source, study.shares)
    return splits_of(plan, plan.specs())


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="chosen", help="of a study: its streets")
    parser.add_argument("--clips", type=int, required=True, help="of the corpus whose test streets were measured")
    parser.add_argument("--before", type=int, required=True, help="clips of the corpus on which something was chosen")
    parser.add_argument("--scores", type=Path, help="a folder of scores of these test streets")
    parser.add_argument("--out", type=Path, help="folder for the scores without streets that were looked at before")
    arguments = parser.parse_args(words)
    now, before = (splits(arguments.preset, clips) for clips in (arguments.clips, arguments.before))
    tested = sorted(source for source, split in now.items() if split == Split.TEST)
    had = Counter(before.get(source) for source in tested)
    told = ", ".join(f"{had[split]} {split}" for split in Split if had[split])
    print(f"{len(tested)} test streets of {arguments.clips} clips; of {arguments.before} clips they were: {told}")
    seen = [source for source in tested if before.get(source) in LOOKED_AT]
    print(f"looked at before: {', '.join(seen) or 'none'}")
    if arguments.scores and arguments.out:
        table = pq.read_table(arguments.scores / "scores.parquet")
        kept = table.filter(pc.invert(pc.is_in(table["source"], pa.array(seen, pa.string()))))
        write_atomic(arguments.out / "scores.parquet", lambda path: pq.write_table(kept, path, compression="zstd"))
        print(f"{arguments.out / 'scores.parquet'}: {len(kept)} of {len(table)} scores")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
