"""The estimand and its bootstrap, against a literal transcription of the paper."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.scores import DiagnosticInfo
from factorjepa.statistics import CompareSettings, Comparison, Contrast, compare
from factorjepa.statistics.estimand import Estimator, Request
from factorjepa.statistics.measures import measures_of
from factorjepa.statistics.panel import panel_of
from factorjepa.statistics.resampling import (
    Draws,
    Hierarchy,
    hierarchical_counts,
    leave_one_out_counts,
    leave_one_source_out_counts,
    source_only_counts,
    weights,
)

from .tables import FUTURE, MOTION, Row, rows_of, scores_of

AB = (Contrast("a over b", "a", "b", True),)
QUICK = CompareSettings(replicates=300, mixed="none", contrasts=AB)


def literal_mean(rows: list[Row], method: str) -> float:
    """Eq. mu_M with dictionaries and loops. Clips count where all seeds have a value."""
    by_clip: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["method"] == method:
            by_clip[row["city"], row["source"], row["clip_id"]].append(row["value"])
    by_source: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (city, source, _), values in by_clip.items():
        if not np.isnan(values).any():
            by_source[city, source].append(sum(values) / len(values))
    by_city: dict[str, list[float]] = defaultdict(list)
    for (city, _), values in by_source.items():
        by_city[city].append(sum(values) / len(values))
    return float(np.mean([np.mean(values) for values in by_city.values()]))


def uneven(random: int, holes: float) -> list[Row]:
    """Cities with different numbers of sources, sources with different numbers of clips, some values undefined."""
    generator = np.random.default_rng(random)
    rows = rows_of({"a": 0.0, "b": 0.5}, cities=4, sources=4, clips=4, random=random)
    clips = sorted({row["clip_id"] for row in rows})
    kept = {clip for clip in clips if generator.random() < 0.6} | set(clips[:2]) | set(clips[-2:])
    undefined = {clip for clip in clips[2:-2] if generator.random() < holes}
    return [row | ({"value": np.nan} if row["clip_id"] in undefined else {}) for row in rows if row["clip_id"] in kept]


def mean_of(found: Comparison, method: str) -> float:
    return next(row.mean for row in found.scores if row.method == method and row.headline)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.4]))
def test_means_and_effects_equal_a_literal_transcription(random: int, holes: float) -> None:
    rows = uneven(random, holes)
    found = compare(scores_of(rows), QUICK)
    a, b = (literal_mean(rows, method) for method in "ab")
    assert mean_of(found, "a") == pytest.approx(a, rel=1e-12)
    assert found.contrasts[0].effect == pytest.approx(b - a, rel=1e-9)  # lower is better: positive favours a


def test_a_replicate_equals_a_literal_draw_of_cities_then_sources() -> None:
    """Weights must mean what they say: repeat every drawn source's mean and average literally."""
    hierarchy = Hierarchy((3, 1, 2))
    means = np.random.default_rng(0).normal(size=6)
    drawn = [(0, [0, 0, 2]), (2, [4, 5]), (2, [5, 5])]  # city, its sources: three cities, one of them twice
    counts = np.bincount([source for _, sources in drawn for source in sources], minlength=6)
    literal = np.mean([means[sources].mean() for _, sources in drawn])
    assert weights(counts[None].astype(np.uint16), np.ones(6, bool), hierarchy) @ means == pytest.approx(literal)


def test_draws_have_the_distribution_of_the_two_stage_scheme() -> None:
    """Mean and spread over replicates against a plain loop that draws cities, then sources."""
    hierarchy = Hierarchy((5, 2, 3, 1, 4))
    means = np.random.default_rng(1).normal(size=15)
    fast = Draws(hierarchical_counts(hierarchy, 20_000, 0), hierarchy).of(means[:, None], np.ones(15, bool))[:, 0]
    generator, slow = np.random.default_rng(2), []
    members = np.split(np.arange(15), hierarchy.starts_C[1:])
    for _ in range(5_000):
        cities = [members[c] for c in generator.integers(0, 5, 5)]
        slow.append(np.mean([means[generator.choice(sources, len(sources))].mean() for sources in cities]))
    assert fast.mean() == pytest.approx(np.mean([means[m].mean() for m in members]), abs=0.01)
    assert fast.std() == pytest.approx(np.std(slow), rel=0.04)


def test_source_only_draws_keep_every_city_once() -> None:
    hierarchy = Hierarchy((3, 2))
    counts = source_only_counts(hierarchy, 50, 0)
    assert (np.add.reduceat(counts, hierarchy.starts_C, axis=1) == [3, 2]).all()


def test_leaving_one_out_takes_cities_and_with_one_city_sources() -> None:
    assert leave_one_out_counts(Hierarchy((2, 1))).tolist() == [[0, 0, 1], [1, 1, 0]]
    assert leave_one_out_counts(Hierarchy((3,))).tolist() == [[0, 3, 3], [3, 0, 3], [3, 3, 0]]


def test_leaving_out_a_source_leaves_its_city_its_weight() -> None:
    place = Hierarchy((2, 1, 3))
    weight_BV = weights(leave_one_source_out_counts(place), np.ones(6, bool), place)
    by_city = np.add.reduceat(weight_BV, place.starts_C, axis=1)
    assert by_city[[0, 1, 3, 4, 5]] == pytest.approx(np.full((5, 3), 1 / 3))
    assert not weight_BV[range(2), range(2)].any()
    assert np.isnan(weight_BV[2]).all(), "a city's only source cannot be left out"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 99))
def test_weights_are_a_mean_over_what_has_a_value(sources: list[int], random: int) -> None:
    hierarchy = Hierarchy(tuple(sources))
    valid = np.random.default_rng(random).random(hierarchy.sources) < 0.7
    valid[0] = True
    found = weights(hierarchical_counts(hierarchy, 20, random), valid, hierarchy)
    known = ~np.isnan(found).any(1)
    assert found[known].sum(1) == pytest.approx(1.0)
    assert (found[known][:, ~valid] == 0).all()


def test_blocks_of_weights_give_what_all_at_once_give(monkeypatch: pytest.MonkeyPatch) -> None:
    hierarchy, columns = Hierarchy((4, 3)), np.random.default_rng(0).normal(size=(7, 3))
    counts, valid = hierarchical_counts(hierarchy, 101, 0), np.ones(7, bool)
    at_once = Draws(counts, hierarchy).of(columns, valid)
    monkeypatch.setattr("factorjepa.statistics.resampling._KEPT", 0)
    monkeypatch.setattr("factorjepa.statistics.resampling._CHUNK", 70)
    assert Draws(counts, hierarchy).of(columns, valid) == pytest.approx(at_once, rel=1e-14)


def test_a_city_without_any_value_is_not_left_out_in_turn() -> None:
    """It would enter the acceleration as a city that changes nothing."""
    rows = [row | ({"value": np.nan} if row["city"] == "c01" else {}) for row in rows_of({"a": 0.0}, cities=5)]
    estimator = Estimator(panel_of(scores_of(rows), "nano"), 100, 0)
    measure = measures_of(FUTURE, ["pooled"])[0]
    request = Request("a", (17, 29), estimator.defined(measure, "a", (17, 29)).tobytes())
    found = estimator.distributions(measure, [request])[request]
    assert (len(found.jackknife_J), found.cities) == (4, 4)
    assert found.jackknife_J.mean() == pytest.approx(found.estimate)


class TestInvariance:
    def test_order_of_rows(self) -> None:
        rows = uneven(3, 0.3)
        shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
        assert compare(scores_of(rows), QUICK).json() == compare(scores_of(shuffled), QUICK).json()

    def test_names_of_clips_and_methods(self) -> None:
        rows = uneven(4, 0.0)
        renamed = [row | {"clip_id": "x" + row["clip_id"], "method": row["method"] + "!"} for row in rows]
        other = dataclasses.replace(QUICK, contrasts=[Contrast("a over b", "a!", "b!", True)])
        first, second = compare(scores_of(rows), QUICK).contrasts[0], compare(scores_of(renamed), other).contrasts[0]
        assert (first.effect, first.low, first.high, first.p) == (second.effect, second.low, second.high, second.p)

    @settings(max_examples=5, deadline=None)
    @given(st.floats(-100, 100), st.integers(0, 99))
    def test_a_constant_added_to_all_moves_means_and_not_effects(self, constant: float, random: int) -> None:
        rows = uneven(random, 0.2)
        moved = [row | {"value": row["value"] + constant} for row in rows]
        before, after = compare(scores_of(rows), QUICK), compare(scores_of(moved), QUICK)
        assert mean_of(after, "a") - mean_of(before, "a") == pytest.approx(constant, abs=1e-9)
        one, two = before.contrasts[0], after.contrasts[0]
        assert (two.effect, two.low, two.high) == pytest.approx((one.effect, one.low, one.high), rel=1e-6, abs=1e-9)
        assert one.p == two.p

    def test_a_flipped_direction_flips_the_effect(self) -> None:
        rows = uneven(5, 0.0)
        lower = compare(scores_of(rows), QUICK).contrasts[0]
        higher_info = dataclasses.replace(FUTURE, direction="higher")
        higher = compare(scores_of(rows, [higher_info]), QUICK).contrasts[0]
        assert (higher.effect, higher.p) == (-lower.effect, lower.p)
        assert (higher.low, higher.high) == pytest.approx((-lower.high, -lower.low), rel=1e-9)

    def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(self) -> None:
        scores = scores_of(uneven(6, 0.1))
        assert compare(scores, QUICK).json() == compare(scores, QUICK).json()
        other = compare(scores, dataclasses.replace(QUICK, seed=1))
        assert other.contrasts[0].low != compare(scores, QUICK).contrasts[0].low
        assert other.contrasts[0].effect == compare(scores, QUICK).contrasts[0].effect


class TestReductions:
    def test_macro_f1_keeps_classes_that_neither_occur_nor_are_predicted(self) -> None:
        info = dataclasses.replace(MOTION, reduction="macro_f1", headline="macro")
        variants = [f"{kind}/{c}" for kind in ("tp", "fp", "fn") for c in ("bus", "car", "cow")]
        headline, *parts = measures_of(info, variants)
        assert headline.components[:3] == ("tp/bus", "fp/bus", "fn/bus")
        means = np.array([0.3, 0.1, 0.1, 0.2, 0.0, 0.2, 0.0, 0.0, 0.0])
        assert headline.reduce(means) == pytest.approx((0.75 + 2 / 3 + 0.0) / 3)
        assert [part.variant for part in parts] == ["f1/bus", "f1/car", "f1/cow"]

    def test_explained_is_recomputed_from_the_means_and_not_a_mean_of_ratios(self) -> None:
        info = dataclasses.replace(MOTION, reduction="explained", headline="velocity")
        measure = measures_of(info, ["error/velocity", "total/velocity"])[0]
        assert measure.headline
        assert measure.reduce(np.array([[1.0, 4.0], [1.0, 0.0]])) == pytest.approx([0.75, np.nan], nan_ok=True)

    def test_leakage_is_the_papers_ratio_and_undefined_without_own_predictability(self) -> None:
        info = dataclasses.replace(FUTURE, reduction="leakage", headline="mean")
        variants = ["L->L", "L->A", "A->A", "A->L", "constant->L", "constant->A"]
        headline, *pairs = measures_of(info, variants)
        assert sorted(pair.variant for pair in pairs) == ["A->L", "L->A"]
        pair = next(pair for pair in pairs if pair.variant == "L->A")
        assert pair.components == ("L->A", "A->A", "constant->A")
        assert pair.reduce(np.array([0.9, 0.6, 1.0])) == pytest.approx(0.1 / 0.4, rel=1e-6)
        assert np.isnan(pair.reduce(np.array([0.9, 1.1, 1.0])))
        assert len(headline.components) == 6

    def test_a_reduction_is_made_of_weighted_means_in_the_whole_pipeline(self) -> None:
        info = DiagnosticInfo("r2", "R2", "", "higher", "", "secondary", "", "", "x", "explained")
        errors = rows_of({"a": 0.0}, infos=[info], variants=["error/x"], random=1)
        totals = rows_of({"a": 4.0}, infos=[info], variants=["total/x"], random=2)
        found = compare(scores_of(errors + totals, [info]), QUICK)
        expected = 1 - literal_mean(errors, "a") / literal_mean(totals, "a")
        assert mean_of(found, "a") == pytest.approx(expected, rel=1e-12)


def test_what_is_asked_for_less_has_the_same_estimate_replicates_and_jackknife() -> None:
    panel = panel_of(scores_of(uneven(3, 0.2)), "nano")
    block = panel.blocks["future_l1"]
    estimator, measure = Estimator(panel, 200, 0), measures_of(block.info, block.variants)[0]
    request = Request("a", (17, 29), estimator.defined(measure, "a", (17, 29)).tobytes())
    (whole,) = estimator.distributions(measure, [request]).values()
    (less,) = estimator.distributions(measure, [request], complete=False).values()
    for name in ("estimate", "replicates_B", "jackknife_J", "seeds_S", "clip_weighted"):
        np.testing.assert_array_equal(getattr(less, name), getattr(whole, name))
    assert len(whole.crossed_B) == len(whole.source_only_B) == 200
    assert len(less.crossed_B) == len(less.source_only_B) == len(less.source_jackknives_C) == 0
