"""Frozen linear layers in eight bits, for GPUs that multiply those faster (Ada, Hopper and later).

Weights are e4m3 floats with one scale per output, inputs the same with one scale per token, found anew for each; the
product is summed in more bits and comes out as the input came in. Layers that train keep their sixteen or more bits: a
step of theirs would round to nothing. Where Triton works, rows are put into eight bits by our own kernels
(`eightrows`); what is written here says what they do, and serves everywhere else.

Shapes: n tokens, I inputs, O outputs.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import BackboneError
from .blocks import Block, can_fuse, last, triton_works
from .encoder import Encoder

log = logging.getLogger(__name__)

EIGHT = torch.float8_e4m3fn
LARGEST = torch.finfo(EIGHT).max
SMALLEST = 1e-12  # of a scale: a row of zeros has none
_ROUNDED = 0.05  # of the largest number, at most, where eight bits and bf16 round
_LAYERS = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")


class EightBitLinear(nn.Module):
    """What `linear` does, rounded."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight_OI, scale_O1 = quantised(linear.weight.detach())
        self.weight = nn.Parameter(weight_OI, requires_grad=False)
        self.scale = nn.Parameter(scale_O1.T.contiguous(), requires_grad=False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.unflatten(self.of_rows(*quantised(x.flatten(0, -2)), x.dtype), 0, x.shape[:-1])

    def of_rows(self, rows_nI: Tensor, scale_n1: Tensor, dtype: torch.dtype) -> Tensor:
        """What it says of rows that are in eight bits already, `[n, O]`."""
        product = _product if rows_nI.device.type == "cuda" else _product_by_hand
        return product(rows_nI, scale_n1, self.weight, self.scale, self.bias, dtype)


class EightBitBlock(Block):
    """A block whose linear layers are in eight bits. It never trains."""

    def __init__(self, block: Block) -> None:
        assert type(block) is Block, f"{type(block).__name__} may do something else"
        nn.Module.__init__(self)  # its parts are the block's own
        self.norm1, self.attn, self.norm2, self.mlp = block.norm1, block.attn, block.norm2, block.mlp
        self.train(block.training)

    def forward(self, x_BND: Tensor, rotary: Tensor | None = None, tail: int | None = None) -> Tensor:
        through = torch.is_grad_enabled() and x_BND.requires_grad  # our kernels have no gradient
        if not through and can_fuse(x_BND) and self.has_kernels(x_BND.device, x_BND.dtype):
            return self.by_kernels(x_BND, rotary, tail)
        return super().forward(x_BND, rotary, tail)

    def has_kernels(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether our kernels work for its widths."""
        fc2 = cast(EightBitLinear, self.mlp.fc2)
        return has_kernels(device, dtype, *reversed(fc2.weight.shape))

    def by_kernels(self, x_BND: Tensor, rotary: Tensor | None, tail: int | None = None) -> Tensor:
        """The same with sums, norms and GELU in the kernels that round their rows."""
        from .eightrows import normed_rows, plain_rows

        shape, dtype = x_BND.shape, x_BND.dtype
        qkv, proj, fc1, fc2 = (cast(EightBitLinear, self.get_submodule(name)) for name in _LAYERS)
        x_nD, rows = normed_rows(x_BND.flatten(0, 1), None, self.norm1)
        mixed = self.attn.mixed(torch.unflatten(qkv.of_rows(*rows, dtype), 0, shape[:2]), rotary, tail)
        x_nD = last(torch.unflatten(x_nD, 0, shape[:2]), tail).flatten(0, 1)
        x_nD, rows = normed_rows(x_nD, proj.of_rows(*plain_rows(mixed.flatten(0, 1)), dtype), self.norm2)
        x_nD = x_nD + fc2.of_rows(*plain_rows(fc1.of_rows(*rows, dtype), gelu=True), dtype)
        return torch.unflatten(x_nD, 0, mixed.shape[:2])


@functools.cache
def has_kernels(device: torch.device, dtype: torch.dtype, hidden: int, dim: int) -> bool:
    """Whether our kernels for rows work there, tried once on all that a block of these widths asks of them."""
    if device.type != "cuda" or not triton_works(device):
        return False
    try:
        from .eightrows import normed_rows, plain_rows

        with torch.inference_mode(False), torch.no_grad():
            x, norm = torch.randn(4, dim, device=device, dtype=dtype), nn.LayerNorm(dim, device=device, dtype=dtype)
            wide = torch.randn(4, hidden, device=device, dtype=dtype)
            tried = [
                (normed_rows(x, None, norm)[1], norm(x)), (normed_rows(x, x, norm)[1], norm(x + x)),
                (plain_rows(x), x), (plain_rows(wide, gelu=True), F.gelu(wide)),
            ]  # fmt: skip
            wrong = max(float((rows.float() * scale - y).abs().max() / y.abs().max()) for (rows, scale), y in tried)
    except Exception as error:  # whatever a compiler's tool chain may say
        log.warning("our kernels for rows in eight bits do not work here and are left out: %s", error)
        return False
    if not wrong < _ROUNDED:
        log.warning("our kernels for rows in eight bits are wrong here (by %.2g) and are left out", wrong)
    return wrong < _ROUNDED


def quantised(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as e4m3 floats, and what each has to be multiplied with, `[rows, 1]`."""
    scale = rows.abs().amax(-1, keepdim=True).float().clamp(min=SMALLEST) / LARGEST
    return (rows.float() / scale).clamp(-LARGEST, LARGEST).to(EIGHT), scale


def _product(
    rows_nI: Tensor, scale_n1: Tensor, weight_OI: Tensor, scale_1O: Tensor, bias_O: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """By the GPU's own instructions, which answer in bf16."""
    bias = None if bias_O is None else bias_O.bfloat16()
    out = torch._scaled_mm(
        rows_nI, weight_OI.t(), scale_a=scale_n1, scale_b=scale_1O, bias=bias, out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )  # fmt: skip
    return out.to(dtype)


def _product_by_hand(
    rows_nI: Tensor, scale_n1: Tensor, weight_OI: Tensor, scale_1O: Tensor, bias_O: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """The same anywhere else: what the GPU's is compared with."""
    out = (rows_nI.float() @ weight_OI.float().T) * (scale_n1 * scale_1O)
    return (out if bias_O is None else out + bias_O.float()).to(dtype)


def can_multiply(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def in_eight_bits(encoders: Sequence[Encoder], blocks: int) -> None:
    """Put the linear layers of the first `blocks` blocks into eight bits: once for encoders that share the weights."""
    first = encoders[0]
    for number, name in itertools.product(range(blocks), _LAYERS):
        _refuse_unfit(first, number, name)
    for number in range(blocks):
        for name in _LAYERS:
            lowered = EightBitLinear(cast(nn.Linear, first.blocks[number].get_submodule(name)))
            for encoder in encoders:
                owner, _, last = name.rpartition(".")
                setattr(encoder.blocks[number].get_submodule(owner), last, lowered)
        for encoder in encoders:
            encoder.blocks[number] = EightBitBlock(cast(Block, encoder.blocks[number]))


def _refuse_unfit(encoder: Encoder, number: int, name: str) -> None:
    layer = encoder.blocks[number].get_submodule(name)
    assert isinstance(layer, nn.Linear)
    if layer.weight.requires_grad:
        raise BackboneError(f"encoder: blocks.{number}.{name} trains: in eight bits its steps would be lost")
    if layer.in_features % 16 or layer.out_features % 16:
        raise BackboneError(
            f"encoder: blocks.{number}.{name} is {layer.in_features} x {layer.out_features}: eight bits need "
            "multiples of 16 (set frozen_bits=16)"
        )
