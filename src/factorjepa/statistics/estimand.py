"""The estimand (eq. mu_M) and everything that is resampled around it.

Seeds are averaged, then clips within a source, sources within a city, cities equally. A measure's components are
averaged first and the measure is computed from the averages, in the estimate as in every replicate.

A clip counts for a method where every seed and every component has a value; for a contrast, where both methods do.

Legend: B replicates; J clusters left out in turn; S seeds; V sources; N clips; K components; R runs; C cities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .measures import Array, Measure
from .panel import Panel
from .resampling import (
    Draws,
    Mask,
    everything,
    hierarchical_counts,
    leave_one_out_counts,
    leave_one_source_out_counts,
    seed_weights,
    source_only_counts,
)


@dataclass(frozen=True)
class Request:
    """One method, some of its seeds, some of the clips."""

    method: str
    seeds: tuple[int, ...]
    clips: bytes  # the mask's bytes: what can be compared and looked up

    @property
    def mask_N(self) -> Mask:
        return np.frombuffer(self.clips, np.bool_)


@dataclass(frozen=True)
class Distribution:
    """An estimate with what its uncertainty and its sensitivities are read from."""

    estimate: float
    replicates_B: Array  # paired hierarchical bootstrap
    jackknife_J: Array  # without each city (without each source where there is one city)
    source_only_B: Array
    source_jackknives_C: tuple[Array, ...]  # of each city, without each of its sources
    crossed_B: Array  # seeds resampled too
    seed_jackknives: tuple[Array, ...]  # without each seed; of both sides, where their seeds were drawn apart
    clip_weighted: float
    seeds_S: Array  # one value per training seed
    clips: int
    sources: int
    cities: int

    def over(self, other: Distribution, sign: float) -> Distribution:
        """The direction-normalised difference (eq. delta_AB): positive favours this one. Same clips on both sides.

        Seeds are taken away pairwise; a single run of one side from every seed of the other.
        """
        paired = len(self.seeds_S) == len(other.seeds_S) or 1 in (len(self.seeds_S), len(other.seeds_S))
        (mine,), (theirs,) = self.seed_jackknives, other.seed_jackknives
        apart = (mine - other.estimate, self.estimate - theirs)
        return Distribution(
            sign * (self.estimate - other.estimate),
            sign * (self.replicates_B - other.replicates_B),
            sign * (self.jackknife_J - other.jackknife_J),
            sign * (self.source_only_B - other.source_only_B),
            tuple(
                sign * (here - there)
                for here, there in zip(self.source_jackknives_C, other.source_jackknives_C, strict=True)
            ),
            sign * (self.crossed_B - other.crossed_B),
            tuple(sign * one for one in ((mine - theirs,) if paired else apart)),
            sign * (self.clip_weighted - other.clip_weighted),
            sign * (self.seeds_S - other.seeds_S) if paired else np.empty(0),
            self.clips,
            self.sources,
            self.cities,
        )


class Estimator:
    """Distributions of any measure, all from the same draws."""

    def __init__(self, panel: Panel, replicates: int, seed: int) -> None:
        self.panel, self.replicates, self.seed = panel, replicates, seed
        place = panel.hierarchy
        self._everything = Draws(everything(place), place)
        self._jackknife = Draws(leave_one_out_counts(place), place)
        self._hierarchical = Draws(hierarchical_counts(place, replicates, seed), place)
        self._source_only = Draws(source_only_counts(place, replicates, seed), place)
        self._without_source = Draws(leave_one_source_out_counts(place), place)
        self._drawn_seeds: dict[int, Array] = {}
        self._last: tuple[Measure, Array] | None = None

    def defined(self, measure: Measure, method: str, seeds: tuple[int, ...]) -> Mask:
        """Clips where every seed has every component, [N]."""
        values_RNK = self._values(measure)[self.panel.positions(method, seeds)]
        return np.asarray(~np.isnan(values_RNK).any((0, 2)))

    def measured(self, measure: Measure, method: str) -> tuple[int, ...]:
        """Seeds of a method that have any value of the measure."""
        known_R = np.asarray(~np.isnan(self._values(measure)).all((1, 2)))
        return tuple(s for s in self.panel.seeds(method) if known_R[self.panel.runs.index((method, s))])

    def distributions(self, measure: Measure, requests: Sequence[Request]) -> dict[Request, Distribution]:
        """All requests of one measure; those on the same clips share one matrix product."""
        by_clips: dict[bytes, list[Request]] = {}
        for request in dict.fromkeys(requests):
            by_clips.setdefault(request.clips, []).append(request)
        found: dict[Request, Distribution] = {}
        for group in by_clips.values():
            found.update(self._of_clips(measure, group))
        return found

    def _of_clips(self, measure: Measure, group: list[Request]) -> dict[Request, Distribution]:
        mask_N = group[0].mask_N
        runs = [self.panel.positions(request.method, request.seeds) for request in group]
        flat = [run for positions in runs for run in positions]
        means_RVK, clips_V = self._source_means(self._values(measure)[flat], mask_N)
        valid_V = clips_V > 0
        columns = np.moveaxis(means_RVK, 1, 0).reshape(len(valid_V), -1)
        shape = (-1, *means_RVK.shape[::2])
        whole, jackknife, replicates, source_only, without_source = (
            draws.of(columns, valid_V).reshape(shape)
            for draws in (
                self._everything, self._jackknife, self._hierarchical, self._source_only, self._without_source,
            )
        )  # fmt: skip
        by_clip = ((clips_V / clips_V.sum()) @ columns).reshape(shape)
        city_V = self.panel.hierarchy.city_V
        cities = np.unique(city_V[valid_V])
        jackknife = jackknife[cities if self.panel.hierarchy.cities > 1 else valid_V]
        found, first = {}, 0
        for request, positions in zip(group, runs, strict=True):
            its = slice(first, first + len(positions))
            first += len(positions)
            crossed_BK = np.einsum("bs,bsk->bk", self._seed_weights(len(positions)), replicates[:, its])
            without_V = measure.reduce(without_source[:, its].mean(1))
            found[request] = Distribution(
                float(measure.reduce(whole[:, its].mean(1))[0]),
                measure.reduce(replicates[:, its].mean(1)),
                measure.reduce(jackknife[:, its].mean(1)),
                measure.reduce(source_only[:, its].mean(1)),
                tuple(without_V[valid_V & (city_V == city)] for city in cities),
                measure.reduce(crossed_BK),
                (measure.reduce(_without_each(whole[0, its])),),
                float(measure.reduce(by_clip[:, its].mean(1))[0]),
                measure.reduce(whole[0, its]),
                int(clips_V.sum()),
                int(valid_V.sum()),
                len(cities),
            )
        return found

    def _source_means(self, values_RNK: Array, mask_N: Mask) -> tuple[Array, Array]:
        """Means over the chosen clips of each source, [R, V, K] (zero without any), and their number, [V]."""
        starts = self.panel.clip_starts_V
        clips_V = np.add.reduceat(mask_N.astype(np.float64), starts)
        sums = np.add.reduceat(np.where(mask_N[None, :, None], values_RNK, 0.0), starts, axis=1)
        return sums / np.maximum(clips_V, 1.0)[None, :, None], clips_V

    def _seed_weights(self, seeds: int) -> Array:
        """One draw of seeds for all methods that have as many."""
        if seeds not in self._drawn_seeds:
            self._drawn_seeds[seeds] = seed_weights(seeds, self.replicates, self.seed)
        return self._drawn_seeds[seeds]

    def _values(self, measure: Measure) -> Array:
        if self._last is None or self._last[0] is not measure:
            self._last = measure, self.panel.blocks[measure.diagnostic].components(measure.components)
        return self._last[1]


def _without_each(means_SK: Array) -> Array:
    """Means over all seeds but one, for each, `[S, K]`; of a single seed it is its own, for nobody draws it."""
    seeds = len(means_SK)
    return means_SK if seeds == 1 else (means_SK.sum(0) - means_SK) / (seeds - 1)
