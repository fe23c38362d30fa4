"""Updates a second of several small runs on one GPU, in turn and together (`factorjepa.sharing`), as a ratio.

    python benchmarks/bench_sharing.py --processes 12 --updates 40

Clips are made up (`factorjepa profile` has the same). Without a GPU it only tries itself.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import torch

from factorjepa.config import resolve
from factorjepa.profiling.subject import Subject
from factorjepa.profiling.synthetic import Scenery, training_batches
from factorjepa.sharing import shared_gpu
from factorjepa.training.settings import TrainSettings
from factorjepa.workers import begin_worker, single_threaded

WARMUP = 3  # updates


def run(settings: TrainSettings, device: str, updates: int, start: Barrier, found: Queue[tuple[float, float]]) -> None:
    """One of several: waits for the others, then says when its updates began and ended."""
    begin_worker()
    torch.set_num_threads(1)
    with Subject.made(settings, torch.device(device)) as subject:
        update, steps = subject.update(settings), itertools.count(settings.updates)
        passes = itertools.cycle(training_batches(settings, subject.grid(settings)[1], Scenery(8, 4), 4))
        for number in range(WARMUP + updates):
            if number == WARMUP:
                start.wait()
                began = time.time()
            step = next(steps)
            update.begin(step)
            outcome = update(step, itertools.islice(passes, 1), 1)
        outcome.record()  # waits for all of them
        found.put((began, time.time()))


def pace(settings: TrainSettings, device: str, processes: int, updates: int) -> float:
    """Updates a second, of all processes."""
    context = multiprocessing.get_context("spawn")
    start, found = context.Barrier(processes), context.Queue()
    given = (settings, device, updates, start, found)
    started = [context.Process(target=run, args=given) for _ in range(processes)]
    with single_threaded():
        for process in started:
            process.start()
    times = [found.get() for _ in started]
    for process in started:
        process.join()
    began, ended = zip(*times, strict=True)
    return processes * updates / (max(ended) - min(began))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpu = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--method", default="factorjepa")
    parser.add_argument("--processes", type=int, default=12 if gpu else 2)
    parser.add_argument("--updates", type=int, default=40 if gpu else 1)
    parser.add_argument("--batch", type=int, default=32 if gpu else 2)
    parser.add_argument("--precision", default="auto")
    given = parser.parse_args()
    settings = resolve(
        TrainSettings, "nano", data="-", method=given.method, size=64, batch=given.batch, precision=given.precision,
        compile=False,
    )  # fmt: skip
    in_turn = pace(settings, given.device, given.processes, given.updates)
    print(f"{given.processes} runs of {given.method}, in turn: {in_turn:.1f} updates/s")
    with shared_gpu(torch.device(given.device), given.processes) as works:
        if not works:
            print("the GPU cannot be shared here")
            return
        together = pace(settings, given.device, given.processes, given.updates)
    print(f"together: {together:.1f} updates/s, {together / in_turn:.2f} times as many")


if __name__ == "__main__":
    main()
