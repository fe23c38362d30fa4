"""What the context last showed: where a token lies, and where an agent that gets there has come from.

A query has heard of the context through a transformer that is narrower than the tokens. Branches that are given the
tokens themselves can say what goes on as it was, and what moves along with an agent.

Shapes: B clips, c context tokens, n cells of a tubelet's grid, t target tokens, N agents, X = D + 1 fields.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .geometry import constant, token_places
from .precision import full
from .query import Question


def last_seen(asked: Question, width: int) -> Tensor:
    """Tokens of the last tubelet that the context shows, in their places: `[B, n, X]`, zeros where one is hidden.

    X is the last level, normalised, and 1 for what is there. Earlier tubelets say nothing: our masks are tubes.
    """
    cells = asked.grid[1] * asked.grid[2]
    tokens_BcD = F.layer_norm(full(asked.context[..., -width:]), (width,)).to(asked.context.dtype)
    shown_BcX = F.pad(tokens_BcD, (0, 1), value=1.0)
    latest_Bc = asked.context_index // cells == _last_tubelet(asked)
    at_Bc = torch.where(latest_Bc, asked.context_index % cells, cells)  # earlier ones go to a place that is cut off
    placed = shown_BcX.new_zeros(len(shown_BcX), cells + 1, width + 1)
    return placed.scatter(1, at_Bc[..., None].expand_as(shown_BcX), shown_BcX)[:, :cells]


def at_own_place(asked: Question, width: int) -> Tensor:
    """What was last seen where each target token lies, `[B, t, X]`.

    A product with one-hot rows gathers: several tokens have one place, and its gradient adds them up in one order.
    """
    seen_BnX = last_seen(asked, width)
    cells = torch.arange(seen_BnX.shape[1], device=seen_BnX.device)
    place_Btn = (asked.target_index[..., None] % len(cells) == cells).to(seen_BnX.dtype)
    return place_Btn @ seen_BnX


def where_it_lay(moved_Bt2: Tensor, asked: Question, width: int) -> Tensor:
    """What was last seen so many cells to the right of each target token's place and below it, `[B, t, X]`.

    Bilinear, as with agents: its gradient says which of the next cells to look at; where nothing of the picture is near
    there is neither an answer nor a gradient.
    """
    _, token_Bt2 = token_places(asked.target_index, asked.grid)
    _, rows, columns = asked.grid
    cells_Bt2 = full(moved_Bt2)
    from_Bt2 = token_Bt2 + cells_Bt2 / constant((float(columns), float(rows)), cells_Bt2)
    seen_BnX = last_seen(asked, width)
    return _weights(from_Bt2, asked).to(seen_BnX.dtype) @ seen_BnX


def origins(velocity_BN2: Tensor, asked: Question, frames_per_tubelet: int) -> Tensor:
    """Where what lies at a target token came from, had it moved with an agent: weights of cells `[B, N, t, n]`.

    Bilinear, so that their gradient says which way the agent should have gone. What came from outside of the picture
    has weights that add up to less than 1. Fp32: a place rounded to bf16 would be off by a part of a token.
    """
    tubelet_Bt, token_Bt2 = token_places(asked.target_index, asked.grid)
    frames_B1t1 = ((tubelet_Bt - _last_tubelet(asked)) * frames_per_tubelet)[:, None, :, None]
    from_BNt2 = token_Bt2[:, None] - velocity_BN2[:, :, None] * frames_B1t1
    return _weights(from_BNt2, asked)


def _weights(from_X2: Tensor, asked: Question) -> Tensor:
    """Bilinear weights of a tubelet's cells for places in the picture: `[..., n]`."""
    column_Xw, row_Xh = (_hat(from_X2[..., axis], asked.grid[2 - axis]) for axis in (0, 1))
    return (row_Xh[..., :, None] * column_Xw[..., None, :]).flatten(-2)


def _last_tubelet(asked: Question) -> Tensor:
    """The latest of which the context shows anything, `[B, 1]`."""
    return (asked.context_index // (asked.grid[1] * asked.grid[2])).amax(1, keepdim=True)


def _hat(place: Tensor, cells: int) -> Tensor:
    """Linear weights of the cells' middles beside `place` in [0, 1]: `[..., cells]`."""
    middles = torch.arange(cells, device=place.device, dtype=place.dtype)
    return (1.0 - (place[..., None] * cells - 0.5 - middles).abs()).clamp(min=0.0)
