"""The interval that decides: Student's where one thing varies, never too narrow where several do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.statistics import CompareSettings, Contrast, ContrastRow, compare
from factorjepa.statistics.deciding import Spread, deciding, half_width, least_effect, tail
from factorjepa.statistics.estimand import Distribution
from factorjepa.statistics.verdict import words

from .tables import FUTURE, Row, rows_of, scores_of

QUICK = CompareSettings(replicates=2000, mixed="none", contrasts=(Contrast("a over b", "a", "b", True),))
SPREADS = st.lists(st.builds(Spread, st.floats(1e-6, 1e3), st.integers(1, 40)), min_size=1, max_size=3)


def contrast(rows: list[Row], **kinds: int) -> ContrastRow:
    return compare(scores_of(rows, trainable=kinds), QUICK).contrasts[0]


def swinging(by_seed: dict[int, float], cities: int = 12) -> list[Row]:
    """`a` is better by 0.1 in every city; its trainings differ as told."""
    rows = rows_of({"a": -0.1, "b": 0.0}, cities=cities, seeds=tuple(by_seed), noise=0.001)
    return [row | {"value": row["value"] + by_seed[row["seed"]] * (row["method"] == "a")} for row in rows]


def test_one_thing_that_varies_gives_students_interval_and_p() -> None:
    sample = np.random.default_rng(0).normal(0.4, 1.0, 9)
    theirs = scipy.stats.ttest_1samp(sample, 0.0)
    spread = [Spread(sample.var(ddof=1) / 9, 8)]
    assert tail(sample.mean(), spread) == pytest.approx(theirs.pvalue)
    low = theirs.confidence_interval(0.95).low
    assert sample.mean() - half_width(spread, 0.05) == pytest.approx(low)


def test_one_source_per_city_gives_students_interval_of_the_cities() -> None:
    """But for the Monte-Carlo error of the bootstrap's variance."""
    rows = rows_of({"a": -0.1, "b": 0.0}, cities=9, sources=1, clips=1, seeds=(1,), noise=0.1)
    by_city = {(row["method"], row["city"]): row["value"] for row in rows}
    differences = [by_city["b", city] - value for (method, city), value in by_city.items() if method == "a"]
    row = contrast(rows, a=0, b=0)
    theirs = scipy.stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    width = theirs.high - theirs.low
    assert (row.deciding.low, row.deciding.high) == pytest.approx((theirs.low, theirs.high), abs=0.05 * width)
    assert row.deciding.seed_share == 0


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 1e3), SPREADS)
def test_the_p_value_is_the_level_at_which_the_interval_touches_zero(effect: float, spreads: list[Spread]) -> None:
    p = tail(effect, spreads)
    assert 0 < p <= 1
    if 1e-14 < p < 1:
        assert half_width(spreads, p) == pytest.approx(effect, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.001, 0.5), SPREADS, st.builds(Spread, st.floats(0, 1e3), st.integers(1, 40)))
def test_what_varies_besides_never_narrows_the_interval(level: float, spreads: list[Spread], more: Spread) -> None:
    assert half_width([*spreads, more], level) >= half_width(spreads, level)


@pytest.mark.parametrize("ratio", [0.01, 0.3, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("seeds", [2, 3])
def test_two_variances_of_any_ratio_are_covered(seeds: int, ratio: float) -> None:
    """Banerjee (1960): at least 95 %, for normal effects. 20,000 draws: an error of 0.15 %."""
    random = np.random.default_rng(seeds)
    cities, draws = 22, 20_000
    first = random.chisquare(cities - 1, draws) / (cities - 1)
    second = ratio * random.chisquare(seeds - 1, draws) / (seeds - 1)
    error = random.normal(0.0, np.sqrt(1 + ratio), draws)
    once, twice = half_width([Spread(1.0, cities - 1)], 0.05), half_width([Spread(1.0, seeds - 1)], 0.05)
    covered = float((error**2 <= once**2 * first + twice**2 * second).mean())
    assert covered > 0.946


def test_trainings_that_differ_as_much_as_the_effect_leave_it_open() -> None:
    row = contrast(swinging({1: -0.05, 2: 0.0, 3: 0.05}))
    assert row.paper_decision == "better"
    assert row.low > 0 > row.deciding.low
    assert row.decision == "not resolved: 3 training seeds vary too much"
    assert words(row).startswith("not resolved: 3 training seeds vary too much (over cities alone better, Holm-adj")
    assert row.deciding.seed_share > 0.9


def test_trainings_that_agree_leave_the_decision_alone() -> None:
    row = contrast(swinging({1: -0.001, 2: 0.0, 3: 0.001}))
    assert (row.decision, row.paper_decision) == ("better", "better")
    assert words(row) == f"better (Holm-adjusted p = {max(row.adjusted_p, row.deciding.adjusted_p):.2g})"


def test_a_method_that_was_trained_once_is_not_called_better() -> None:
    rows = rows_of({"a": -1.0, "b": 0.0}, seeds=(1,))
    found = compare(scores_of(rows), QUICK)
    assert found.contrasts[0].decision == "not resolved: one training seed"
    assert found.contrasts[0].paper_decision == "better"
    assert np.isnan(found.contrasts[0].deciding.low)
    assert any("one training seed: how much another training would differ is not known" in note for note in found.notes)
    assert contrast(rows, a=0, b=0).decision == "better"  # nothing was trained, so there is nothing to know


def test_a_training_without_a_value_leaves_it_open_and_is_said() -> None:
    """As the leakage of a channel that has closed in one training, and has nothing left that could leak."""
    drawn = np.random.default_rng(0).normal(0.1, 0.01, 1000)
    seeds, empty = np.array([0.1, np.nan, 0.11]), np.empty(0)
    jackknife = np.array([np.nan, 0.105, np.nan])
    effect = Distribution(0.1, drawn, drawn[:8], empty, (), empty, (jackknife,), 0.1, seeds, 40, 8, 8)
    found = deciding(effect, 0.95, seeds_known=True)
    assert found.note == "no value in one of the training seeds"
    assert np.isnan(found.p)


def test_seeds_that_only_one_method_has_count_for_that_method() -> None:
    rows = swinging({1: -0.05, 2: 0.0, 3: 0.05})
    once = [row for row in rows if row["method"] == "a" or row["seed"] == 1]
    assert contrast(once, a=5, b=0).decision == "not resolved: 3 training seeds vary too much"
    assert contrast(once, a=5, b=5).decision == "not resolved: one training seed"
    apart = [row | {"seed": row["seed"] + 10 * (row["method"] == "b")} for row in rows]
    assert contrast(apart).decision == "not resolved: the training seeds vary too much"


def test_few_cities_are_allowed_for() -> None:
    """Effects of one sign in six cities, two of them large: the bootstrap's p passes, Student's does not."""
    rows = rows_of({"a": 0.0, "b": 0.0}, cities=6, sources=1, clips=1, seeds=(1, 2), noise=0.0)
    gains = dict(zip([f"c{c:02d}" for c in range(6)], (0.05, 0.2, 0.3, 1.0, 0.2, 0.8), strict=True))
    rows = [row | {"value": row["value"] - gains[row["city"]] * (row["method"] == "a")} for row in rows]
    row = contrast(rows)
    assert row.p < 0.01 < row.deciding.p
    assert (row.deciding.high - row.deciding.low) > 1.3 * (row.high - row.low)
    infos = [FUTURE, *(dataclasses.replace(FUTURE, name=f"d{n}") for n in range(3))]
    family = [each | {"diagnostic": info.name} for info in infos for each in rows]
    decisions = {one.decision for one in compare(scores_of(family, infos), QUICK).contrasts}
    assert decisions == {"not resolved: 6 cities vary too much"}


def test_what_few_seeds_take_is_students_quantile() -> None:
    assert least_effect(3, 20, 0.05) == pytest.approx(-scipy.stats.t.ppf(0.05 / 40, 2) / np.sqrt(3))
