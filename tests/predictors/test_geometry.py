"""Geometry between tokens and agents, and between agents."""

from __future__ import annotations

import dataclasses

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from factorjepa.predictors.geometry import (
    RELATION,
    RELATIVE,
    frames_after,
    pair_relations,
    relative_geometry,
    token_places,
)  # fmt: skip
from factorjepa.teacher.states import ObjectStates

from .scenes import TARGET, agents

GRID = (8, 4, 4)


def relation(seen: ObjectStates, grid: tuple[int, int, int] = GRID) -> dict[str, Tensor]:
    chosen = [torch.nn.functional.one_hot(seen.pairs_BP2[..., k], seen.valid_BN.shape[1]).float() for k in (0, 1)]
    return dict(zip(RELATION, pair_relations(seen, *chosen, grid, 2).unbind(-1), strict=True))


def two(a: tuple[float, ...], b: tuple[float, ...]) -> ObjectStates:
    """Agents (x, y, velocity x, velocity y) a tenth of the picture wide, as the pair (a, b)."""
    seen = agents(batch=1, count=2, pairs=1)
    seen.geometry_BNG[:] = 0
    for i, (x, y, vx, vy) in enumerate((a, b)):
        seen.geometry_BNG[0, i, :6] = torch.tensor([x, y, 0.1, 0.1, vx, vy])
    seen.pairs_BP2[:] = torch.tensor([0, 1])
    return seen


def test_tokens_lie_at_their_rasters_middle_and_frames_count_from_the_last_seen() -> None:
    tubelet, centre = token_places(torch.tensor([[0, 6, 127]]), GRID)
    assert tubelet.tolist() == [[0, 0, 7]]
    assert centre.tolist() == [[[0.125, 0.125], [0.625, 0.375], [0.875, 0.875]]]
    assert frames_after(torch.tensor([5, 6, 7]), 2, 12).tolist() == [-0.5, 1.5, 3.5]


@given(
    x=st.floats(0, 1), y=st.floats(0, 1), vx=st.floats(-0.05, 0.05), vy=st.floats(-0.05, 0.05),
    gap=st.integers(0, 6), token=st.integers(0, 31),
)  # fmt: skip
def test_relative_geometry_is_the_offset_from_the_extrapolated_box(
    x: float, y: float, vx: float, vy: float, gap: int, token: int
) -> None:
    seen = two((x, y, vx, vy), (0.5, 0.5, 0.0, 0.0))
    seen.geometry_BNG[0, 0, 12] = gap / 12
    fields, closeness = relative_geometry(seen, TARGET[None], GRID, 2)
    ahead = 1.5 + 2 * (token // 16)
    place = (token % 4 + 0.5) / 4, (token // 4 % 4 + 0.5) / 4
    reach = 0.05 + 0.125
    wanted = [
        max(-3.0, min(3.0, (p - (c + v * (ahead + gap))) / reach))
        for p, c, v in zip(place, (x, y), (vx, vy), strict=True)
    ]
    found = dict(zip(RELATIVE, fields[0, 0, token].tolist(), strict=True))
    torch.testing.assert_close([found["ahead_x"], found["ahead_y"]], wanted, rtol=0, atol=1e-4)
    assert 0 <= float(closeness[0, 0, token]) <= 1
    assert all(-3 <= value <= 3 for value in found.values())


def test_closest_approach_is_when_and_how_near_two_pass() -> None:
    """Head on, 0.4 apart at 0.05 per frame each: 4 frames until they meet."""
    head_on = relation(two((0.3, 0.5, 0.05, 0.0), (0.7, 0.5, -0.05, 0.0)))
    torch.testing.assert_close(head_on["time_to_closest"] * 4, torch.tensor([[4.0]]), rtol=0.01, atol=0)
    assert float(head_on["closest"]) < 0.01
    assert float(head_on["ahead"]) > 0
    beside = relation(two((0.3, 0.3, 0.05, 0.0), (0.7, 0.7, -0.05, 0.0)))
    torch.testing.assert_close(beside["closest"] / 8, torch.tensor([[0.4]]), rtol=0.01, atol=0)
    apart = relation(two((0.3, 0.5, -0.05, 0.0), (0.7, 0.5, 0.05, 0.0)))
    assert float(apart["time_to_closest"]) < 0
    assert float(apart["ahead"]) < 0
    assert float(head_on["meeting"]) > 0.5 > 0.25 > max(float(beside["meeting"]), float(apart["meeting"]))


def test_pairs_that_meet_within_a_longer_future_meet() -> None:
    """Head on, 7 frames until they touch: beyond four frames that are predicted, within eight."""
    far = two((0.15, 0.5, 0.05, 0.0), (0.85, 0.5, -0.05, 0.0))
    one_second = relation(far)
    two_seconds = relation(dataclasses.replace(far, context=8))
    assert float(one_second["closest"]) > 0.5 > 0.01 > float(two_seconds["closest"])
    assert float(two_seconds["meeting"]) > 0.5 > float(one_second["meeting"])
    torch.testing.assert_close(two_seconds["time_to_closest"] * 8, torch.tensor([[7.0]]), rtol=0.01, atol=0)


@given(seed=st.integers(0, 50), dx=st.floats(-0.3, 0.3), dy=st.floats(-0.3, 0.3), camera=st.floats(-0.05, 0.05))
def test_relations_do_not_depend_on_where_the_pair_is(seed: int, dx: float, dy: float, camera: float) -> None:
    """Nor, but for `ahead`, on how the camera moves: both agents get the same velocity on top."""
    seen = agents(count=4, pairs=6, seed=seed)
    seen.geometry_BNG[..., 12] = 0  # without gaps, or a common velocity would have moved them meanwhile
    shifted = seen.geometry_BNG.clone()
    shifted[..., :2] += torch.tensor([dx, dy])
    shifted[..., 4:6] += camera
    before, after = relation(seen), relation(dataclasses.replace(seen, geometry_BNG=shifted))
    for name in RELATION:
        if name != "ahead":
            torch.testing.assert_close(before[name], after[name], rtol=0, atol=2e-3)


def test_a_pair_of_one_agent_with_itself_has_finite_gradients() -> None:
    """Padding is such a pair."""
    seen = agents(count=2, pairs=1)
    seen.pairs_BP2[:] = 0
    geometry = seen.geometry_BNG.clone().requires_grad_()
    torch.stack(list(relation(dataclasses.replace(seen, geometry_BNG=geometry)).values())).sum().backward()
    assert geometry.grad is not None
    assert bool(torch.isfinite(geometry.grad).all())
