"""What methods lend each other about how much trainings vary: degrees of freedom, never a smaller variance."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.statistics import CompareSettings, Comparison, Contrast, compare
from factorjepa.statistics.deciding import MODERATED, OWN
from factorjepa.statistics.pooling import Pool, Spread, moderated, pool_of, prior_freedom

from .tables import Row, rows_of, scores_of

AB = CompareSettings(replicates=500, mixed="none", contrasts=(Contrast("a over b", "a", "b", True),))
POOLS = st.builds(Pool, st.floats(1e-6, 1e3), st.floats(4, 50), st.floats(0, 1e6), st.just(5))


def four_methods(seeds: dict[str, tuple[float, ...]]) -> list[Row]:
    """`a` is better than the others by 0.1 everywhere; trainings differ as told."""
    rows = rows_of({"a": -0.1, "b": 0.0, "c": 0.0, "d": 0.0}, cities=12, seeds=(1, 2, 3), noise=1e-4)
    return [row | {"value": row["value"] + seeds[row["method"]][row["seed"] - 1]} for row in rows]


def test_the_pool_is_the_residual_variance_of_methods_by_seeds() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3))
    design = np.array(
        [[m == i for i in range(5)] + [s == j for j in (1, 2)] for m in range(5) for s in range(3)], float
    )
    _, residual, rank, _ = np.linalg.lstsq(design, values.ravel(), rcond=None)
    pool = pool_of(list(values))
    assert pool is not None
    assert (pool.freedom, pool.methods) == (15 - rank, 5)
    assert pool.variance == pytest.approx(float(residual[0]) / pool.freedom)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 100), st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_what_a_seed_does_to_all_methods_is_not_in_the_pool(random: int, shift: list[float]) -> None:
    values = np.random.default_rng(random).normal(size=(6, 3))
    before, after = pool_of(list(values)), pool_of(list(values + shift))
    assert before is not None
    assert after is not None
    assert after.variance == pytest.approx(before.variance)


def test_fewer_than_three_methods_or_values_that_do_not_vary_are_no_pool() -> None:
    known = np.array([1.0, 2.0, 4.0])
    assert pool_of([known, 2 * known]) is None
    assert pool_of([known, 2 * known, np.array([1.0, np.nan, 2.0])]) is None
    assert pool_of([np.ones(3)] * 4) is None
    assert pool_of([known[:1]] * 4) is None


def test_the_prior_is_found_again_where_variances_were_drawn_from_it() -> None:
    random = np.random.default_rng(1)
    truth = 6 * 2.0 / random.chisquare(6, 20_000)  # scaled inverse chi-squared with 6 degrees of freedom
    seen = truth * random.chisquare(2, 20_000) / 2
    assert prior_freedom(seen, 2) == pytest.approx(6, rel=0.15)
    assert prior_freedom(2.0 * random.chisquare(2, 20_000) / 2, 2) > 50


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-9, 1e3), st.integers(1, 9), POOLS)
def test_a_pool_never_lowers_a_variance_and_at_most_doubles_the_freedom(
    variance: float, freedom: int, pool: Pool
) -> None:
    pool = dataclasses.replace(pool, freedom=max(pool.freedom, 2 * freedom))
    own = Spread(variance, freedom)
    found = moderated(own, pool, freedom + 1)
    assert found.variance >= own.variance
    assert own.freedom <= found.freedom <= 2 * own.freedom


@settings(max_examples=50, deadline=None)
@given(st.floats(1.0, 1e4))
def test_the_more_a_pair_varies_beyond_the_pool_the_less_it_is_lent(times: float) -> None:
    pool = Pool(1.5, 48, float("inf"), 25)
    found = moderated(Spread(times, 2), pool, 3)  # the pool expects 1 of the mean of three
    assert found.variance == pytest.approx(times)
    assert found.freedom == pytest.approx(2 + 2 / times)


def test_seeds_that_vary_as_elsewhere_decide_with_a_pool_and_not_alone() -> None:
    alike = {"a": (-0.01, 0.0, 0.01), "b": (0.01, -0.01, 0.0), "c": (0.0, 0.01, -0.01), "d": (0.01, 0.0, -0.01)}
    scores = scores_of(four_methods(alike))
    (alone,) = compare(scores, dataclasses.replace(AB, seed_variance="own")).contrasts
    (helped,) = compare(scores, AB).contrasts
    its = helped.deciding
    assert (alone.deciding.seed_variance, its.seed_variance) == (OWN, MODERATED)
    assert its.p < alone.deciding.p / 2
    assert its.seed_sd == pytest.approx(np.std(helped.seed_effects, ddof=1))
    assert (its.seed_freedom, its.pooled_methods) == (2 + its.prior_freedom, 4)
    assert 0 < its.prior_freedom <= 2
    assert (alone.deciding.seed_freedom, alone.deciding.pooled_methods) == (2, 0)
    assert (helped.p, helped.paper_decision) == (alone.p, alone.paper_decision)


def test_what_was_lent_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    found = compare(scores_of(four_methods(dict.fromkeys("abc", (-0.01, 0.0, 0.01)) | {"d": (0.0, 0.02, 0.0)})), AB)
    found.write(tmp_path)
    read = Comparison.read(tmp_path)
    assert read.json() == found.json()
    assert read.settings["seed_variance"] == MODERATED
    assert read.contrasts[0].deciding.prior_freedom > 0


def test_a_pair_that_varies_much_more_than_the_others_stays_as_open_as_alone() -> None:
    wild = {"a": (-0.05, 0.0, 0.05), "b": (0.0, 0.001, 0.0), "c": (0.0, 0.001, 0.0), "d": (0.001, 0.0, 0.0)}
    more = rows_of(dict.fromkeys("efghij", 0.0), cities=12, seeds=(1, 2, 3), noise=1e-4)
    scores = scores_of(four_methods(wild) + more)
    (helped,) = compare(scores, AB).contrasts
    assert helped.paper_decision == "better"
    assert helped.decision == "not resolved: 3 training seeds vary too much"
    assert helped.deciding.seed_freedom < 2.5


def test_only_two_trained_methods_with_the_same_seeds_are_helped() -> None:
    rows = four_methods(dict.fromkeys("abcd", (-0.01, 0.0, 0.01)))
    once = [row for row in rows if row["method"] != "b" or row["seed"] == 1]
    (row,) = compare(scores_of(once, trainable={"b": 0}), AB).contrasts
    assert row.deciding.seed_variance == OWN
