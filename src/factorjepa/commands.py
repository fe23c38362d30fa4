"""The command line that this process carries out, and where it is kept: `commands.txt` beside what it made.

A run that was resumed has several lines. What Python code made without a command line has none: nobody invents one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from .storage import write_text

FILE = "commands.txt"
_PROGRAM = "factorjepa"

_line = ""


def carry_out(line: str) -> None:
    """From now on this process works for `line`: the command line says it, or a parent its workers."""
    global _line
    _line = line


def command() -> str:
    """As a shell takes it; empty where no command line was given."""
    return _line


def line_of(words: Sequence[str]) -> str:
    """Shell-quoted; what lies under the current folder is named from there, so that the line means the same elsewhere.

    Of torchrun's own words nothing is known but how many processes it started.
    """
    line = " ".join([_PROGRAM, *(quote(_from_here(word)) for word in words)])
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return f"{line}  # in {world} processes, by torchrun" if world > 1 else line


def record(folder: Path) -> None:
    """Keep this process's command in `folder`, after those of before. One that is repeated is kept once."""
    if _line and _line not in (before := recorded(folder)):
        write_text(folder / FILE, "".join(f"{line}\n" for line in (*before, _line)))


def recorded(folder: Path) -> list[str]:
    """The commands that made what lies in `folder`, in their order; none where nobody kept them."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return [line for line in text.splitlines() if line]


def _from_here(word: str) -> str:
    """`/here/runs/a` as `runs/a`, and `weights=/here/x` as `weights=x`."""
    name, equals, value = word.rpartition("=")
    try:
        relative = Path(value).relative_to(Path.cwd())
    except ValueError:
        return word
    return f"{name}{equals}{relative}"
