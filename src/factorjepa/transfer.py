"""Tensors to a GPU without waiting for it: the host goes on preparing while the GPU still computes."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    import torch
    from torch import Tensor


def sent(x: Tensor, device: torch.device) -> Tensor:
    """`x` on `device`. A copy from ordinary memory would wait until the GPU has done everything before it, so it goes
    through pinned memory (which torch keeps until the copy is done)."""
    if device.type != "cuda" or x.device.type != "cpu":
        return x.to(device)
    return (x if x.is_pinned() else x.contiguous().pin_memory()).to(device, non_blocking=True)
