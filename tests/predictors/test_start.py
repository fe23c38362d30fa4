"""How training starts: from what the pretrained predictor knows, and with gates and edges alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from factorjepa.errors import TrainingError
from factorjepa.predictors import (
    FactorizedOptions,
    FactorizedPredictor,
    MonolithicPredictor,
    PerFactor,
    StartTokens,
    dictionaries_from,
)

from .scenes import SMALL, TINY, agents, context, factorized, monolithic, pretrained, start_tokens, target_tokens


@torch.no_grad()
def last_level(tokens: Tensor) -> Tensor:
    _, context_index, target_index = context()
    levels: Tensor = pretrained()(tokens, context_index, target_index)[0]
    return levels[..., -TINY.dim :]


def grafted(rank: int, **options: Any) -> FactorizedPredictor:
    made = FactorizedOptions(**{**SMALL, "ranks": (rank, 7, 4), **options})
    return FactorizedPredictor.graft(pretrained(), made, start_tokens()).eval()


@pytest.mark.parametrize("options", [{}, {"injection": "both"}, {"interactions": "motion"}])
@torch.no_grad()
def test_with_rank_of_the_width_the_pretrained_prediction_is_reproduced(options: dict[str, Any]) -> None:
    """fp32 rounding is all that is lost; agents and interactions say nothing yet."""
    answer = grafted(TINY.dim, **options)(*context(), agents())
    torch.testing.assert_close(answer.tokens_BtD, last_level(context()[0]), rtol=1e-5, atol=1e-5)
    assert answer.channels is not None
    assert not answer.channels.agents.any()
    assert not answer.channels.interactions.any()


@pytest.mark.parametrize("rank", [1, 8, 20, 40])
@torch.no_grad()
def test_with_a_lower_rank_it_is_reproduced_within_the_dictionarys_span(rank: int) -> None:
    """The best that any coordinates could do: the orthogonal projection onto the columns of A_L."""
    model, wanted = grafted(rank), last_level(context()[0])
    found = model(*context(), agents()).tokens_BtD
    basis = torch.linalg.svd(model.A_L.matrix(), full_matrices=False).U[:, : min(rank, TINY.dim)]
    torch.testing.assert_close(found, wanted @ basis @ basis.T, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_residual_path_starts_as_what_the_dictionary_cannot_span() -> None:
    answer = grafted(5, residual=True)(*context(), agents())
    torch.testing.assert_close(answer.tokens_BtD, last_level(context()[0]), rtol=1e-5, atol=1e-5)
    assert answer.residual_BtD is not None
    assert float(answer.residual_BtD.abs().max()) > 0.1


@pytest.mark.parametrize("injection", ["none", "late", "early", "both"])
@torch.no_grad()
def test_controls_start_as_the_pretrained_predictor(injection: str) -> None:
    model = monolithic(injection=injection, extra_hidden=8, factor_heads=True)
    found = model(*context(), agents()).tokens_BtD
    torch.testing.assert_close(found, last_level(context()[0]), rtol=1e-5, atol=1e-5)


def test_grafting_copies_and_leaves_the_pretrained_predictor_alone() -> None:
    source = pretrained()
    before = {key: value.clone() for key, value in source.state_dict().items()}
    model = FactorizedPredictor.graft(source, FactorizedOptions(**SMALL), start_tokens())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    assert all(value.equal(before[key]) for key, value in source.state_dict().items())


def test_fresh_parts_follow_the_seed_and_nothing_else() -> None:
    def first(seed: int) -> Tensor:
        model = FactorizedPredictor.graft(pretrained(), FactorizedOptions(**SMALL), start_tokens(), seed=seed)
        return model.agents.g_A.first.weight

    torch.manual_seed(1)
    one = first(4)
    torch.manual_seed(2)
    assert first(4).equal(one)
    assert not first(5).equal(one)


# --- dictionaries


def test_dictionaries_span_the_mean_and_the_largest_directions() -> None:
    tokens = target_tokens()
    directions = dictionaries_from(StartTokens(tokens, None), PerFactor(8, 16, 32), "targets").layout
    torch.testing.assert_close(directions.T @ directions, torch.eye(8), rtol=0, atol=1e-5)
    energy = (tokens @ directions).square().mean(0)
    assert bool((energy[:-1] >= energy[1:]).all())
    best = torch.linalg.svdvals(tokens.double())[:8].square().sum() / len(tokens)
    assert float(energy.sum()) == pytest.approx(float(best), rel=1e-5)


def test_dictionaries_do_not_depend_on_the_order_of_tokens() -> None:
    tokens = target_tokens()
    pairs = (StartTokens(x, None) for x in (tokens, tokens.flip(0)))
    a, b = (dictionaries_from(pair, PerFactor(6, 6, 6), "targets").agents for pair in pairs)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-4)


def test_a_rank_above_the_width_begins_the_directions_again() -> None:
    layout, agent, _ = dictionaries_from(start_tokens(), PerFactor(4, 40, 4), "targets")
    assert agent.shape == (TINY.dim, 40)
    assert agent[:, 32:36].equal(layout)


def test_broken_target_tokens_are_refused() -> None:
    with pytest.raises(TrainingError, match="finite"):
        dictionaries_from(StartTokens(torch.full((4, 8), torch.nan), None), PerFactor(1, 1, 1), "targets")


@torch.no_grad()
def test_a_layout_along_predictions_keeps_more_of_them_than_one_along_targets() -> None:
    predicted = last_level(context()[0]).flatten(0, 1)
    tokens = StartTokens(torch.randn_like(predicted), predicted)

    def lost(start: Any) -> float:
        columns = dictionaries_from(tokens, PerFactor(6, 7, 4), start).layout
        return float((predicted - predicted @ columns @ columns.T).square().mean())

    assert lost("predictions") < 0.8 * lost("targets")


def test_agents_and_interactions_begin_along_what_the_prediction_gets_wrong() -> None:
    generator = torch.Generator().manual_seed(0)
    predicted = torch.randn(200, 12, generator=generator)
    wrong = torch.nn.functional.normalize(torch.randn(12, generator=generator), dim=0)
    tokens = StartTokens(predicted + 3 * torch.randn(200, 1, generator=generator) * wrong, predicted)
    _, agent, interaction = dictionaries_from(tokens, PerFactor(3, 2, 1), "predictions")
    for columns in (agent, interaction):
        assert float((columns[:, 0] @ wrong).abs()) > 0.999


# --- gates and edges


@torch.no_grad()
def test_gates_start_open_at_an_agents_future_place_and_shut_far_away() -> None:
    """One agent in the middle of a token, moving by exactly one token per tubelet."""
    model = factorized()
    seen = agents(count=1, pairs=0)
    seen.geometry_BNG[:] = 0
    seen.geometry_BNG[..., :6] = torch.tensor([0.125, 0.625, 0.2, 0.2, 0.125, 0.0])
    gates = model(*context(), seen).gates_BtN
    assert gates is not None
    # 1.5 and 3.5 frames ahead at an eighth of the picture per frame: x = 0.3125 and 0.5625, in row 2.
    first, second = gates[0, :, 0].view(2, 4, 4)
    assert int(first.argmax()) // 4 == int(second.argmax()) // 4 == 2
    assert int(first.argmax()) % 4 == 1
    assert int(second.argmax()) % 4 == 2
    assert float(first.max()) > 0.7
    assert float(second[0].max()) < 0.05
    assert float(second[2, 0]) > float(second[0, 3])  # it may have stopped where it was


@torch.no_grad()
def test_edges_start_stronger_between_agents_that_will_meet() -> None:
    seen = agents(batch=1, count=3, pairs=2)
    seen.geometry_BNG[:] = 0
    seen.geometry_BNG[0, :, :6] = torch.tensor(
        [[0.4, 0.5, 0.1, 0.1, 0.02, 0.0], [0.6, 0.5, 0.1, 0.1, -0.02, 0.0], [0.2, 0.5, 0.1, 0.1, -0.02, 0.0]]
    )
    seen.pairs_BP2[:] = torch.tensor([[[0, 1], [0, 2]]])  # towards each other, and apart
    strengths = factorized()(*context(batch=1), seen).strengths_BtP
    assert strengths is not None
    meeting, parting = strengths[0].unbind(-1)
    assert bool((meeting > 1.5 * parting).all())
    assert float(meeting.max()) > 0.5


@torch.no_grad()
def test_vitals_tell_living_gates_and_edges_from_dead_ones() -> None:
    model = factorized()
    alive = model(*context(), agents()).vitals()
    assert model.agents.g_V is not None
    model.agents.g_V.last.bias.fill_(-30)
    dead = model(*context(), agents()).vitals()
    assert float(alive["gate_max"]) > 0.3
    assert float(dead["gate_max"]) < 1e-6
    assert float(alive["edge_max"]) > 0.02
    assert float(alive["share_layout"]) == pytest.approx(1.0)
    assert not any(name.startswith("early") for name in alive)


@torch.no_grad()
@pytest.mark.parametrize("make", [factorized, monolithic])
def test_vitals_tell_of_early_injection_too(make: Callable[..., FactorizedPredictor | MonolithicPredictor]) -> None:
    model = make(injection="both")
    alive = model(*context(), agents()).vitals()
    assert float(alive["early_gate_max"]) > 0.3
    assert float(alive["early_edge_max"]) > 0.02
    assert model.early is not None
    assert model.early.pairs is not None
    model.early.pairs.g_W.last.bias.fill_(-30)
    dead = model(*context(), agents()).vitals()
    assert float(dead["early_edge_max"]) < 1e-6 < float(dead["edge_max"])
