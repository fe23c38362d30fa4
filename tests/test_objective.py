"""The five terms against slow literal transcriptions of their equations; gradients; what empty evidence does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from factorjepa import objective as terms
from factorjepa.errors import TrainingError
from factorjepa.objective import FactorTargets, LossWeights, objective
from factorjepa.predictors import PerFactor, Prediction
from factorjepa.teacher.states import GEOMETRY, ObjectStates

DOUBLE = torch.float64


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def shares(*shape: int, seed: int = 0) -> Tensor:
    return numbers(*shape, seed=seed).sigmoid()


def three(*shape: int, seed: int = 0) -> PerFactor[Tensor]:
    return PerFactor(*(numbers(*shape, seed=seed + k) for k in range(3)))


def states(valid: Tensor, slot: Tensor, pair_valid: Tensor) -> ObjectStates:
    clips, agents = valid.shape
    return ObjectStates(
        torch.zeros(clips, agents, 4), torch.zeros(clips, agents, len(GEOMETRY)), valid, slot,
        torch.zeros(*pair_valid.shape, 2, dtype=torch.long), pair_valid, 12,
    )  # fmt: skip


# --- against the equations, read aloud


@pytest.mark.parametrize("exponent", [1, 2])
def test_jepa_is_the_papers_sum_over_dimensions_divided_by_them(exponent: int) -> None:
    predicted, wanted = numbers(2, 3, 5), numbers(2, 3, 5, seed=1)
    summed = 0.0
    for n in range(2):
        for p in range(3):
            for d in range(5):
                summed += abs(float(predicted[n, p, d] - wanted[n, p, d])) ** exponent
    assert float(terms.jepa_loss(predicted, wanted, exponent)) == pytest.approx(summed / (2 * 3) / 5, rel=1e-12)


def test_factor_supervision_is_the_reliability_normalised_sum() -> None:
    predicted, wanted = three(4, 6), three(4, 6, seed=9)
    weights = PerFactor(torch.tensor([0.5, 0.0, 1.0, 0.2]), torch.tensor([0.0, 0.9, 0.0, 0.0]), torch.zeros(4))
    expected = 0.0
    for k in range(3):
        above = below = 0.0
        for n in range(4):
            error = sum(float(predicted[k][n, i] - wanted[k][n, i]) ** 2 for i in range(6)) / 6
            above += float(weights[k][n]) * error
            below += float(weights[k][n])
        expected += above / (1e-6 + below)
    assert float(terms.factor_loss(predicted, wanted, weights)) == pytest.approx(expected, rel=1e-6)


def test_visibility_is_the_weighted_cross_entropy_of_the_most_open_gate() -> None:
    logits = numbers(2, 5, 3, scale=2)
    valid = torch.tensor([[True, True, False], [True, True, True]])
    slot = torch.tensor([[4, 1, 0], [0, 2, -1]])  # agents of the packet, in another order than the predictor's
    wanted, weight = shares(2, 5, seed=1), shares(2, 5, seed=2)
    above = below = 0.0
    for n in range(2):
        for i in range(3):
            if not valid[n, i] or slot[n, i] < 0:
                continue
            v = max(1 / (1 + math.exp(-float(logits[n, p, i]))) for p in range(5))
            t, q = float(wanted[n, slot[n, i]]), float(weight[n, slot[n, i]])
            above -= q * (t * math.log(v) + (1 - t) * math.log(1 - v))
            below += q
    found = terms.visibility_loss(logits, valid, slot, wanted, weight)
    assert float(found) == pytest.approx(above / (1e-6 + below), rel=1e-9)


def test_sparsity_is_the_mean_strength_of_each_clips_own_pairs() -> None:
    strengths = shares(3, 4, 5)
    valid = torch.tensor([[True] * 5, [True, True, False, False, False], [False] * 5])
    expected = 0.0
    for n in range(3):
        pairs = [ij for ij in range(5) if valid[n, ij]]
        w = sum(sum(float(strengths[n, p, ij]) for p in range(4)) / 4 for ij in pairs)
        expected += w / max(1, len(pairs)) / 3
    assert float(terms.sparsity_loss(strengths, valid)) == pytest.approx(expected, rel=1e-12)


def literal_rows(channel: Tensor) -> list[list[float]]:
    rows = [[float(x) for x in row] for row in channel.flatten(0, 1)]
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    rows = [[x - m for x, m in zip(row, means, strict=True)] for row in rows]
    length = math.sqrt(sum(x * x for row in rows for x in row) / len(rows) + 1e-2)
    return [[x / length for x in row] for row in rows]


def covariance(channels: PerFactor[Tensor]) -> Tensor:
    return terms.covariance_loss(terms.variance_normalised(channels))


def nonlinear(channels: PerFactor[Tensor], **how: int) -> Tensor:
    return terms.nonlinear_loss(terms.variance_normalised(channels), **how)


def test_covariance_is_the_off_block_norm_of_normalised_channels() -> None:
    channels = three(2, 4, 3, seed=3)
    rows = [literal_rows(channel) for channel in channels]
    expected = 0.0
    for k in range(3):
        for other in range(k + 1, 3):
            for a in range(3):
                for b in range(3):
                    gamma = sum(x[a] * y[b] for x, y in zip(rows[k], rows[other], strict=True)) / 8
                    expected += 2 * gamma**2
    assert float(covariance(channels)) == pytest.approx(expected, rel=1e-12)


def test_nonlinear_leakage_is_the_centred_rbf_alignment() -> None:
    channels = three(2, 3, 4, seed=5)
    n = 6
    centring = torch.eye(n, dtype=DOUBLE) - torch.full((n, n), 1 / n, dtype=DOUBLE)
    kernels = []
    for channel in channels:
        rows = literal_rows(channel)
        distance = [[math.dist(x, y) for y in rows] for x in rows]
        apart = sorted(distance[i][j] for i in range(n) for j in range(i + 1, n))
        variance = apart[(len(apart) - 1) // 2] ** 2 + 1e-2
        gram = torch.tensor([[math.exp(-(d**2) / (2 * variance)) for d in row] for row in distance], dtype=DOUBLE)
        kernels.append(centring @ gram @ centring / n)
    expected = sum(
        float(torch.trace(kernels[k] @ kernels[j]) / (kernels[k].norm() * kernels[j].norm() + 1e-3))
        for k in range(3)
        for j in range(k + 1, 3)
    )
    assert float(nonlinear(channels)) == pytest.approx(expected, rel=1e-9)
    both = covariance(channels) + 0.1 * expected
    assert float(terms.separation_loss(channels, 0.1)) == pytest.approx(float(both), rel=1e-9)


# --- what the terms are for


def test_dependence_that_covariance_cannot_see_is_seen_by_the_kernels() -> None:
    x = numbers(1, 200, 1)
    independent = PerFactor(x, numbers(1, 200, 1, seed=1), numbers(1, 200, 1, seed=2))
    folded = PerFactor(x, x.square() - 1, numbers(1, 200, 1, seed=2))
    assert nonlinear(folded) > 3 * nonlinear(independent)
    copied = PerFactor(x, x, numbers(1, 200, 1, seed=2))
    assert covariance(copied) > 20 * covariance(independent)


def test_drawn_rows_follow_the_seed_and_nothing_else() -> None:
    channels = three(4, 100, 3)
    first = nonlinear(channels, most=64, seed=1)
    torch.manual_seed(99)
    assert nonlinear(channels, most=64, seed=1).equal(first)
    assert not nonlinear(channels, most=64, seed=2).equal(first)


def test_targets_are_layer_normalised_without_affine_and_without_gradient() -> None:
    tokens = (3 + 5 * numbers(2, 4, 32)).requires_grad_()
    wanted = terms.normalised_targets(tokens)
    torch.testing.assert_close(wanted.mean(-1), torch.zeros(2, 4, dtype=DOUBLE), rtol=0, atol=1e-9)
    torch.testing.assert_close(wanted.var(-1, correction=0), torch.ones(2, 4, dtype=DOUBLE), rtol=1e-4, atol=0)
    assert not wanted.requires_grad


# --- gradients


def gradcheck(function: object, *inputs: Tensor) -> bool:
    return torch.autograd.gradcheck(function, [x.clone().requires_grad_() for x in inputs])


def test_gradients_are_those_of_the_terms() -> None:
    wanted, weight = three(2, 4, seed=7), PerFactor(*(shares(2, seed=k) for k in range(3)))
    valid, slot = torch.tensor([[True, False], [True, True]]), torch.tensor([[1, 0], [0, 1]])
    target, reliability = shares(2, 2, seed=1), shares(2, 2, seed=2)
    assert gradcheck(lambda y: terms.jepa_loss(y, numbers(2, 3, 4, seed=1), 1), numbers(2, 3, 4))
    assert gradcheck(lambda y: terms.jepa_loss(y, numbers(2, 3, 4, seed=1), 2), numbers(2, 3, 4))
    assert gradcheck(lambda *t: terms.factor_loss(PerFactor(*t), wanted, weight), *three(2, 4))
    assert gradcheck(lambda g: terms.visibility_loss(g, valid, slot, target, reliability), numbers(2, 3, 2))
    assert gradcheck(lambda w: terms.sparsity_loss(w, torch.tensor([[True, False], [True, True]])), numbers(2, 3, 2))
    assert gradcheck(lambda *y: covariance(PerFactor(*y)), *three(2, 3, 4))


def test_the_kernels_bandwidth_carries_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the median replaced by a constant, analytic and numeric gradients agree, and are those of the real one."""
    channels = three(2, 3, 4)
    live = [channel.clone().requires_grad_() for channel in channels]
    nonlinear(PerFactor(*live)).backward()
    found: list[Any] = []
    original = Tensor.median
    monkeypatch.setattr(Tensor, "median", lambda x, dim: found.append(original(x, dim=dim)) or found[-1])
    nonlinear(channels)

    def with_fixed_bandwidths(*y: Tensor) -> Tensor:
        return nonlinear(PerFactor(*y))

    monkeypatch.setattr(Tensor, "median", lambda x, dim: found[0])
    assert gradcheck(with_fixed_bandwidths, *channels)
    fixed = [channel.clone().requires_grad_() for channel in channels]
    with_fixed_bandwidths(*fixed).backward()
    for a, b in zip(live, fixed, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@given(scale=st.floats(-12, 3), seed=st.integers(0, 5))
def test_separation_never_pulls_hard_on_a_channel_however_small(scale: float, seed: int) -> None:
    """g_A and g_I start at zero. A channel that has just left it must not be thrown about by L_sep."""
    first, second, _ = three(2, 16, 8, seed=seed)
    small = numbers(2, 16, 8, seed=seed + 2, scale=10**scale).requires_grad_()
    terms.separation_loss(PerFactor(first, second, small), 0.1).backward()
    assert small.grad is not None
    assert float(small.grad.norm()) < 10


@given(
    clips=st.integers(1, 3), tokens=st.integers(1, 4), agents=st.integers(0, 3), pairs=st.integers(0, 4),
    packet=st.integers(0, 3), seed=st.integers(0, 100), dtype=st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_without_evidence_every_supervised_term_is_exactly_zero_with_zero_gradient(
    clips: int, tokens: int, agents: int, pairs: int, packet: int, seed: int, dtype: torch.dtype
) -> None:
    """No agents, no pairs, or agents and pairs that are all padding, and reliabilities of zero."""
    logits = numbers(clips, tokens, agents, seed=seed, scale=30).to(dtype).requires_grad_()
    strengths = numbers(clips, tokens, pairs, seed=seed).to(dtype).sigmoid().requires_grad_()
    nothing, slot = torch.zeros(clips, agents, dtype=torch.bool), torch.zeros(clips, agents, dtype=torch.long)
    heads = PerFactor(*(numbers(clips, 4, seed=seed + k).to(dtype).requires_grad_() for k in range(3)))
    unreliable = PerFactor(*(torch.zeros(clips, dtype=dtype) for _ in range(3)))
    unseen = shares(clips, packet, seed=seed).to(dtype), torch.zeros(clips, packet, dtype=dtype)
    losses = (
        terms.visibility_loss(logits, nothing, slot, unseen[0], unseen[1]),
        terms.visibility_loss(logits, ~nothing, slot, unseen[0], unseen[1]),
        terms.sparsity_loss(strengths, torch.zeros(clips, pairs, dtype=torch.bool)),
        terms.factor_loss(heads, three(clips, 4), unreliable),
    )
    for loss in losses:
        assert float(loss.detach()) == 0.0
    torch.stack([loss.to(DOUBLE) for loss in losses]).sum().backward()
    for leaf in (logits, strengths, *heads):
        assert leaf.grad is not None
        assert not leaf.grad.any()
        assert not leaf.grad.isnan().any()


@given(seed=st.integers(0, 20), dead=st.lists(st.integers(0, 2), min_size=2, max_size=3))
def test_channels_that_say_nothing_are_separated_at_no_cost(seed: int, dead: list[int]) -> None:
    live = [numbers(2, 5, 4, seed=seed + k) * (k not in dead) for k in range(3)]
    if len(set(dead)) < 2:
        live[(dead[0] + 1) % 3] = torch.zeros(2, 5, 4, dtype=DOUBLE)
    live = [channel.requires_grad_() for channel in live]
    loss = terms.separation_loss(PerFactor(*live), 0.1)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert all(not x.grad.any() and not x.grad.isnan().any() for x in live if x.grad is not None)


def moving(geometry: list[list[float]], valid: list[bool], slot: list[int]) -> ObjectStates:
    """One clip; of each agent centre, velocity and gap."""
    made = states(torch.tensor([valid]).bool(), torch.tensor([slot]).long(), torch.zeros(1, 0).bool())
    for agent, (x, y, vx, vy, gap) in enumerate(geometry):
        for name, value in (("centre_x", x), ("centre_y", y), ("velocity_x", vx), ("velocity_y", vy), ("gap", gap)):
            made.geometry_BNG[0, agent, GEOMETRY.index(name)] = value
    return made


def test_places_are_missed_by_what_a_state_goes_wrong_within_the_frames_that_show_its_agent() -> None:
    """Agent 2 of the packet stands still and its state has it move; agent 0 was last seen three frames ago.

    Where the states put them does not matter: of a box that a mask has cut the centre is another.
    """
    geometry = [[0.4, 0.6, 0.02, 0.0, 0.0], [0.2, 0.2, 0.0, 0.01, 3 / 12], [0.9, 0.9, 0.0, 0.0, 0.0]]
    said = moving(geometry, [True, True, False], [2, 0, 1])
    places, known = torch.rand(1, 3, 16, 2), torch.zeros(1, 3, 16).bool()
    places[0, 2] = 0.5
    known[0, 2, [11, 12, 15]] = True
    places[0, 0, 8:] = torch.tensor([[0.3, 0.3 + 0.01 * frame] for frame in range(8, 16)])
    known[0, 0, 8], known[0, 0, 12:] = True, True
    known[0, 1] = True  # of the agent that is padding
    missed = (0.02 * 1 / 2 + 0.02 * 4 / 2) / 0.02  # mean over x and y, in units of 0.02 sides
    assert float(terms.places_loss(said, places, known)) == pytest.approx(missed / 6, rel=1e-4)
    assert float(terms.places_loss(said, places, torch.zeros_like(known))) == 0.0
    nobody = moving([], [], [])
    assert float(terms.places_loss(nobody, places, known)) == 0.0


def test_places_teach_whoever_says_how_agents_move() -> None:
    said = moving([[0.5, 0.5, 0.02, 0.0, 0.0]], [True], [0])
    said.geometry_BNG.requires_grad_()
    terms.places_loss(said, torch.full((1, 1, 16, 2), 0.5), torch.ones(1, 1, 16).bool()).backward()
    assert said.geometry_BNG.grad is not None
    assert float(said.geometry_BNG.grad[0, 0, GEOMETRY.index("velocity_x")]) > 0  # it is too fast
    assert float(said.geometry_BNG.grad[0, 0, GEOMETRY.index("centre_x")]) == pytest.approx(0.0, abs=1e-6)


# --- the whole


def whole() -> tuple[Prediction, Tensor, FactorTargets]:
    valid = torch.tensor([[True, True, False], [True, False, False]])
    pair_valid = torch.tensor([[True, True], [False, False]])
    prediction = Prediction(
        tokens_BtD=numbers(2, 4, 6), channels=three(2, 4, 6), factor_targets=three(2, 5, seed=4),
        gate_logits_BtN=numbers(2, 4, 3), strengths_BtP=numbers(2, 4, 2).sigmoid() * pair_valid[:, None],
        states=states(valid, torch.arange(3).expand(2, 3), pair_valid),
    )  # fmt: skip
    reliable = PerFactor(torch.ones(2), torch.tensor([1.0, 0.0]), torch.tensor([0.3, 0.0]))
    wanted = FactorTargets(
        three(2, 5, seed=8), reliable, shares(2, 3, seed=5), shares(2, 3, seed=6),
        shares(2, 3, 16, 2, seed=7), torch.ones(2, 3, 16).bool(),
    )  # fmt: skip
    return prediction, numbers(2, 4, 6, seed=2), wanted


def test_the_total_keeps_the_equations_ratios_at_the_scale_of_a_mean_over_dimensions() -> None:
    """Times D it is the paper's objective: L_JEPA summed over D, and its coefficients on the rest."""
    prediction, target, wanted = whole()
    found = objective(prediction, target, wanted)
    paper = (
        found.jepa * 6 + 0.05 * found.separation + 0.01 * found.sparsity + 0.25 * found.visibility + 1.0 * found.factor
    )
    assert float(found.total * 6) == pytest.approx(float(paper), rel=1e-9)
    assert all(float(getattr(found, name)) > 0 for name in ("jepa", "factor", "visibility", "separation", "sparsity"))


def test_places_count_only_where_they_are_asked_for() -> None:
    prediction, target, wanted = whole()
    without, told = (objective(prediction, target, wanted, LossWeights(places=weight)) for weight in (0.0, 2.0))
    assert float(without.places) == 0.0 < float(told.places)
    assert float(told.total - without.total) == pytest.approx(2.0 * float(told.places) / 6, rel=1e-6)


def test_raw_trains_without_the_teachers_terms() -> None:
    prediction, target, wanted = whole()
    raw = objective(prediction, target, wanted, LossWeights(factor=0, visibility=0))
    unsupervised = objective(prediction, target, None)
    assert raw.total.equal(unsupervised.total)
    assert float(raw.factor) == float(raw.visibility) == 0.0
    assert float(raw.sparsity) > 0
    assert float(raw.separation) > 0


def test_a_monolithic_prediction_is_judged_by_l_jepa_alone() -> None:
    _, target, wanted = whole()
    found = objective(Prediction(tokens_BtD=numbers(2, 4, 6)), target, wanted)
    assert found.total.equal(found.jepa)


def test_bf16_predictions_are_compared_in_fp32() -> None:
    predicted = torch.full((1, 1, 4096), 1.0, dtype=torch.bfloat16)
    assert float(terms.jepa_loss(predicted, torch.full((1, 1, 4096), 1.001))) == pytest.approx(0.001, rel=1e-3)


@pytest.mark.parametrize(("field", "value"), [("exponent", 3), ("sparsity", -0.1)])
def test_weights_that_make_no_sense_are_refused(field: str, value: float) -> None:
    with pytest.raises(TrainingError, match=field):
        LossWeights(**{field: value})  # type: ignore[arg-type]
