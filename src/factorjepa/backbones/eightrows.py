# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Rows in eight bits by one kernel each, with what comes before them: a sum and its norm, GELU, or nothing.

In plain PyTorch (`eightbit.quantised`) it takes six kernels, most of them in fp32, each over all rows: in blocks that
are not compiled they take up to three times as long as the products they are for. Import this where Triton is.

Shapes: n rows, D numbers of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from .eightbit import EIGHT, LARGEST, SMALLEST

Rows = tuple[Tensor, Tensor]  # e4m3 [n, D], and what each is to be multiplied with, fp32 [n, 1]


def normed_rows(x_nD: Tensor, more_nD: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Rows]:
    """`x + more`, or x where there is nothing to add, and the rows of its norm."""
    x_nD, more = x_nD.contiguous(), None if more_nD is None else more_nD.contiguous()
    total = x_nD if more is None else torch.empty_like(x_nD)
    rows, scale = _places(x_nD)
    size, warps = _cut(x_nD)
    with torch.cuda.device_of(x_nD):
        _normed[(len(x_nD),)](
            x_nD, x_nD if more is None else more, norm.weight, norm.bias, total, rows, scale, x_nD.shape[1], norm.eps,
            LARGEST, SMALLEST, ADDS=more is not None, SIZE=size, num_warps=warps,
        )  # fmt: skip
    return total, (rows, scale)


def plain_rows(x_nD: Tensor, gelu: bool = False) -> Rows:
    """Rows of x, or of GELU of it (the exact one)."""
    x_nD = x_nD.contiguous()
    rows, scale = _places(x_nD)
    size, warps = _cut(x_nD)
    with torch.cuda.device_of(x_nD):
        _plain[(len(x_nD),)](x_nD, rows, scale, x_nD.shape[1], LARGEST, SMALLEST, GELU=gelu, SIZE=size, num_warps=warps)
    return rows, scale


def _places(x_nD: Tensor) -> Rows:
    rows = torch.empty(x_nD.shape, dtype=EIGHT, device=x_nD.device)
    return rows, torch.empty(len(x_nD), 1, dtype=torch.float32, device=x_nD.device)


def _cut(x_nD: Tensor) -> tuple[int, int]:
    """Places for a row, and warps that share it."""
    size = triton.next_power_of_2(x_nD.shape[1])
    return size, 4 if size <= 2048 else 8


@triton.jit
def _normed(
    x, more, weight, bias, total, rows, scale, width, eps, largest, smallest, ADDS: tl.constexpr, SIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, SIZE)
    here = at < width
    value = tl.load(x + row * width + at, mask=here, other=0.0).to(tl.float32)
    if ADDS:
        value += tl.load(more + row * width + at, mask=here, other=0.0).to(tl.float32)
        kept = value.to(total.dtype.element_ty)
        tl.store(total + row * width + at, kept, mask=here)
        value = kept.to(tl.float32)  # the norm of what is written, as it would be read again
    apart = tl.where(here, value - tl.sum(value) / width, 0.0)
    sharper = tl.rsqrt(tl.sum(apart * apart) / width + eps)
    factor = tl.load(weight + at, mask=here, other=0.0).to(tl.float32)
    shift = tl.load(bias + at, mask=here, other=0.0).to(tl.float32)
    _write(apart * sharper * factor + shift, rows, scale, row, at, here, width, largest, smallest)


@triton.jit
def _plain(x, rows, scale, width, largest, smallest, GELU: tl.constexpr, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, SIZE)
    here = at < width
    value = tl.load(x + row * width + at, mask=here, other=0.0).to(tl.float32)
    if GELU:
        value = _gelu(value)
    _write(value, rows, scale, row, at, here, width, largest, smallest)


@triton.jit
def _gelu(x):
    """The exact one, by what erf lacks to one (Abramowitz and Stegun 7.1.26: off by 1.5e-7 at most), in half the
    instructions of `tl.erf`: of a row this wide they are what takes the time."""
    size = tl.abs(x) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.3275911 * size)
    lacks = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    beyond = 0.5 * x * lacks * tl.exp(-size * size)
    return tl.where(x > 0.0, x - beyond, beyond)


@triton.jit
def _write(value, rows, scale, row, at, here, width, largest, smallest):
    """A row, divided by its scale: `eightbit.quantised`. Largest of all skips what is no number: a sum does not."""
    divisor = tl.maximum(tl.max(tl.abs(value)), smallest) / largest + 0.0 * tl.sum(value)
    tl.store(scale + row, divisor)
    rounded = tl.minimum(tl.maximum(value * (1.0 / divisor), -largest), largest)
    tl.store(rows + row * width + at, rounded.to(rows.dtype.element_ty), mask=here)
