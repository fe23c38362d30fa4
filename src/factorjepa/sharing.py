"""One GPU for several processes at once.

By itself a GPU serves its processes in turn: kernels of two never run together, and those of a small model leave most
of it idle. NVIDIA's Multi-Process Service (MPS) lets them run together; it comes with the driver.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

log = logging.getLogger(__name__)

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_USUAL = Path("/", "tmp", "nvidia-mps")  # where a service listens that was not told where
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # what torch reads now, and did before
_PATIENCE = 20.0  # seconds for the service to start, and for a process to reach the GPU through it

# Waits for its input to close, which a parent that is killed does too: the service ends with whoever started it.
_GUARD = "{control} -d && echo started && {{ read -r _; echo quit | {control}; }}"
_REACH = """
import ctypes, sys
driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
number = int(sys.argv[1])
sys.exit(1 if driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) else 0)
"""


@contextlib.contextmanager
def shared_gpu(device: torch.device, processes: int) -> Iterator[bool]:
    """Let processes that are started within use the GPU together; gives whether a service was started for them.

    They work without it too, in turn: where there is no service, or the GPU cannot be reached beside it, only their
    memory is held otherwise (`_growing_in_place`), as that of a single process is. A service that somebody else has set
    up is used as it is, and whoever sets CUDA_MPS_PIPE_DIRECTORY, even to nothing, is left alone. With several
    processes the caller's own GPU work belongs outside: it would end with the service.
    """
    with _growing_in_place(device), _through_a_service(device, processes) as started:
        yield started


@contextlib.contextmanager
def _growing_in_place(device: torch.device) -> Iterator[None]:
    """Batches of clips with many agents and with few leave holes in what an allocator holds: 27 to 37 GiB for 20 to 23.

    Segments that grow where they are have none. Whoever has told the allocator something is left alone; so is a process
    that has used the GPU before, whose allocator listens no more.
    """
    if device.type != "cuda" or any(name in os.environ for name in _ALLOCATOR):
        yield
        return
    os.environ[_ALLOCATOR[0]] = "expandable_segments:True"
    try:
        yield
    finally:
        del os.environ[_ALLOCATOR[0]]


@contextlib.contextmanager
def _through_a_service(device: torch.device, processes: int) -> Iterator[bool]:
    control = shutil.which(CONTROL)
    theirs = PIPES in os.environ or (_USUAL / "control").exists()
    if device.type != "cuda" or processes < 2 or control is None or theirs:
        yield False
        return
    # It may still be writing there when it is told to end.
    place = tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True)
    with place as folder, _service(control, folder, device.index or 0) as works:
        if not works:
            yield False
            return
        log.info("%d processes share the GPU through %s", processes, CONTROL)
        os.environ[PIPES] = folder
        try:
            yield True
        finally:
            del os.environ[PIPES]


@contextlib.contextmanager
def _service(control: str, folder: str, number: int) -> Iterator[bool]:
    # Devices are numbered anew for its clients: it must see all of them, or theirs would be the wrong ones.
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {PIPES: folder, LOGS: folder}
    guard = subprocess.Popen(
        ["sh", "-c", _GUARD.format(control=shlex.quote(control))], env=environment, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert guard.stdin is not None
    assert guard.stdout is not None
    try:
        works = _says_something(guard) and _reachable(os.environ | {PIPES: folder}, number)
        if not works:
            log.warning("%s does not work here: runs have the GPU in turn, which is slower", CONTROL)
        yield works
    finally:
        guard.stdin.close()
        guard.stdout.close()
        try:
            guard.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            log.warning("%s does not end; it is left to itself", CONTROL)


def _says_something(guard: subprocess.Popen[str]) -> bool:
    """Within `_PATIENCE`, and before it ends."""
    assert guard.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(guard.stdout, selectors.EVENT_READ)
        return bool(selector.select(_PATIENCE)) and guard.stdout.readline() == "started\n"


def _reachable(environment: dict[str, str], number: int) -> bool:
    reach = [sys.executable, "-c", _REACH, str(number)]
    try:
        tried = subprocess.run(reach, env=environment, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return False
    return tried.returncode == 0
