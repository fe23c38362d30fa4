"""One GPU for several processes: the service is started, used and ended, and its absence changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from factorjepa import sharing
from factorjepa.sharing import CONTROL, PIPES, shared_gpu

GPU, CPU = torch.device("cuda"), torch.device("cpu")

# Stands in for the driver's program: writes down what it is told, and what it may see.
SERVICE = """#!/bin/sh
if [ "$1" != "-d" ]; then
    read told; echo "told $told" >> "$SAID"
    late="$CUDA_MPS_PIPE_DIRECTORY/late"; mkdir "$late"
    (for k in 1 2 3 4 5 6 7 8; do echo x > "$late/$k"; done) &  # its folder may not be empty when it is removed
    exit
fi
echo "started at $CUDA_MPS_PIPE_DIRECTORY, sees ${CUDA_VISIBLE_DEVICES-all}" >> "$SAID"
exit $FAILS
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the service was told. Without a GPU nobody can reach one: that a process can is taken for granted."""
    program = tmp_path / "bin" / CONTROL
    program.parent.mkdir()
    program.write_text(SERVICE, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setenv("FAILS", "0")
    monkeypatch.delenv(PIPES, raising=False)
    monkeypatch.setattr(sharing, "_USUAL", tmp_path / "usual")
    monkeypatch.setattr(sharing, "_reachable", lambda environment, number: True)
    return tmp_path / "said"


def lines(said: Path) -> list[str]:
    return said.read_text(encoding="utf-8").splitlines() if said.exists() else []


def test_processes_started_within_find_the_service_and_it_ends_after_them(
    said: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with shared_gpu(GPU, 2) as works:
        assert works
        pipes = os.environ[PIPES]
        seen = subprocess.run(["sh", "-c", f"echo ${PIPES}"], capture_output=True, text=True, check=True).stdout.strip()
        assert seen == pipes
        assert lines(said) == [f"started at {pipes}, sees all"]  # it would number one device of several anew
    assert lines(said)[1:] == ["told quit"]
    assert PIPES not in os.environ


@pytest.mark.parametrize(("device", "processes"), [(CPU, 8), (GPU, 1)])
def test_it_is_not_started_where_nobody_would_share(said: Path, device: torch.device, processes: int) -> None:
    with shared_gpu(device, processes) as works:
        assert not works
    assert lines(said) == []


def test_a_service_at_the_usual_place_is_used_as_it_is(said: Path, tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    (tmp_path / "usual" / "control").touch()
    with shared_gpu(GPU, 4):
        assert PIPES not in os.environ
    assert lines(said) == []


def test_a_service_that_somebody_else_has_set_up_is_left_to_them(said: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PIPES, "/theirs")
    with shared_gpu(GPU, 4):
        assert os.environ[PIPES] == "/theirs"
    assert os.environ[PIPES] == "/theirs"
    assert lines(said) == []


@pytest.mark.parametrize("trouble", ["does not start", "cannot be reached"])
def test_a_service_that_does_not_work_is_not_used(said: Path, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    if trouble == "does not start":
        monkeypatch.setenv("FAILS", "1")
    else:
        monkeypatch.setattr(sharing, "_reachable", lambda environment, number: False)
    with shared_gpu(GPU, 4) as works:
        assert not works
        assert PIPES not in os.environ
    assert lines(said)[1:] == ([] if trouble == "does not start" else ["told quit"])


def test_a_process_that_cannot_reach_a_gpu_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU to reach")
    assert not sharing._reachable(dict(os.environ), 0)


def test_the_service_ends_with_a_parent_that_is_killed(said: Path) -> None:
    held = (
        "import time, torch; from factorjepa import sharing; sharing._reachable = lambda environment, number: True\n"
        "with sharing.shared_gpu(torch.device('cuda'), 2): print('within', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "within\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 30
    while "told quit" not in lines(said) and time.monotonic() < until:
        time.sleep(0.05)
    assert lines(said)[-1] == "told quit"


def test_memory_of_processes_that_share_a_gpu_grows_in_place_unless_somebody_has_said_otherwise(
    said: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in sharing._ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    asks = ["sh", "-c", "echo $PYTORCH_ALLOC_CONF"]
    with shared_gpu(GPU, 2):
        seen = subprocess.run(asks, capture_output=True, text=True, check=True).stdout.strip()
        assert seen == "expandable_segments:True"
    assert "PYTORCH_ALLOC_CONF" not in os.environ
    with shared_gpu(CPU, 2):
        assert "PYTORCH_ALLOC_CONF" not in os.environ
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    with shared_gpu(GPU, 2):
        assert "PYTORCH_ALLOC_CONF" not in os.environ
