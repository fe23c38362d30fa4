"""Auto-RGN (Lee et al. 2023): one fixed gradient-probe pass chooses which encoder blocks train."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ..backbones.encoder import Encoder
from ..errors import TrainingError
from ..peers import ALONE, Peers
from .method import Method

AUTO_RGN = Method(
    name="auto_rgn",
    title="Auto-RGN",
    family="generic",
    why="the strongest generic competitor: the monolithic predictor and the blocks that gradients point to",
    encoder="chosen",
    matched=True,
)


def relative_gradient_norms(
    encoder: Encoder, losses: Iterable[Callable[[], Tensor]], peers: Peers = ALONE
) -> list[float]:
    """`|grad_l L| / (|theta_l| + 1e-8)` of each block l (Panel D), the gradient summed over `losses`, mean over peers.

    The encoder is left with every parameter trainable and no gradients.
    """
    encoder.freeze(0)
    encoder.zero_grad(set_to_none=True)
    for loss in losses:
        loss().backward()  # type: ignore[no-untyped-call]
    norms = []
    for block in encoder.blocks:
        gradients = [peers.sum(p.grad.float()) / peers.world for p in block.parameters() if p.grad is not None]
        gradient = torch.stack([one.norm() for one in gradients])
        weight = torch.stack([p.detach().float().norm() for p in block.parameters()])
        norms.append((gradient.norm() / (weight.norm() + 1e-8)).item())
    encoder.zero_grad(set_to_none=True)
    return norms


def choose_blocks(norms: list[float], count: int) -> tuple[int, ...]:
    """The `count` blocks of largest relative gradient norm, ascending."""
    if not 0 < count <= len(norms):
        raise TrainingError(f"Auto-RGN: cannot choose {count} of {len(norms)} blocks (set trainable_blocks)")
    order = sorted(range(len(norms)), key=lambda block: -norms[block])
    return tuple(sorted(order[:count]))
