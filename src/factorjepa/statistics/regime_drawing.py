"""Two corpora drawn again and again: whoever is drawn is matched anew, and means are taken of the pairs.

Legend: B replicates; J jackknife rows; C clusters; M measures; S scene strata; 2 corpora (first, reference).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..regime.estimate import matched_means, means_by_scene, offers
from ..regime.matching import CALIPER, Design, Matched, match
from ..regime.population import Population
from ..regime.scene import Ints
from ..regime.settings import PRIMARY
from ..regime.table import COLUMNS
from ..seeding import seed_of
from .intervals import bca
from .measures import Array
from .regime_rows import Estimate
from .resampling import Counts, Hierarchy, hierarchical_counts, leave_one_out_counts

SCENE_MEASURES = ("count", "occupancy")  # of the paper's table of scenes
_EPSILON = 1e-3  # of the ratio: a reference with next to nothing does not make it infinite

Progress = Callable[[int, int], object]

_CONTRASTS: dict[str, Callable[[Array], Array]] = {  # of means [..., 2]
    "first": lambda means: means[..., 0],
    "other": lambda means: means[..., 1],
    "difference": lambda means: means[..., 0] - means[..., 1],
    "ratio": lambda means: (means[..., 0] + _EPSILON) / (means[..., 1] + _EPSILON),
}


@dataclass(frozen=True)
class RegimeSettings:
    replicates: int = 2000
    seed: int = 0
    confidence: float = 0.95
    alpha: float = 0.05
    fields: tuple[str, ...] | None = None  # of the strata; None: as many of the paper's as leave enough matches
    caliper: float = CALIPER


class Pairing:
    """Two populations and how to match whatever is drawn of them."""

    def __init__(self, first: Population, reference: Population, made: Design, scenes: list[str]) -> None:
        self.both, self.made, self.scenes = (first, reference), made, scenes
        self.hierarchies = tuple(Hierarchy.of(one.cluster_V.tolist()) for one in self.both)
        self._scene = tuple(one.scenes(scenes) if scenes else None for one in self.both)
        self._sums = [(one.totals_CVM[:, 0, :], one.terms_CVM[:, 0, :]) for one in self.both]
        assert first.table.about.variants[0] == PRIMARY
        self.whole = self.matched(*(np.ones(one.sources, np.int64) for one in self.both))

    def matched(self, *drawn: Any, made: Design | None = None) -> tuple[Matched, tuple[Ints, Ints]]:
        """The pairs among the drawn sources, and the group of every pair's clip in both corpora."""
        offered = [offers(one.source_C, counts) for one, counts in zip(self.both, drawn, strict=True)]
        found = match(made or self.made, offered[0][0], offered[1][0])
        return found, (offered[0][1][found.place_A], offered[1][1][found.place_B])

    def values(self, *drawn: Any) -> tuple[Array, Array]:
        """Means of every measure [2, M], and by scene [2, S, 2], of the matched clips among the drawn sources."""
        found, groups = self.matched(*drawn)
        means, by_scene = [], []
        columns = [COLUMNS.index(name) for name in SCENE_MEASURES]
        for side, (rows, group) in enumerate(zip((found.row_A, found.row_B), groups, strict=True)):
            totals, terms = (values[rows] for values in self._sums[side])
            means.append(matched_means(totals, terms, group))
            scene = self._scene[side]
            if scene is not None:
                by_scene.append(
                    means_by_scene(totals[:, columns], terms[:, columns], group, scene[rows], len(self.scenes))
                )
        return np.array(means), np.array(by_scene).reshape(2, len(self.scenes), len(SCENE_MEASURES))

    def difference(self, sums: Callable[[Population], tuple[Array, Array]], made: Design | None = None) -> Array:
        """[M] of the whole corpora, with other sums or another matching."""
        everyone = (np.ones(one.sources, np.int64) for one in self.both)
        found, groups = self.whole if made is None else self.matched(*everyone, made=made)
        means = []
        for one, rows, group in zip(self.both, (found.row_A, found.row_B), groups, strict=True):
            totals, terms = sums(one)
            means.append(matched_means(totals[rows], terms[rows], group))
        return np.asarray(means[0] - means[1])


@dataclass(frozen=True)
class Found:
    """The whole, its replicates, and each cluster of either corpus left out."""

    means_2M: Array
    scenes_2S2: Array
    means_B2M: Array
    scenes_B2S2: Array
    jack_means: tuple[Array, Array]  # [J, 2, M] for the clusters of each corpus
    jack_scenes: tuple[Array, Array]
    drawn_BC: tuple[Array, Array]  # how often each cluster of each corpus was drawn


def drawn(pairing: Pairing, settings: RegimeSettings, progress: Progress | None, before: int, total: int) -> Found:
    seeds = [seed_of(settings.seed, "regime", side) % 2**63 for side in ("first", "reference")]
    counts = [
        hierarchical_counts(hierarchy, settings.replicates, seed)
        for hierarchy, seed in zip(pairing.hierarchies, seeds, strict=True)
    ]
    ones = [np.ones(one.sources, np.int64) for one in pairing.both]
    means, scenes = [], []
    for b in range(settings.replicates):
        one, by_scene = pairing.values(counts[0][b], counts[1][b])
        means.append(one)
        scenes.append(by_scene)
        if progress is not None:
            progress(before + b + 1, total)
    jack_means, jack_scenes = [], []
    for side, hierarchy in enumerate(pairing.hierarchies):
        rows: Counts = leave_one_out_counts(hierarchy)
        left = [pairing.values(*((row, ones[1]) if side == 0 else (ones[0], row))) for row in rows]
        jack_means.append(np.array([one for one, _ in left]))
        jack_scenes.append(np.array([one for _, one in left]))
    whole_means, whole_scenes = pairing.values(*ones)
    drawn = [
        np.add.reduceat(its.astype(np.float64), hierarchy.starts_C, axis=1)
        for its, hierarchy in zip(counts, pairing.hierarchies, strict=True)
    ]
    return Found(
        whole_means, whole_scenes, np.array(means), np.array(scenes), (jack_means[0], jack_means[1]),
        (jack_scenes[0], jack_scenes[1]), (drawn[0], drawn[1]),
    )  # fmt: skip


def contrasted(means_2: Array, means_B2: Array, jacks: Sequence[Array], confidence: float) -> dict[str, Estimate]:
    """Both means, their difference and their ratio, with BCa intervals."""
    scale = float(np.abs(means_2).max())
    found = {}
    for name, of in _CONTRASTS.items():
        value = float(of(means_2))
        size = scale if name == "difference" else 0.0
        its = bca(value, of(means_B2), [of(jack) for jack in jacks], confidence, size)
        found[name] = Estimate(value, its.low, its.high, its.kind, its.note)
    return found
