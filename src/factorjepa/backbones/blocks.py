"""Pre-norm transformer blocks, with rotary attention or without; parameter names are the released ones.

Shapes: B batch, N tokens, D width, H heads, E = D / H head width.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .rope import rotate

log = logging.getLogger(__name__)

NORM_EPS = 1e-6
_FUSED = (torch.bfloat16, torch.float16, torch.float32)


class Attention(nn.Module):
    """`rotation` turns queries and keys by a table: `rope` has the released ways. Without a table none is turned."""

    def __init__(self, dim: int, heads: int, rotation: Callable[[Tensor, Tensor, Tensor], Tensor] = rotate) -> None:
        super().__init__()
        self.heads = heads
        self.rotation = rotation
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x_BND: Tensor, rotary: Tensor | None = None, tail: int | None = None) -> Tensor:
        """`rotary` is `[2, N, E]`, or `[2, B, N, E]` where each clip has its own tokens; `tail`: see `Block`."""
        return cast(Tensor, self.proj(self.mixed(self.qkv(x_BND), rotary, tail)))

    def mixed(self, qkv_BN3D: Tensor, rotary: Tensor | None, tail: int | None = None) -> Tensor:
        """Values by the likeness of queries and keys, `[B, N, D]`."""
        qkv_BN3HE = torch.unflatten(qkv_BN3D, -1, (3, self.heads, -1))
        q, k, v = (part.transpose(1, 2) for part in self._turned(qkv_BN3HE, rotary))
        return F.scaled_dot_product_attention(last(q, tail, dim=2), k, v).transpose(1, 2).flatten(2)

    def _turned(self, qkv_BN3HE: Tensor, rotary: Tensor | None) -> tuple[Tensor, ...]:
        """q, k and v, `[B, N, H, E]` each."""
        if rotary is None:
            return qkv_BN3HE.unbind(2)
        if self.rotation is rotate and can_fuse(qkv_BN3HE):
            from .turning import turned

            return turned(qkv_BN3HE, rotary)
        # Under autocast x is fp32 and qkv bf16: the table follows qkv, or it would lift q and k to fp32.
        cosine, sine = rotary.to(qkv_BN3HE.dtype).unsqueeze(-2).unsqueeze(-2)  # over q and k at once, and over heads
        qk, v = qkv_BN3HE.split_with_sizes((2, 1), dim=2)
        return *self.rotation(qk, cosine, sine).unbind(2), v.squeeze(2)


def can_fuse(x: Tensor) -> bool:
    """Whether our own kernels are for `x`: on a GPU where Triton works, and where no compiler fuses what is written."""
    if torch.compiler.is_compiling():
        return False
    return x.is_cuda and x.numel() > 0 and x.dtype in _FUSED and triton_works(x.device)


@functools.cache
def triton_works(device: torch.device) -> bool:
    """Tried once, with a gradient and without: Triton may lack a compiler, or not know the GPU. `FACTORJEPA_FUSED=0`
    leaves our kernels out."""
    if os.environ.get("FACTORJEPA_FUSED") == "0" or importlib.util.find_spec("triton") is None:
        return False
    try:
        from .turning import turned

        with torch.inference_mode(False), torch.enable_grad():
            qkv, table = torch.randn(1, 3, 3, 2, 4, device=device), torch.randn(2, 3, 4, device=device)
            cosine, sine = table.unsqueeze(-2)
            asked = qkv.clone().requires_grad_()
            wanted = rotate(asked[:, :, 0], cosine, sine)
            (right,) = torch.autograd.grad(wanted.square().sum(), asked)
            ours = turned(asked, table)[0]
            (gradient,) = torch.autograd.grad(ours.square().sum(), asked)
            tried = ((turned(qkv, table)[0], wanted), (ours, wanted), (gradient, right))
            wrong = max(float((one - other).detach().abs().max()) for one, other in tried)
    except Exception as error:  # whatever a compiler's tool chain may say
        log.warning("Triton does not work here, our kernels are left out: %s", error)
        return False
    if not wrong < 1e-3:
        log.warning("our kernel that turns queries and keys is wrong here (by %.2g): our kernels are left out", wrong)
    return wrong < 1e-3


class Mlp(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.fc2(F.gelu(self.fc1(x))))  # exact GELU, as trained


class Block(nn.Module):
    """Every token attends to all. With a `tail` only the last so many come out, and nothing else is computed of the
    others than what these attend to: for a last block, most of whose tokens nobody reads."""

    def __init__(self, dim: int, heads: int, mlp_hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.mlp = Mlp(dim, mlp_hidden)

    def forward(self, x_BND: Tensor, rotary: Tensor | None = None, tail: int | None = None) -> Tensor:
        x_BND = last(x_BND, tail) + self.attn(self.norm1(x_BND), rotary, tail)
        return cast(Tensor, x_BND + self.mlp(self.norm2(x_BND)))


def last(x: Tensor, tail: int | None, dim: int = 1) -> Tensor:
    """The last `tail` tokens, which lie along `dim`; None: all."""
    return x if tail is None else x.narrow(dim, x.shape[dim] - tail, tail)


def run_block(block: nn.Module, x_BND: Tensor, rotary: Tensor, recompute: bool, tail: int | None = None) -> Tensor:
    """One block, its activations recomputed in the backward pass when `recompute` and gradients are wanted."""
    if recompute and torch.is_grad_enabled():
        return cast(Tensor, checkpoint(block, x_BND, rotary, tail, use_reentrant=False))
    return cast(Tensor, block(x_BND, rotary, tail))


def initialise(module: nn.Module, blocks: nn.ModuleList) -> None:
    """Released initialisation: truncated normal 0.02, and residual outputs scaled down with depth."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d | nn.Conv3d):
            nn.init.trunc_normal_(part.weight, std=0.02)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    with torch.no_grad():
        for number, block in enumerate(blocks, start=1):
            assert isinstance(block, Block)
            for weight in (block.attn.proj.weight, block.mlp.fc2.weight):
                weight /= math.sqrt(2.0 * number)


def fastest_attention() -> AbstractContextManager[None]:
    """Prefer SDPA's cuDNN backend, which at head width 64 beats the flash backend by far on Hopper GPUs.

    Wrap compilation and calls alike: a compiled graph keeps the backend that was preferred when it was traced.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    order = [
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.MATH,
    ]
    return cast(AbstractContextManager[None], sdpa_kernel(order, set_priority=True))
