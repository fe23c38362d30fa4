"""CPU seconds that the teacher takes for a packet, here and in another checkout, and whether their packets agree.

    git worktree add ../before COMMIT
    python benchmarks/bench_targets.py --against ../before/src [--windows 20] [--rounds 3]

The windows are those of simulated dense clips of 128 px, decoding included, on one thread. Each checkout runs in a
process of its own, and they take turns window by window, so that whatever else the machine does slows both. Of each
window the quickest round counts. Without `--against` only this checkout runs.
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
from statistics import mean, quantiles
from typing import Any

import cv2
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


def serve(corpus: Path) -> None:
    """For each number of a clip on stdin, one line: the seconds that its packet took, and the packet's columns."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    teacher = Teacher(TeacherSettings(), "cpu")
    clips = clips_of(Corpus.open(corpus), Split.TRAIN)
    teacher.packet(clips, clips[0], 0)  # whatever is set up once
    for line in sys.stdin:
        started = time.process_time()
        packet = teacher.packet(clips, clips[int(line)], 0)
        seconds = time.process_time() - started
        columns = {name: getattr(packet, name).tobytes().hex() for name in COLUMNS}
        print(json.dumps({"seconds": seconds, "columns": columns}), flush=True)


class Checkout:
    """A process that makes packets with the code of one checkout."""

    def __init__(self, source: Path, corpus: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--serve", str(corpus)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def packet(self, clip: int) -> dict[str, Any]:
        said, asked = self._process.stdout, self._process.stdin
        assert said is not None
        assert asked is not None
        print(clip, file=asked, flush=True)
        answer: dict[str, Any] = json.loads(said.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="`src` of another checkout")
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    with tempfile.TemporaryDirectory() as temporary:
        corpus = Path(temporary) / "corpus"
        world = resolve(WorldSettings, "dense", ["seconds=[6,7]"])
        plan = SimulationPlan(seed=7, clips=options.windows, clips_per_source=5, shares=(1, 0, 0), world=world)
        simulate_corpus(corpus, plan, workers=1)
        sources = [HERE] + ([options.against] if options.against is not None else [])
        checkouts = [Checkout(source, corpus) for source in sources]
        seconds: dict[tuple[int, int], list[float]] = {}
        differ: set[tuple[int, str]] = set()
        for _ in range(options.rounds):
            for clip in range(options.windows):
                packets = [checkout.packet(clip) for checkout in checkouts]
                for which, packet in enumerate(packets):
                    seconds.setdefault((which, clip), []).append(packet["seconds"])
                differ |= {
                    (clip, name) for name in COLUMNS if len({packet["columns"].get(name) for packet in packets}) > 1
                }
        for checkout in checkouts:
            checkout.close()
    quickest = [[min(seconds[which, clip]) for clip in range(options.windows)] for which in range(len(sources))]
    for source, taken in zip(sources, quickest, strict=True):
        print(f"{mean(taken):.3f} s per window in {source}")
    if options.against is not None:
        ratios = [there / here for here, there in zip(*quickest, strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        print(
            f"{mean(quickest[1]) / mean(quickest[0]):.2f} times as fast; by window {middle:.2f} ({low:.2f}-{high:.2f})"
        )
        print(f"{len(differ)} columns of {options.windows} packets differ: {sorted(differ)[:8]}")


if __name__ == "__main__":
    main()
