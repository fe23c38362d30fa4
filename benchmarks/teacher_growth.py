"""How the embedded teacher's time grows with the crowd, the picture and the frames: seconds of one core per window.

    python benchmarks/teacher_growth.py --out docs/results/teacher_growth.json

`plot_paper_scale.py --teacher` draws it beside what training costs. Times are of one machine and one thread: read them
as ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import cv2
import torch

from factorjepa.config import resolve
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.simulated import SimulationPlan, simulate_corpus
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.teacher.teacher import Teacher
from factorjepa.world import WorldSettings
from results import machine, publish

DENSITIES = (0.1, 0.3, 1.0, 2.0, 3.0)
SIZES = (64, 96, 128, 192, 256)
FRAMES = (8, 16, 24, 32)


def measured(size: int, density: float, frames: int, clips: int, folder: Path) -> list[dict[str, float]]:
    """Seconds, agents and pairs of each window."""
    longest = frames / 4 + 0.5
    world = resolve(WorldSettings, "dense", [f"seconds=[{longest},{longest}]", f"size={size}"], density=density)
    plan = SimulationPlan(clips=clips, clips_per_source=1, seed=3, world=world, shares=(1.0, 0.0, 0.0))
    simulate_corpus(folder, plan, workers=1)
    teacher = Teacher(
        resolve(TeacherSettings, None, frames=frames, context=frames * 3 // 4, size=max(size, 128)), "cpu"
    )
    training = Corpus.open(folder).training()
    teacher.packet(training, training[0], 0)  # what is made once is not a window's
    found = []
    for clip in training:
        started = time.process_time()
        packet = teacher.packet(training, clip, 0)
        seconds = time.process_time() - started
        found.append({"seconds": seconds, "agents": int(packet.slots), "pairs": len(packet.pair_tracks)})
    return found


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=6, help="of each case")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    result: dict[str, object] = {"benchmark": "teacher_growth", "machine": machine("cpu"), "clips": arguments.clips}
    with tempfile.TemporaryDirectory() as scratch:

        def case(name: str, size: int = 128, density: float = 1.0, frames: int = 16) -> list[dict[str, float]]:
            return measured(size, density, frames, arguments.clips, Path(scratch) / name)

        result["crowd"] = [row for density in DENSITIES for row in case(f"d{density}", density=density)]
        for name, values in (("size", SIZES), ("frames", FRAMES)):
            rows = {str(value): case(f"{name}{value}", **{name: value}) for value in values}
            result[name] = {key: statistics.median(row["seconds"] for row in some) for key, some in rows.items()}
    publish(result, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
