"""A file from elsewhere gets so much memory and time, and no more: the process that reads it ends, not the machine."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

import cv2

from ..engines import still_alive
from .settings import LimitSettings


@contextlib.contextmanager
def limited(limits: LimitSettings) -> Iterator[None]:
    """Within: allocations beyond the limit fail, an alarm runs, and OpenCV leaves the other cores to other workers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(limits.memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    still_alive(limits.patience)
    try:
        yield
    finally:
        still_alive(0)
        cv2.setNumThreads(threads)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
