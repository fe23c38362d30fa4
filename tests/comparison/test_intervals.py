"""Intervals, p-values and adjustments against independent implementations and known answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from factorjepa.scores import DiagnosticInfo
from factorjepa.statistics import CompareSettings, Contrast, compare
from factorjepa.statistics.estimand import Distribution, Estimator, Request
from factorjepa.statistics.intervals import acceleration_of, bca, expected_coverage, p_value, separation
from factorjepa.statistics.measures import measures_of
from factorjepa.statistics.multiplicity import benjamini_hochberg, holm
from factorjepa.statistics.panel import Block, Panel
from factorjepa.statistics.resampling import Draws, Hierarchy, hierarchical_counts, leave_one_out_counts

from .tables import rows_of, scores_of

AB = (Contrast("a over b", "a", "b", True),)
QUICK = CompareSettings(replicates=2000, mixed="none", contrasts=AB)


@pytest.mark.parametrize("statistic", ["mean", "ratio"])
def test_bca_is_scipys_for_the_same_resamples(statistic: str) -> None:
    sample = np.random.default_rng(0).lognormal(size=(2, 25))
    of = {
        "mean": lambda x, axis=-1: np.mean(x, axis=axis),
        "ratio": lambda x, y, axis=-1: np.mean(x, axis=axis) / np.mean(y, axis=axis),
    }[statistic]
    data = tuple(sample[: 1 if statistic == "mean" else 2])
    theirs = scipy.stats.bootstrap(data, of, n_resamples=3000, paired=True, method="BCa", rng=1)
    left_out = [np.delete(np.arange(25), j) for j in range(25)]
    jackknife = np.array([of(*(x[kept] for x in data)) for kept in left_out])
    ours = bca(float(of(*data)), theirs.bootstrap_distribution, [jackknife])
    interval = theirs.confidence_interval
    assert ours.kind == "BCa"
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_fixed_cities_are_accelerated_by_their_sources_as_scipy_does_for_several_samples() -> None:
    """With the cities' jackknife the interval would lean by how cities differ, which nobody resampled."""
    random = np.random.default_rng(5)
    samples = [random.lognormal(sigma=1.2, size=size) + level for size, level in ((6, 0.0), (9, 4.0), (12, 1.0))]

    def of(*cities: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.mean([np.mean(one, axis=axis) for one in cities], axis=0)

    theirs = scipy.stats.bootstrap(samples, of, n_resamples=3000, method="BCa", rng=1)
    found = fixed_cities(samples)
    ours = bca(found.estimate, theirs.bootstrap_distribution, found.source_jackknives_C)
    interval = theirs.confidence_interval
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    by_cities = bca(found.estimate, theirs.bootstrap_distribution, [found.jackknife_J])
    assert abs(by_cities.high - ours.high) > 0.02 * (ours.high - ours.low)


def test_seeds_are_left_out_where_seeds_were_drawn() -> None:
    """One clip's value in four seeds: a city alone, so what leans is what the seeds say."""
    seeds = np.array([0.0, 0.1, 0.2, 3.0])
    found = fixed_cities([np.array([1.0, 2.0])], seeds)
    (without,) = found.seed_jackknives
    assert without == pytest.approx([1.5 + np.delete(seeds, k).mean() for k in range(4)])
    assert acceleration_of(found.seed_jackknives) > 0.05
    effect = found.over(fixed_cities([np.array([1.0, 2.0])], np.zeros(1)), 1.0)
    assert effect.seed_jackknives[0] == pytest.approx(without - 1.5)


def fixed_cities(samples: Sequence[np.ndarray], seeds: np.ndarray | None = None) -> Distribution:
    """The distribution of a method with a clip to each source; seeds add a constant."""
    seeds = np.zeros(1) if seeds is None else seeds
    info = DiagnosticInfo("x", "x", "", "higher", "", "primary", "", "")
    place = Hierarchy(tuple(map(len, samples)))
    values_RNK = (np.concatenate(samples)[None] + seeds[:, None])[..., None]
    runs = tuple(("a", seed) for seed in range(len(seeds)))
    panel = Panel("nano", runs, {}, place, np.arange(place.sources), {"x": Block(info, ("pooled",), values_RNK)})
    request = Request("a", tuple(range(len(seeds))), np.ones(place.sources, np.bool_).tobytes())
    measure = measures_of(info, ["pooled"])[0]
    return Estimator(panel, 200, 0).distributions(measure, [request])[request]


def test_one_source_per_city_is_the_one_level_bootstrap() -> None:
    """Our own draws too: within Monte-Carlo error of scipy's."""
    sample = np.random.default_rng(3).lognormal(size=30)
    hierarchy, valid = Hierarchy((1,) * 30), np.ones(30, bool)
    replicates = Draws(hierarchical_counts(hierarchy, 20_000, 0), hierarchy).of(sample[:, None], valid)[:, 0]
    jackknife = Draws(leave_one_out_counts(hierarchy), hierarchy).of(sample[:, None], valid)[:, 0]
    ours = bca(float(sample.mean()), replicates, [jackknife])
    theirs = scipy.stats.bootstrap((sample,), np.mean, n_resamples=20_000, rng=1).confidence_interval
    width = theirs.high - theirs.low
    assert abs(ours.low - theirs.low) < 0.03 * width
    assert abs(ours.high - theirs.high) < 0.03 * width


def test_degenerate_intervals_say_so() -> None:
    same = bca(2.0, np.full(100, 2.0), [np.full(5, 2.0)])
    assert (same.low, same.high, same.kind) == (2.0, 2.0, "constant")
    outside = bca(5.0, np.random.default_rng(0).random(100), [np.arange(5.0)])
    assert outside.kind == "percentile"
    assert "outside all replicates" in outside.note
    assert bca(float("nan"), np.zeros(10), [np.zeros(3)]).kind == "none"
    holes = np.where(np.arange(100) < 20, np.nan, np.arange(100.0))
    assert bca(50.0, holes, [np.arange(5.0)]).note == "undefined in 20% of the replicates"


def test_p_values_follow_their_definition() -> None:
    replicates = np.array([0.5, 1.0, 1.5, 2.0, -0.1])  # recentred on 1: -.5, 0, .5, 1, -1.1; two are as far as 1
    assert p_value(1.0, replicates) == pytest.approx(3 / 6)
    assert p_value(100.0, replicates + 99) == pytest.approx(1 / 6)  # the resolution
    assert p_value(0.0, np.zeros(9)) == 1.0


def test_one_unit_is_an_interval_that_touches_zero() -> None:
    interval = bca(1.0, np.random.default_rng(0).normal(1, 0.3, 5000), [np.random.default_rng(1).normal(size=20)])
    touching = dataclasses.replace(interval, low=0.0)
    assert separation(1.0, touching) == 1.0
    assert separation(-1.0, dataclasses.replace(interval, low=-3.0, high=0.0)) == -1.0
    assert separation(2.0, dataclasses.replace(interval, low=1.5, high=9.0)) == 4.0


@pytest.mark.parametrize(("cities", "measured"), [(22, 0.930), (8, 0.885), (4, 0.822)])
def test_what_few_cities_cover_is_what_simulation_shows(cities: int, measured: float) -> None:
    """`benchmarks/coverage.py`, design "only cities vary", intervals of the mean."""
    assert expected_coverage(cities) == pytest.approx(measured, abs=0.015)


@settings(max_examples=12, deadline=None)  # their Holm takes 0.1 s
@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=30))
def test_adjusted_p_values_are_statsmodels(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    assert benjamini_hochberg(p_values) == pytest.approx(multipletests(p_values, method="fdr_bh")[1])


def test_identical_methods_are_never_separated() -> None:
    rows = rows_of({"a": 0.0}, noise=0.3)
    twins = rows + [row | {"method": "b"} for row in rows]
    row = compare(scores_of(twins), QUICK).contrasts[0]
    assert (row.effect, row.p, row.decision, row.stable) == (0.0, 1.0, "not separated", False)


@pytest.mark.parametrize(("shift", "decision"), [(-1.0, "better"), (1.0, "worse")])
def test_methods_many_sigmas_apart_are_separated(shift: float, decision: str) -> None:
    row = compare(scores_of(rows_of({"a": shift, "b": 0.0})), QUICK).contrasts[0]
    assert row.decision == decision
    assert row.effect == pytest.approx(-shift, abs=0.02)
    assert row.p == pytest.approx(1 / 2001)
    assert abs(row.units) > 10
    assert row.stable


def test_an_exactly_constant_shift_is_separated_without_units() -> None:
    rows = rows_of({"a": 0.0})
    both = rows + [row | {"method": "b", "value": row["value"] + 1.0} for row in rows]
    row = compare(scores_of(both), QUICK).contrasts[0]
    assert (row.interval, row.decision) == ("constant", "better")
    assert np.isnan(row.units)


def test_pairing_narrows_the_interval_of_methods_that_share_what_is_hard() -> None:
    found = compare(scores_of(rows_of({"a": -0.05, "b": 0.0}, cities=12)), QUICK)
    means = {row.method: row for row in found.scores if row.headline}
    alone = means["a"].high - means["a"].low
    effect = found.contrasts[0]
    assert effect.high - effect.low < alone / 5
    assert effect.decision == "better"


def test_ratios_have_their_own_interval() -> None:
    row = compare(scores_of(rows_of({"a": -1.0, "b": 0.0})), QUICK).contrasts[0]
    assert row.ratio == pytest.approx(0.8, abs=0.02)
    assert row.ratio_low < row.ratio < row.ratio_high < 1
