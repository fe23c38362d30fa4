"""Agent F1: matching by a known rule, and who does not count."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.detectors.boxes import Detections, box_iou
from factorjepa.rendering.metrics.agents import (
    AgentCounts,
    Agents,
    AgentSettings,
    agent_counts,
    covered_shares,
    matched,
    summed,
)
from factorjepa.rendering.metrics.true_agents import true_agents
from factorjepa.world import WorldSettings, clip
from factorjepa.world.taxonomy import KINDS, SUPERCLASSES

RULE = AgentSettings()


def found(*boxes: tuple[float, float, float, float], kinds: tuple[int, ...] | None = None) -> Detections:
    rows = np.array(boxes, np.float64).reshape(-1, 4)
    numbers = np.zeros(len(rows), np.int64) if kinds is None else np.array(kinds, np.int64)
    return Detections(rows, np.linspace(0.9, 0.6, len(rows)), numbers)


def count(reference: Detections, decoded: Detections, rule: AgentSettings = RULE) -> AgentCounts:
    return agent_counts(Agents.of_detections(reference), decoded, rule)


LEFT, RIGHT = (0.1, 0.1, 0.3, 0.5), (0.6, 0.1, 0.8, 0.5)


def test_the_same_agents_have_f1_one_and_nobody_on_both_sides_has_none() -> None:
    assert count(found(LEFT, RIGHT), found(RIGHT, LEFT)).f1 == 1
    assert np.isnan(count(found(), found()).f1)


def test_a_missing_and_an_invented_agent_are_counted() -> None:
    counts = count(found(LEFT, RIGHT), found(LEFT, (0.4, 0.6, 0.5, 0.9)))
    assert (counts.tp, counts.fp, counts.fn, counts.f1) == (1, 1, 1, 0.5)


def test_an_agent_counts_once_however_often_it_is_found() -> None:
    counts = count(found(LEFT), found(LEFT, (0.11, 0.1, 0.31, 0.5)))
    assert (counts.tp, counts.fp, counts.fn) == (1, 1, 0)


def test_the_prespecified_overlap_decides() -> None:
    half = (0.1, 0.1, 0.3, 0.5 - 0.4 * 0.45)  # IoU 0.55
    assert count(found(LEFT), found(half)).tp == 1
    assert count(found(LEFT), found(half), AgentSettings(iou=0.6)).tp == 0


def test_classes_must_agree_where_the_rule_says_so() -> None:
    by_class = AgentSettings(by_class=True)
    assert count(found(LEFT, kinds=(1,)), found(LEFT, kinds=(2,))).tp == 1
    assert count(found(LEFT, kinds=(1,)), found(LEFT, kinds=(2,)), by_class).tp == 0
    assert count(found(LEFT, kinds=(2,)), found(LEFT, kinds=(2,)), by_class).tp == 1


def test_an_exact_match_is_not_given_up_for_two_that_barely_pass() -> None:
    reference = found((0.0, 0.0, 0.4, 0.4), (0.1, 0.0, 0.5, 0.4))
    decoded = found((0.1, 0.0, 0.5, 0.4), (0.21, 0.0, 0.61, 0.4))
    assert matched(reference, decoded, 0.5, by_class=False).tolist()[0] == [1, 0]


def test_agents_below_the_declared_size_count_on_neither_side_and_without_a_cliff() -> None:
    tiny, invented = (0.1, 0.1, 0.15, 0.15), (0.8, 0.8, 0.85, 0.85)
    assert count(found(tiny), found(invented)) == AgentCounts(0, 0, 0, 0, 0, 0, 0)
    just, below = (0.1, 0.1, 0.165, 0.165), (0.1, 0.1, 0.161, 0.161)
    counts = count(found(just), found(below))  # the reference counts, and is found by a box that would not
    assert (counts.tp, counts.fp, counts.fn) == (1, 0, 0)
    counts = count(found(below), found(just))  # nobody that counts is there, and nobody is invented
    assert (counts.tp, counts.fp, counts.fn) == (0, 0, 0)


def test_small_and_hidden_agents_are_told_apart() -> None:
    behind, front = (0.4, 0.3, 0.5, 0.5), (0.38, 0.35, 0.52, 0.6)
    small = (0.8, 0.8, 0.9, 0.9)
    counts = count(found(behind, front, small), found(front))
    assert (counts.hidden_tp, counts.hidden_fn, counts.small_tp, counts.small_fn) == (0, 1, 0, 1)
    assert counts.small_recall == counts.hidden_recall == 0


def test_whoever_stands_lower_hides_the_other() -> None:
    shares = covered_shares(np.array([[0.4, 0.3, 0.5, 0.5], [0.4, 0.4, 0.5, 0.7]]))
    assert shares == pytest.approx([0.5, 0.0])


def test_counts_add_up_over_frames() -> None:
    total = summed([AgentCounts(1, 2, 3, 1, 0, 0, 1), AgentCounts(3, 0, 1, 0, 2, 1, 0)])
    assert total == AgentCounts(4, 2, 4, 1, 2, 1, 1)
    assert total.f1 == pytest.approx(8 / 14)


boxes = st.lists(
    st.tuples(st.floats(0, 0.8), st.floats(0, 0.8), st.floats(0.1, 0.4), st.floats(0.1, 0.4)), max_size=5
).map(lambda rows: found(*((x, y, min(x + w, 1), min(y + h, 1)) for x, y, w, h in rows)))


@settings(max_examples=60)
@given(boxes, boxes)
def test_matching_is_one_to_one_allowed_and_leaves_no_possible_pair(reference: Detections, decoded: Detections) -> None:
    pairs = matched(reference, decoded, 0.5, by_class=False)
    assert len({*pairs[:, 0]}) == len({*pairs[:, 1]}) == len(pairs)
    overlap = box_iou(reference.boxes, decoded.boxes)
    assert all(overlap[row, column] >= 0.5 for row, column in pairs)
    free = itertools.product(
        set(range(len(reference.scores))) - {*pairs[:, 0]}, set(range(len(decoded.scores))) - {*pairs[:, 1]}
    )
    assert not any(overlap[row, column] >= 0.5 for row, column in free)


@settings(max_examples=40)
@given(boxes, boxes)
def test_f1_does_not_depend_on_which_side_is_the_reference(first: Detections, second: Detections) -> None:
    one, other = count(first, second, AgentSettings(smallest=0)), count(second, first, AgentSettings(smallest=0))
    assert (one.tp, one.fp, one.fn) == (other.tp, other.fn, other.fp)


def test_true_agents_are_the_boxes_of_what_is_seen_with_superclass_and_hidden_share() -> None:
    made = clip(WorldSettings(size=64, fps=4, seconds=(1.0, 1.0)), seed=3, index=0)
    truth = made.annotate([one for _, one in made.frames_with_truth()])
    for frame, agents in enumerate(true_agents(truth, range(truth.frames))):
        instances = truth.instances(frame)
        seen = sorted(set(np.unique(instances).tolist()) - {0})
        assert len(agents) == len(seen)
        for number, box, kind in zip(
            sorted(seen, key=lambda n: list(truth.agent[truth.observations(frame)]).index(n - 1)),
            agents.found.boxes,
            agents.found.kinds,
            strict=True,
        ):
            rows, columns = np.nonzero(instances == number)
            edges = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert (box * 64).tolist() == pytest.approx(edges)
            assert SUPERCLASSES[kind] == KINDS[str(truth.agent_kinds[number - 1])].superclass
        assert ((agents.hidden >= 0) & (agents.hidden < 1)).all()
