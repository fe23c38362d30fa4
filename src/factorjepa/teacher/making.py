"""From a corpus to a packet cache: clips go through the teacher in worker processes, shards are written in order.

A shard is complete or absent. Run the same command again after an interruption and it goes on with the first shard that
is missing; the bytes are those of an uninterrupted run, however many workers there are. A corpus may have grown since:
shards that are there stay as they are, and what is new goes into new ones.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import torch

from .. import __version__
from ..corpus.access import ClipSet, Corpus, clips_of
from ..corpus.manifest import Clip
from ..corpus.simulated import PLAN
from ..corpus.splits import Split
from ..corpus.windows import refuse_unfit
from ..engines import Engine, Processes, in_order
from ..errors import FactorJEPAError, TeacherError
from ..storage import only_writer, remove_partials
from ..workers import granted_cores
from .cache import (
    HEADER,
    PROJECTIONS,
    PacketCache,
    clip_identities,
    mend_projections,
    read_header,
    refuse_other_settings,
    shard_folder,
    write_header,
)
from .packet import Packet
from .packet_shards import Shard, UnreadableError, write_shard
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
    if settings.regions.kind == "street" and not (data / PLAN).is_file():
        raise TeacherError(
            f"{data}: regions.kind=street knows simulated streets alone, and this corpus was not simulated; take "
            "unsupervised, or detector with an ONNX file"
        )
    corpus = Corpus.open(data)
    present = [split for split in Split if any(clip.split == split for clip in corpus.manifest)]
    sets = [clips_of(corpus, split) for split in (splits or present)]
    if not sets:
        raise TeacherError(f"{data}: has no clips, so there is nothing to make packets of")
    for clips in sets:
        refuse_unfit(clips, window_of(settings))
    _refuse_foreign(out)
    with only_writer(out, "making packets"):
        remove_partials(out)
        header = _header(settings, per_shard)
        _refuse_changes(out, settings, header)  # before a network is loaded
        teacher = Teacher(settings, device)
        header |= {"features": teacher.features.name, "regions": teacher.regions_name}
        _refuse_changes(out, settings, header)
        mend_projections(out, teacher.projections)
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
                made_of = {"split": str(part[0].split), "identities": [*clip_identities(part).values()]}
                write_shard(path, [clip.clip_id for clip in part], packets, {**about, **made_of})
    return PacketCache.open(out, settings)


def _begin_folder(out: Path, header: dict[str, Any], teacher: Teacher) -> None:
    """The header before the first shard, and no earlier: a run that is refused at its first clips leaves nothing that
    would hold the next one to its settings."""
    if not (out / HEADER).exists():
        write_header(out, header, teacher.projections)


def _missing(out: Path, clips: ClipSet, replication: int, per_shard: int) -> Iterator[tuple[Path, list[Clip]]]:
    """The shards that a split lacks, each with its clips; one that is not as it was written is removed."""
    folder, known = shard_folder(out, replication), clip_identities(clips)
    there: set[str] = set()
    taken: set[Path] = set()
    for path in sorted(folder.glob(f"{clips.split}-*.safetensors")):
        try:
            (shard := Shard(path)).verify()
        except UnreadableError:
            raise
        except TeacherError:
            path.unlink()
            continue
        _refuse_other_clips(shard, known)
        there.update(shard.clips)
        taken.add(path)
    missing = [clip for clip in clips if clip.clip_id not in there]
    names = (folder / f"{clips.split}-{number:05d}.safetensors" for number in itertools.count())
    free = (path for path in names if path not in taken)
    for start in range(0, len(missing), per_shard):
        yield next(free), missing[start : start + per_shard]


def _refuse_other_clips(shard: Shard, known: Mapping[str, str]) -> None:
    """Packets may be fewer than the clips of a corpus, and each must be of a clip that is as it was."""
    advice = "Delete the file, and its clips get new packets, or make all of them in another folder with --out"
    if "identities" not in shard.about:
        raise TeacherError(f"{shard.path}: does not say what its clips were like: an earlier version made it. {advice}")
    for clip_id, identity in zip(shard.clips, shard.about["identities"], strict=True):
        if known.get(clip_id) != identity:
            how = "is another one now" if clip_id in known else "is not in it any more"
            raise TeacherError(
                f"{shard.path}: the corpus has changed since these packets were made: clip {clip_id!r} {how}. {advice}"
            )


def _header(settings: TeacherSettings, per_shard: int) -> dict[str, Any]:
    return {
        "version": __version__,
        "digest": settings.digest(),
        "per_shard": per_shard,
        "settings": settings.model_dump(mode="json"),
    }


def _refuse_changes(out: Path, settings: TeacherSettings, header: dict[str, Any]) -> None:
    """An earlier run's packets must come from the same settings, teacher and version."""
    if not (out / HEADER).exists():
        return
    found = read_header(out)
    refuse_other_settings(out, PacketCache(out, found).settings, settings)
    words = {"features": "what makes the features", "regions": "what proposes regions",
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
    return 1 if on_gpu else granted_cores()


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
