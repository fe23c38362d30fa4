"""Interactions carry weight, and dense is denser than sparse by the paper's ratios.

Measured on the clips 0-34 of seed 7 in each regime (seven sources, all capture modes) at 64 px.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from factorjepa.world import ClipTruth, clips
from factorjepa.world.measures import ClipMeasures, measure
from factorjepa.world.simulator import CLIPS_PER_SOURCE

from .scenes import SEED, annotated, example_truth, settings

SOURCES = 7
PAPER_RATIO = 2.3


def measured(preset: str) -> list[ClipMeasures]:
    values = settings(preset, fps=4.0)
    made = [
        one
        for source in range(SOURCES)
        for one in clips(values, SEED, range(source * CLIPS_PER_SOURCE, (source + 1) * CLIPS_PER_SOURCE))
    ]
    return [measure(annotated(one), every=4) for one in made]


@pytest.fixture(scope="module")
def dense() -> list[ClipMeasures]:
    return measured("dense")


@pytest.fixture(scope="module")
def sparse() -> list[ClipMeasures]:
    return measured("sparse")


def mean(measures: list[ClipMeasures], name: str) -> float:
    return float(np.mean([asdict(one)[name] for one in measures]))


def test_a_quarter_of_the_agents_of_dense_clips_is_moved_by_neighbours(dense: list[ClipMeasures]) -> None:
    assert mean(dense, "displaced") >= 0.25


@pytest.mark.parametrize("name", ["agents_per_frame", "occupancy", "interaction_degree"])
def test_dense_exceeds_sparse_by_the_paper_s_ratio(
    dense: list[ClipMeasures], sparse: list[ClipMeasures], name: str
) -> None:
    assert mean(sparse, name) > 0
    assert mean(dense, name) / mean(sparse, name) >= PAPER_RATIO


@pytest.mark.parametrize("name", ["hidden", "heterogeneity", "counterfactual_degree", "displaced"])
def test_dense_exceeds_sparse_in_what_makes_streets_hard(
    dense: list[ClipMeasures], sparse: list[ClipMeasures], name: str
) -> None:
    assert mean(dense, name) > 1.2 * mean(sparse, name)


def test_measures_agree_with_counting_by_hand() -> None:
    truth = example_truth(0)
    area = truth.size**2
    counts, covered, mixed = [], [], []
    for frame in range(0, truth.frames, 3):
        instances = truth.instances(frame)
        sizes = [int((instances == agent + 1).sum()) for agent in range(len(truth.agent_ids))]
        large = [agent for agent, size in enumerate(sizes) if size >= 0.001 * area]
        counts.append(len(large))
        covered.append((instances > 0).mean())
        groups = [superclass_of(truth, agent) for agent in large]
        pairs = [(a, b) for i, a in enumerate(groups) for b in groups[i + 1 :]]
        if pairs:
            mixed.append(np.mean([a != b for a, b in pairs]))
    found = measure(truth)
    assert found.agents_per_frame == pytest.approx(np.mean(counts))
    assert found.occupancy == pytest.approx(np.mean(covered))
    assert found.heterogeneity == pytest.approx(np.mean(mixed))
    known = truth.alone[np.isfinite(truth.alone)]
    assert found.displaced == pytest.approx(np.mean([value > 0.5 for value in known.tolist()]))


def superclass_of(truth: ClipTruth, agent: int) -> str:
    from factorjepa.world.taxonomy import KINDS

    return KINDS[str(truth.agent_kinds[agent])].superclass


def test_the_interaction_graph_is_near_or_about_to_be() -> None:
    """Mean degree, pair by pair, from the paper's definition."""
    truth = example_truth(0)
    degrees = []
    for frame in range(0, truth.frames, 3):
        rows = [r for r in truth.observations(frame) if truth.visible_pixels[r] >= 0.001 * truth.size**2]
        if len(rows) < 2:
            continue
        edges = 0
        for a in rows:
            for b in rows:
                if a != b:
                    edges += interacts(truth, int(a), int(b))
        degrees.append(edges / len(rows))
    assert measure(truth).interaction_degree == pytest.approx(np.mean(degrees), rel=1e-6)


def interacts(truth: ClipTruth, a: int, b: int) -> bool:
    places = [(truth.box[r][:2].astype(float) + truth.box[r][2:]) / 2 / truth.size for r in (a, b)]
    speeds = [(truth.image_velocity[r].astype(float) - truth.camera_velocity[r]) / truth.size for r in (a, b)]
    apart, relative = places[1] - places[0], speeds[1] - speeds[0]
    if np.linalg.norm(apart) <= 0.15:
        return True
    when = -float(apart @ relative) / (float(relative @ relative) + 1e-9)
    return 0 < when <= 2.0 and float(np.linalg.norm(apart + when * relative)) <= 0.05
