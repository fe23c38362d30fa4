"""Which tokens are seen and which are predicted.

Shapes: B clips, T tubelets, R rows, C columns, k kept positions, N = T*R*C tokens in time-major raster order.

Two samplers. `context_masks` is this project's protocol (decision D3): block policies thin the context grid,
the future is always predicted whole, and a clip's mask depends on nothing but (replication, clip). `released_masks` is
V-JEPA's own batch sampler, for continual pretraining. All blocks are full-time tubes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import BackboneError
from ..seeding import stream

Grid = tuple[int, int, int]  # tubelets, rows, columns


@dataclass(frozen=True)
class BlockPolicy:
    """`blocks` rectangles, each over `scale` of the frame, with aspect (height / width) in `aspect`."""

    name: str
    blocks: int
    scale: float
    aspect: tuple[float, float] = (0.75, 1.5)

    def kept(self, rows: int, columns: int) -> int:
        """How many positions of a frame stay visible: what the blocks leave on average, and at least one."""
        return _mean_visible(self, rows, columns)

    def block_size(self, rows: int, columns: int, aspect: NDArray[np.float64]) -> tuple[NDArray[np.int64], ...]:
        """(height, width) in tokens for each aspect ratio, no larger than the frame."""
        area = int(rows * columns * self.scale)
        height = np.clip(np.rint(np.sqrt(area * aspect)), 1, rows).astype(np.int64)
        width = np.clip(np.rint(np.sqrt(area / aspect)), 1, columns).astype(np.int64)
        return height, width


SMALL_BLOCKS = BlockPolicy("small", blocks=8, scale=0.15)
LARGE_BLOCKS = BlockPolicy("large", blocks=2, scale=0.70)
POLICIES = (SMALL_BLOCKS, LARGE_BLOCKS)


class FutureSplit(NamedTuple):
    """Token indices of the whole clip's grid: everything before the split, and everything after it."""

    context: Tensor
    target: Tensor


def future_split(grid: Grid, context_tubelets: int) -> FutureSplit:
    """Every token of the first `context_tubelets`, and every token of the rest (6 of 8: frames 1-12 and 13-16)."""
    tubelets, rows, columns = grid
    if not 0 < context_tubelets < tubelets:
        raise BackboneError(
            f"future split: {context_tubelets} context tubelets of {tubelets} leave no context or no future"
        )
    tokens, first_target = torch.arange(tubelets * rows * columns), context_tubelets * rows * columns
    return FutureSplit(tokens[:first_target], tokens[first_target:])


def context_masks(
    policy: BlockPolicy, replication: int, clip_ids: Sequence[str], grid: Grid, kept: int | None = None
) -> Tensor:
    """Visible context tokens `[B, T * k]`, ascending; `grid` is the context's (6 tubelets of a 16-frame clip).

    Every clip keeps exactly k positions per frame (`kept`, or the policy's own number), so that batches are
    rectangular without cutting masks to the batch's minimum, which would tie a clip's mask to its neighbours. Blocks
    decide which positions: those under fewest blocks stay, ties (and with them the exact count) by lot. The policy's
    own number is the mean that its blocks leave, so the lot changes little.
    """
    _, rows, columns = grid
    if not clip_ids:
        return drawn_masks(policy, np.empty((0, mask_draws(policy, rows * columns))), grid, kept)
    draws = [
        stream("mask", policy.name, replication, clip).random(mask_draws(policy, rows * columns)) for clip in clip_ids
    ]
    return drawn_masks(policy, np.stack(draws), grid, kept)


def mask_draws(policy: BlockPolicy, positions: int) -> int:
    """How many uniform numbers make one clip's mask: aspect, block corners, tie-breaks."""
    return 1 + 2 * policy.blocks + positions


def drawn_masks(policy: BlockPolicy, draws_Bn: NDArray[np.float64], grid: Grid, kept: int | None = None) -> Tensor:
    """The masks of `context_masks` from uniform numbers `[B, mask_draws]`."""
    tubelets, rows, columns = grid
    k = policy.kept(rows, columns) if kept is None else kept
    if not 0 < k <= rows * columns:
        raise BackboneError(f"context masks: cannot keep {k} of {rows * columns} positions")
    aspect = policy.aspect[0] + draws_Bn[:, 0] * (policy.aspect[1] - policy.aspect[0])
    height, width = policy.block_size(rows, columns, aspect)
    corners = draws_Bn[:, 1 : 1 + 2 * policy.blocks].reshape(-1, 2, policy.blocks)
    covered = _coverage(rows, columns, height, width, corners)
    order = covered.reshape(len(draws_Bn), rows * columns) + draws_Bn[:, 1 + 2 * policy.blocks :]
    visible = np.sort(np.argpartition(order, k - 1, axis=1)[:, :k], axis=1)
    tubes = np.arange(tubelets)[:, None] * (rows * columns) + visible[:, None, :]
    return torch.from_numpy(tubes.reshape(len(draws_Bn), tubelets * k))


class BatchMasks(NamedTuple):
    """Context and target token indices of a batch, `[B, n]` each."""

    context: Tensor
    target: Tensor


def released_masks(policy: BlockPolicy, batch: int, grid: Grid, random: np.random.Generator) -> BatchMasks:
    """V-JEPA's sampler: one block size per batch, places per clip, both sets cut to the batch's minimum.

    Cutting keeps the first tokens in raster order, as released. A clip whose blocks cover everything is drawn again.
    """
    tubelets, rows, columns = grid
    aspect = np.repeat(random.uniform(*policy.aspect, size=1), batch)
    height, width = policy.block_size(rows, columns, aspect)
    if height[0] == rows and width[0] == columns:
        raise BackboneError(f"mask policy {policy.name!r}: one block covers the whole {rows}x{columns} grid")
    hidden = np.ones((batch, rows, columns), dtype=bool)
    while (full := hidden.all(axis=(1, 2))).any():
        corners = random.random((int(full.sum()), 2, policy.blocks))
        hidden[full] = _coverage(rows, columns, height[full], width[full], corners) > 0
    hidden_tokens = np.tile(hidden.reshape(batch, 1, -1), (1, tubelets, 1)).reshape(batch, -1)
    counts = hidden_tokens.sum(axis=1)
    order = np.argsort(hidden_tokens, axis=1, kind="stable")  # visible tokens first, each part in raster order
    context = order[:, : int(hidden_tokens.shape[1] - counts.max())]
    targets = np.argsort(~hidden_tokens, axis=1, kind="stable")[:, : int(counts.min())]
    return BatchMasks(torch.from_numpy(context.copy()), torch.from_numpy(targets.copy()))


@functools.lru_cache
def _mean_visible(policy: BlockPolicy, rows: int, columns: int) -> int:
    """Expected number of positions under no block, exactly but for 64 steps of the aspect ratio."""
    aspects = policy.aspect[0] + (np.arange(64) + 0.5) / 64 * (policy.aspect[1] - policy.aspect[0])
    total = 0.0
    for height, width in zip(*policy.block_size(rows, columns, aspects), strict=True):
        covers = np.outer(_chance_inside(rows, int(height)), _chance_inside(columns, int(width)))
        total += float(((1.0 - covers) ** policy.blocks).sum())
    return max(1, round(total / len(aspects)))


def _chance_inside(length: int, block: int) -> NDArray[np.float64]:
    """For each place on a line, how likely a uniformly placed block lies over it."""
    starts = np.arange(length - block + 1)[:, None]
    place = np.arange(length)
    chance: NDArray[np.float64] = ((place >= starts) & (place < starts + block)).mean(axis=0)
    return chance


def _coverage(
    rows: int, columns: int, height: NDArray[np.int64], width: NDArray[np.int64], corners: NDArray[np.float64]
) -> NDArray[np.int64]:
    """How many blocks lie over each position, `[B, R, C]`; `corners [B, 2, blocks]` are uniform in [0, 1)."""
    top = np.floor(corners[:, 0] * (rows - height + 1)[:, None]).astype(np.int64)[:, :, None]
    left = np.floor(corners[:, 1] * (columns - width + 1)[:, None]).astype(np.int64)[:, :, None]
    row, column = np.arange(rows), np.arange(columns)
    in_rows = (row >= top) & (row < top + height[:, None, None])
    in_columns = (column >= left) & (column < left + width[:, None, None])
    over: NDArray[np.int64] = np.einsum("bkr,bkc->brc", in_rows.astype(np.int64), in_columns.astype(np.int64))
    return over
