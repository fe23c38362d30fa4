"""Frozen linear layers in eight bits, for GPUs that multiply those faster (Ada, Hopper and later).

Weights are e4m3 floats with one scale per output, inputs the same with one scale per token, found anew for each; the
product is summed in more bits and comes out as the input came in. Layers that train keep their sixteen or more bits: a
step of theirs would round to nothing.

Shapes: n tokens, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import BackboneError
from .encoder import Encoder

EIGHT = torch.float8_e4m3fn
_LARGEST = torch.finfo(EIGHT).max
_SMALLEST = 1e-12  # of a scale: a row of zeros has none
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
        rows_nI, scale_n1 = quantised(x.flatten(0, -2))
        product = _product if x.device.type == "cuda" else _product_by_hand
        out_nO = product(rows_nI, scale_n1, self.weight, self.scale, self.bias, x.dtype)
        return torch.unflatten(out_nO, 0, x.shape[:-1])


def quantised(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as e4m3 floats, and what each has to be multiplied with, `[rows, 1]`."""
    scale = rows.abs().amax(-1, keepdim=True).float().clamp(min=_SMALLEST) / _LARGEST
    return (rows.float() / scale).clamp(-_LARGEST, _LARGEST).to(EIGHT), scale


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
    for number in range(blocks):
        for name in _LAYERS:
            layer = first.blocks[number].get_submodule(name)
            assert isinstance(layer, nn.Linear)
            if layer.weight.requires_grad:
                raise BackboneError(f"encoder: blocks.{number}.{name} trains: in eight bits its steps would be lost")
            if layer.in_features % 16 or layer.out_features % 16:
                raise BackboneError(
                    f"encoder: blocks.{number}.{name} is {layer.in_features} x {layer.out_features}: eight bits need "
                    "multiples of 16 (set frozen_bits=16)"
                )
            lowered = EightBitLinear(layer)
            for encoder in encoders:
                owner, _, last = name.rpartition(".")
                setattr(encoder.blocks[number].get_submodule(owner), last, lowered)
