"""Shared by all tests: property tests are judged by what they find, not by how busy the machine is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from factorjepa import commands

# In continuous integration the same examples every time: what fails there, fails here. Elsewhere new ones are tried.
settings.register_profile("patient", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("patient")


def pytest_configure() -> None:
    """Test processes, and those that they start, share the cores: threads that wait for each other crawl."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    os.environ.setdefault("OPENCV_FOR_THREADS_NUM", "1")


@pytest.fixture(autouse=True)
def _no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb called in this process says what it carries out; the next test has not been asked for anything."""
    monkeypatch.setattr(commands, "_line", "")


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
