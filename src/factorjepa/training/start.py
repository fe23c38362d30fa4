"""Where predictor surgery starts: tokens that dictionaries begin from, and what a layout of low rank loses.

Shapes: B clips, n tokens, D width, r rank.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch import Tensor

from ..backbones import Backbone
from ..backbones.encoder import gather_tokens
from ..backbones.masks import future_split
from ..objective import normalised_targets
from ..predictors import FactorizedPredictor, MonolithicPredictor, StartTokens

log = logging.getLogger(__name__)

_MOST_TOKENS = 8192
_NOTICEABLE = 1.01  # a start this much worse than the pretrained prediction is worth a word


@torch.no_grad()
def start_tokens(backbone: Backbone, videos: Iterable[Tensor], context: int) -> StartTokens:
    """Future tokens of clips, true and as the pretrained predictor says them.

    One clip after the other, and every process all of them: the same bits however many clips meet in a pass.
    """
    encoder = backbone.encoder
    plain = MonolithicPredictor.graft(backbone.predictor) if backbone.spec.predictor_out is None else None
    targets: list[Tensor] = []
    predicted: list[Tensor] = []
    for video in videos:
        grid = encoder.grid_of(video)
        split = future_split(grid, context // backbone.spec.tubelet)
        seen, asked = (index.to(video.device).expand(len(video), -1) for index in (split.context, split.target))
        targets.append(normalised_targets(gather_tokens(encoder(video), asked)).flatten(0, 1))
        if plain is not None:
            levels = encoder(video[:, :, :context], seen, levels=True)
            predicted.append(plain(levels, seen, asked, None, grid=grid).tokens_BtD.flatten(0, 1))
    every = max(1, sum(map(len, targets)) // _MOST_TOKENS)
    return StartTokens(torch.cat(targets)[::every], torch.cat(predicted)[::every] if predicted else None)


@torch.no_grad()
def report_loss(predictor: FactorizedPredictor, tokens: StartTokens) -> None:
    """Say what the layout dictionary cannot span of the pretrained prediction: training has to win that back first."""
    if tokens.predicted_nD is None or predictor.residual is not None or not predictor.options.fold_projection:
        return
    basis_Dr = torch.linalg.qr(predictor.A_L.matrix().float()).Q
    kept_nD = tokens.predicted_nD @ basis_Dr @ basis_Dr.T
    before, after = ((one - tokens.targets_nD).abs().mean().item() for one in (tokens.predicted_nD, kept_nD))
    if after > _NOTICEABLE * before:
        log.warning(
            "a layout dictionary of rank %d spans only part of what the pretrained predictor says: L1 %.4f instead of "
            "%.4f on training clips. Training has to win that back; a larger predictor.ranks (first number) starts "
            "closer", predictor.options.scaled_ranks.layout, after, before,
        )  # fmt: skip
