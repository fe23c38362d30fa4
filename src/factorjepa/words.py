"""Words for what is said to people."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

AT = "@"  # `auto_rgn@long`: a method's name, and a word for runs of it with other settings


def base_of(method: str) -> str:
    """The method that a variant is one of; another method is its own."""
    return method.split(AT, 1)[0]


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """`counted(1, "clip")` is "1 clip", `counted(20, "city", "cities")` is "20 cities"."""
    return f"{number:.0f} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def quoted(title: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{title}\N{RIGHT DOUBLE QUOTATION MARK}"


def apart(title: str) -> str:
    """To stand in a list: in quotation marks where it has a comma of its own."""
    return quoted(title) if ", " in title else title


def nearest(word: str, candidates: Iterable[str]) -> str:
    """A question after the candidate that the word was meant to be, or nothing where none is like it."""
    matches = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.55)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
