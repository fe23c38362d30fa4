"""What a corpus consists of, counted from its manifest: the tables behind `inspect` (appendix, Corpus composition)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from .manifest import PROVENANCE, Clip, Manifest, listed
from .splits import Split

Group = TypeVar("Group", bound=str)

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class Amount:
    """How much footage a group of clips is."""

    clips: int
    sources: int
    hours: float


@dataclass(frozen=True)
class Quantiles:
    """The spread of a number over the clips that have it."""

    count: int
    mean: float
    minimum: float
    p05: float
    p25: float
    median: float
    p75: float
    p95: float
    maximum: float


@dataclass(frozen=True)
class CrossTable:
    """Clips by two properties; `counts[row, column]` is 0 where there is none."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Mapping[tuple[str, str], int]

    def row_total(self, row: str) -> int:
        return sum(self.counts[row, column] for column in self.columns)


@dataclass(frozen=True)
class Composition:
    """A corpus in numbers; groups are sorted by name, `splits` as train, validation, test, audit."""

    total: Amount
    splits: Mapping[Split, Amount]
    cities: Mapping[str, Amount]
    capture_modes: Mapping[str, Amount]
    city_by_mode: CrossTable
    city_by_split: CrossTable
    seconds: Quantiles | None  # clip durations; None for an empty corpus
    tags: Mapping[str, Mapping[str, int]]  # text and yes/no attributes: clips by value, most frequent first
    measures: Mapping[str, Quantiles]  # numeric attributes


def compose(manifest: Manifest) -> Composition:
    """All tables of a manifest, or of a part of it."""
    words, numbers = _attributes(manifest)
    splits = amounts(manifest, lambda clip: clip.split)
    return Composition(
        total=amount(manifest),
        splits={split: splits[split] for split in Split if split in splits},
        cities=amounts(manifest, lambda clip: clip.city),
        capture_modes=amounts(manifest, lambda clip: clip.capture_mode),
        city_by_mode=cross_table((clip.city, clip.capture_mode) for clip in manifest),
        city_by_split=cross_table((clip.city, str(clip.split)) for clip in manifest),
        seconds=quantiles([clip.seconds for clip in manifest]) if len(manifest) else None,
        tags={name: dict(Counter(values).most_common()) for name, values in sorted(words.items())},
        measures={name: quantiles(values) for name, values in sorted(numbers.items())},
    )


def amount(clips: Iterable[Clip]) -> Amount:
    listed = list(clips)
    hours = math.fsum(clip.seconds for clip in listed) / 3600
    return Amount(len(listed), len({clip.source for clip in listed}), hours)


def amounts(clips: Iterable[Clip], group: Callable[[Clip], Group]) -> dict[Group, Amount]:
    """The amount of every group, sorted by its name."""
    members: dict[Group, list[Clip]] = defaultdict(list)
    for clip in clips:
        members[group(clip)].append(clip)
    return {name: amount(members[name]) for name in sorted(members)}


def cross_table(pairs: Iterable[tuple[str, str]]) -> CrossTable:
    counts = Counter(pairs)
    rows = tuple(sorted({row for row, _ in counts}))
    columns = tuple(sorted({column for _, column in counts}))
    return CrossTable(rows, columns, {(row, column): counts[row, column] for row in rows for column in columns})


def quantiles(values: Sequence[float]) -> Quantiles:
    """Linear between order statistics; `values` must not be empty."""
    spread = (float(value) for value in np.quantile(values, _QUANTILES))
    return Quantiles(len(values), float(np.mean(values)), *spread)


def _attributes(clips: Iterable[Clip]) -> tuple[dict[str, list[str]], dict[str, list[float]]]:
    """The values of every attribute over the clips that have it: words (and yes or no) apart from numbers."""
    words: dict[str, list[str]] = defaultdict(list)
    numbers: dict[str, list[float]] = defaultdict(list)
    for clip in clips:
        for name, value in clip.attributes.items():
            if name in PROVENANCE:
                continue
            if isinstance(value, bool):
                words[name].append("yes" if value else "no")
            elif isinstance(value, str):
                words[name] += listed(value)
            elif math.isfinite(value):
                numbers[name].append(float(value))
    return words, numbers
