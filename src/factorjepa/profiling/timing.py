"""Clocks that wait for the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Times:
    """Seconds of synchronised iterations."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

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


def peak_gib(device: torch.device) -> float | None:
    """The most memory allocated since `forget_peak`; None on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None


def forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
