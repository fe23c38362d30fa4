"""Which context tokens a training pass shows.

`blocks` is the paper's protocol: each clip is shown once through either block policy. `spread` is what the prototypes
trained best with: one pass shows the whole context, one a share of its positions drawn evenly from `SPREAD`, so that
the model meets every mask ratio that it will be asked about. Masks depend on (replication, epoch, clip) alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..backbones.masks import POLICIES, SMALL_BLOCKS, Grid, context_masks
from ..seeding import stream

SPREAD = (0.09, 0.70)  # visible shares


def training_masks(
    kind: str, replication: int, epoch: int, clip_ids: Sequence[str], grid: Grid, step: int
) -> list[Tensor]:
    """Visible context tokens `[B, n]` of each pass; `grid` is the context's."""
    addressed = [f"{clip_id}@{epoch}" for clip_id in clip_ids]
    if kind == "blocks":
        return [context_masks(policy, replication, addressed, grid) for policy in POLICIES]
    tubelets, rows, columns = grid
    positions = rows * columns
    whole = torch.arange(tubelets * positions).expand(len(clip_ids), -1)
    low, high = SPREAD
    share = low + (high - low) * float(stream("spread", replication, step).random())
    thinned = context_masks(SMALL_BLOCKS, replication, addressed, grid, kept=max(1, round(share * positions)))
    return [whole, thinned]
