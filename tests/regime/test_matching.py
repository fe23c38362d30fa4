"""Matching is blind, one to one, within strata and calipers, and balanced."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.corpus.manifest import Clip
from factorjepa.errors import RegimeError
from factorjepa.regime import matching
from factorjepa.regime.estimate import matched_means, offers, source_means
from factorjepa.regime.matching import BALANCED, COVARIATES, Matched, design, match

from .clips import clip


def matched(
    a: list[Clip], b: list[Clip], caliper: float = 10.0, fields: tuple[str, ...] | None = ("scene_type",)
) -> Matched:
    return match(design(a, b, fields, caliper), np.arange(len(a)), np.arange(len(b)))


def some(seconds: list[float], scene: str = "market") -> list[Clip]:
    return [clip(k, scene=scene, seconds=s) for k, s in enumerate(seconds)]


def test_matching_knows_no_measurement() -> None:
    """The module imports nothing that was measured, so no outcome can reach it."""
    lines = [line for line in inspect.getsource(matching).splitlines() if line.startswith("from .")]
    assert not {"table", "axes", "measuring", "population"} & {line.split(".")[-1].split(" ")[0] for line in lines}


def test_the_assignment_is_optimal_and_not_greedy() -> None:
    """Greedy would give 8 its nearest, 8.4, and leave 6 for 10. The third pair keeps the balance."""
    a = [*some([8.0, 10.0]), clip(9, scene="junction", seconds=6.4)]
    b = [*some([8.4, 6.0]), clip(9, scene="junction", seconds=10.0)]
    found = matched(a, b)
    assert set(zip(found.row_A.tolist(), found.row_B.tolist(), strict=True)) == {(0, 1), (1, 0), (2, 2)}


def test_clips_of_other_scenes_are_never_matched() -> None:
    a = [*some([8.0, 8.1]), clip(9, scene="junction", seconds=8.0)]
    b = [clip(k, scene="junction", seconds=8.0 + k / 10) for k in range(3)]
    found = matched(a, b)
    assert [str(a[k].attributes["scene_type"]) for k in found.row_A] == ["junction"]


def test_a_caliper_leaves_far_clips_unmatched() -> None:
    a, b = some([8.0, 8.0, 12.0]), some([8.0, 8.0, 9.0])
    found = matched(a, b, caliper=0.25)
    assert sorted(found.row_A.tolist()) == [0, 1]
    assert abs(found.after_Z).max() < BALANCED


def test_a_stratum_that_disturbs_the_balance_gets_a_narrower_caliper() -> None:
    a, b = some([8.0, 8.0, 12.0]), some([8.0, 8.0, 9.0])
    made = design(a, b, ("scene_type",), 10.0)
    assert (made.narrowed, made.caliper) == (1, 10.0)
    assert sorted(match(made, np.arange(3), np.arange(3)).row_A.tolist()) == [0, 1]


def test_clips_that_are_alike_are_chosen_by_lot_and_not_by_their_place_in_the_manifest() -> None:
    found = matched([clip(k) for k in range(40)], [clip(k) for k in range(10)])
    assert len(found.row_A) == 10
    assert found.row_A.max() > 20


def test_another_resolution_everywhere_is_no_common_support() -> None:
    a, b = [clip(k, size=(64, 64)) for k in range(3)], [clip(k, size=(128, 128)) for k in range(3)]
    with pytest.raises(RegimeError, match="no pair of clips agrees"):
        design(a, b, ("scene_type",))


def test_fields_are_given_up_from_the_last_until_half_is_matched() -> None:
    a = [clip(k, scene="market", weather="clear", illumination="day") for k in range(6)]
    b = [clip(k, scene="market", weather="rain", illumination="day") for k in range(6)]
    found = design(a, b)
    assert found.fields == ("capture_mode", "scene_type", "illumination")
    assert found.given_up == ("weather",)
    assert found.absent == ("road_context",)


def test_a_field_that_is_not_known_everywhere_cannot_be_asked_for() -> None:
    with pytest.raises(RegimeError, match="cannot match on weather"):
        design(some([8.0]), some([8.0]), ("weather",))


def test_a_copied_clip_is_offered_as_a_clip_of_its_own() -> None:
    a, b = some([8.0, 9.0]), some([8.0, 9.0])
    found = match(design(a, b, ("scene_type",), 10.0), np.array([0, 0]), np.array([0, 1]))
    assert len(found.row_A) == 2
    assert sorted(found.place_A.tolist()) == [0, 1]


clips_ = st.lists(
    st.tuples(st.floats(6, 13), st.sampled_from(["market", "junction", "transit"])), min_size=1, max_size=12
)


@settings(max_examples=80, deadline=None)
@given(clips_, clips_, st.floats(0.05, 2.0))
def test_every_clip_is_used_once_within_its_stratum_caliper_and_balance(
    one: list[tuple[float, str]], other: list[tuple[float, str]], caliper: float
) -> None:
    a, b = ([clip(k, scene=s, seconds=t) for k, (t, s) in enumerate(part)] for part in (one, other))
    try:
        found = matched(a, b, caliper)
    except RegimeError:
        return
    assert len(set(found.row_A.tolist())) == len(found.row_A) == len(set(found.row_B.tolist()))
    assert all(a[i].attributes == b[j].attributes for i, j in zip(found.row_A, found.row_B, strict=True))
    assert (np.abs(found.apart_PZ) <= caliper).all()
    assert np.abs(found.after_Z).max() < BALANCED
    assert len(found.after_Z) == len(COVARIATES)


def test_a_source_drawn_twice_is_two_groups_with_all_its_clips() -> None:
    rows, groups = offers(np.array([0, 0, 1, 2]), np.array([2, 0, 1]))
    assert rows.tolist() == [0, 0, 1, 1, 3]
    assert [groups[rows == k].tolist() for k in (0, 1)] == [[0, 3], [0, 3]]


def test_sources_weigh_alike_however_many_clips_or_frames_they_have() -> None:
    totals, terms = np.array([[10.0], [20.0], [5.0]]), np.array([[1.0], [9.0], [1.0]])
    group = np.array([7, 7, 3])
    np.testing.assert_allclose(source_means(totals, terms, group), [[5.0], [3.0]])
    assert matched_means(totals, terms, group) == pytest.approx(4.0)
    assert np.isnan(source_means(totals, np.zeros((3, 1)), group)).all()
