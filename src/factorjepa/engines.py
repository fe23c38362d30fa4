"""Who does the work: the processes of this machine, or the workers of a Ray cluster. Stages are the same functions.

A worker that dies takes one job with it, not the run: the job is tried again, and after its last try it is `Lost`. An
error that a job raises ends the run; what a job can survive it must catch itself. A job may have workers of its own.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

from .errors import ConfigError, StorageError
from .workers import begin_worker, granted_cores, single_threaded

Job = TypeVar("Job")
Result = TypeVar("Result")

ENGINES = ("processes", "ray")
_AHEAD = 2  # times the cluster's cores: what waits there lets it grow


@dataclass(frozen=True)
class Lost:
    """A job whose worker died each time it was tried."""

    why: str


class Engine(Protocol):
    """`run` yields results as they come, each with the number of its job.

    `cores` says how many each job keeps busy, one unless told otherwise: a cluster sets them aside, on one machine the
    system deals them.
    """

    @property
    def cores(self) -> int:
        """Of all workers together."""

    def run(
        self, work: Callable[[Job], Result], jobs: Sequence[Job], cores: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Result | Lost]]: ...


def engine_named(name: str, workers: int | None = None, tries: int = 2, gpus: float = 0) -> Engine:
    """`processes` (all cores unless told otherwise) or `ray` (the cluster of RAY_ADDRESS, or a local one).

    `gpus` is how many a job needs: Ray hides GPUs from tasks that ask for none.
    """
    if name == "processes":
        return Processes(workers or granted_cores(), tries)
    if name == "ray":
        return Ray(workers, tries, gpus)
    raise ConfigError(f"there is no engine {name!r}: choose {', '.join(ENGINES)}")


class Here:
    """One job after the other in this process."""

    cores = 1

    def run(
        self, work: Callable[[Job], Result], jobs: Iterable[Job], cores: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Result | Lost]]:
        yield from ((number, work(job)) for number, job in enumerate(jobs))


class Processes:
    """Worker processes of this machine. Unlike a pool's, the death of one is known to be the death of its job."""

    def __init__(self, count: int, tries: int = 2) -> None:
        self.count, self.tries = count, tries
        self._idle: list[_Worker] = []  # kept for the next stage; they end with this object

    @property
    def cores(self) -> int:
        return self.count

    def run(
        self, work: Callable[[Job], Result], jobs: Iterable[Job], cores: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Result | Lost]]:
        """`jobs` may be made as they are asked for: no more than one is fetched before somebody is free to do it."""
        coming: Iterator[tuple[int, Job]] = enumerate(jobs)
        waiting: deque[tuple[int, int, Job]] = deque()
        busy: dict[Connection, _Worker] = {}
        try:
            while True:
                while waiting and len(busy) < self.count:
                    worker = self._idle.pop() if self._idle else _Worker()
                    worker.begin(work, *waiting.popleft())
                    busy[worker.line] = worker
                if not waiting and (following := next(coming, None)) is not None:
                    number, job = following
                    waiting.append((number, 1, job))
                    continue
                if not busy:
                    return
                for line in wait(list(busy)):
                    assert isinstance(line, Connection)
                    worker = busy.pop(line)
                    try:
                        outcome = _receive(line)
                    except (EOFError, OSError):
                        why = worker.end()
                        if worker.attempt < self.tries:
                            waiting.append((worker.number, worker.attempt + 1, worker.job))
                        else:
                            yield worker.number, Lost(why)
                        continue
                    worker.job = None
                    self._idle.append(worker)
                    if isinstance(outcome, _Raised):
                        raise outcome.error
                    yield worker.number, outcome
        finally:
            for worker in busy.values():  # only where the run ends early: nobody waits for these jobs any more
                worker.stop()
            for worker in busy.values():
                worker.end()


def in_order(engine: Engine, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
    """Results in the order of the jobs; a job that is lost ends the run."""
    early: dict[int, Result] = {}
    following = 0
    for number, result in engine.run(work, jobs):
        if isinstance(result, Lost):
            raise StorageError(
                f"a worker process {result.why}; what is finished is kept: run the same command again, with fewer "
                "--workers if it happens again"
            )
        early[number] = result
        while following in early:
            yield early.pop(following)
            following += 1


@dataclass(frozen=True)
class _Raised:
    error: BaseException


class _Worker:
    """A process that does one job at a time, and the line to it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far,), daemon=True)
        with single_threaded():
            self._process.start()
        far.close()  # else its death would not end the line
        self.number = self.attempt = 0
        self.job: Any = None

    def begin(self, work: Callable[[Any], Any], number: int, attempt: int, job: Any) -> None:
        self.number, self.attempt, self.job = number, attempt, job
        with contextlib.suppress(OSError):  # it has died while idle: the line will say so
            _send(self.line, (work, job))

    def stop(self) -> None:
        self._process.terminate()

    def end(self) -> str:
        """Wait for a process that is ending; how it ended."""
        self.line.close()
        self._process.join()
        return death(self._process.exitcode)


def death(code: int | None) -> str:
    """An exit code in words."""
    if code == -signal.SIGALRM:
        return "made no progress and was stopped"
    if code == -signal.SIGKILL:
        return "was killed (out of memory?)"
    return f"ended with {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"


def _serve(line: Connection) -> None:
    begin_worker()
    multiprocessing.current_process().daemon = False  # a daemon may have no workers of its own
    with contextlib.suppress(EOFError, OSError):
        while True:
            work, job = _receive(line)
            try:
                outcome = work(job)
            except Exception as error:
                outcome = _Raised(error)
            _send(line, outcome)
            del job, outcome  # a clip's pictures are not kept while the next ones come


def _send(line: Connection, thing: Any) -> None:
    """Arrays go beside the pickle, which would copy them: the pictures of a clip are a hundred megabytes."""
    arrays: list[pickle.PickleBuffer] = []
    data = pickle.dumps(thing, protocol=5, buffer_callback=arrays.append)
    raw = [array.raw() for array in arrays]
    line.send((data, [len(one) for one in raw]))
    for one in raw:
        line.send_bytes(one)


def _receive(line: Connection) -> Any:
    data, sizes = line.recv()
    arrays = [bytearray(size) for size in sizes]
    for array in arrays:
        line.recv_bytes_into(array)
    return pickle.loads(data, buffers=arrays)


def still_alive(patience: int) -> None:
    """Called by a job as it gets on: without another call within `patience` seconds the system ends its process.

    An alarm and not a thread: a decoder that hangs may never let another thread run. 0 puts the alarm off.
    """
    signal.alarm(patience)


class Ray:
    """Workers of a Ray cluster: that of RAY_ADDRESS, or one on this machine that ends with this process.

    Paths must lead to the same files from every worker. Few jobs are handed over ahead, and where a run ends early they
    are left to end, with this process at the latest: to cancel a task just as it finishes brings Ray's driver down.
    """

    def __init__(self, workers: int | None = None, tries: int = 2, gpus: float = 0) -> None:
        self.workers, self.tries, self.gpus = workers, tries, gpus

    @property
    def cores(self) -> int:
        return int(self._connected().cluster_resources().get("CPU", 1))

    def run(
        self, work: Callable[[Job], Result], jobs: Sequence[Job], cores: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Result | Lost]]:
        ray = self._connected()
        remote = ray.remote(max_retries=self.tries - 1, num_gpus=self.gpus)(work)
        most = max(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
        wanted = [max(1, min(count, most)) for count in cores or [1] * len(jobs)]  # more than any has are never free
        coming, begun = iter(enumerate(jobs)), dict[Any, int]()
        while True:
            while sum(wanted[number] for number in begun.values()) < _AHEAD * self.cores:
                if (following := next(coming, None)) is None:
                    break
                number, job = following
                begun[remote.options(num_cpus=wanted[number]).remote(job)] = number
            if not begun:
                return
            (done, *_), _ = ray.wait(list(begun))
            number = begun.pop(done)
            try:
                outcome: Any = ray.get(done)
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
                outcome = Lost("died in a worker of the cluster")
            except ray.exceptions.OutOfMemoryError:
                outcome = Lost("was ended by the cluster: out of memory")
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            yield number, outcome

    def _connected(self) -> Any:
        try:
            import ray
        except ImportError:
            raise ConfigError("the engine ray needs the package: pip install 'factorjepa[cluster]'") from None
        if not ray.is_initialized():
            where = os.environ.get("RAY_ADDRESS") or "local"  # said aloud: Ray would look for somebody's cluster itself
            count = self.workers or granted_cores() if where == "local" else None
            try:
                ray.init(
                    where, num_cpus=count, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
                )
            except ConnectionError as error:
                raise ConfigError(f"no Ray cluster answers at {where} (RAY_ADDRESS): {error}") from None
        return ray
