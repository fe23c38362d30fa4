"""What is not left to bf16."""

from __future__ import annotations

import torch
from torch import Tensor


def full(x: Tensor) -> Tensor:
    """At least fp32: coordinates, sums over agents, sigmoids, norms and losses are computed so under autocast, too."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
