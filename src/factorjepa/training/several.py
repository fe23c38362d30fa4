"""Several runs, side by side or one after the other.

A run of a small backbone keeps neither two cores nor a GPU busy by itself; several runs can. Each is a run like any
other: finished ones are left as they are, interrupted ones go on. One that finds no room on the GPU beside the others
is finished after them, with fewer at a time.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import json
import logging
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

import torch

from ..commands import carry_out, command
from ..config import defaults, dump
from ..corpus.access import Corpus
from ..errors import TrainingError, lacks_memory
from ..sharing import shared_gpu
from ..signals import stopping
from ..words import counted
from ..workers import begin_worker, single_threaded
from .engine import Engine
from .run import AT_A_TIME, METRICS, SINCE, RunDirectory
from .settings import LAYOUT, TrainSettings

log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between looks at the runs' records
_SPARE = 0.05  # of a GPU's memory: with less left, whatever failed may have failed for lack of it


@dataclass(frozen=True)
class Job:
    """A run to be trained or finished."""

    settings: TrainSettings
    out: Path
    beside: tuple[str, ...] = ()  # settings whose paths lie together with the run, wherever that is

    @property
    def updates(self) -> int:
        return self.settings.updates if self.settings.resolved_method().trains else 0

    @property
    def done(self) -> bool:
        steps = RunDirectory(self.out).steps()
        return bool(steps) and steps[-1] == self.updates


def refuse_others(jobs: Sequence[Job]) -> None:
    """Runs that are there with other settings than those that are asked for."""
    advice = "Ask for those again to go on, or give this study a folder of its own"
    free = [name for name in LAYOUT if name != "batch"]
    for job in jobs:
        run = RunDirectory(job.out)
        if run.steps():
            run.refuse_other(dump(job.settings), free, defaults(TrainSettings), advice, job.beside)


def _refuse_other_clips(jobs: Sequence[Job]) -> None:
    begun = [job for job in jobs if RunDirectory(job.out).steps()]
    corpora = {data: Corpus.open(Path(data)).learnable() for data in {job.settings.data for job in begun}}
    for job in begun:
        RunDirectory(job.out).refuse_other_clips(corpora[job.settings.data])


def train_all(
    jobs: Sequence[Job], device: torch.device, workers: int, progress: Callable[[int, int], object] | None = None
) -> None:
    """Train what is not finished; `progress(updates made, updates in all)`. The first error ends all of them."""
    total, told = sum(job.updates for job in jobs), -1

    def tell() -> None:
        nonlocal told
        made = sum(_updates_made(job.out) for job in jobs)
        if progress is not None and made > told:
            progress(made, total)
        told = made

    refuse_others(jobs)
    _refuse_other_clips(jobs)
    for made_from_others in (False, True):  # WiSE-FT is made from finished runs
        left = [job for job in jobs if not job.done and (job.settings.base is not None) == made_from_others]
        beside = workers
        while left and beside > 1:
            with shared_gpu(device, min(beside, len(left))):
                crowded = side_by_side(left, device, beside, tell)
            beside //= 2
            if crowded:
                log.warning(
                    "%s ran out of the GPU's memory beside the others; going on with %s at a time",
                    counted(len(crowded), "run"), counted(beside, "run"),
                )  # fmt: skip
            left = crowded
        with shared_gpu(device, 1):
            go = _go(1)
            for job in left:
                _train_alone(job, device, go)
                tell()


def _train_alone(job: Job, device: torch.device, go: Mapping[str, str]) -> None:
    try:
        _train(job, str(device), go)
    except RuntimeError as error:
        if not _no_room(error):
            raise
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise TrainingError(
            f"{job.out}: does not fit into the GPU's memory even alone ({first}). Lower batch, "
            "raise accumulate so that an update has as many clips, and start anew in another folder"
        ) from error


def side_by_side(
    left: Sequence[Job],
    device: torch.device,
    workers: int,
    tell: Callable[[], object],
    train: Callable[[Job, str], None] | None = None,
) -> list[Job]:
    """Train `left`, so many at a time; returns those that found no room on the GPU beside the others."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(command(), stop))
    try:
        with single_threaded():
            work = train or functools.partial(_train, go=_go(workers))
            jobs = {pool.submit(work, job, str(device)): job for job in left}
        running: set[Future[None]] = set(jobs)
        crowded: list[Job] = []
        while running:
            ended, running = wait(running, timeout=_LOOK, return_when=FIRST_EXCEPTION)
            for one in ended:
                try:
                    one.result()
                except RuntimeError as error:
                    if not _no_room(error):
                        raise
                    crowded.append(jobs[one])
            tell()
        if stop.is_set():
            raise TrainingError("a training process was told to end: all runs are saved; the same command goes on")
        return crowded
    except BrokenProcessPool:
        stop.set()
        raise TrainingError(
            "a training process was killed (out of memory?); its last checkpoint is sound: run the same command again"
        ) from None
    except BaseException:  # Ctrl-C too
        log.warning("stopping: every run finishes its update and saves; the same command goes on from there")
        stop.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_stop: Event | None = None  # of a worker: set when all are to save and end


def _begin(line: str, stop: Event) -> None:
    global _stop
    begin_worker()
    carry_out(line)
    _stop = stop
    torch.set_num_threads(1)


def _go(at_a_time: int) -> dict[str, str]:
    """What runs that are trained together share: how long an update takes depends on it."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return {AT_A_TIME: str(at_a_time), SINCE: now}


def _train(job: Job, device: str, go: Mapping[str, str] | None = None) -> None:
    gc.collect()
    torch.cuda.empty_cache()  # what this process's last run held is room for the others; nothing without a GPU
    with _told_where_full(torch.device(device)):
        engine = Engine(job.settings, torch.device(device))

        def look(step: int, steps: int, text: str) -> None:
            if _stop is not None and _stop.is_set():
                engine.stop()

        with stopping(engine.stop, quiet=_stop is not None) as heard:  # of workers the parent speaks
            engine.run(job.out, bool(RunDirectory(job.out).steps()), look, go, job.beside)
    if heard and _stop is not None:  # all are to save and end; dying now would break the pool under those that have not
        _stop.set()
    elif heard:  # it was meant for the runs after this one too
        signal.raise_signal(heard[0])


def _no_room(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or lacks_memory(error)


@contextlib.contextmanager
def _told_where_full(device: torch.device) -> Iterator[None]:
    """Beside others, whatever fails on a full GPU may have failed for lack of room: it is tried again with more.

    Kernels that find no room for what they need besides their tensors say only that they failed. Alone, an error is
    what it says: a true fault shows then.
    """
    try:
        yield
    except RuntimeError as error:
        if _stop is None or _no_room(error) or not _full(device):
            raise
        raise torch.OutOfMemoryError(f"{error} (on a GPU that is full)") from error


def _full(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:  # a broken device says so of everything: the first error is the one to tell
        return False
    return free < _SPARE * total


def _updates_made(out: Path) -> int:
    """Of a run that another process may be writing: its record's last whole line of an update."""
    try:
        lines = (out / METRICS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except ValueError:
            continue
    return 0
