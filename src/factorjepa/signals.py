"""What Ctrl-C and SIGTERM do while something runs that must be saved first, or that has not begun."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from .terminal import error_console


@contextlib.contextmanager
def handling(handle: Callable[[int, object], None], even_ignored: bool = False) -> Iterator[None]:
    """Ctrl-C and SIGTERM call `handle` meanwhile; one that is ignored, as a worker's Ctrl-C, stays so unless asked
    otherwise, and so does one whose handler is not of Python, and could not be put back.

    Only the main thread can say what signals do: called in another one, this changes nothing.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    left = (None,) if even_ignored else (None, signal.SIG_IGN)
    mine = [number for number, handler in before.items() if handler not in left]
    if threading.current_thread() is not threading.main_thread():
        mine = []
    for number in mine:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])


def quitting() -> contextlib.AbstractContextManager[None]:
    """Ctrl-C and SIGTERM end the process at once and without a word.

    For the time before a run has begun: an exception would be raised in the middle of an import, and be printed.
    """
    return handling(lambda number, frame: os._exit(128 + number))


@contextlib.contextmanager
def stopping(stop: Callable[[], None], quiet: bool = False) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM call `stop` instead of interrupting; a second one quits. Gives those that were heard.

    One that follows within a second is the same: torchrun passes on to its processes what the terminal sent them too.
    """
    heard: list[int] = []
    first = 0.0

    def asked(number: int, frame: object) -> None:
        nonlocal first
        if heard and time.monotonic() - first > 1.0:
            os._exit(128 + number)
        if not heard:
            heard.append(number)
            first = time.monotonic()
            stop()
            if not quiet:
                error_console.print("stopping after this update; once more to stop at once", highlight=False)

    with handling(asked):
        yield heard
