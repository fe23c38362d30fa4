"""Who may see a clip: whole source videos are assigned before clips are cut (appendix, Partitioning).

Sources are laid out city by city and, within a city, capture mode by capture mode, in an order drawn from the seed;
the splits are dealt along that line by `balanced_sequence`. So the whole corpus is within one source of 80/10/10, and
each stratum and each city, being a stretch of the line, within two. Where a split with a share would be empty, it is
given a source if that keeps the whole within one: from six sources on, 80/10/10 leaves none empty. Audit cities are
audit altogether.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import lcm

from ..errors import CorpusError
from ..seeding import seed_of
from .balance import balanced_sequence


class Split(StrEnum):
    """The part of the corpus a source video, and so every clip cut from it, belongs to."""

    TRAIN = "train"  # gradient updates
    VALIDATION = "validation"  # model selection and thresholds
    TEST = "test"  # headline figures only
    AUDIT = "audit"  # cities never seen in the other three; carries ground truth


_DEALT = (Split.TRAIN, Split.VALIDATION, Split.TEST)


@dataclass(frozen=True, order=True)
class Source:
    """A source video as far as its split depends on it; `source` is unique in the whole corpus."""

    source: str
    city: str
    capture_mode: str


def assign_splits(
    sources: Sequence[Source],
    seed: int,
    audit_cities: Collection[str] = (),
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
) -> dict[str, Split]:
    """Source id -> split, stratified by city and capture mode; the order of `sources` does not matter.

    `fractions` are the train, validation and test shares of the sources outside `audit_cities`.
    """
    weights = _whole_weights(fractions)
    _check(sources, audit_cities)
    splits = {source.source: Split.AUDIT for source in sources if source.city in audit_cities}
    line = sorted(
        (source for source in sources if source.city not in audit_cities),
        key=lambda source: (
            seed_of(seed, "splits", source.city),
            seed_of(seed, "splits", source.city, source.capture_mode),
            seed_of(seed, "splits", source.city, source.capture_mode, source.source),
        ),
    )
    dealt = balanced_sequence(weights)
    for source in line:
        splits[source.source] = _DEALT[next(dealt)]
    _fill_empty(splits, [source.source for source in line], weights)
    return dict(sorted(splits.items()))


def extend_splits(
    known: Mapping[Source, Split],
    sources: Sequence[Source],
    seed: int,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
) -> dict[str, Split]:
    """Source id -> split of `sources` that join those of `known`, none of which moves.

    One after the other, in an order drawn from the seed, each goes to the split that its stratum and the whole corpus
    together are most short of. Audit sources count for nothing here.
    """
    weights = _whole_weights(fractions)
    _check([*known, *sources], ())
    counts = Counter((scope, split) for source, split in known.items() for scope in _scopes(source))
    splits: dict[str, Split] = {}
    for source in sorted(sources, key=lambda source: seed_of(seed, "splits", "joining", source.source)):
        scopes = _scopes(source)
        sizes = {scope: 1 + sum(counts[scope, split] for split in _DEALT) for scope in scopes}
        short = [
            sum(weight * sizes[scope] - sum(weights) * counts[scope, split] for scope in scopes)
            for split, weight in zip(_DEALT, weights, strict=True)
        ]
        splits[source.source] = chosen = _DEALT[short.index(max(short))]
        counts.update((scope, chosen) for scope in scopes)
    return dict(sorted(splits.items()))


def _fill_empty(splits: dict[str, Split], line: Sequence[str], weights: Sequence[int]) -> None:
    """Give each split that has a share and no source the last one, along the line, of the split that has most.

    Only while that one has more than its share: the whole stays within one source of the shares.
    """
    for split, weight in zip(_DEALT, weights, strict=True):
        counts = Counter(splits[source] for source in line)
        if weight and line and not counts[split]:
            (most, count), *_ = counts.most_common(1)
            if count > 1 and count * sum(weights) > weights[_DEALT.index(most)] * len(line):
                splits[next(source for source in reversed(line) if splits[source] is most)] = split


def _scopes(source: Source) -> tuple[tuple[str, ...], ...]:
    return (), (source.city, source.capture_mode)


def _check(sources: Sequence[Source], audit_cities: Collection[str]) -> None:
    repeated = [name for name, times in Counter(source.source for source in sources).items() if times > 1]
    if repeated:
        raise CorpusError(
            f"source {repeated[0]!r} is listed more than once ({len(repeated)} such sources): "
            "give every source video one entry and an id that is unique in the corpus"
        )
    cities = {source.city for source in sources}
    if unknown := sorted(set(audit_cities) - cities):
        raise CorpusError(
            f"audit city {unknown[0]!r} has no sources; cities of the corpus: {', '.join(sorted(cities))}"
        )


def _whole_weights(fractions: tuple[float, float, float]) -> list[int]:
    """0.8, 0.1, 0.1 -> 8, 1, 1: whole numbers keep the dealing exact."""
    shares = [Fraction(fraction).limit_denominator(10_000) for fraction in fractions]
    if len(shares) != 3 or min(shares) < 0 or sum(shares) != 1:
        raise CorpusError(f"split fractions must be three shares >= 0 that add up to 1, got {fractions}")
    scale = lcm(*(share.denominator for share in shares))
    return [int(share * scale) for share in shares]
