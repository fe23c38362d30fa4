"""Words for what is said to people."""

from __future__ import annotations


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """`counted(1, "clip")` is "1 clip", `counted(20, "city", "cities")` is "20 cities"."""
    return f"{number:.0f} {noun if number == 1 else plural or noun + 's'}"
