"""CPU seconds that the teacher takes for a packet, here and in another checkout, and whether their packets agree.

    git worktree add ../before COMMIT
    python benchmarks/bench_targets.py --against ../before/src [--windows 20] [--rounds 3]

The windows are those of simulated dense clips of 128 px, decoding included, on one thread. Both checkouts run in turn,
each in a process of its own that makes one packet before it is timed; the median of the rounds counts. Without
`--against` only this checkout runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import torch

from factorjepa.config import resolve
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.simulated import SimulationPlan, simulate_corpus
from factorjepa.corpus.splits import Split
from factorjepa.teacher.packet import COLUMNS
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.teacher.teacher import Teacher, clips_of
from factorjepa.world import WorldSettings

HERE = Path(__file__).resolve().parent.parent / "src"


def make(corpus: Path, into: Path) -> None:
    """The packets of a corpus into one file, and the seconds per window to stdout."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    teacher = Teacher(TeacherSettings(), "cpu")
    clips = clips_of(Corpus.open(corpus), Split.TRAIN)
    teacher.packet(clips, clips[0], 0)
    started = time.process_time()
    packets = [teacher.packet(clips, clip, 0) for clip in clips]
    seconds = (time.process_time() - started) / len(packets)
    np.savez(into, **{f"{k} {name}": getattr(one, name) for k, one in enumerate(packets) for name in COLUMNS})
    print(json.dumps({"seconds": seconds, "teacher": f"{teacher.features.name}, {teacher.regions_name}"}))


def made_by(source: Path, corpus: Path, into: Path) -> tuple[float, str]:
    """Seconds per window and the teacher's name when the checkout whose `src` this is makes the packets."""
    environment = os.environ | {"PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--make", str(corpus), str(into)]
    said = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    return said["seconds"], said["teacher"]


def differing(first: Path, second: Path) -> list[str]:
    """Columns of packets that are not the same to the bit."""
    with np.load(first) as one, np.load(second) as other:
        return [name for name in one.files if one[name].tobytes() != other[name].tobytes()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="`src` of another checkout")
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--make", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make is not None:
        make(*options.make)
        return
    sources = {"here": HERE} | ({"there": options.against} if options.against is not None else {})
    seconds: dict[str, list[float]] = {name: [] for name in sources}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        world = resolve(WorldSettings, "dense", ["seconds=[6,7]"])
        plan = SimulationPlan(seed=7, clips=options.windows, clips_per_source=5, shares=(1, 0, 0), world=world)
        simulate_corpus(folder / "corpus", plan, workers=1)
        for _ in range(options.rounds):
            for name, source in sources.items():
                taken, teacher = made_by(source, folder / "corpus", folder / f"{name}.npz")
                seconds[name].append(taken)
                print(f"{name}: {taken:.3f} s per window ({teacher})")
        if options.against is not None:
            ratio = median(seconds["there"]) / median(seconds["here"])
            others = differing(folder / "here.npz", folder / "there.npz")
            print(f"{ratio:.2f} times as fast as there; {len(others)} columns of packets differ {others[:8] or ''}")


if __name__ == "__main__":
    main()
