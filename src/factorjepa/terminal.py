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
    start: int | None = None

    def since_start(done: int) -> int:
        """What was done here: the first report comes after one thing, and a resumed job had done the others before."""
        nonlocal start
        if start is None or done <= start:  # fewer than before: a run has gone back to its last checkpoint
            start = max(0, done - 1)
        return done - start

    if not error_console.is_terminal:

        def say(done: int, total: int | None, note: str = "") -> None:
            nonlocal said
            now, here = time.monotonic(), since_start(done)
            if now - said < _SECONDS_BETWEEN_LINES and done != total:
                return
            said = now
            rate = here / max(now - started, 1e-9)
            left = f", {(total - done) / rate:.0f} s left" if total and rate and done < total else ""
            said_of = f"; {note}" if note else ""
            text = f"{what}: {amount(done)} of {amount(total) if total else '?'}, {speed(rate)}{left}{said_of}"
            error_console.print(text, highlight=False, markup=False)

        yield say
        return
    shown = (TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn())
    with Progress(*shown, console=error_console) as progress:
        task = progress.add_task(what, total=None, rate="", note="")

        def move(done: int, total: int | None, note: str = "") -> None:
            if start is None:
                progress.reset(task, completed=done - since_start(done))
            rate = speed(since_start(done) / max(time.monotonic() - started, 1e-9))
            progress.update(task, completed=done, total=total, rate=rate, note=note)

        yield move
