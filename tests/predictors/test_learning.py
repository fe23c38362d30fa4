"""A world in which a token's future depends on a pair of agents: only who reads pairs can learn it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from factorjepa.objective import LossWeights, objective
from factorjepa.predictors import LatentPredictor
from factorjepa.teacher.states import ObjectStates

from .scenes import TINY, agents, context, factorized, monolithic

CLIPS = 12


def scene() -> tuple[tuple[Tensor, Tensor, Tensor], ObjectStates, Tensor]:
    """The same context and the same first agent everywhere; around it, tokens turn with its partner's velocity."""
    tokens, context_index, target_index = context(batch=CLIPS)
    tokens = tokens[:1].expand_as(tokens)
    seen = agents(batch=CLIPS, count=2, pairs=1)
    seen.geometry_BNG[:] = 0
    seen.descriptor_BNE[:] = seen.descriptor_BNE[:1]
    speed = torch.linspace(-0.05, 0.05, CLIPS)
    seen.geometry_BNG[:, 0, :4] = torch.tensor([0.6, 0.6, 0.2, 0.2])
    seen.geometry_BNG[:, 1, :4] = torch.tensor([0.2, 0.6, 0.2, 0.2])
    seen.geometry_BNG[:, 1, 4] = speed
    seen.pairs_BP2[:] = torch.tensor([0, 1])
    wanted = torch.zeros(CLIPS, 32, TINY.dim)
    near = torch.tensor([10, 26])  # token (2, 2) of each future tubelet holds the first agent
    one, other = torch.randn(2, TINY.dim, generator=torch.Generator().manual_seed(6))
    turn = speed[:, None] / 0.05
    wanted[:, near] = (turn * one + turn.square() * other)[:, None]
    return (tokens, context_index, target_index), seen, wanted


def trained(model: LatentPredictor, steps: int = 120) -> tuple[float, Any]:
    """Error around the first agent after training the fresh parts; the transformer is kept."""
    inputs, seen, wanted = scene()
    heads = [p for name, p in model.named_parameters() if not name.startswith("query.")]
    optimiser = torch.optim.Adam(heads, lr=1e-2)
    for step in range(steps):
        answer = model(*inputs, seen)
        loss = objective(answer, wanted, weights=LossWeights(exponent=2, separation=0), seed=step)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
    with torch.no_grad():
        answer = model(*inputs, seen)
    near = wanted.abs().sum((0, 2)) > 0
    return float((answer.tokens_BtD - wanted)[:, near].square().mean()), answer


@pytest.fixture(scope="module")
def spread() -> float:
    """What predicting the mean over clips would leave."""
    wanted = scene()[2]
    near = wanted.abs().sum((0, 2)) > 0
    return float(wanted[:, near].var(0, correction=0).mean())


def test_interactions_learn_what_only_a_pair_can_tell(spread: float) -> None:
    """And it is the interaction channel that says it."""
    error, answer = trained(factorized(ranks=(16, 16, 16)))
    assert error < 0.1 * spread
    assert float(answer.vitals()["share_interactions"]) > 0.5


@pytest.mark.parametrize("injection", ["late", "early"])
def test_a_geometry_matched_control_learns_it_too(injection: str, spread: float) -> None:
    assert trained(monolithic(injection=injection))[0] < 0.1 * spread


def test_a_predictor_that_knows_no_agents_cannot(spread: float) -> None:
    assert trained(monolithic(), steps=60)[0] > 0.9 * spread


def test_without_pairs_the_agents_cannot_tell_either(spread: float) -> None:
    """The partner is an agent as well, but far from the token: its gate is nearly shut there."""
    error, _ = trained(factorized(ranks=(16, 16, 16), interactions="off"), steps=60)
    assert error > 0.5 * spread
