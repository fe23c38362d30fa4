"""Clocks that wait for the device."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Times:
    """Seconds of iterations."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.seconds)

    @property
    def p95(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[max(0, -(-95 * len(ordered) // 100) - 1)]


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(run: Callable[[], object], device: torch.device, warmup: int, runs: int) -> Times:
    """Each run from the call until the device is done, after `warmup` untimed ones."""
    seconds = []
    for number in range(warmup + runs):
        wait(device)
        started = time.perf_counter()
        run()
        wait(device)
        if number >= warmup:
            seconds.append(time.perf_counter() - started)
    return Times(tuple(seconds))


def paced(run: Callable[[], object], device: torch.device, runs: int) -> Times:
    """Each run from when the device was done with the one before, after an untimed one.

    A GPU always has the next run to go on with, as in training, as long as the host prepares them faster than it works.
    """
    if device.type != "cuda":
        return timed(run, device, 1, runs)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(runs + 1)]  # type: ignore[no-untyped-call]
    wait(device)
    for mark in marks:
        run()
        mark.record(torch.cuda.current_stream(device))
    wait(device)
    return Times(tuple(a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(marks)))


def peak_gib(device: torch.device) -> float | None:
    """The most memory allocated since `forget_peak`; None on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None


def forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
