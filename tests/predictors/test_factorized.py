"""The factorized predictor: what its equations promise, whatever the weights."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from factorjepa.backbones.spec import resolve
from factorjepa.errors import TrainingError
from factorjepa.objective import objective
from factorjepa.predictors import (
    FactorizedOptions,
    FactorizedPredictor,
    LatentPredictor,
    PerFactor,
    StartTokens,
    no_agents,
)
from factorjepa.predictors.agents import AgentView
from factorjepa.predictors.branches import _stretches
from factorjepa.predictors.query import Question
from factorjepa.teacher.states import ObjectStates

from .scenes import SMALL, TINY, agents, awake, context, factorized, monolithic, pretrained, start_tokens, target_tokens

EVERY: list[dict[str, Any]] = [
    {},
    {"injection": "early"},
    {"injection": "both"},
    {"interactions": "motion"},
    {"interactions": "motion", "own_motion": True},
    {"interactions": "off"},
    {"carried": True, "recalled": True},
    {"visibility": "open"},
    {"residual": True},
    {"gate_prior": False, "edge_prior": False, "relative_geometry": False, "normalise_states": False},
    {"agents": "slots", "slots": 5, "slot_neighbours": 2},
]
CONTROLS: list[dict[str, Any]] = [
    {},
    {"factor_heads": True},
    {"injection": "late"},
    {"injection": "early", "factor_heads": True},
    {"injection": "both", "extra_hidden": 8},
    {"injection": "both", "interactions": "motion", "own_motion": True},
    {"recalled": True},
    {"injection": "late", "direct": True, "carried": True, "recalled": True},
]


def name(options: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in options.items()) or "default"


every_predictor = pytest.mark.parametrize(
    "predictor",
    [pytest.param(lambda o=o: awake(factorized(**o)), id=f"factorized {name(o)}") for o in EVERY]
    + [pytest.param(lambda o=o: awake(monolithic(**o)), id=f"monolithic {name(o)}") for o in CONTROLS],
)


# --- the equations


def fused(view: AgentView, query: Tensor, n: int, i: int, p: int) -> Tensor:
    """u = q + E(o) + R(geometry) + K(what the agent brings) of one clip, agent and token."""
    assert view.relative_BNtR is not None
    u = query[n, p] + view.embedded_BNW[n, i] + view.relative_WR @ view.relative_BNtR[n, i, p]
    return u if view.seen_BnW is None else u + view.origin_BNtn[n, i, p] @ view.seen_BnW[n]


@pytest.mark.parametrize("carried", [False, True])
@torch.no_grad()
def test_branches_by_parts_are_the_papers_equations_on_fused_states(carried: bool) -> None:
    """c_A and c_I, token by token and agent by agent, with the 2W wide pair states written out."""
    model = factorized(gate_prior=False, edge_prior=False, carried=carried)
    awake(model)
    query = torch.randn(2, 32, 24, generator=torch.Generator().manual_seed(1))
    seen = agents()
    tokens, context_index, target_index = context()
    view = model.reader(Question(tokens, context_index, target_index, seen, (8, 4, 4), None))
    c_A, logits = model.agents(query, view)
    c_I, strengths = model.interactions(query, view)  # type: ignore[misc]
    g_A, g_V = model.agents.g_A, model.agents.g_V
    pairs = model.interactions.pairs  # type: ignore[union-attr]
    gelu = torch.nn.functional.gelu

    def mlp(head: Any, u: Tensor) -> Tensor:
        result: Tensor = head.last(gelu(head.first(u)))
        return result

    for n in range(2):
        for p in (0, 13, 31):
            above, below = torch.zeros(7), 0.3
            for i in range(5):
                u = fused(view, query, n, i, p)
                v = torch.sigmoid(mlp(g_V, u))
                torch.testing.assert_close(torch.sigmoid(logits[n, p, i]), v[0])
                above, below = above + v * mlp(g_A, u), below + v
            torch.testing.assert_close(c_A[n, p], above / below)
            expected = torch.zeros(4)
            for k in range(7):
                i, j = seen.pairs_BP2[n, k].tolist()
                u = torch.cat((fused(view, query, n, i, p), fused(view, query, n, j, p)))
                u = u + view.relation_VF @ view.relation_BPF[n, k]
                e, w = mlp(pairs.g_I, u), torch.sigmoid(mlp(pairs.g_W, u))
                torch.testing.assert_close(strengths[n, p, k], w[0])
                expected = expected + w * e / (0.1 + e.norm()) / 7
            torch.testing.assert_close(c_I[n, p], expected, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_the_prediction_is_the_sum_of_coordinates_times_dictionaries() -> None:
    model = factorized()
    answer = awake(model)(*context(), agents())
    assert answer.coordinates is not None
    assert answer.channels is not None
    summed = sum(c @ a.matrix().T for c, a in zip(answer.coordinates, (model.A_L, model.A_A, model.A_I), strict=True))
    torch.testing.assert_close(answer.tokens_BtD, summed)
    assert all(float(channel.abs().max()) > 1e-3 for channel in answer.channels)
    pooled = answer.coordinates.agents.mean(1) @ model.heads.P_A.weight.T
    torch.testing.assert_close(answer.factor_targets.agents, pooled)  # type: ignore[union-attr]


# --- evidence


@every_predictor
@torch.no_grad()
def test_the_order_of_agents_and_pairs_does_not_matter(predictor: Any) -> None:
    model, seen = predictor(), agents()
    order, pair_order = torch.tensor([3, 0, 4, 1, 2]), torch.tensor([6, 2, 0, 5, 1, 3, 4])
    place = order.argsort()
    mixed = ObjectStates(
        seen.descriptor_BNE[:, order], seen.geometry_BNG[:, order], seen.valid_BN[:, order], seen.slot_BN[:, order],
        place[seen.pairs_BP2[:, pair_order]], seen.pair_valid_BP[:, pair_order], 12,
    )  # fmt: skip
    a, b = model(*context(), seen), model(*context(), mixed)
    torch.testing.assert_close(a.tokens_BtD, b.tokens_BtD, rtol=1e-5, atol=2e-6)


def padded(seen: ObjectStates, count: int, pairs: int, junk: float) -> ObjectStates:
    def extended(x: Tensor, extra: int, value: float) -> Tensor:
        return torch.cat((x, torch.full((len(x), extra, *x.shape[2:]), value, dtype=x.dtype)), dim=1)

    return ObjectStates(
        extended(seen.descriptor_BNE, count, junk), extended(seen.geometry_BNG, count, junk),
        extended(seen.valid_BN, count, 0), extended(seen.slot_BN, count, 0), extended(seen.pairs_BP2, pairs, 0),
        extended(seen.pair_valid_BP, pairs, 0), seen.context,
    )  # fmt: skip


@every_predictor
@pytest.mark.parametrize("junk", [0.0, 7.0])
@torch.no_grad()
def test_padding_changes_nothing(predictor: Any, junk: float) -> None:
    model, seen = predictor(), agents()
    a, b = model(*context(), seen), model(*context(), padded(seen, 3, 6, junk))
    torch.testing.assert_close(a.tokens_BtD, b.tokens_BtD, rtol=1e-6, atol=1e-6)
    if a.states is not None and model.options.agents == "tracklets":
        if b.gates_BtN is not None:
            assert not b.gates_BtN[..., 5:].any()
        if b.strengths_BtP is not None:
            assert not b.strengths_BtP[..., 7:].any()
            assert bool((b.strengths_BtP[..., :7] > 0).all())


@pytest.mark.parametrize("options", [{}, {"injection": "both"}, {"interactions": "motion"}], ids=name)
def test_an_empty_graph_gives_an_exactly_zero_interaction_channel(options: dict[str, Any]) -> None:
    """Alone, beside a clip that has pairs, and without room for pairs at all; gradients stay finite."""
    model = awake(factorized(**options))
    seen = agents()
    half = dataclasses.replace(seen, pair_valid_BP=seen.pair_valid_BP & torch.tensor([[True], [False]]))
    none = dataclasses.replace(seen, pairs_BP2=seen.pairs_BP2[:, :0], pair_valid_BP=seen.pair_valid_BP[:, :0])
    for given, empty in ((half, [1]), (none, [0, 1])):
        answer = model(*context(), given)
        assert answer.channels is not None
        assert answer.coordinates is not None
        assert not answer.channels.interactions[empty].any()
        assert not answer.coordinates.interactions[empty].any()
        assert bool(answer.channels.agents[empty].any())
        answer.tokens_BtD.square().mean().backward()
        assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)
    assert bool(model(*context(), half).channels.interactions[0].any())


@pytest.mark.parametrize("options", [{}, {"injection": "both"}, {"visibility": "open"}], ids=name)
def test_without_agents_only_layout_speaks(options: dict[str, Any]) -> None:
    model = awake(factorized(**options))
    absent = dataclasses.replace(agents(), valid_BN=torch.zeros(2, 5, dtype=torch.bool))
    absent = dataclasses.replace(absent, pair_valid_BP=torch.zeros(2, 7, dtype=torch.bool))
    answers = [model(*context(), given) for given in (no_agents(2, 6, 12), absent)]
    for answer in answers:
        assert not answer.channels.agents.any()
        assert not answer.channels.interactions.any()
        assert answer.tokens_BtD.equal(answer.channels.layout)
        answer.tokens_BtD.square().mean().backward()
        assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)
        assert all(bool(torch.isfinite(value)) for value in answer.vitals().values())
    torch.testing.assert_close(answers[0].tokens_BtD, answers[1].tokens_BtD, rtol=0, atol=1e-6)


@every_predictor
@torch.no_grad()
def test_a_prediction_depends_on_its_own_clips_context_and_states_only(predictor: Any) -> None:
    """The whole signature is context, positions and states: there is no argument that could carry the future."""
    model: LatentPredictor = predictor()
    assert list(inspect.signature(model.forward).parameters) == [
        "context", "context_index", "target_index", "states", "grid", "mask_token",
    ]  # fmt: skip
    tokens, context_index, target_index = context()
    other = tokens.clone()
    other[1] = context(seed=4)[0][1]
    stranger, seen = agents(seed=9), agents()
    mixed = ObjectStates(
        *(torch.stack((getattr(seen, f.name)[0], getattr(stranger, f.name)[1]))
          for f in dataclasses.fields(seen) if isinstance(getattr(seen, f.name), Tensor)), context=12,
    )  # fmt: skip
    a = model(tokens, context_index, target_index, seen).tokens_BtD
    b = model(other, context_index, target_index, mixed).tokens_BtD
    torch.testing.assert_close(a[0], b[0], rtol=0, atol=1e-6)
    assert float((a[1] - b[1]).abs().max()) > 1e-3


def test_states_are_asked_for_and_their_width_is_checked() -> None:
    model = factorized()
    with pytest.raises(TrainingError, match="no_agents"):
        model(*context())
    with pytest.raises(TrainingError, match="descriptor_width"):
        model(*context(), agents(width=9))


@torch.no_grad()
def test_motion_lets_a_partner_move_an_agents_box() -> None:
    """The agent channel of an agent changes with its partner's state; additive interactions leave it alone."""
    seen = agents()
    seen = dataclasses.replace(seen, pairs_BP2=torch.tensor([[[0, 1]]] * 2), pair_valid_BP=torch.ones(2, 1).bool())
    moved = seen.geometry_BNG.clone()
    moved[:, 1, 4:6] += 0.05
    for interactions, same in (("additive", True), ("motion", False)):
        model = awake(factorized(interactions=interactions))
        before, after = model(*context(), seen), model(*context(), dataclasses.replace(seen, geometry_BNG=moved))
        assert before.states.geometry_BNG[:, 0].equal(after.states.geometry_BNG[:, 0]) is same
        assert before.gate_logits_BtN[..., 0].equal(after.gate_logits_BtN[..., 0]) is same


@torch.no_grad()
def test_an_agent_without_partners_moves_by_its_own_state_where_it_may() -> None:
    alone = dataclasses.replace(agents(), pair_valid_BP=torch.zeros(2, 7).bool())
    for own, same in ((False, True), (True, False)):
        model = awake(factorized(interactions="motion", own_motion=own))
        assert model(*context(), alone).states.geometry_BNG.equal(alone.geometry_BNG) is same
        fresh = factorized(interactions="motion", own_motion=own)  # nothing has been learned: as it went
        assert fresh(*context(), alone).states.geometry_BNG.equal(alone.geometry_BNG)
    with pytest.raises(TrainingError, match="own_motion needs interactions: motion"):
        FactorizedOptions(own_motion=True)


@torch.no_grad()
def test_slots_share_the_tokens_and_follow_what_they_hold() -> None:
    """Shift what lies in the picture: slots that depend on content and place move with it."""
    model = awake(factorized(agents="slots", slots=5, slot_neighbours=2))
    tokens, context_index, target_index = context()
    answer = model(tokens, context_index, target_index)
    assert answer.states is not None
    boxes = answer.states.geometry_BNG
    assert bool(((boxes[..., :2] > -0.5) & (boxes[..., :2] < 1.5)).all())
    assert bool((boxes[..., 2:4] >= 0.25 - 1e-6).all())  # never narrower than a token
    i, j = answer.states.pairs_BP2.unbind(-1)
    assert bool((i != j).all())
    assert not model(context(seed=3)[0], context_index, target_index).states.geometry_BNG.equal(boxes)


# --- sizes


class Made(TorchDispatchMode):
    """Numbers that operations make: all together, and the largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, Tensor):
                self.numel += part.numel()
                self.largest = max(self.largest, part.numel())
        return result


@pytest.mark.parametrize("injection", ["late", "early", "both"])
@pytest.mark.parametrize("build", [factorized, monolithic], ids=["factorized", "monolithic"])
def test_fused_pair_states_are_never_made(build: Any, injection: str) -> None:
    """Forward and backward: nothing as large as tokens x pairs x 2W, nor even as tokens x pairs x hidden.

    What does exist are the hidden states of one chunk of pairs and the W1-mapped parts of agents.
    """
    pairs, chunk, hidden, tokens = 96, 4, 16, 32
    model = awake(build(injection=injection, pair_chunk=chunk))
    with Made() as seen:
        model(*context(batch=1), agents(batch=1, pairs=pairs)).tokens_BtD.square().mean().backward()
    assert seen.largest < tokens * pairs * hidden / 2 < tokens * pairs * 2 * TINY.predictor_dim
    assert seen.largest >= tokens * chunk * hidden


def uneven(pairs: int = 40) -> ObjectStates:
    """Clips with 3, no, all and 17 pairs."""
    counts = (3, 0, pairs, 17)
    seen = agents(batch=4, pairs=pairs)
    valid = torch.arange(pairs) < torch.tensor(counts)[:, None]
    return dataclasses.replace(seen, pair_valid_BP=valid, pair_counts=counts)


@pytest.mark.parametrize("injection", ["late", "both"])
@pytest.mark.parametrize("build", [factorized, monolithic], ids=["factorized", "monolithic"])
def test_padding_behind_a_clips_pairs_is_left_out_and_changes_nothing(build: Any, injection: str) -> None:
    model, answers, made = awake(build(injection=injection, pair_chunk=16)), [], []
    for seen in (uneven(), dataclasses.replace(uneven(), pair_counts=None)):
        model.zero_grad()
        with Made() as work:
            answer = model(*context(batch=4), seen)
        answer.tokens_BtD.square().mean().backward()
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        answers.append((answer.tokens_BtD, answer.strengths_BtP, grads))
        made.append(work.numel)
    torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-5)  # rounding differs from CPU to CPU
    assert made[0] < 0.85 * made[1]  # the transformer and what is made of every agent stay


def test_stretches_hold_every_pair_once_and_leave_out_most_padding() -> None:
    counts, chunk = (104, 64, 50, 40, 33, 27, 20, 12, 8, 3, 0, 0), 64
    found = list(_stretches(counts, 110, chunk))
    assert [first for first, _, _ in found] == [0, *(last for _, last, _ in found[:-1])]
    assert found[-1][1] == 104
    assert all(last - first <= chunk for first, last, _ in found)
    for first, _, clips in found:
        assert all(count <= first for count in counts[clips:])
    places = sum((last - first) * clips for first, last, clips in found)
    assert sum(counts) <= places < 1.7 * sum(counts) < 0.6 * 104 * len(counts)
    assert list(_stretches((64, 64), 64, 64)) == [(0, 64, 2)]  # where nothing is padding, nothing is cut
    assert list(_stretches((0, 0), 5, 64)) == [(0, 5, 2)]  # parameters get their gradient without pairs, too


def test_recomputing_pair_chunks_changes_memory_not_gradients() -> None:
    plain, frugal = awake(factorized(injection="both")), awake(factorized(injection="both"))
    frugal.set_recompute(True)
    kept = {}
    for model in (plain, frugal):
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, s=sizes: s.append(x.nbytes) or x, lambda x: x):
            loss = model(*context(), agents(pairs=60)).tokens_BtD.square().mean()
        loss.backward()
        kept[model] = sum(sizes)
    for a, b in zip(plain.parameters(), frugal.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert kept[frugal] < 0.5 * kept[plain]


@pytest.mark.parametrize(
    ("arch", "released"), [("vjepa2_1_vit_giant_384", 55_400_704), ("vjepa2_1_vit_gigantic_384", 59_433_472)]
)
def test_parameter_counts_at_released_sizes(arch: str, released: int) -> None:
    """The released predictor without its two projections, and Panel B's branches, counted by hand."""
    spec = resolve(arch)
    with torch.device("meta"):
        model = FactorizedPredictor(spec)
    q, h, d = 384, 256, spec.dim
    projections = 2 * (q + 1) * 4 * d
    states = (64 + 14 + 1) * q + (q + 1) * q + 2 * q + 10 * q + 12 * 2 * q
    branches = (q + 1) * 64 + (q + 1) * h + (h + 1) * 96 + (q + 1) * h + (h + 1)
    pairs = (2 * q + 1) * h + (h + 1) * 64 + (2 * q + 1) * h + (h + 1)
    synthesis = 224 * d + 3 + 224 * 256
    expected = released - projections + states + branches + pairs + synthesis
    assert sum(p.numel() for p in model.parameters()) == expected
    assert model.g_L.weight.shape == (64, 384)
    assert model.agents.g_V is not None
    assert [model.agents.g_V.first.weight.shape, model.agents.g_V.last.weight.shape] == [(256, 384), (1, 256)]
    assert model.interactions is not None
    assert model.interactions.pairs.g_W.first.weight.shape == (256, 768)
    assert [d.directions.shape[1] for d in (model.A_L, model.A_A, model.A_I)] == [64, 96, 64]


# --- running


@pytest.mark.parametrize(
    "build",
    [lambda: factorized(), lambda: factorized(injection="both", interactions="motion"),
     lambda: factorized(agents="slots", slots=5, slot_neighbours=2), lambda: monolithic(injection="both")],
    ids=["late", "both and motion", "slots", "monolithic"],
)  # fmt: skip
@torch.no_grad()
def test_forward_is_one_graph(build: Any) -> None:
    """`fullgraph=True` raises at the first break; the eager backend tells it without compiling kernels."""
    model = awake(build())
    expected = model(*context(), agents())
    compiled: Any = torch.compile(model, fullgraph=True, backend="eager")
    found = compiled(*context(), agents())
    torch.testing.assert_close(found.tokens_BtD, expected.tokens_BtD)
    torch.testing.assert_close(found.gates_BtN, expected.gates_BtN)
    torch._dynamo.reset()


def test_training_twice_gives_the_same_bits() -> None:
    def gradients() -> list[Tensor]:
        model = awake(factorized(injection="both", interactions="motion"))
        model(*context(), agents()).tokens_BtD.abs().mean().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    assert all(a.equal(b) for a, b in zip(gradients(), gradients(), strict=True))


def test_double_precision_goes_all_the_way_and_gradients_are_right() -> None:
    model = awake(factorized(injection="both", interactions="motion")).double()
    tokens, context_index, target_index = context(batch=1)
    seen = agents(batch=1, count=3, pairs=3)
    seen = dataclasses.replace(seen, descriptor_BNE=seen.descriptor_BNE.double())

    def predict(geometry: Tensor) -> Tensor:
        given = dataclasses.replace(seen, geometry_BNG=geometry)
        answer: Tensor = model(tokens.double(), context_index, target_index[:, :3], given).tokens_BtD
        return answer

    assert torch.autograd.gradcheck(predict, [seen.geometry_BNG.double().requires_grad_()], atol=1e-5)


def test_every_parameter_has_a_role() -> None:
    roles = factorized(injection="both", interactions="motion").roles()
    assert {key for key, role in roles.items() if role == "dictionary"} == {f"A_{k}.directions" for k in "LAI"}
    assert {key for key, role in roles.items() if role == "scale"} == {f"A_{k}.log_scale" for k in "LAI"}
    assert {role for key, role in roles.items() if key.startswith("query.")} == {"query"}
    assert roles["g_L.weight"] == roles["heads.P_L.weight"] == "head"
    branches = {key.split(".")[0] for key, role in roles.items() if role == "branch"}
    assert branches == {"reader", "early", "agents", "interactions"}
    assert {key.split(".")[-3] for key, role in roles.items() if role == "gate"} == {"g_V", "g_W"}


def test_a_checkpoint_loads_into_the_bare_structure() -> None:
    trained = awake(factorized())
    fresh = FactorizedPredictor(TINY, trained.options)
    fresh.load_state_dict(trained.state_dict())
    with torch.no_grad():
        assert fresh.eval()(*context(), agents()).tokens_BtD.equal(trained(*context(), agents()).tokens_BtD)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"injection": "late-ish"}, "injection"), ({"ranks": (0, 1, 1)}, "ranks"), ({"pair_chunk": 0}, "pair_chunk"),
     ({"agents": "slots", "slots": 4, "slot_neighbours": 4}, "neighbours"), ({"agent_epsilon": 0.0}, "agent_epsilon")],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        FactorizedOptions(**options)
    assert FactorizedOptions(ranks=(1, 2, 3)).ranks == PerFactor(1, 2, 3)  # type: ignore[arg-type]


def test_an_unknown_option_is_answered_with_the_nearest() -> None:
    with pytest.raises(TrainingError, match="did you mean 'injection'"):
        FactorizedOptions().replace(injektion="early")


def test_grafting_needs_what_it_starts_from() -> None:
    options = FactorizedOptions(**SMALL)
    with pytest.raises(TrainingError, match="tokens to start from"):
        FactorizedPredictor.graft(pretrained(), options)
    distilled = pretrained(TINY.replace(predictor_levels=1, predictor_out=40))
    with pytest.raises(TrainingError, match="fold_projection"):
        FactorizedPredictor.graft(distilled, options, start_tokens())
    other = StartTokens(target_tokens(), None)
    with pytest.raises(TrainingError, match="dictionaries: targets"):
        FactorizedPredictor.graft(distilled, options.replace(fold_projection=False), other)
    FactorizedPredictor.graft(distilled, options.replace(fold_projection=False, dictionaries="targets"), other)


@every_predictor
def test_under_bf16_autocast_what_needs_fp32_stays_fp32(predictor: Any) -> None:
    """Dtypes alone, forward and backward: no numbers are computed, so any CPU can tell."""
    model = predictor()
    inputs, seen = context(), agents()
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.autocast("cpu", torch.bfloat16):
            answer = model(*inputs, seen)
        assert answer.tokens_BtD.dtype == torch.float32
        for part in (*(answer.coordinates or ()), *(answer.channels or ())):
            assert part.dtype == torch.float32
        for part in (answer.gate_logits_BtN, answer.strengths_BtP):
            assert part is None or part.dtype == torch.float32
        objective(answer, torch.zeros(2, 32, TINY.dim)).total.backward()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.autocast("cpu", torch.bfloat16):
        assert model.query.trunk.predictor_blocks[0].mlp.fc1(torch.zeros(1, 24)).dtype == torch.bfloat16  # it was on
