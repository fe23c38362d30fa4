"""What the context last showed: in its place, and where an agent that gets there has come from."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from factorjepa.errors import TrainingError
from factorjepa.predictors import MonolithicOptions
from factorjepa.predictors.memory import at_own_place, last_seen, origins, where_it_lay
from factorjepa.predictors.query import Question

from .scenes import CONTEXT, TARGET, TINY, agents, awake, context, factorized, monolithic

GRID = (8, 4, 4)


def asked(keep: Tensor = CONTEXT, batch: int = 2, seed: int = 0) -> Question:
    tokens = context(batch, seed)[0][:, keep]
    return Question(tokens, keep.expand(batch, -1), TARGET.expand(batch, -1), None, GRID, None)


def test_tokens_of_the_last_tubelet_stand_in_their_places_and_hidden_ones_are_zero() -> None:
    cells = torch.tensor([1, 6, 7, 12])
    kept = (torch.arange(6)[:, None] * 16 + cells).flatten()
    question = asked(kept)
    seen = last_seen(question, TINY.dim)
    expected = F.layer_norm(question.context[:, -4:, -TINY.dim :], (TINY.dim,))
    torch.testing.assert_close(seen[:, cells, :-1], expected)
    assert seen[..., -1].sum(1).tolist() == [4, 4]
    assert not seen[:, [cell for cell in range(16) if cell not in cells]].any()
    own = at_own_place(question, TINY.dim)
    assert own[:, :16].equal(seen)
    assert own[:, 16:].equal(seen)


def test_earlier_tubelets_say_nothing() -> None:
    before, question = asked(), asked()
    question.context[:, :80] += 1.0
    assert last_seen(question, TINY.dim).equal(last_seen(before, TINY.dim))


def test_what_an_agent_brings_comes_from_where_it_was() -> None:
    """One cell a tubelet to the right; at the left border it comes from outside, of which nothing was seen."""
    velocity = torch.tensor([[0.25 / 2, 0.0], [0.0, 0.0], [0.0, -0.25 / 4]]).expand(2, 3, 2)
    weights = origins(velocity, asked(), TINY.tubelet).view(2, 3, 2, 4, 4, 4, 4)  # agent, tubelet, token, cell
    for tubelet in range(2):
        for row in range(4):
            for column in range(4):
                right, still, up = weights[0, :, tubelet, row, column]
                came = column - 1 - tubelet
                assert right.sum() == (came >= 0)
                assert came < 0 or right[row, came] == 1
                assert still[row, column] == 1
                below = row + (tubelet + 1) / 2  # half a cell a tubelet: between two cells half of each
                assert float(up.sum()) == pytest.approx(min(1.0, max(0.0, 4 - below)))
                if tubelet == 0 and row < 3:
                    assert up[row, column] == up[row + 1, column] == 0.5


def test_the_gradient_of_what_is_brought_says_how_the_agent_moves() -> None:
    """From the picture alone: a velocity that starts at rest finds the one that explains the tokens."""
    question, generator = asked(batch=1), torch.Generator().manual_seed(1)
    row, column = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
    smooth = torch.randn(2, 8, generator=generator)
    picture = (torch.stack((row, column), -1) @ smooth).flatten(0, 1)  # changes evenly over the cells
    true = torch.tensor([[[0.05, -0.03]]])
    inside = origins(true, question, TINY.tubelet).sum(-1, keepdim=True) > 0.999
    wanted = origins(true, question, TINY.tubelet) @ picture
    velocity = torch.full((1, 1, 2), 0.001, requires_grad=True)
    optimiser = torch.optim.Adam([velocity], lr=0.003)
    for _ in range(150):
        loss = ((origins(velocity, question, TINY.tubelet) @ picture - wanted) * inside).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.testing.assert_close(velocity.detach(), true, atol=0.01, rtol=0)


@pytest.mark.parametrize("build", [factorized, monolithic], ids=["factorized", "monolithic"])
@torch.no_grad()
def test_fresh_memory_leaves_the_prediction_as_it_was(build: Any) -> None:
    injection = {} if build is factorized else {"injection": "late"}
    more = {"carried": True, "recalled": True, "recall_follows": True}
    more |= {} if build is factorized else {"direct": True}
    plain, given = build(**injection), build(**injection, **more)
    torch.testing.assert_close(given(*context(), agents()).tokens_BtD, plain(*context(), agents()).tokens_BtD)


def changed_by(cell: int, tubelet: int = 5, **options: Any) -> Tensor:
    """Which target tokens (of 2 x 16) the token of one context cell reaches without the transformer."""
    model = awake(monolithic(**options))
    tokens, context_index, target_index = context()
    question = Question(tokens, context_index, target_index, agents(), GRID, None)
    other = question._replace(context=tokens.clone())
    other.context[:, 16 * tubelet + cell, -TINY.dim :] += torch.arange(TINY.dim)
    query = model.query(question)
    model.query.forward = lambda asked, inject=None: query  # type: ignore[assignment, method-assign]
    one, two = (model.answer(each).tokens_BtD for each in (question, other))
    return (one != two).any(2)[0].view(2, 16)


@torch.no_grad()
def test_recall_reads_the_last_tubelet_at_a_tokens_own_place_and_nowhere_else() -> None:
    reached = changed_by(6, recalled=True)
    assert reached[:, 6].all()
    assert reached.sum() == 2
    assert not changed_by(6, tubelet=4, recalled=True).any()
    assert not changed_by(6).any()


@torch.no_grad()
def test_a_blind_look_back_is_as_wide_and_sees_nothing() -> None:
    assert not changed_by(6, recalled=True, recall_blind=True).any()
    seeing, blind = (monolithic(recalled=True, recall_hidden=20, recall_blind=one) for one in (False, True))
    assert [p.shape for p in seeing.parameters()] == [p.shape for p in blind.parameters()]
    query = torch.randn(2, 32, 24, generator=torch.Generator().manual_seed(2))
    shown = torch.randn(2, 32, TINY.dim + 1, generator=torch.Generator().manual_seed(3))
    branch = awake(blind).recall
    assert branch is not None
    assert branch(query, shown).equal(branch(query, -shown))
    assert not branch(query, shown).equal(branch(-query, shown))


@torch.no_grad()
def test_a_look_back_tells_as_much_as_a_token_holds() -> None:
    """Queries are 24 wide and tokens 32: what the place showed goes on whole, whatever the query is."""
    branch = awake(monolithic(recalled=True, recall_hidden=64)).recall
    assert branch is not None
    query = torch.zeros(1, 200, TINY.predictor_dim)
    shown = torch.randn(1, 200, TINY.dim + 1, generator=torch.Generator().manual_seed(3))
    said = (branch(query, shown) - branch(query, 0 * shown))[0]
    assert int(torch.linalg.matrix_rank(said.double(), rtol=1e-5)) == TINY.dim > TINY.predictor_dim


def test_what_lay_elsewhere_is_read_between_cells_and_its_gradient_says_which_way_to_look() -> None:
    question, generator = asked(), torch.Generator().manual_seed(1)
    whole = last_seen(question, TINY.dim)
    moved = where_it_lay(torch.tensor([1.0, -1.0]).expand(2, 32, 2), question, TINY.dim).view(2, 2, 4, 4, -1)
    torch.testing.assert_close(moved[:, 1, 1:, :3], whole.view(2, 4, 4, -1)[:, :3, 1:])
    assert not moved[:, :, 0].any()  # above the picture nothing was seen
    assert not moved[:, :, :, 3].any()
    row, column = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
    smooth = torch.randn(2, TINY.dim, generator=generator)
    picture = (torch.stack((row, column), -1) @ smooth).flatten(0, 1)
    question.context[:, 80:, -TINY.dim :] = picture  # is normalised before it is read, which bends it a little
    true = torch.tensor([0.6, -0.4]).expand(2, 32, 2)
    wanted = where_it_lay(true, question, TINY.dim)
    inside = wanted[..., -1:] > 0.999
    found = torch.zeros(2, requires_grad=True)
    optimiser = torch.optim.Adam([found], lr=0.05)
    for _ in range(200):
        loss = ((where_it_lay(found.expand(2, 32, 2), question, TINY.dim) - wanted) * inside).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.testing.assert_close(found.detach(), true[0, 0], atol=0.05, rtol=0)


@torch.no_grad()
def test_a_look_back_that_follows_reads_its_own_place_and_where_its_query_says() -> None:
    model = awake(monolithic(recalled=True, recall_follows=True))
    assert model.recall is not None
    assert model.recall.g_P is not None
    model.recall.g_P.last.weight.zero_()
    model.recall.g_P.last.bias.copy_(torch.tensor([1.0, 0.0]))
    tokens, context_index, target_index = context()
    question = Question(tokens, context_index, target_index, agents(), GRID, None)
    other = question._replace(context=tokens.clone())
    other.context[:, 16 * 5 + 6, -TINY.dim :] += torch.arange(TINY.dim)
    query = model.query(question)
    shown, changed = (model.recall.shown(query, each) for each in (question, other))
    reached = (shown != changed).view(2, 2, 16, 2, -1).any(-1)[0]  # tubelet, token, which of the two places
    assert reached[..., 0].nonzero().tolist() == [[0, 6], [1, 6]]
    assert reached[..., 1].nonzero().tolist() == [[0, 5], [1, 5]]


@torch.no_grad()
def test_what_agents_bring_is_read_where_they_go_alone() -> None:
    reached = changed_by(6, injection="late", carried=True)
    assert reached.any()
    assert not reached.all()
    assert not changed_by(6, injection="late").any()


@torch.no_grad()
def test_the_layout_recalls_too() -> None:
    question = Question(*context(), agents(), GRID, None)
    model = awake(factorized(recalled=True))
    recalled = model.answer(question)
    model.recall = None
    assert not recalled.coordinates.layout.equal(model.answer(question).coordinates.layout)


@torch.no_grad()
def test_a_direct_head_moves_tokens_in_directions_that_queries_cannot() -> None:
    """Queries are 24 wide: whatever a head behind them adds lies in as many directions."""
    spans = []
    for direct in (False, True):
        model = awake(monolithic(injection="late", direct=direct, hidden=64))
        with_agents = model(*context(batch=8), agents(batch=8)).tokens_BtD
        nobody = dataclasses.replace(
            agents(batch=8), valid_BN=torch.zeros(8, 5).bool(), pair_valid_BP=torch.zeros(8, 7).bool()
        )
        added = (with_agents - model(*context(batch=8), nobody).tokens_BtD).flatten(0, 1)
        spans.append(int(torch.linalg.matrix_rank(added.double(), rtol=1e-5)))
    assert spans[0] <= TINY.predictor_dim < spans[1]


@torch.no_grad()
def test_clips_of_one_batch_may_end_at_different_tubelets() -> None:
    """Each is read from its own last one, as far ahead as that is."""
    index = torch.stack((CONTEXT[:80], CONTEXT[16:]))
    tokens = context()[0]
    shown = torch.stack((tokens[0, :80], tokens[1, 16:]))
    both = Question(shown, index, TARGET.expand(2, -1), None, GRID, None)
    velocity = torch.tensor([[[0.05, 0.02]]]).expand(2, 1, 2)
    for clip in range(2):
        alone = Question(shown[clip : clip + 1], index[clip : clip + 1], TARGET[None], None, GRID, None)
        assert last_seen(both, TINY.dim)[clip].equal(last_seen(alone, TINY.dim)[0])
        assert origins(velocity, both, 2)[clip].equal(origins(velocity[:1], alone, 2)[0])
    assert not origins(velocity, both, 2)[0].equal(origins(velocity, both, 2)[1])


def left_over(carried: bool, clips: int = 96, steps: int = 150) -> float:
    """Error of an agent's look in clips that training has not seen, over that of saying nothing.

    The agent moves a cell a tubelet, and no state knows what it looks like: the last context tubelet alone shows it.
    The agents' branch is trained alone.
    """
    tokens, context_index, target_index = context(batch=clips)
    look = torch.randn(clips, TINY.dim, generator=torch.Generator().manual_seed(4))
    tokens[:, 80 + 9, -TINY.dim :] = look  # row 2, column 1
    seen = agents(batch=clips, count=1, pairs=1)
    seen.geometry_BNG[:] = 0
    seen.descriptor_BNE[:] = seen.descriptor_BNE[:1]
    seen.geometry_BNG[..., :4] = torch.tensor([0.375 + 0.0625, 0.625, 0.2, 0.2])  # half a frame after the middle
    seen.geometry_BNG[..., 4] = 0.125
    question = Question(tokens, context_index, target_index, seen, GRID, None)
    model = factorized(ranks=(5, TINY.dim, 4), hidden=64, carried=carried)
    near, wanted, part = [10, 16 + 11], F.layer_norm(look, (TINY.dim,))[:, None], clips * 3 // 4
    query = torch.zeros(clips, len(TARGET), TINY.predictor_dim)

    def error() -> Tensor:
        said = model.A_A(model.agents(query, model.reader(question))[0])[:, near]
        return (said - wanted).square().mean((1, 2))

    trained = [model.reader.parameters(), model.agents.parameters(), model.A_A.parameters()]
    optimiser = torch.optim.Adam([p for some in trained for p in some], lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        error()[:part].mean().backward()
        optimiser.step()
    return float(error().detach()[part:].mean() / wanted[part:].square().mean())


def test_agents_that_bring_tokens_along_show_a_look_that_no_state_knows() -> None:
    assert left_over(carried=True) < 0.5
    assert left_over(carried=False) > 0.9


@pytest.mark.parametrize(
    ("options", "words"),
    [({"carried": True}, "carried: a predictor without agents"), ({"direct": True}, "direct is of late injection"),
     ({"direct": True, "injection": "early"}, "and injection is early"),
     ({"recall_hidden": 512}, r"of a look back \(recall_hidden\) change nothing: set recalled"),
     ({"recall_blind": True, "recall_follows": True}, r"\(recall_follows, recall_blind\) change nothing"),
     ({"recalled": True, "recall_blind": True, "recall_follows": True}, "that is blind follows nothing")],
)  # fmt: skip
def test_options_that_would_change_nothing_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        MonolithicOptions(**options)
