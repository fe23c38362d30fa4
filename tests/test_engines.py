"""Who does the work: every job once, a dead worker costs its job a try and nobody else anything."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from factorjepa.engines import Here, Lost, Processes, engine_named, still_alive
from factorjepa.errors import ConfigError, StorageError


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


def test_engines_have_names() -> None:
    assert isinstance(engine_named("processes", 3), Processes)
    with pytest.raises(ConfigError, match="choose processes, ray"):
        engine_named("spark")
