"""Worker processes that end with their parent, however it ends."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

# Of a container: microseconds of cores in so many of the clock, or "max"; before, two files, and -1.
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_BEFORE = [Path("/sys/fs/cgroup/cpu", name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Processes started within have one thread each for their arithmetic, unless the user has said how many.

    Libraries take as many threads as there are cores: with a process per core they would mostly wait for each other.
    They read this when they are loaded, before a worker's first line.
    """
    mine = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(mine, "1"))
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)


def let_threads_sleep() -> None:
    """Threads of this process and of those that it starts sleep while they wait, unless the user has said otherwise.

    By default they spin, and beside another busy process hold the core that whom they wait for has to run on: small
    updates take twice as long (docs/performance.md). It is read as torch is loaded: call this before.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def granted_cores() -> int:
    """How many this process may use: batch systems and containers grant fewer than the machine has."""
    granted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in ([_QUOTA], _QUOTA_BEFORE):
        with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
            quota, period = map(int, " ".join(file.read_text(encoding="ascii") for file in files).split())
            return max(1, min(granted, math.ceil(quota / period))) if quota > 0 < period else granted
    return granted


def begin_worker() -> None:
    """First thing in every worker: leave Ctrl-C to the parent (it reaches the whole group), and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """From now on this process does not outlive the one that started it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)  # nobody is left to hand results to; files are written whole or not at all
