"""Windows straight from the simulator, without a video file in between: the path for pretraining.

The same scenes and seeds as the clips: window `k` of a clip shows its frames from `k * seconds` on.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.pool import AsyncResult

import numpy as np
from numpy.typing import NDArray

from ..workers import begin_worker, single_threaded
from .settings import WorldSettings
from .simulator import clip_specs, clips


@dataclass(frozen=True)
class Window:
    """`video` is uint8 `[T, H, W, 3]`; `start` is in seconds of the clip."""

    video: NDArray[np.uint8]
    clip_id: str
    start: float


def source_windows(settings: WorldSettings, seed: int, source: int, frames: int = 16, fps: float = 4.0) -> list[Window]:
    """All windows of one source video that do not overlap."""
    length = frames / fps
    counts = [(spec.index, int(spec.frames / settings.fps / length)) for spec in clip_specs(settings, seed, source)]
    used = [(index, count) for index, count in counts if count]
    if not used:
        return []
    result: list[Window] = []
    made = clips(settings, seed, [index for index, _ in used], seconds=[count * length for _, count in used])
    for clip, (_, count) in zip(made, used, strict=True):
        starts = [k * length for k in range(count)]
        videos = clip.windows(starts, frames, fps)
        result += [Window(video, clip.spec.clip_id, start) for video, start in zip(videos, starts, strict=True)]
    return result


def stream_windows(
    settings: WorldSettings,
    seed: int,
    sources: Iterable[int],
    workers: int = 0,
    frames: int = 16,
    fps: float = 4.0,
) -> Iterator[Window]:
    """Windows of many sources, in the order of `sources` whatever the number of worker processes."""
    job = functools.partial(_job, settings.model_dump(), seed, frames, fps)
    if workers == 0:
        for source in sources:
            yield from job(source)
        return
    with single_threaded():
        processes = multiprocessing.get_context("spawn").Pool(workers, initializer=begin_worker)
    with processes as pool:
        pending: deque[AsyncResult[list[Window]]] = deque()
        for source in sources:
            pending.append(pool.apply_async(job, (source,)))
            if len(pending) > 2 * workers:  # a slow reader must not fill the memory
                yield from pending.popleft().get()
        while pending:
            yield from pending.popleft().get()


def _job(settings: dict[str, object], seed: int, frames: int, fps: float, source: int) -> list[Window]:
    return source_windows(WorldSettings.model_validate(settings), seed, source, frames, fps)
