"""Windows decoded once, for every process that reads them: one memory-mapped array a split.

FOLDER/<split>-<replication>-<T>x<S>at<fps>.npy    uint8 [clips, T, S, S, 3]
FOLDER/<split>-<replication>-<T>x<S>at<fps>.json   which window lies in which row

Several runs over one corpus decode the same windows again and again, each for itself; from here they only copy them. A
clip that is not there, or whose file or place in its source has changed since, is decoded as if there were no such
folder.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..engines import Processes, in_order
from ..errors import CorpusError
from ..pixels import resize_to_cover
from ..storage import atomic_path, only_writer, remove_partials, write_text
from ..video import read_frames
from ..workers import granted_cores
from .access import ClipSet, Corpus, clips_of
from .manifest import Clip
from .splits import Split
from .windows import WindowSpec, refuse_unfit, window_times

_TOGETHER = 16  # windows that a worker hands back at once

Windows = NDArray[np.uint8]


def read_window(clips: ClipSet, clip: Clip, spec: WindowSpec, replication: int) -> tuple[Windows, NDArray[np.float64]]:
    """The window of one clip as the network sees it: frames `uint8 [T, H, W, 3]` and their times `[T]`."""
    times = window_times(clip, spec, replication)
    frames = read_frames(clips.video(clip), times, f"clip {clip.clip_id!r} ({clip.path})")
    return resize_to_cover(frames, spec.size, spec.size), times


class DecodedWindows:
    """What was decoded of some clips. Handed to another process it opens the file there, and copies nothing.

    Whether a clip's file is still the one that was decoded is looked up once, here.
    """

    def __init__(self, folder: Path, clips: ClipSet, spec: WindowSpec, replication: int) -> None:
        self._array, index = _files(folder, clips.split, spec, replication)
        try:
            found = json.loads(index.read_text(encoding="utf-8")) if index.exists() else []
        except ValueError:
            raise CorpusError(f"{index}: is damaged; delete {folder}, it is made again") from None
        rows = {identity: row for row, identity in enumerate(found)}
        known = {clip.clip_id: rows.get(_identity(clips, clip)) for clip in clips} if rows else {}
        self._rows = {clip_id: row for clip_id, row in known.items() if row is not None}
        self._count = len(rows)

    def __len__(self) -> int:
        """Clips that were decoded and have not changed since."""
        return len(self._rows)

    def __getstate__(self) -> dict[str, Any]:
        return {"_array": self._array, "_rows": self._rows, "_count": self._count}

    @functools.cached_property
    def _windows(self) -> Windows:
        try:
            windows: Windows = np.load(self._array, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise CorpusError(f"{self._array}: cannot be read ({error}); delete its folder, it is made again") from None
        if len(windows) != self._count:
            raise CorpusError(f"{self._array}: is not what its index says; delete its folder, it is made again")
        return windows

    def of(self, clip: Clip) -> Windows | None:
        """The clip's frames `[T, H, W, 3]`, or None if they were not decoded."""
        row = self._rows.get(clip.clip_id)
        return None if row is None else self._windows[row]


def decode_windows(
    data: Path,
    folder: Path,
    splits: list[Split],
    spec: WindowSpec,
    replication: int = 0,
    workers: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Decode the windows of whole splits into `folder`; what lies there already is kept. `progress(done, total)`."""
    corpus = Corpus.open(data)
    sets = [clips_of(corpus, split) for split in splits]
    total, done = sum(map(len, sets)), 0
    engine = Processes(workers or granted_cores())
    with only_writer(folder, "decoding windows"):
        remove_partials(folder)
        for clips in sets:
            refuse_unfit(clips, spec)
            if len(DecodedWindows(folder, clips, spec, replication)) == len(clips):
                done += len(clips)
                continue
            array, index = _files(folder, clips.split, spec, replication)
            index.unlink(missing_ok=True)  # an index never describes an array that it was not written after
            shape = (len(clips), spec.frames, spec.size, spec.size, 3)
            with atomic_path(array) as temporary:
                windows = _reserved(temporary, shape)
                row = 0
                for part in _decoded(engine, data, clips, spec, replication):
                    windows[row : row + len(part)] = part
                    row, done = row + len(part), done + len(part)
                    if progress is not None:
                        progress(done, total)
                cast(np.memmap[Any, Any], windows).flush()
            write_text(index, json.dumps([_identity(clips, clip) for clip in clips]))


def _reserved(path: Path, shape: tuple[int, ...]) -> Windows:
    """An array on disk with all its room taken: a full disk is an error now, and not the end of the process later."""
    about = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.uint8)), "fortran_order": False, "shape": shape}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, about)
        start = file.tell()
        file.flush()
        os.posix_fallocate(file.fileno(), 0, start + math.prod(shape))
    return np.memmap(path, np.uint8, "r+", start, shape)


def _decoded(engine: Processes, data: Path, clips: ClipSet, spec: WindowSpec, replication: int) -> Iterator[Windows]:
    jobs = [list(clips[start : start + _TOGETHER]) for start in range(0, len(clips), _TOGETHER)]
    yield from in_order(engine, functools.partial(_decode, data, clips.split, spec, replication), jobs)


def _decode(data: Path, split: Split, spec: WindowSpec, replication: int, part: list[Clip]) -> Windows:
    clips = _opened(data, split)
    return np.stack([read_window(clips, clip, spec, replication)[0] for clip in part])


@functools.cache
def _opened(data: Path, split: Split) -> ClipSet:
    return clips_of(Corpus.open(data), split)


def _files(folder: Path, split: Split, spec: WindowSpec, replication: int) -> tuple[Path, Path]:
    name = f"{split}-{replication}-{spec.frames}x{spec.size}at{spec.fps!r}"
    return folder / f"{name}.npy", folder / f"{name}.json"


def _identity(clips: ClipSet, clip: Clip) -> str:
    """All that a window depends on besides its spec and the replication."""
    return f"{clip.clip_id}\t{clip.path}\t{clip.t_start!r}\t{clip.t_end!r}\t{clip.fps!r}\t{clips.stamp(clip)}"
