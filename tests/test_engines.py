"""Who does the work: every job once, a dead worker costs its job a try and nobody else anything."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from factorjepa.engines import Here, Lost, Processes, engine_named, still_alive
from factorjepa.errors import ConfigError, StorageError

Array = NDArray[Any]


def squared(job: int) -> int:
    return job * job


def dies_on_three(job: int) -> int:
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def dies_once(job: tuple[Path, int]) -> int:
    folder, number = job
    if number == 1 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGSEGV)
    return number


def hangs(job: int) -> int:
    still_alive(1)
    while job:
        pass
    still_alive(0)
    return job


def refuses(job: int) -> int:
    if job == 1:
        raise StorageError("the disk is full")
    time.sleep(0.05)
    return job


def pid(job: int) -> int:
    return os.getpid()


def halved(job: Array) -> Array:
    job //= 2  # in place: what comes over the line belongs to the worker
    return job


def shared_out(job: int) -> list[int]:
    return sorted(number for number, _ in Processes(2).run(pid, range(job)))


@pytest.mark.parametrize("engine", [Here(), Processes(2)])
def test_every_job_is_done_once_and_said_which_it_is(engine: Here | Processes) -> None:
    assert sorted(engine.run(squared, range(9))) == [(n, n * n) for n in range(9)]
    assert list(engine.run(squared, [])) == []


def test_a_job_that_kills_its_worker_is_lost_and_the_others_are_not() -> None:
    results = dict(Processes(2).run(dies_on_three, range(6)))
    lost = results.pop(3)
    assert isinstance(lost, Lost)
    assert "killed" in lost.why
    assert results == {0: 0, 1: 1, 2: 2, 4: 4, 5: 5}


def test_a_worker_that_dies_by_accident_costs_nothing_but_time(tmp_path: Path) -> None:
    assert dict(Processes(2).run(dies_once, [(tmp_path, n) for n in range(4)])) == {n: n for n in range(4)}


def test_a_job_that_hangs_is_ended_by_its_alarm() -> None:
    results = dict(Processes(2, tries=1).run(hangs, [0, 1, 0]))
    assert results.pop(1) == Lost("made no progress and was stopped")
    assert results == {0: 0, 2: 0}


def test_an_error_ends_the_run_as_itself() -> None:
    with pytest.raises(StorageError, match="disk is full"):
        list(Processes(2).run(refuses, range(6)))


def test_workers_are_kept_for_the_next_stage() -> None:
    engine = Processes(1)
    assert list(engine.run(pid, [0])) == list(engine.run(pid, [0]))


def test_a_job_may_have_workers_of_its_own() -> None:
    assert list(Processes(1).run(shared_out, [3])) == [(0, [0, 1, 2])]


def test_arrays_arrive_as_they_were() -> None:
    arrays: list[Array] = [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.zeros((0, 3), int),
    ]
    results = dict(Processes(1).run(halved, [array.copy() for array in arrays]))
    for number, array in enumerate(arrays):
        np.testing.assert_array_equal(np.asarray(results[number]), array // 2)


@pytest.mark.parametrize("engine", [Here(), Processes(2)])
def test_jobs_are_made_when_somebody_is_about_to_be_free(engine: Here | Processes) -> None:
    asked: list[int] = []

    def coming() -> Iterator[int]:
        for job in range(8):
            asked.append(job)
            yield job

    for done, _ in enumerate(engine.run(squared, coming()), start=1):
        assert len(asked) <= done + engine.cores + 1  # those at work, and one


def test_engines_have_names() -> None:
    assert isinstance(engine_named("processes", 3), Processes)
    with pytest.raises(ConfigError, match="choose processes, ray"):
        engine_named("spark")
