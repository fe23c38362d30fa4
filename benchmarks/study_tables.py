"""The tables of a finished study as Markdown, and its page beside them.

    python benchmarks/study_tables.py study/scores --out docs/results/nano_study

Everything comes from what `factorjepa compare` and `factorjepa decode evaluate` wrote; nothing is computed here.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import statistics
from pathlib import Path

import yaml

from factorjepa.adaptation import METHODS, method_named
from factorjepa.scores import Scores
from factorjepa.statistics import Comparison
from factorjepa.statistics.explaining import AREA, COLUMNS
from factorjepa.statistics.verdict import stated

CURVE = ("mask_slope", "alt/auc")
CHANNELS = ("share_layout", "share_agents", "share_interactions")
LAST = 50  # updates


def rows_of(cells: list[list[str]]) -> list[str]:
    head, *body = cells
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def estimate(value: float, low: float, high: float, sign: str = "") -> str:
    if math.isnan(value):
        return ""
    interval = "" if math.isnan(low) else f" [{low:{sign}.4f}, {high:{sign}.4f}]"
    return f"{value:{sign}.4f}{interval}"


def means(comparison: Comparison, names: dict[str, str]) -> list[str]:
    """Methods by primary diagnostics and the area under the masking curve, best Future-frame L1 first."""
    primary = [row for row in comparison.scores if row.headline and row.status == "primary"]
    area = [row for row in comparison.scores if (row.diagnostic, row.variant) == CURVE]
    columns = list(dict.fromkeys((row.diagnostic, row.variant) for row in (*primary, *area)))
    found = {(row.method, row.diagnostic, row.variant): row for row in (*primary, *area)}
    first = [row for row in primary if row.diagnostic == columns[0][0]]
    heads = [AREA if column == CURVE else names[column[0]] for column in columns]
    cells = [["method", *heads, "SD of seeds, first column", "seeds"]]
    for row in sorted(first, key=lambda one: one.mean):
        its = [found[row.method, *column] for column in columns]
        spread = "" if math.isnan(row.seed_sd) else f"{row.seed_sd:.5f}"
        cells.append([row.title, *(estimate(one.mean, one.low, one.high) for one in its), spread, str(len(row.seeds))])
    return rows_of(cells)


def prespecified(comparison: Comparison, names: dict[str, str], titles: dict[str, str]) -> list[str]:
    cells = [
        ["contrast", "diagnostic", "effect, 95 %", "units", "p by the paper's rule", "its decision",
         "deciding p", "decision"],
    ]  # fmt: skip
    for row in comparison.contrasts:
        if row.family == "primary" and not math.isnan(row.effect):
            over = f"{row.contrast.replace('|', '/')}: {titles[row.a]} over {titles[row.b]}"
            cells.append([
                over, names[row.diagnostic], estimate(row.effect, row.low, row.high, "+"), f"{row.units:+.1f}",
                f"{row.adjusted_p:.2g}", row.paper_decision, f"{row.deciding.adjusted_p:.2g}", stated(row),
            ])  # fmt: skip
    return rows_of(cells)


def ladder(comparison: Comparison, names: dict[str, str], titles: dict[str, str]) -> list[str]:
    heads = [AREA if variant else names[diagnostic] for diagnostic, variant in COLUMNS]
    cells = [["what changes", "from, to", *heads]]
    found = comparison.explained()
    for step in dict.fromkeys(row.step for row in found):
        its = [row for row in found if row.step == step]
        said = [
            "<br>".join(
                filter(None, (estimate(row.effect, row.low, row.high, "+"), re.sub(":[^,]*", "", row.decision)))
            )
            for row in its
        ]
        cells.append([step, f"{titles[its[0].b]}, {titles[its[0].a]}", *said])
    return rows_of(cells)


def decoded(comparison: Comparison, scores: Scores) -> list[str]:
    """Sources of latents by metrics: mean with its interval, and how far behind the oracle."""
    found = {(row.diagnostic, row.variant, row.method): row for row in comparison.scores}
    methods = {row.method: row.title for row in comparison.scores}
    metrics = {name: info for name, info in scores.diagnostics.items() if info.status == "secondary"}
    arrows = {"lower": "lower is better", "higher": "higher is better"}
    cells = [["latents of", *(f"{info.title}, {arrows[info.direction]}" for info in metrics.values())]]
    sources = [("oracle", "oracle", next(iter(methods))), ("last seen frame", "copy", next(iter(methods)))]
    for title, variant, method in (*sources, *((title, "pooled", method) for method, title in methods.items())):
        line = [title]
        for name in metrics:
            row, behind = found.get((name, variant, method)), found.get((name, "deficit", method))
            said = "not available" if row is None else estimate(row.mean, row.low, row.high)
            line.append(f"{said}, {behind.mean:.4f} behind" if behind is not None and variant == "pooled" else said)
        cells.append(line)
    return rows_of(cells)


def failures(comparison: Comparison) -> list[str]:
    """Share of clips with each symptom, by method, and of the oracle's pictures."""
    rows = [row for row in comparison.scores if row.diagnostic == "decoded_failures"]
    methods = {row.method: row.title for row in rows}
    found = {(row.variant, row.method): row for row in rows}
    symptoms = [row.variant for row in rows if row.method == next(iter(methods)) and "/" not in row.variant]
    cells = [["symptom", "oracle", *methods.values()]]
    for symptom in sorted(symptoms, key=lambda name: name == "any"):
        its = [found.get((f"{symptom}/oracle", next(iter(methods)))), *(found[symptom, one] for one in methods)]
        shown = ["" if one is None else f"{one.mean:.1%} [{one.low:.1%}, {one.high:.1%}]" for one in its]
        cells.append([symptom.replace("_", " "), *(cell.replace(" [nan%, nan%]", "") for cell in shown)])
    return rows_of(cells)


def channels(runs: Path) -> list[str]:
    """How much of the prediction's variance each channel carries at the end of training, mean over runs and updates."""
    shares: dict[str, list[list[float]]] = {}
    for record in sorted(runs.glob("*/metrics.jsonl")):
        lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        last = [line for line in lines if CHANNELS[0] in line][-LAST:]
        if last and yaml.safe_load((record.parent / "config.yaml").read_text())["updates"] == last[-1]["step"]:
            values = [statistics.fmean(line[name] for line in last) for name in CHANNELS]
            shares.setdefault(record.parent.name.rpartition("-")[0], []).append(values)
    cells = [["method", "layout", "agents", "interactions", "runs"]]
    for method, found in shares.items():
        means = (statistics.fmean(one) for one in zip(*found, strict=True))
        cells.append([method_named(method).title, *(f"{share:.2%}" for share in means), str(len(found))])
    return rows_of(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scores", type=Path, help="the study's scores/")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    comparison, scores = Comparison.read(asked.scores / "comparison"), Scores.read(asked.scores)
    names = {name: info.title for name, info in scores.diagnostics.items()}
    titles = {name: method.title for name, method in METHODS.items()} | {run.method: run.title for run in scores.runs}
    parts = {
        "means": means(comparison, names),
        "prespecified": prespecified(comparison, names, titles),
        "explained": ladder(comparison, names, titles),
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    if (asked.scores / "report").is_dir():
        shutil.copytree(
            asked.scores / "report", asked.out / "report", ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True
        )
    if (asked.scores.parent / "runs").is_dir():
        parts["channels"] = channels(asked.scores.parent / "runs")
    drawn = asked.scores / "decoded"
    if (drawn / "comparison").is_dir():
        seen = Comparison.read(drawn / "comparison")
        parts["decoded"], parts["failures"] = decoded(seen, Scores.read(drawn)), failures(seen)
        for name in ("scorecard", "contrasts", "strata"):
            shutil.copy(drawn / "comparison" / f"{name}.csv", asked.out / f"decoded_{name}.csv")
    text = "\n\n".join(f"## {name}\n\n" + "\n".join(lines) for name, lines in parts.items())
    (asked.out / "tables.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
