"""What the validation records of several runs say, before any test clip is looked at: a table and a CSV.

    python benchmarks/validation_table.py study/runs --out docs/results/nano_study

Only finished runs count. Each run's value is that of the step that selection takes: the lowest Future-frame L1.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import yaml

from factorjepa.adaptation import method_named

HIDDEN = (0.0, 0.3, 0.5, 0.7, 0.9)  # shares of the context at which validation measures
CURVE = ("future_l1", *(f"l1_hidden_{share:g}" for share in HIDDEN[1:]))
VALUES = (*CURVE, "future_mse", "mask_slope")


def records(runs: Path) -> list[dict[str, object]]:
    """One row for each validation of each finished run."""
    rows: list[dict[str, object]] = []
    for config in sorted(runs.glob("*/config.yaml")):
        settings = yaml.safe_load(config.read_text())
        lines = [json.loads(line) for line in (config.parent / "metrics.jsonl").read_text().splitlines()]
        updates = settings["updates"] if method_named(settings["method"]).trains else 0
        if not lines or lines[-1]["step"] != updates:
            continue
        rows += [
            {"method": settings["method"], "seed": settings["seed"], "step": line["step"]}
            | {name: line[f"val/{name}"] for name in VALUES}
            for line in lines
            if "val/future_l1" in line
        ]
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """Methods by their mean over seeds, as Markdown."""
    best: dict[tuple[str, int], dict[str, object]] = {}
    for row in rows:
        key = (str(row["method"]), int(str(row["seed"])))
        if key not in best or float(str(row["future_l1"])) < float(str(best[key]["future_l1"])):
            best[key] = row
    by_method: dict[str, list[dict[str, object]]] = defaultdict(list)
    for (method, _), row in best.items():
        by_method[method].append(row)

    def of(method: str, name: str) -> list[float]:
        return [float(str(row[name])) for row in by_method[method]]

    def area(row: dict[str, object]) -> float:
        """Under the masking curve, per unit of hidden share."""
        return float(np.trapezoid([float(str(row[name])) for name in CURVE], HIDDEN)) / HIDDEN[-1]

    lines = ["| method | Future-frame L1 | between seeds | masking AUC | slope | seeds |", "|---|---|---|---|---|---|"]
    for method in sorted(by_method, key=lambda one: statistics.mean(of(one, "future_l1"))):
        errors = of(method, "future_l1")
        spread = f"{max(errors) - min(errors):.4f}" if len(errors) > 1 else ""
        slope, auc = statistics.mean(of(method, "mask_slope")), statistics.mean(map(area, by_method[method]))
        mean, title = statistics.mean(errors), method_named(method).title
        lines.append(f"| {title} | {mean:.4f} | {spread} | {auc:.4f} | {slope:.4f} | {len(errors)} |")
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder of runs")
    parser.add_argument("--out", type=Path, required=True, help="folder for validation.csv and validation.md")
    arguments = parser.parse_args(words)
    rows = records(arguments.runs)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with open(arguments.out / "validation.csv", "w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, ("method", "seed", "step", *VALUES))
        writer.writeheader()
        writer.writerows({k: f"{v:.6f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    (arguments.out / "validation.md").write_text(table(rows), encoding="utf-8")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
