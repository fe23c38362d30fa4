"""How far the gates and edges of several runs open, and what their channels carry, over the updates: a CSV.

    python benchmarks/pathways.py study/runs --out docs/results/nano_chosen_study/pathways.csv

The first updates are where a pathway closes, if it does: they are looked at more often.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import yaml

from factorjepa.training.run import RunDirectory

FIRST, LATER = (1, 25, 50, 75, 100), 5  # updates, and so many parts of the run
VALUES = ("gate_max", "edge_max", "early_gate_max", "early_edge_max", "share_agents", "share_interactions")


def rows_of(run: RunDirectory) -> list[list[str]]:
    settings = yaml.safe_load((run.folder / "config.yaml").read_text(encoding="utf-8"))
    updates = settings["updates"]
    looked_at = {*FIRST, *(updates * part // LATER for part in range(1, LATER + 1))}
    records = [one for one in run.metrics() if "loss" in one and one["step"] in looked_at and "gate_max" in one]
    about = [run.folder.name, str(settings["lr"]), str(settings["branch_rate"])]
    return [
        [*about, str(one["step"]), *(f"{one[name]:.5f}" if name in one else "" for name in VALUES)] for one in records
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder of runs")
    parser.add_argument("--out", type=Path, required=True, help="the CSV")
    given = parser.parse_args()
    runs = [RunDirectory(config.parent) for config in sorted(given.runs.glob("*/config.yaml"))]
    rows = [row for run in runs for row in rows_of(run)]
    if not rows:
        parser.error(f"{given.runs}: no run in it has gates; give the folder that holds the runs' folders")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "lr", "branch_rate", "step", *VALUES])
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
