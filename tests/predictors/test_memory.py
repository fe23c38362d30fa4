"""What the context last showed: in its place, and where an agent that gets there has come from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from factorjepa.errors import TrainingError
from factorjepa.predictors import MonolithicOptions
from factorjepa.predictors.memory import at_own_place, last_seen, origins
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
    more = {"carried": True, "recalled": True} | ({} if build is factorized else {"direct": True})
    plain, given = build(**injection), build(**injection, **more)
    torch.testing.assert_close(given(*context(), agents()).tokens_BtD, plain(*context(), agents()).tokens_BtD)


@pytest.mark.parametrize("options", [{"carried": True}, {"recalled": True}])
@torch.no_grad()
def test_memory_obeys_the_mask(options: dict[str, bool]) -> None:
    """What the context does not show cannot be brought or recalled: nothing else goes in."""
    kept = torch.cat([CONTEXT[first : first + 10] for first in range(0, 96, 16)])
    model, (tokens, _, target) = awake(factorized(**options)), context()
    hidden = tokens.clone()
    hidden[:, torch.isin(CONTEXT, kept, invert=True)] = 7.0
    shown = [model(t[:, kept], kept.expand(2, -1), target, agents()).tokens_BtD for t in (tokens, hidden)]
    assert shown[0].equal(shown[1])


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
    assert left_over(carried=False, steps=40) > 0.9


@pytest.mark.parametrize(
    ("options", "words"),
    [({"carried": True}, "carried: a predictor without agents"), ({"direct": True}, "direct is of late injection"),
     ({"direct": True, "injection": "early"}, "and injection is early")],
)  # fmt: skip
def test_options_that_would_change_nothing_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        MonolithicOptions(**options)
