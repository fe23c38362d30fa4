"""V-JEPA's own objective, as released with 2.1: dense prediction of normalised levels, on targets and on context.

Shapes: B batch, N tokens of the clip, n chosen tokens, L levels, D width, W = L*D.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CONTEXT_WEIGHT = 0.5  # lambda of the context term
MOMENTUM = 0.99925  # of the target encoder


def normalised_levels(levels_BNW: Tensor, dim: int) -> Tensor:
    """Each level LayerNormed without affine: what the predictor is asked for."""
    return F.layer_norm(torch.unflatten(levels_BNW, -1, (-1, dim)), (dim,)).flatten(-2)


def target_loss(predicted_BnW: Tensor, wanted_BnW: Tensor) -> Tensor:
    """Mean |z - h| over predicted tokens."""
    return (predicted_BnW - wanted_BnW).abs().mean()


def context_loss(predicted_BnW: Tensor, wanted_BnW: Tensor, weight_Bn: Tensor) -> Tensor:
    """Mean of weight * |z - h| over context tokens."""
    return ((predicted_BnW - wanted_BnW).abs() * weight_Bn.unsqueeze(-1)).mean()


def context_weights(context_index: Tensor, target_index: Tensor, rows: int, columns: int) -> Tensor:
    """1 / sqrt(distance to the nearest predicted token), in tokens along (time, row, column); `[B, n]`.

    By sums of squares: `torch.cdist` starts a block of a GPU for every pair of tokens.
    """
    near, far = _positions(context_index, rows, columns), _positions(target_index, rows, columns)
    time, *others = (a.unsqueeze(-1) - b.unsqueeze(-2) for a, b in zip(near, far, strict=True))
    squared_Bnm = time.square_()
    for apart_Bnm in others:
        squared_Bnm.addcmul_(apart_Bnm, apart_Bnm)
    return squared_Bnm.amin(dim=-1).sqrt().rsqrt()


def _positions(index: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    return (index // (rows * columns)).float(), (index // columns % rows).float(), (index % columns).float()
