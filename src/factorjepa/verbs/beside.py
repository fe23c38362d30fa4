"""What a study trains while the teacher looks at its clips: the teacher has the cores, a GPU would have nothing to do.

Each part is a process of its own, whose output goes to `beside/` in the study's folder. What one does not finish, the
study's own stage does later, and says why it cannot: when the teacher is done, runs are stopped and go on there, beside
all the others.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from ..commands import carry_out, command
from ..terminal import error_console
from ..workers import end_with_parent

if TYPE_CHECKING:
    from ..study import StudySettings

FOLDER = "beside"
RUNS_PART, DECODER_PART = "runs without packets", "decoder"
_STOPPED = 128 + signal.SIGTERM  # how a part ends that was told to
Part = Callable[["StudySettings", Path], object]


@contextlib.contextmanager
def beside_the_teacher(settings: StudySettings, out: Path, parts: dict[str, Part]) -> Iterator[None]:
    """Run `parts` while the block runs; it ends when they have ended, or have handed on what is left."""
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn").Process
    processes = {
        name: spawn(target=_carry_out, args=(part, settings, out, _log(out, name), command()))
        for name, part in parts.items()
    }
    try:
        for name, process in processes.items():
            _log(out, name).touch()
            process.start()
        yield
        if RUNS_PART in processes and processes[RUNS_PART].is_alive():
            runs = processes[RUNS_PART]
            _stop([runs])
            if runs.exitcode in (_STOPPED, -signal.SIGTERM):  # the second: before it had begun
                del processes[RUNS_PART]
                _say(
                    f"{RUNS_PART}: saved, and going on beside the others ({_log(out, RUNS_PART)} says how far they are)"
                )
        for name, process in processes.items():
            if process.is_alive():
                _say(f"waiting for what runs beside the teacher: {name} ({_log(out, name)} says how far it is)")
            process.join()
            if process.exitcode:
                _say(f"{name}, beside the teacher: not finished, {_log(out, name)} says why; a later stage goes on")
    except BaseException:
        begun = [process for process in processes.values() if process.pid is not None]
        if any(process.is_alive() for process in begun):
            _say("stopping: what runs beside the teacher saves first; interrupt again to end it at once")
        _stop(begun)
        raise


def _say(words: str) -> None:
    error_console.print(words, highlight=False, soft_wrap=True)


def packet_free(settings: StudySettings) -> tuple[str, ...]:
    """The methods whose runs need no teacher."""
    from ..adaptation import method_named

    return tuple(name for name in settings.methods if not method_named(name).reads_packets)


def _log(out: Path, name: str) -> Path:
    return out / FOLDER / f"{name.replace(' ', '_')}.log"


def _stop(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.terminate()  # runs finish their update and save; what a decoder saved last is what it goes on from
    try:
        for process in processes:
            process.join()
    except BaseException:  # interrupted again
        for process in processes:
            process.kill()
        raise


def _carry_out(part: Part, settings: StudySettings, out: Path, log: Path, line: str) -> None:
    """In the process: its words go to a file, and Ctrl-C, which reaches it too, is left to the parent."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from ..training import several  # noqa: F401 - takes seconds, in which a signal may end the process: nothing is lost

    signal.signal(signal.SIGTERM, _interrupt)
    carry_out(line)
    with log.open("ab", buffering=0) as opened:
        os.dup2(opened.fileno(), 1)
        os.dup2(opened.fileno(), 2)
    try:
        part(settings, out)
    except KeyboardInterrupt:
        sys.exit(_STOPPED)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
