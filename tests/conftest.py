"""Shared by all tests: property tests are judged by what they find, not by how busy the machine is."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

from factorjepa import commands
from factorjepa.cli import main
from factorjepa.terminal import console, error_console

# In continuous integration the same examples every time: what fails there, fails here. Elsewhere new ones are tried.
settings.register_profile("patient", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("patient")

# Test processes, and those that they start, share the cores: threads that wait for each other crawl. Libraries read
# this as they are loaded: here none is yet.
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"):
    os.environ.setdefault(threads, "1")

# A shell that starts this in the background lets nobody interrupt it, nor what it starts, which tests do.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """All tests and the libraries they import stay to the end: whoever collects garbage need not look through them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb called in this process says what it carries out; the next test has not been asked for anything."""
    monkeypatch.setattr(commands, "_line", "")


class Ran(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`command("inspect", folder)`: the entry point in this process (a new one would take seconds to import torch)."""

    def run(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["factorjepa", *map(str, words)])
        for shown in (console, error_console):
            monkeypatch.setattr(shown, "width", 200)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("TERMINAL_WIDTH", "200")
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        return Ran(int(left.value.code or 0), said.out, said.err)

    return run


Process = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def process() -> Process:
    """`process("inspect", folder)`: the real command line in its own process, wide enough not to wrap words."""

    def run(*words: object, timeout: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("factorjepa")
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [str(program), *map(str, words)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout,
            **options,
        )

    return run
