"""The estimand (eq. mu_M) and everything that is resampled around it.

Seeds are averaged, then clips within a source, sources within a city, cities equally. A measure's components are
averaged first and the measure is computed from the averages, in the estimate as in every replicate.

A clip counts for a method where every seed and every component has a value; for a contrast, where both methods do.

Legend: B replicates; J clusters left out in turn; S seeds; V sources; N clips; K components; R runs; C cities;
Q requests.
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
    """An estimate with what its uncertainty and its sensitivities are read from.

    Where only a mean and its interval were asked for, `source_only_B`, `source_jackknives_C` and `crossed_B` are empty.
    """

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

    def distributions(
        self, measure: Measure, requests: Sequence[Request], complete: bool = True
    ) -> dict[Request, Distribution]:
        """All requests of one measure; those on the same clips share one matrix product.

        What is not `complete` has the hierarchical bootstrap and its jackknife alone: enough for a mean and its
        interval, and most measures of a scorecard are asked for no more.
        """
        by_clips: dict[bytes, list[Request]] = {}
        for request in dict.fromkeys(requests):
            by_clips.setdefault(request.clips, []).append(request)
        found: dict[Request, Distribution] = {}
        for group in by_clips.values():
            found.update(self._of_clips(measure, group, complete))
        return found

    def _of_clips(self, measure: Measure, group: list[Request], complete: bool) -> dict[Request, Distribution]:
        mask_N = group[0].mask_N
        runs = [self.panel.positions(request.method, request.seeds) for request in group]
        flat = [run for positions in runs for run in positions]
        means_RVK, clips_V = self._source_means(self._values(measure)[flat], mask_N)
        valid_V = clips_V > 0
        ends = np.cumsum([len(positions) for positions in runs])
        slices = [slice(end - len(positions), end) for end, positions in zip(ends, runs, strict=True)]
        averaged_QVK = np.stack([means_RVK[its].mean(0) for its in slices])  # over seeds: every draw is linear in them

        def drawn(draws: Draws) -> Array:
            """The measure of each request in each row of weights, [Q, B]."""
            return np.ascontiguousarray(measure.reduce(_applied(draws, averaged_QVK, valid_V)).T)

        whole_RK = _applied(self._everything, means_RVK, valid_V)[0]
        by_clip_QK = np.einsum("v,qvk->qk", clips_V / clips_V.sum(), averaged_QVK)
        city_V = self.panel.hierarchy.city_V
        cities = np.unique(city_V[valid_V])
        left_out = cities if self.panel.hierarchy.cities > 1 else valid_V
        whole, jackknife, replicates = (
            drawn(draws) for draws in (self._everything, self._jackknife, self._hierarchical)
        )
        source_only = without_source = np.empty((len(group), 0))
        runs_BRK = np.empty((0, *whole_RK.shape))
        if complete:
            source_only, without_source = drawn(self._source_only), drawn(self._without_source)
            runs_BRK = _applied(self._hierarchical, means_RVK, valid_V)
        found = {}
        for q, (request, its) in enumerate(zip(group, slices, strict=True)):
            weights_BS = self._seed_weights(its.stop - its.start)[: len(runs_BRK)]
            found[request] = Distribution(
                float(whole[q, 0]),
                replicates[q],
                jackknife[q, left_out],
                source_only[q],
                tuple(without_source[q, valid_V & (city_V == city)] for city in cities) if complete else (),
                measure.reduce(np.einsum("bs,bsk->bk", weights_BS, runs_BRK[:, its])),
                (measure.reduce(_without_each(whole_RK[its])),),
                float(measure.reduce(by_clip_QK[q])),
                measure.reduce(whole_RK[its]),
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


def _applied(draws: Draws, means_QVK: Array, valid_V: Mask) -> Array:
    """Weighted means over sources, [B, Q, K]: one matrix product."""
    requests, sources, components = means_QVK.shape
    columns = np.moveaxis(means_QVK, 1, 0).reshape(sources, -1)
    return draws.of(columns, valid_V).reshape(-1, requests, components)


def _without_each(means_SK: Array) -> Array:
    """Means over all seeds but one, for each, `[S, K]`; of a single seed it is its own, for nobody draws it."""
    seeds = len(means_SK)
    return means_SK if seeds == 1 else (means_SK.sum(0) - means_SK) / (seeds - 1)
