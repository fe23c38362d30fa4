"""Scores that cannot be had, and why: recorded with every run, told once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .words import counted

_MOST_NAMES = 4  # of variants or runs in a sentence


@dataclass(frozen=True)
class Missing:
    """One variant of one diagnostic in one run."""

    diagnostic: str
    variant: str  # empty: every variant
    reason: str
    clips: int


def told(by_method: Mapping[str, Sequence[Missing]], titles: Mapping[str, str], methods_in_all: int) -> list[str]:
    """A sentence for each diagnostic, reason and number of clips: the variants and methods that it concerns.

    `titles` names diagnostics as people know them. A method whose seeds differ has several names in `by_method`.
    """
    groups: dict[tuple[str, str, int], dict[str, list[str]]] = {}  # diagnostic, reason, clips -> method -> variants
    for method, all_missing in by_method.items():
        for one in all_missing:
            place = groups.setdefault((one.diagnostic, one.reason, one.clips), {})
            place.setdefault(method, []).append(one.variant)
    said = []
    for (diagnostic, reason, clips), variants_of in groups.items():
        methods_of: dict[tuple[str, ...], list[str]] = {}
        for method, variants in variants_of.items():
            methods_of.setdefault(tuple(variants), []).append(method)
        for absent, methods in methods_of.items():
            of = f" ({_few([one for one in absent if one])})" if any(absent) else ""
            everyone = len(methods) == len(by_method) and methods_in_all > 1
            where = f"all {methods_in_all} methods" if everyone else _few(methods)
            what = f"{titles.get(diagnostic, diagnostic)}{of}"
            said.append(f"{what}: no score of {counted(clips, 'clip')} for {where}: {reason}")
    return said


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
