"""From a corpus to a packet cache: clips go through the teacher in worker processes, shards are written in order.

A shard is complete or absent. Run the same command again after an interruption and it goes on with the first shard that
is missing; the bytes are those of an uninterrupted run, however many workers there are.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import torch

from .. import __version__
from ..corpus.access import ClipSet, Corpus, clips_of
from ..corpus.manifest import Clip
from ..corpus.splits import Split
from ..corpus.windows import refuse_short
from ..engines import Engine, Processes, in_order
from ..errors import FactorJEPAError, TeacherError
from ..storage import only_writer, remove_partials
from .cache import (
    HEADER,
    PROJECTIONS,
    PacketCache,
    corpus_identity,
    read_header,
    refuse_other_settings,
    shard_folder,
    write_header,
)
from .packet import Packet
from .packet_shards import Shard, write_shard
from .settings import TeacherSettings
from .teacher import Teacher, window_of

PER_SHARD = 128

Progress = Callable[[int, int], object]


def make_packets(
    data: Path,
    out: Path,
    settings: TeacherSettings,
    splits: Sequence[Split] | None = None,
    replication: int = 0,
    workers: int | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    per_shard: int | None = None,
    engine: Engine | None = None,
) -> PacketCache:
    """Make the packets of a corpus in `out`, or finish them. `progress(done, total)` counts clips.

    The work is done by `engine`, or by `workers` processes of this machine.
    """
    per_shard = per_shard or PER_SHARD
    corpus = Corpus.open(data)
    present = [split for split in Split if any(clip.split == split for clip in corpus.manifest)]
    sets = [clips_of(corpus, split) for split in (splits or present)]
    for clips in sets:
        refuse_short(clips, window_of(settings))
    _refuse_foreign(out)
    with only_writer(out, "making packets"):
        remove_partials(out)
        header = _header(settings, corpus, per_shard)
        _refuse_changes(out, settings, header)  # before a network is loaded
        teacher = Teacher(settings, device)
        header |= {"features": teacher.features.name, "regions": teacher.regions_name}
        _refuse_changes(out, settings, header)
        about = {"digest": settings.digest(), "replication": replication}
        shards = [shard for clips in sets for shard in _missing(out, clips, replication, per_shard)]
        total = sum(map(len, sets))
        done = total - sum(len(part) for _, part in shards)
        if progress is not None:
            progress(done, total)
        jobs = [(clip, replication) for _, part in shards for clip in part]
        with contextlib.closing(_run(data, settings, device, teacher, jobs, workers, engine)) as made:
            for path, part in shards:
                packets = []
                for packet in itertools.islice(made, len(part)):
                    packets.append(packet)
                    done += 1
                    if progress is not None:
                        progress(done, total)
                _begin_folder(out, header, teacher)  # now that there is something to describe
                write_shard(path, [clip.clip_id for clip in part], packets, {**about, "split": str(part[0].split)})
    return PacketCache.open(out, settings)


def _begin_folder(out: Path, header: dict[str, Any], teacher: Teacher) -> None:
    """The header before the first shard, and no earlier: a run that is refused at its first clips leaves nothing that
    would hold the next one to its settings."""
    if not (out / HEADER).exists():
        write_header(out, header, teacher.projections)


def _missing(out: Path, clips: ClipSet, replication: int, per_shard: int) -> Iterator[tuple[Path, list[Clip]]]:
    """The shards of a split that are not there, or not as they were written, each with its clips."""
    for number, start in enumerate(range(0, len(clips), per_shard)):
        path = shard_folder(out, replication) / f"{clips.split}-{number:05d}.safetensors"
        part = list(clips[start : start + per_shard])
        if not path.exists() or _damaged(path):
            yield path, part
        elif Shard(path).clips != [clip.clip_id for clip in part]:
            raise TeacherError(f"{path}: holds other clips than this corpus has there; delete it, or use another --out")


def _damaged(path: Path) -> bool:
    try:
        Shard(path).verify()
    except TeacherError:
        return True
    return False


def _header(settings: TeacherSettings, corpus: Corpus, per_shard: int) -> dict[str, Any]:
    return {
        "version": __version__,
        "digest": settings.digest(),
        "corpus": corpus_identity(corpus.manifest),
        "clips": len(corpus.manifest),
        "per_shard": per_shard,
        "settings": settings.model_dump(mode="json"),
    }


def _refuse_changes(out: Path, settings: TeacherSettings, header: dict[str, Any]) -> None:
    """An earlier run's packets must come from the same settings, corpus, teacher and version."""
    if not (out / HEADER).exists():
        return
    found = read_header(out)
    refuse_other_settings(out, PacketCache(out, found).settings, settings)
    words = {"corpus": "the corpus", "features": "what makes the features", "regions": "what proposes regions",
             "per_shard": "the number of packets per shard", "version": "the version of factorjepa"}  # fmt: skip
    for key, word in words.items():
        if key in header and found.get(key) != header[key]:
            raise TeacherError(
                f"{out}: {word} has changed since these packets were begun ({found.get(key)!r} then, {header[key]!r} "
                "now): make all of them anew in another folder"
            )


def _refuse_foreign(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise TeacherError(f"{out}: is a file; name a folder")
    if not out.is_dir() or (out / HEADER).exists():
        return
    if any(not entry.name.startswith(".") and entry.name != PROJECTIONS for entry in out.iterdir()):
        raise TeacherError(f"{out}: is not empty and holds no {HEADER}; choose an empty folder for packets")


Job = tuple[Clip, int]  # and its replication


class _Workshop:
    """What a process needs to make packets."""

    def __init__(self, data: Path, teacher: Teacher) -> None:
        self._corpus, self._teacher = Corpus.open(data), teacher
        self._sets: dict[Split, ClipSet] = {}

    def packet(self, job: Job) -> Packet:
        clip, replication = job
        if clip.split not in self._sets:
            self._sets[clip.split] = clips_of(self._corpus, clip.split)
        try:
            return self._teacher.packet(self._sets[clip.split], clip, replication)
        except FactorJEPAError as error:
            text = str(error)
            raise type(error)(text if "clip " in text else f"clip {clip.clip_id!r}: {text}") from None


class _Order(NamedTuple):
    """A job, and what a worker process needs to know to do it."""

    data: Path
    settings: str  # JSON
    device: str | None
    job: Job


def _run(
    data: Path,
    settings: TeacherSettings,
    device: str | None,
    teacher: Teacher,
    jobs: Sequence[Job],
    workers: int | None,
    engine: Engine | None,
) -> Generator[Packet, None, None]:
    count = min(len(jobs), workers if workers is not None else default_workers(settings))
    if engine is None and count <= 1:
        with _one_thread():
            yield from map(_Workshop(data, teacher).packet, jobs)
        return
    orders = [_Order(Path(data).resolve(), settings.model_dump_json(), device, job) for job in jobs]
    yield from in_order(engine or Processes(count), _work, orders)


def default_workers(settings: TeacherSettings) -> int:
    """All cores, but one process where a GPU does the looking: it would hold the network once per process."""
    on_gpu = settings.features.kind != "classical" and torch.cuda.is_available()
    return 1 if on_gpu else os.cpu_count() or 1


def _work(order: _Order) -> Packet:
    return _workshop(order.data, order.settings, order.device).packet(order.job)


@functools.lru_cache(maxsize=1)
def _workshop(data: Path, settings: str, device: str | None) -> _Workshop:
    """Of this worker process: a teacher may hold a network."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    return _Workshop(data, Teacher(TeacherSettings.model_validate_json(settings), device))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """As in a worker process: how sums are split over threads may decide their last bit."""
    before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])
