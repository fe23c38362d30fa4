"""The five axes against scenes computed by hand, and what must not change them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.regime import pairs
from factorjepa.regime.axes import AXES, NAMES, edges, frame_measures, overlaps
from factorjepa.regime.scene import area_of_union
from factorjepa.regime.settings import Thresholds, grid

from .scenes import Agent, scene

T = Thresholds()


def value(name: str, found: np.ndarray, frame: int = 0) -> float:
    return float(found[frame, NAMES.index(name)])


def test_two_cars_and_a_walker_by_hand() -> None:
    """Boxes 20x20 at (20, 20) and (30, 20) overlap by half; a third of 10x10 stands far away."""
    found = frame_measures(
        scene([Agent(0, (20, 20, 40, 40), superclass=3), Agent(0, (30, 20, 50, 40), superclass=3),
               Agent(0, (80, 80, 90, 90), superclass=0)]), T)  # fmt: skip
    assert value("count", found) == 3
    assert value("count_area", found) == pytest.approx(3 / (10_000 / 1e6))
    assert value("occupancy", found) == pytest.approx((20 * 20 + 10 * 20 + 100) / 10_000)  # the shared part once
    assert value("overlap", found) == pytest.approx(2 / 3)  # IoM 0.5 >= 0.3
    assert (value("truncation", found), value("gap", found)) == (0, 0)
    assert value("visibility", found) == pytest.approx(2 / 3)
    assert value("interaction", found) == pytest.approx(2 * 1 / 3)  # centres 0.1 apart; the third is 0.75 away
    assert value("edge_density", found) == pytest.approx(1 / 3)
    assert value("heterogeneity", found) == pytest.approx(1 - 2 / 6)
    entropy = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    assert value("entropy", found) == pytest.approx(entropy / np.log(7))
    assert value("effective_classes", found) == pytest.approx(np.exp(entropy))
    assert value("richness", found) == 2


def test_conditional_measures_are_undefined_where_too_few_agents_are() -> None:
    found = frame_measures(scene([Agent(1, (10, 10, 30, 30))], frames=2), T)
    assert (value("count", found, 0), value("occupancy", found, 0)) == (0, 0)
    assert np.isnan(value("visibility", found, 0))
    assert value("visibility", found, 1) == 0
    assert np.isnan([value(name, found, 1) for name in ("interaction", "edge_density", "heterogeneity")]).all()


def test_a_box_at_the_border_is_truncated_and_one_beside_it_is_not() -> None:
    found = frame_measures(scene([Agent(0, (0, 40, 20, 60)), Agent(0, (70, 70, 99, 90))]), T)
    assert value("truncation", found) == value("visibility", found) == 0.5


def test_small_unsure_and_unresolved_instances_are_no_agents() -> None:
    found = frame_measures(
        scene([Agent(0, (10, 10, 30, 30)), Agent(0, (50, 50, 52, 52)), Agent(0, (60, 60, 80, 80), confidence=0.5),
               Agent(0, (10, 60, 30, 80), superclass=-1)]), T)  # fmt: skip
    assert value("count", found) == 1
    assert value("occupancy", found) == pytest.approx(400 / 10_000)


def test_a_track_lost_in_the_middle_is_a_gap_on_both_sides_of_it() -> None:
    seen = [Agent(t, (40, 40, 60, 60), track=7) for t in (0, 1, 4, 5)]
    found = frame_measures(scene(seen, frames=6), T)
    np.testing.assert_array_equal(found[:, NAMES.index("gap")], [0, 1, np.nan, np.nan, 1, 0])
    short = T.model_copy(update={"gap_seconds": 0.5})  # lost from 0.25 s to 1.0 s
    np.testing.assert_array_equal(frame_measures(scene(seen, frames=6), short)[:, NAMES.index("gap")],
                                  [0, 0, np.nan, np.nan, 0, 0])  # fmt: skip


def test_leaving_through_the_border_is_no_gap() -> None:
    seen = [Agent(0, (0, 40, 20, 60), track=1), Agent(2, (10, 40, 30, 60), track=1)]
    assert np.nansum(frame_measures(scene(seen, frames=3), T)[:, NAMES.index("gap")]) == 0


def approaching(velocity: float, drift: float = 0.0) -> np.ndarray:
    """Two agents 0.6 apart on a line; the left one moves to the right by `velocity` units per second."""
    a = [Agent(t, (10 + velocity * 25 * t, 40, 30 + velocity * 25 * t, 60), track=1) for t in range(2)]
    b = [Agent(t, (70, 40, 90, 60), track=2) for t in range(2)]
    return frame_measures(scene([*a, *b], frames=2, drift=(drift, 0.0)), T)


def test_a_pair_about_to_meet_interacts_and_a_slow_one_does_not() -> None:
    assert value("interaction", approaching(0.4)) == 1.0  # meets in 1.5 s
    assert value("interaction", approaching(0.2)) == 0.0  # in 3 s, beyond tau_t
    assert value("interaction", approaching(-0.4)) == 0.0  # moves away


def test_camera_motion_alone_makes_no_approach() -> None:
    """A pan moves both by the same amount, which is the drift: nobody approaches anybody."""
    pan = 0.2
    both = [Agent(t, (x + pan * 25 * t, 40, x + 10 + pan * 25 * t, 50), track=k) for t in range(2)
            for k, x in enumerate((10, 60))]  # fmt: skip
    assert np.nanmax(frame_measures(scene(both, frames=2, drift=(pan, 0.0)), T)[:, NAMES.index("interaction")]) == 0


def test_classes_that_nobody_tells_are_unavailable_and_the_rest_is_measured() -> None:
    agents = [Agent(0, (20, 20, 40, 40)), Agent(0, (60, 60, 80, 80), superclass=-1)]
    found = frame_measures(scene(agents, classes=False), T)
    assert value("count", found) == 2
    assert np.isnan([value(name, found) for name in ("heterogeneity", "entropy", "richness")]).all()


boxes = st.tuples(st.floats(0, 90), st.floats(0, 90), st.floats(4, 40), st.floats(4, 40)).map(
    lambda b: (b[0], b[1], min(b[0] + b[2], 100.0), min(b[1] + b[3], 100.0))
)
crowds = st.lists(
    st.builds(Agent, st.integers(0, 2), boxes, st.integers(-1, 4), st.integers(0, 6)), max_size=12,
    unique_by=lambda a: (a.frame, a.track) if a.track >= 0 else (a.frame, a.box),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(crowds, st.randoms(use_true_random=False))
def test_the_order_of_agents_does_not_matter(agents: list[Agent], random: object) -> None:
    shuffled = list(agents)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    np.testing.assert_allclose(
        frame_measures(scene(agents, 3), T), frame_measures(scene(shuffled, 3), T), rtol=1e-9, atol=1e-12
    )


@settings(max_examples=60, deadline=None)
@given(crowds, st.sampled_from([0.5, 2.0, 8.0]))
def test_only_the_count_per_megapixel_knows_the_resolution(agents: list[Agent], scale: float) -> None:
    larger = [dataclasses.replace(a, box=tuple(scale * v for v in a.box)) for a in agents]
    found = frame_measures(scene(agents, 3), T)
    other = frame_measures(scene(larger, 3, size=(100 * scale, 100 * scale)), T)
    column = NAMES.index("count_area")
    np.testing.assert_allclose(other[:, column], found[:, column] / scale**2)
    np.testing.assert_allclose(np.delete(other, column, 1), np.delete(found, column, 1), rtol=1e-6, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(crowds, st.integers(0, 50), st.integers(0, 50))
def test_padding_around_the_valid_picture_changes_nothing(agents: list[Agent], left: int, top: int) -> None:
    moved = [dataclasses.replace(a, box=(a.box[0] + left, a.box[1] + top, a.box[2] + left, a.box[3] + top))
             for a in agents]  # fmt: skip
    padded = scene(moved, 3, size=(200, 200), valid=(left, top, left + 100, top + 100))
    np.testing.assert_allclose(frame_measures(padded, T), frame_measures(scene(agents, 3), T), rtol=1e-6, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(crowds)
def test_measures_stay_in_their_ranges(agents: list[Agent]) -> None:
    found = dict(zip(NAMES, frame_measures(scene(agents, 3), T).T, strict=True))
    for name in ("occupancy", "visibility", "overlap", "truncation", "gap", "edge_density", "heterogeneity", "entropy"):
        assert ((found[name] >= -1e-12) & (found[name] <= 1 + 1e-12) | np.isnan(found[name])).all()
    parts = np.stack([found[name] for name in ("overlap", "truncation", "gap")])
    seen = found["count"] >= 1
    assert (found["visibility"][seen] <= parts.sum(0)[seen] + 1e-12).all()
    assert (found["visibility"][seen] >= parts.max(0)[seen] - 1e-12).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(boxes, max_size=8))
def test_the_area_of_a_union_is_what_painting_the_boxes_gives(found: list[tuple[float, float, float, float]]) -> None:
    whole = np.round(np.array(found).reshape(-1, 4))
    canvas = np.zeros((100, 100), bool)
    for left, top, right, bottom in whole.astype(int):
        canvas[top:bottom, left:right] = True
    assert area_of_union(whole) == canvas.sum()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_the_spatial_index_finds_what_all_pairs_find(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = 240
    frame = np.sort(random.integers(0, 2, count))
    place, velocity = random.random((count, 2)), random.normal(size=(count, 2)) * random.pareto(2, (count, 1)) * 0.05
    velocity[random.random(count) < 0.1] = np.nan
    size = random.pareto(2, (count, 1)) * 2 + 1
    agents = [Agent(int(f), (*(p * 100), *(p * 100 + s[0])), k) for k, (f, p, s) in
              enumerate(zip(frame, place, size, strict=True))]  # fmt: skip
    crowd = scene(agents, 2, size=(150, 150))
    indexed = edges(frame, place, velocity, T), overlaps(crowd, T.overlap)
    few, pairs.FEW = pairs.FEW, 10_000
    try:
        plain = edges(frame, place, velocity, T), overlaps(crowd, T.overlap)
    finally:
        pairs.FEW = few
    np.testing.assert_array_equal(np.bincount(indexed[0], minlength=2), np.bincount(plain[0], minlength=2))
    np.testing.assert_array_equal(indexed[1], plain[1])


def test_the_grid_varies_one_threshold_at_a_time() -> None:
    variants = grid(T)
    assert next(iter(variants)) == "primary"
    changed = [
        {k for k, v in one.model_dump().items() if v != T.model_dump()[k]} for one in list(variants.values())[1:]
    ]
    assert all(len(keys) == 1 or keys == {"approach_seconds", "approach_distance"} for keys in changed)
    assert {key for keys in changed for key in keys} >= {"min_confidence", "min_area", "overlap", "near", "stride"}
    assert len(AXES) == 5
