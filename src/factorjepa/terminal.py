"""What people see in a terminal: progress with rate and ETA on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from .words import counted

console = Console()
error_console = Console(stderr=True)

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_TO_TELL = 2.0  # a rate: of less it says nothing
_LINES = 8  # of a list that may be long


def listing(lines: Sequence[str], rest: str) -> None:
    """The first of many lines as they are, the others by their number; `rest` says where they are or what they say."""
    most = _LINES if len(lines) > _LINES + 1 else len(lines)
    for line in lines[:most]:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if len(lines) > most:
        console.print(f"and {len(lines) - most} more: {rest}", highlight=False, soft_wrap=True, markup=False)


@contextlib.contextmanager
def counting(what: str, thing: str) -> Iterator[Callable[..., None]]:
    """A progress callback `(done, total, note="")` in things; the note says how it goes."""
    columns = (
        MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[note]}"), TimeElapsedColumn(),
    )  # fmt: skip
    with _showing(what, columns, lambda n: counted(n, thing), lambda r: f"{r:.1f} {thing}s/s") as progress:
        yield progress


@contextlib.contextmanager
def downloading(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress callback `(done, total)` in bytes; the total may be unknown."""
    columns = (DownloadColumn(), TransferSpeedColumn())
    with _showing(what, columns, lambda n: f"{n / 1e6:.0f} MB", lambda r: f"{r / 1e6:.1f} MB/s") as progress:
        yield progress


@contextlib.contextmanager
def _showing(
    what: str, columns: tuple[ProgressColumn, ...], amount: Callable[[float], str], speed: Callable[[float], str]
) -> Iterator[Callable[..., None]]:
    started = said = time.monotonic()
    first, since = 0, 0.0  # the first report: before it things were loaded and warmed up
    begun = False

    def rate_of(done: int, total: int | None) -> float | None:
        """Since the first report of anything done; None while that is too little. A resumed job did some before."""
        nonlocal begun, first, since
        now = time.monotonic()
        if not done:
            return None
        if not begun or done < first:  # fewer than before: a run has gone back to its last checkpoint
            begun, first, since = True, done, now
        if done > first and now - since >= _SECONDS_TO_TELL:
            return (done - first) / (now - since)
        return (done - max(0, first - 1)) / max(now - started, 1e-9) if done == total else None

    if not error_console.is_terminal:

        def say(done: int, total: int | None, note: str = "") -> None:
            nonlocal said
            now, rate = time.monotonic(), rate_of(done, total)
            if now - said < _SECONDS_BETWEEN_LINES and done != total:
                return
            said = now
            told = [f"{what}: {amount(done)} of {amount(total) if total else '?'}"]
            if rate is not None:
                told.append(speed(rate))
                told += [f"{(total - done) / rate:.0f} s left"] if total and done < total else []
            text = ", ".join(told) + (f"; {note}" if note else "")
            error_console.print(text, highlight=False, markup=False)

        yield say
        return
    shown = (TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn())
    with Progress(*shown, console=error_console) as progress:
        task = progress.add_task(what, total=None, rate="", note="")

        def move(done: int, total: int | None, note: str = "") -> None:
            if not begun:
                progress.reset(task, completed=max(0, done - 1))
            rate = rate_of(done, total)
            said_of = "" if rate is None else speed(rate)
            progress.update(task, completed=done, total=total, rate=said_of, note=note)

        yield move
