"""Draw how cost grows, from what `paper_scale.py` has measured: one picture each for agents, pairs, size and frames.

python benchmarks/plot_paper_scale.py docs/results/h200/vjepa2_1_vit_giant_384.json --out docs/results/h200
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

AXES = {
    "agents": "agents per clip (6 pairs each)",
    "pairs": "pairs per clip (64 agents)",
    "size": "pixels a side",
    "frames": "frames (3/4 of them context)",
}


def draw(growth: str, rows: dict[str, dict[str, Any]], about: dict[str, Any], path: Path) -> None:
    """Clips per second and, where it was measured, peak memory."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points = sorted((int(name), row) for name, row in rows.items() if "clips_per_s" in row)
    at = [point for point, _ in points]
    figure, rate = plt.subplots(figsize=(5, 3.2), layout="constrained")
    rate.plot(at, [row["clips_per_s"] for _, row in points], "o-", color="C0")
    rate.set_xlabel(AXES[growth])
    rate.set_ylabel("training, clips/s", color="C0")
    rate.set_ylim(bottom=0)
    rate.set_xticks(at)
    peaks = [row["peak_gib"] for _, row in points]
    if None not in peaks:
        memory = rate.twinx()
        memory.plot(at, peaks, "s--", color="C1")
        memory.set_ylabel("peak memory, GiB", color="C1")
        memory.set_ylim(bottom=0)
    device = about["environment"]["device"]
    rate.set_title(f"{about['arch']}, {about['method']}, {about['batch']} clips a pass\n{device}", fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, help="ARCH.json of paper_scale.py")
    parser.add_argument("--out", type=Path, required=True, help="folder for growth_*.png")
    arguments = parser.parse_args(words)
    found = json.loads(arguments.figures.read_text())
    arguments.out.mkdir(parents=True, exist_ok=True)
    for growth in AXES:
        if any("clips_per_s" in row for row in found.get(growth, {}).values()):
            path = arguments.out / f"growth_{growth}.png"
            draw(growth, found[growth], found["conditions"], path)
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
