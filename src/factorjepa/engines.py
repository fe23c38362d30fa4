"""Who does the work: the processes of this machine, or the workers of a Ray cluster. Stages are the same functions.

A worker that dies takes one job with it, not the run: the job is tried again, and after its last try it is `Lost`. An
error that a job raises ends the run; what a job can survive it must catch itself.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

from .errors import ConfigError, StorageError
from .workers import begin_worker

Job = TypeVar("Job")
Result = TypeVar("Result")

ENGINES = ("processes", "ray")


@dataclass(frozen=True)
class Lost:
    """A job whose worker died each time it was tried."""

    why: str


class Engine(Protocol):
    """`run` yields results as they come, each with the number of its job."""

    def run(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result | Lost]]: ...


def engine_named(name: str, workers: int | None = None, tries: int = 2, gpus: float = 0) -> Engine:
    """`processes` (all cores unless told otherwise) or `ray` (the cluster of RAY_ADDRESS, or a local one).

    `gpus` is how many a job needs: Ray hides GPUs from tasks that ask for none.
    """
    if name == "processes":
        return Processes(workers or os.cpu_count() or 1, tries)
    if name == "ray":
        return Ray(workers, tries, gpus)
    raise ConfigError(f"there is no engine {name!r}: choose {', '.join(ENGINES)}")


class Here:
    """One job after the other in this process: for measurements."""

    def run(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result | Lost]]:
        yield from ((number, work(job)) for number, job in enumerate(jobs))


class Processes:
    """Worker processes of this machine. Unlike a pool's, the death of one is known to be the death of its job."""

    def __init__(self, count: int, tries: int = 2) -> None:
        self.count, self.tries = count, tries
        self._idle: list[_Worker] = []  # kept for the next stage; they end with this object

    def run(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result | Lost]]:
        waiting = deque((number, 1) for number in range(len(jobs)))
        busy: dict[Connection, _Worker] = {}
        try:
            while waiting or busy:
                while waiting and len(busy) < self.count:
                    worker = self._idle.pop() if self._idle else _Worker()
                    number, attempt = waiting.popleft()
                    worker.begin(number, attempt, work, jobs[number])
                    busy[worker.line] = worker
                for line in wait(list(busy)):
                    assert isinstance(line, Connection)
                    worker = busy.pop(line)
                    try:
                        outcome = line.recv()
                    except (EOFError, OSError):
                        why = worker.end()
                        if worker.attempt < self.tries:
                            waiting.append((worker.number, worker.attempt + 1))
                        else:
                            yield worker.number, Lost(why)
                        continue
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
        self._process.start()
        far.close()  # else its death would not end the line
        self.number = self.attempt = 0

    def begin(self, number: int, attempt: int, work: Callable[[Any], Any], job: Any) -> None:
        self.number, self.attempt = number, attempt
        with contextlib.suppress(OSError):  # it has died while idle: the line will say so
            self.line.send((work, job))

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
    with contextlib.suppress(EOFError, OSError):
        while True:
            work, job = line.recv()
            try:
                outcome = work(job)
            except Exception as error:
                outcome = _Raised(error)
            line.send(outcome)


def still_alive(patience: int) -> None:
    """Called by a job as it gets on: without another call within `patience` seconds the system ends its process.

    An alarm and not a thread: a decoder that hangs may never let another thread run. 0 puts the alarm off.
    """
    signal.alarm(patience)


class Ray:
    """Workers of a Ray cluster: that of RAY_ADDRESS, or one on this machine that ends with this process.

    Paths must lead to the same files from every worker.
    """

    def __init__(self, workers: int | None = None, tries: int = 2, gpus: float = 0) -> None:
        self.workers, self.tries, self.gpus = workers, tries, gpus

    def run(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result | Lost]]:
        try:
            import ray
        except ImportError:
            raise ConfigError("the engine ray needs the package: pip install 'factorjepa[cluster]'") from None
        if not ray.is_initialized():
            where = os.environ.get("RAY_ADDRESS") or "local"  # said aloud: Ray would look for somebody's cluster itself
            count = self.workers or os.cpu_count() or 1 if where == "local" else None
            try:
                ray.init(
                    where, num_cpus=count, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
                )
            except ConnectionError as error:
                raise ConfigError(f"no Ray cluster answers at {where} (RAY_ADDRESS): {error}") from None
        remote = ray.remote(max_retries=self.tries - 1, num_gpus=self.gpus)(work)
        waiting = {remote.remote(job): number for number, job in enumerate(jobs)}
        try:
            while waiting:
                (done, *_), _ = ray.wait(list(waiting))
                number = waiting.pop(done)
                try:
                    outcome: Any = ray.get(done)
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
                    outcome = Lost("died in a worker of the cluster")
                except ray.exceptions.OutOfMemoryError:
                    outcome = Lost("was ended by the cluster: out of memory")
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                yield number, outcome
        finally:
            for left in waiting:
                ray.cancel(left)
