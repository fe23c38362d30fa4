"""Draw the ladders of `agents_ceiling.py` side by side, and print them as one table.

python benchmarks/plot_ceiling.py docs/results/agents_ceiling/*.json --out docs/results/agents_ceiling/ladders.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STEPS = {
    "own place": ("look back", "#9aa7b2"),
    "taught": ("what the teacher sees of agents", "#e0a458"),
    "shaped": ("instead their true shapes", "#f0dcc0"),
    "lately": ("as they truly went last", "#ead2b0"),
    "found": ("at their true velocity", "#e7c8a0"),
    "steady": ("instead all agents, exactly", "#c9503c"),
    "fading": ("at a velocity that fades", "#d98a80"),
    "foretold": ("as far as a network can tell", "#7a4fa0"),
    "moved": ("where they truly go", "#2f6fb0"),
    "seen": ("what is truly seen of them", "#8fbbe3"),
}
PLACES = ("all tokens", "tokens with agents")


def gains(ladder: dict[str, Any], place: int) -> dict[str, tuple[float, float, float]]:
    """Of each step, in percent of the error of the query alone, with its interval."""
    alone = ladder["rungs"][0]["l1"][place]
    return {
        rung["rung"]: tuple(100 * value / alone for value in (rung["gain"][place], *rung["interval"][place]))
        for rung in ladder["rungs"][1:]
    }


def name(ladder: dict[str, Any]) -> str:
    return f"{ladder['size']} px, {(16 - ladder['context']) / 4:g} s"


def shared(ladders: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """The steps that every ladder has: that of a teacher may not have been asked for."""
    return {step: about for step, about in STEPS.items() if all(step in gains(ladder, 0) for ladder in ladders)}


def table(ladders: list[dict[str, Any]]) -> str:
    lines = [f"| | {' | '.join(map(name, ladders))} |", "|---" * (len(ladders) + 1) + "|"]
    for place, where in enumerate(PLACES):
        errors = [f"{ladder['rungs'][0]['l1'][place]:.4f}" for ladder in ladders]
        lines.append(f"| **{where}**: the query alone, L1 | {' | '.join(errors)} |")
        for step, (words, _) in shared(ladders).items():
            cells = ["{:+.2f} % [{:+.2f}, {:+.2f}]".format(*gains(ladder, place)[step]) for ladder in ladders]
            lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(ladders: list[dict[str, Any]], out: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharex=True, layout="constrained")
    steps = shared(ladders)
    height = 0.8 / len(steps)
    for place, (axis, where) in enumerate(zip(axes, PLACES, strict=True)):
        for number, (step, (words, colour)) in enumerate(steps.items()):
            found = [gains(ladder, place)[step] for ladder in ladders]
            at = [row + (number - (len(steps) - 1) / 2) * height for row in range(len(ladders))]
            spread = [[gain - low for gain, low, _ in found], [high - gain for gain, _, high in found]]
            bars = {"xerr": spread, "error_kw": {"elinewidth": 1, "ecolor": "#444"}}
            axis.barh(at, [gain for gain, _, _ in found], height, color=colour, label=words, **bars)
        axis.set_yticks(range(len(ladders)), map(name, ladders))
        axis.invert_yaxis()
        axis.axvline(0, color="#444", linewidth=0.8)
        axis.set_title(where, loc="left", fontsize=10, fontweight="bold")
        axis.set_xlabel("each step takes off so many % of the query's L1")
        axis.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside lower center", ncols=4)
    figure.savefig(out, dpi=130)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    ladders = [json.loads(path.read_text()) for path in asked.figures]
    ladders.sort(key=lambda ladder: (ladder["size"], -ladder["context"]))
    print(table(ladders))
    draw(ladders, asked.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
