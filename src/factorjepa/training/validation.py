"""Validation: Future-frame error against the frozen pretrained encoder, and how it grows as the context is hidden.

Every method is measured in the same space (design decision 5): affine-free LayerNormed tokens of the pretrained
encoder. Its own momentum encoder's space is reported beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..backbones.masks import SMALL_BLOCKS, context_masks
from ..corpus.loader import Batch
from ..teacher.batch import TargetBatch
from ..teacher.states import ObjectStates, object_states, visible_cells
from .learner import Learner
from .trunk import Trunk

HIDDEN = (0.0, 0.3, 0.5, 0.7, 0.9)  # shares of the context's positions; 0.0 is the headline


@dataclass(frozen=True)
class Validation:
    """Means over the validation clips."""

    future_l1: float
    future_mse: float
    own_l1: float  # in the space of the method's own momentum encoder
    curve: tuple[float, ...]  # L1 at the shares of HIDDEN
    rank_me: float  # effective rank of the momentum encoder's tokens
    variance: float  # of those tokens before normalisation, mean over dimensions

    @property
    def slope(self) -> float:
        """eq. Mask-ratio slope: least-squares rise of the L1 per unit of hidden share."""
        return float(np.polyfit(HIDDEN, self.curve, 1)[0])

    def record(self) -> dict[str, float]:
        curve = {f"val/l1_hidden_{share:g}": value for share, value in zip(HIDDEN, self.curve, strict=True)}
        return {
            "val/future_l1": self.future_l1, "val/future_mse": self.future_mse, "val/own_l1": self.own_l1,
            "val/mask_slope": self.slope, "val/rank_me": self.rank_me, "val/target_variance": self.variance, **curve,
        }  # fmt: skip

    def better_than(self, other: Validation | None, tie: float = 1e-4) -> bool:
        """Lower Future-frame L1; within a relative `tie`, the smaller mask-ratio slope (Panel C)."""
        if other is None:
            return True
        if abs(self.future_l1 - other.future_l1) > tie * other.future_l1:
            return self.future_l1 < other.future_l1
        return self.slope < other.slope


def states_of(
    learner: Learner, targets: TargetBatch | None, visible: Tensor | None, video: Tensor
) -> ObjectStates | None:
    """Object states that see only what the mask leaves; None where the predictor reads none."""
    if not learner.method.reads_states or targets is None:
        return None
    if visible is None:
        return object_states(targets.cells)
    return object_states(targets.cells, visible_cells(visible, learner.context_grid(video), targets.cells))


@torch.no_grad()
def validate(
    learner: Learner, batches: Iterable[tuple[Batch, TargetBatch | None]], replication: int, device: torch.device,
    precision: torch.autocast, trunk: Trunk | None = None,
) -> Validation:  # fmt: skip
    """One pass over the validation clips."""
    learner.eval()
    errors: list[Tensor] = []  # rows: clips; columns: the curve, then own L1 and MSE
    samples: list[Tensor] = []
    for batch, targets in batches:
        video = batch.video.to(device)
        targets = targets.to(device) if targets is not None else None
        with precision:
            known = None if trunk is None else trunk.of(video, [clip.clip_id for clip in batch.clips])
            wanted, own = learner.future(video, learner.reference, known), learner.future(video, trunk=known)
            samples.append(learner.tokens(video, learner.target, known)[:, ::7].float().flatten(0, 1).cpu())
            columns = []
            for share in HIDDEN:
                visible = _visible(learner, batch, video, share, replication)
                states = states_of(learner, targets, visible, video)
                prediction = learner.predict(video, visible, states, known).tokens_BtD
                columns.append((prediction - wanted).abs().mean((1, 2)))
                if share == 0.0:
                    columns += [(prediction - own).abs().mean((1, 2)), (prediction - wanted).square().mean((1, 2))]
        errors.append(torch.stack(columns, dim=1).double().cpu())
    mean = torch.cat(errors).mean(0).tolist()
    tokens = torch.cat(samples)
    curve = (mean[0], *mean[3:])
    return Validation(mean[0], mean[2], mean[1], curve, rank_me(tokens), tokens.var(0).mean().item())


def rank_me(tokens_nD: Tensor) -> float:
    """RankMe (Garrido et al. 2023): exponential of the entropy of the singular values; at most D."""
    values = torch.linalg.svdvals(tokens_nD - tokens_nD.mean(0))
    share = values / values.sum().clamp_min(1e-12) + 1e-12
    return float(torch.exp(-(share * share.log()).sum()))


def _visible(learner: Learner, batch: Batch, video: Tensor, hidden: float, replication: int) -> Tensor | None:
    if hidden == 0.0:
        return None
    grid = learner.context_grid(video)
    kept = max(1, round((1.0 - hidden) * grid[1] * grid[2]))
    masks = context_masks(SMALL_BLOCKS, replication, [clip.clip_id for clip in batch.clips], grid, kept=kept)
    return masks.to(video.device)
