"""Resampling as weights over sources: a replicate's value is a row of weights times the sources' means.

Cities are drawn with replacement, then sources within each drawn city; all clips of a source stay together. One set
of draws serves every method, diagnostic and variant, so everything is paired with everything. 10,000 replicates of a
table are one matrix product.

Legend: B rows of weights (replicates); V sources, sorted by city; C cities; K columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..seeding import stream
from .measures import Array

Counts = np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

_CHUNK = 4_000_000  # numbers in one block of weights
_KEPT = 25_000_000  # numbers of weights that are kept for the next call: 200 MB


@dataclass(frozen=True)
class Hierarchy:
    """Which sources belong to which city. Sources are sorted by city."""

    sources_C: tuple[int, ...]  # sources per city

    @property
    def sources(self) -> int:
        return sum(self.sources_C)

    @property
    def cities(self) -> int:
        return len(self.sources_C)

    @property
    def starts_C(self) -> np.ndarray[Any, Any]:
        return np.concatenate([[0], np.cumsum(self.sources_C)[:-1]])

    @property
    def city_V(self) -> np.ndarray[Any, Any]:
        return np.repeat(np.arange(self.cities), self.sources_C)

    @classmethod
    def of(cls, cities: Sequence[int]) -> Hierarchy:
        """From the city number of each source, ascending."""
        return cls(tuple(int(n) for n in np.bincount(np.asarray(cities))))


def hierarchical_counts(hierarchy: Hierarchy, replicates: int, seed: int) -> Counts:
    """How often each source is drawn, [B, V]: cities with replacement, then sources within every drawn city.

    A city drawn k times has its n sources drawn k times over; together that is one draw of k n.
    """
    cities = hierarchy.cities
    drawn_BC = stream(seed, "cities").multinomial(cities, np.full(cities, 1 / cities), size=replicates)
    return _sources_within(hierarchy, drawn_BC, stream(seed, "sources"))


def source_only_counts(hierarchy: Hierarchy, replicates: int, seed: int) -> Counts:
    """Every city once; sources within it with replacement: what if these were all the cities there are."""
    once_BC = np.ones((replicates, hierarchy.cities), np.int64)
    return _sources_within(hierarchy, once_BC, stream(seed, "sources of fixed cities"))


def leave_one_out_counts(hierarchy: Hierarchy) -> Counts:
    """Each top-level cluster left out in turn: cities, or sources where there is one city."""
    if hierarchy.cities > 1:
        others_CV: Counts = (hierarchy.city_V[None, :] != np.arange(hierarchy.cities)[:, None]).astype(np.uint16)
        return others_CV
    return leave_one_source_out_counts(hierarchy)


def leave_one_source_out_counts(hierarchy: Hierarchy) -> Counts:
    """Each source left out in turn; the others of its city stand in for it, so that cities count as before.

    A city's only source cannot be left out: its row is empty.
    """
    city_V, sources_C = hierarchy.city_V, np.asarray(hierarchy.sources_C)
    others_V = sources_C[city_V] - 1
    same_VV = city_V[:, None] == city_V[None, :]
    counts_VV: Counts = (others_V[:, None] + (same_VV & (others_V[:, None] > 0))).astype(np.uint16)
    np.fill_diagonal(counts_VV, 0)
    return counts_VV


def everything(hierarchy: Hierarchy) -> Counts:
    return np.ones((1, hierarchy.sources), np.uint16)


def seed_weights(seeds: int, replicates: int, seed: int) -> Array:
    """Training seeds drawn with replacement, [B, S], independently of the cities."""
    drawn = stream(seed, "seeds", seeds).multinomial(seeds, np.full(seeds, 1 / seeds), size=replicates)
    return np.asarray(drawn / seeds)


def weights(counts_BV: Counts, valid_V: Mask, hierarchy: Hierarchy) -> Array:
    """Weight of each source in each row, [B, V]: equal cities, equal sources within them (eq. mu_M).

    A source without a value leaves its city to the others; a city without any leaves the mean to the other cities. A
    row that draws nothing with a value is NaN.
    """
    starts, city_V = hierarchy.starts_C, hierarchy.city_V
    drawn_BC = np.add.reduceat(counts_BV, starts, axis=1, dtype=np.float64) / np.asarray(hierarchy.sources_C)
    inside_BV: Array = np.multiply(counts_BV, valid_V, dtype=np.float64)
    inside_BC = np.add.reduceat(inside_BV, starts, axis=1)
    share_BC = np.where(inside_BC > 0, drawn_BC, 0.0)
    with np.errstate(invalid="ignore"):
        share_BC /= share_BC.sum(1, keepdims=True)
    inside_BV *= (share_BC / np.where(inside_BC > 0, inside_BC, 1.0))[:, city_V]
    return inside_BV


class Draws:
    """Rows of weights, applied to columns of source means."""

    def __init__(self, counts_BV: Counts, hierarchy: Hierarchy) -> None:
        self.counts, self.hierarchy = counts_BV, hierarchy
        self._kept: tuple[bytes, Array] | None = None

    def __len__(self) -> int:
        return len(self.counts)

    def of(self, columns_VK: Array, valid_V: Mask) -> Array:
        """Weighted means, [B, K]."""
        if self.counts.size <= _KEPT:
            return np.asarray(self._whole(valid_V) @ columns_VK)
        rows = max(1, _CHUNK // self.counts.shape[1])
        blocks = [
            weights(self.counts[start : start + rows], valid_V, self.hierarchy) @ columns_VK
            for start in range(0, len(self.counts), rows)
        ]
        return np.concatenate(blocks)

    def _whole(self, valid_V: Mask) -> Array:
        """The weights for these sources; diagnostics mostly share one pattern, so the last one is kept."""
        pattern = valid_V.tobytes()
        if self._kept is None or self._kept[0] != pattern:
            self._kept = pattern, weights(self.counts, valid_V, self.hierarchy)
        return self._kept[1]


def _sources_within(hierarchy: Hierarchy, drawn_BC: np.ndarray[Any, Any], random: np.random.Generator) -> Counts:
    most = hierarchy.cities * max(hierarchy.sources_C)
    counts = np.empty((len(drawn_BC), hierarchy.sources), np.min_scalar_type(most))
    for city, (start, sources) in enumerate(zip(hierarchy.starts_C, hierarchy.sources_C, strict=True)):
        among = np.full(sources, 1 / sources)
        counts[:, start : start + sources] = random.multinomial(drawn_BC[:, city] * sources, among)
    return counts
