"""Draw how cost grows, from what `paper_scale.py` has measured: one picture each for agents, pairs, size and frames.

python benchmarks/plot_paper_scale.py docs/results/h200/paper_scale_giant_growth.json --out docs/results/h200 \
    --teacher docs/results/teacher_growth.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

AXES = {
    "agents": "agents per clip (6 pairs each); in brackets: seen under the masks",
    "pairs": "pairs per clip (64 agents); in brackets: seen under the masks",
    "size": "pixels a side",
    "frames": "frames (3/4 of them context)",
}
SEEN = {"agents": "agents_seen", "pairs": "pairs_seen"}
TEACHER_AXES = {**AXES, "agents": "agents found in the window", "pairs": "pairs found in the window"}


def draw_training(rate: Axes, growth: str, rows: dict[str, dict[str, Any]], about: dict[str, Any]) -> None:
    """Clips per second and, where it was measured, peak memory."""
    points = sorted((int(name), row) for name, row in rows.items() if "clips_per_s" in row)
    at = [point for point, _ in points]
    rate.plot(at, [row["clips_per_s"] for _, row in points], "o-", color="C0")
    rate.set_xlabel(AXES[growth], fontsize=8 if growth in SEEN else None)
    rate.set_ylabel("training, clips/s", color="C0")
    rate.set_ylim(bottom=0)
    seen = SEEN.get(growth)
    rate.set_xticks(at, [f"{point}\n({row[seen]:.0f})" if seen else str(point) for point, row in points])
    peaks = [row["peak_gib"] for _, row in points]
    if None not in peaks:
        memory = rate.twinx()
        memory.plot(at, peaks, "s--", color="C1")
        memory.set_ylabel("peak memory, GiB", color="C1")
        memory.set_ylim(bottom=0)
    device = about["environment"]["device"]
    rate.set_title(f"{about['arch']}, {about['method']}, {about['batch']} clips a pass\n{device}", fontsize=8)


def draw_teacher(axes: Axes, growth: str, found: dict[str, Any]) -> None:
    """Seconds of one core per window: every window of the crowd, medians of the others."""
    if growth in ("agents", "pairs"):
        seconds = [row["seconds"] for row in found["crowd"]]
        axes.plot([row[growth] for row in found["crowd"]], seconds, "o", color="C2", alpha=0.6)
        axes.axhline(statistics.median(seconds), color="C2", linewidth=0.8)
    else:
        at = sorted(map(int, found[growth]))
        axes.plot(at, [found[growth][str(point)] for point in at], "o-", color="C2")
        axes.set_xticks(at)
    axes.set_xlabel(TEACHER_AXES[growth])
    axes.set_ylabel("teacher, s of one core per window")
    axes.set_ylim(bottom=0)
    axes.set_title("embedded teacher, 128 px and 16 frames unless varied\none CPU core", fontsize=8)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, help="ARCH.json of paper_scale.py")
    parser.add_argument("--out", type=Path, required=True, help="folder for growth_*.png")
    parser.add_argument("--teacher", type=Path, help="figures of teacher_growth.py")
    arguments = parser.parse_args(words)
    found = json.loads(arguments.figures.read_text())
    teacher = json.loads(arguments.teacher.read_text()) if arguments.teacher else None
    arguments.out.mkdir(parents=True, exist_ok=True)
    for growth in AXES:
        if not any("clips_per_s" in row for row in found.get(growth, {}).values()):
            continue
        columns = 1 if teacher is None else 2
        figure, panels = plt.subplots(1, columns, figsize=(4.6 * columns, 3.2), layout="constrained", squeeze=False)
        draw_training(panels[0, 0], growth, found[growth], found["conditions"])
        if teacher is not None:
            draw_teacher(panels[0, 1], growth, teacher)
        path = arguments.out / f"growth_{growth}.png"
        figure.savefig(path, dpi=100)
        plt.close(figure)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
