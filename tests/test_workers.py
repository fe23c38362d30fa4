"""Worker processes do not crowd each other out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from factorjepa import workers
from factorjepa.engines import Processes
from factorjepa.workers import let_threads_sleep, single_threaded

NAMES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def threads(_: int) -> tuple[str | None, ...]:
    return tuple(os.environ.get(name) for name in NAMES)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_a_worker_has_one_thread_and_its_parent_is_left_alone() -> None:
    assert [found for _, found in Processes(2).run(threads, range(2))] == [("1", "1", "1")] * 2
    assert threads(0) == (None, None, None)


def test_what_the_user_says_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with single_threaded():
        assert threads(0) == ("3", "1", "1")
    assert threads(0) == ("3", None, None)


def test_threads_sleep_while_they_wait_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    let_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    let_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_the_command_line_says_so_before_torch_is_loaded() -> None:
    asked = "import os, sys, factorjepa.cli as cli; sys.argv[1:] = ['--version']\n"
    asked += "assert 'torch' not in sys.modules\n"
    asked += "try: cli.main()\nexcept SystemExit: print(os.environ['OMP_WAIT_POLICY'])"
    plain = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    told = subprocess.run([sys.executable, "-c", asked], env=plain, check=True, capture_output=True, text=True)
    assert told.stdout.split()[-1] == "PASSIVE"


@pytest.mark.parametrize(
    ("quota", "granted"), [("max 100000\n", 3), ("150000 100000\n", 2), ("900000 100000\n", 3), ("10000 100000\n", 1)]
)
def test_no_more_cores_are_used_than_are_granted(
    quota: str, granted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a batch system, which names them, or by a container, which gives shares of their time."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    monkeypatch.setattr(workers, "_QUOTA", tmp_path / "cpu.max")
    assert workers.granted_cores() == 3
    (tmp_path / "cpu.max").write_text(quota)
    assert workers.granted_cores() == granted


@pytest.mark.parametrize(("quota", "granted"), [("-1", 3), ("150000", 2)])
def test_older_containers_say_it_in_two_files(
    quota: str, granted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    files = [tmp_path / "quota", tmp_path / "period"]
    monkeypatch.setattr(workers, "_QUOTA", tmp_path / "absent")
    monkeypatch.setattr(workers, "_QUOTA_BEFORE", files)
    for file, number in zip(files, (quota, "100000"), strict=True):
        file.write_text(f"{number}\n")
    assert workers.granted_cores() == granted
