"""Synthesis dictionaries `A_k` and how they begin.

Shapes: D target width, r rank, n tokens, W query width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..errors import TrainingError
from .options import Start
from .precision import full
from .prediction import PerFactor


class Dictionary(nn.Module):
    """`A [D, r]`, learned, its columns' common length kept apart.

    Adam moves every entry by about the learning rate, so a channel whose coordinates are small (c_I is a mean over all
    pairs) would need thousands of steps to grow; one scalar does it in a few.
    """

    def __init__(self, width: int, rank: int, scale: float) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(width, rank) * width**-0.5)  # columns of length 1, nearly
        self.log_scale = nn.Parameter(torch.full((1,), math.log(scale)))  # not a scalar: those cannot be sharded

    def matrix(self) -> Tensor:
        return full(self.directions) * full(self.log_scale).exp()

    def forward(self, coordinates_Btr: Tensor) -> Tensor:
        """`Y_k = C_k A_k^T`, in fp32."""
        with torch.autocast(coordinates_Btr.device.type, enabled=False):
            return full(coordinates_Btr) @ self.matrix().T


class StartTokens(NamedTuple):
    """Tokens of a few training clips' futures, that dictionaries begin from."""

    targets_nD: Tensor  # what L_JEPA compares with (`objective.normalised_targets`)
    predicted_nD: Tensor | None  # what the pretrained predictor says of them; None: it predicts another space


@torch.no_grad()
def dictionaries_from(tokens: StartTokens, ranks: PerFactor[int], start: Start) -> PerFactor[Tensor]:
    """Unit directions `[D, r_k]` for each dictionary.

    `predictions`: A_L along what the pretrained predictor says, because g_L starts as its projection and what A_L
    cannot span is lost; A_A and A_I along what it gets wrong, because that is what they are there to add. `targets`:
    all three along the leading directions of the target tokens.
    """
    if start == "targets":
        return PerFactor(*(_leading(tokens.targets_nD, rank) for rank in ranks))
    if tokens.predicted_nD is None:
        raise TrainingError(
            "this predictor was distilled from another encoder: dictionaries cannot start from what it predicts "
            "(factorized: dictionaries: targets)"
        )
    errors_nD = tokens.targets_nD - tokens.predicted_nD
    return PerFactor(
        _leading(tokens.predicted_nD, ranks.layout), _leading(errors_nD, ranks.agents),
        _leading(errors_nD, ranks.interactions),
    )  # fmt: skip


def _leading(tokens_nD: Tensor, rank: int) -> Tensor:
    """Unit directions along which tokens extend most, `[D, r]`; a rank above D begins them again.

    Directions about the origin, not about the mean: `C A^T` has no bias, so the mean must lie in the span.
    """
    tokens = tokens_nD.detach().flatten(0, -2).double()
    if not len(tokens) or not bool(torch.isfinite(tokens).all()):
        raise TrainingError("dictionaries: the tokens to start from are missing or not finite")
    directions_DD = torch.linalg.eigh(tokens.T @ tokens / len(tokens)).eigenvectors.flip(1)
    # An eigenvector's sign is the solver's whim: fixed here, so that two machines start alike.
    largest = directions_DD.gather(0, directions_DD.abs().argmax(0, keepdim=True))
    signed_DD: Tensor = (directions_DD * largest.sign()).float()
    return signed_DD[:, torch.arange(rank) % len(signed_DD)]


@torch.no_grad()
def folded(weight_DW: Tensor, bias_D: Tensor, matrix_Dr: Tensor) -> tuple[Tensor, Tensor]:
    """g_L's weight `[r, W]` and bias `[r]` whose `C_L A_L^T` is the projection of `weight q + bias` onto A_L's span.

    With an A_L of full row rank (r >= D) the projection is reproduced exactly.
    """
    inverse_rD = torch.linalg.pinv(matrix_Dr.double())
    return (inverse_rD @ weight_DW.double()).to(weight_DW), (inverse_rD @ bias_D.double()).to(bias_D)
