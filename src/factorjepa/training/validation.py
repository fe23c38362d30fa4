"""Validation: Future-frame error against the frozen pretrained encoder, and how it grows as the context is hidden.

Every method is measured in the same space (decision D5): affine-free LayerNormed tokens of the pretrained
encoder. Its own momentum encoder's space is reported beside it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..backbones.masks import SMALL_BLOCKS, context_masks
from ..corpus.loader import Batch
from ..peers import ALONE, Peers
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
    """Object states that see only what the mask leaves; None where the predictor reads none.

    Made where the evidence lies, on the host; `visible` may lie there too.
    """
    if not learner.method.reads_states or targets is None:
        return None
    cells, shown = targets.cells, None
    grid = learner.context_grid(video)
    if visible is not None and visible.shape[1] < math.prod(grid):  # otherwise all of it is seen
        shown = visible_cells(visible.to(cells.agent_C.device), grid, cells)
    return object_states(cells, shown).to(video.device)


@torch.no_grad()
def validate(
    learner: Learner,
    batches: Iterable[tuple[Batch, TargetBatch | None, bool]],
    replication: int,
    device: torch.device,
    precision: torch.autocast,
    inside: Callable[[Callable[[], Tensor]], Tensor] | None = None,
    peers: Peers = ALONE,
    trunk: Trunk | None = None,
) -> Validation:
    """One pass over the validation clips, of which each peer has some; `inside` runs what needs the weights.

    A batch that does not count was only needed to keep the peers in step.
    """
    learner.eval()
    errors = torch.zeros(3 + len(HIDDEN), dtype=torch.float64, device=device)  # sums; the last is the number of clips
    spread = Spread(learner.spec.dim, device)
    for batch, targets, counts in batches:
        call = functools.partial(
            _errors, learner, batch, targets, replication, device, precision, spread, counts, trunk
        )
        rows = inside(call) if inside is not None else call()
        if counts:
            errors += torch.cat((rows.double().sum(0), errors.new_tensor([len(rows)])))
    errors, spread = peers.sum(errors), spread.shared(peers)
    *mean, _ = (errors / errors[-1]).tolist()
    curve = (mean[0], *mean[3:])
    return Validation(mean[0], mean[2], mean[1], curve, spread.rank_me(), spread.variance())


def _errors(
    learner: Learner, batch: Batch, targets: TargetBatch | None, replication: int, device: torch.device,
    precision: torch.autocast, spread: Spread, counts: bool, trunk: Trunk | None,
) -> Tensor:  # fmt: skip
    """Rows: clips; columns: the headline L1, L1 and MSE in the method's own space and the rest of the curve."""
    video = batch.video(device)
    targets = targets.to(device) if targets is not None else None
    with precision:
        known = None if trunk is None else trunk.of(video, [clip.clip_id for clip in batch.clips])
        wanted, own = learner.yardstick(video, known), learner.future(video, trunk=known)
        tokens = learner.tokens(video, learner.target, known)[:, ::7]
        columns = []
        for share in HIDDEN:
            visible = _visible(learner, batch, video, share, replication)
            states = states_of(learner, targets, visible, video)
            prediction = learner.predict(video, visible, states, known).tokens_BtD
            columns.append((prediction - wanted).abs().mean((1, 2)))
            if share == 0.0:
                columns += [(prediction - own).abs().mean((1, 2)), (prediction - wanted).square().mean((1, 2))]
    if counts:
        spread.add(tokens.flatten(0, 1))
    return torch.stack(columns, dim=1)


class Spread:
    """Mean and moments of tokens, added up batch after batch: the tokens of all validation clips need not be kept."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        self.sum_D = torch.zeros(width, dtype=torch.float64, device=device)
        self.moments_DD = torch.zeros(width, width, dtype=torch.float64, device=device)

    def add(self, tokens_nD: Tensor) -> None:
        tokens = tokens_nD.double()
        self.count += len(tokens)
        self.sum_D += tokens.sum(0)
        self.moments_DD += tokens.T @ tokens

    def shared(self, peers: Peers) -> Spread:
        """That of all peers' tokens."""
        self.count, self.sum_D, self.moments_DD = (peers.sum(x) for x in (self.count, self.sum_D, self.moments_DD))
        return self

    def _centred(self) -> Tensor:
        return self.moments_DD - torch.outer(self.sum_D, self.sum_D) / self.count

    def variance(self) -> float:
        """Mean over dimensions."""
        return float(self._centred().diagonal().mean() / (self.count - 1))

    def rank_me(self) -> float:
        """RankMe (Garrido et al. 2023): exponential of the entropy of the singular values; at most D.

        Squared singular values of the centred tokens are the eigenvalues of their moments.
        """
        values = torch.linalg.eigvalsh(self._centred()).clamp(min=0).sqrt()
        share = values / values.sum().clamp_min(1e-12) + 1e-12
        return float(torch.exp(-(share * share.log()).sum()))


def _visible(learner: Learner, batch: Batch, video: Tensor, hidden: float, replication: int) -> Tensor | None:
    if hidden == 0.0:
        return None
    grid = learner.context_grid(video)
    kept = max(1, round((1.0 - hidden) * grid[1] * grid[2]))
    masks = context_masks(SMALL_BLOCKS, replication, [clip.clip_id for clip in batch.clips], grid, kept=kept)
    return masks.to(video.device)
