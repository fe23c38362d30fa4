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
    size, parts, warps = _cut(x_nD)
    with torch.cuda.device_of(x_nD):
        _normed[(len(x_nD),)](
            x_nD, x_nD if more is None else more, norm.weight, norm.bias, total, rows, scale, x_nD.shape[1], norm.eps,
            LARGEST, SMALLEST, ADDS=more is not None, SIZE=size, PARTS=parts, num_warps=warps,
        )  # fmt: skip
    return total, (rows, scale)


def plain_rows(x_nD: Tensor, gelu: bool = False) -> Rows:
    """Rows of x, or of GELU of it (the exact one)."""
    x_nD = x_nD.contiguous()
    rows, scale = _places(x_nD)
    size, parts, warps = _cut(x_nD)
    with torch.cuda.device_of(x_nD):
        _plain[(len(x_nD),)](
            x_nD, rows, scale, x_nD.shape[1], LARGEST, SMALLEST, GELU=gelu, SIZE=size, PARTS=parts, num_warps=warps
        )
    return rows, scale


def _places(x_nD: Tensor) -> Rows:
    rows = torch.empty(x_nD.shape, dtype=EIGHT, device=x_nD.device)
    return rows, torch.empty(len(x_nD), 1, dtype=torch.float32, device=x_nD.device)


def _cut(x_nD: Tensor) -> tuple[int, int, int]:
    """Places of a part, parts of a row (three quarters of a power of two where that is enough) and warps for it."""
    size = triton.next_power_of_2(x_nD.shape[1])
    warps = 4 if size <= 2048 else 8
    return (size // 4, 3, warps) if size >= 64 and x_nD.shape[1] <= size // 4 * 3 else (size, 1, warps)


# A row is held in one part, or in three that are named, because Triton knows no other sizes than powers of two: widths
# such as 1,408 and 6,144 would waste a third of their places, and these kernels are bound by arithmetic.


@triton.jit
def _normed(
    x, more, weight, bias, total, rows, scale, width, eps, largest, smallest,
    ADDS: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, SIZE)
    a = _summed(x + start, more + start, total + start, at, width, ADDS)
    mean = tl.sum(a)
    if PARTS == 3:
        b = _summed(x + start, more + start, total + start, at + SIZE, width, ADDS)
        c = _summed(x + start, more + start, total + start, at + 2 * SIZE, width, ADDS)
        mean = tl.sum(a + b + c)
    mean = mean / width
    a = tl.where(at < width, a - mean, 0.0)
    squares = a * a
    if PARTS == 3:
        apart_b = tl.where(at + SIZE < width, b - mean, 0.0)
        apart_c = tl.where(at + 2 * SIZE < width, c - mean, 0.0)
        squares += apart_b * apart_b + apart_c * apart_c
    sharper = tl.rsqrt(tl.sum(squares) / width + eps)
    a = _shaped(a * sharper, weight, bias, at, width)
    b = a
    c = a
    if PARTS == 3:
        b = _shaped(apart_b * sharper, weight, bias, at + SIZE, width)
        c = _shaped(apart_c * sharper, weight, bias, at + 2 * SIZE, width)
    _write(a, b, c, rows + start, scale, at, width, largest, smallest, SIZE, PARTS)


@triton.jit
def _plain(x, rows, scale, width, largest, smallest, GELU: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, SIZE)
    a = _read(x + start, at, width, GELU)
    b = a
    c = a
    if PARTS == 3:
        b = _read(x + start, at + SIZE, width, GELU)
        c = _read(x + start, at + 2 * SIZE, width, GELU)
    _write(a, b, c, rows + start, scale, at, width, largest, smallest, SIZE, PARTS)


@triton.jit
def _summed(x, more, total, at, width, ADDS: tl.constexpr):
    here = at < width
    value = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
    if ADDS:
        value += tl.load(more + at, mask=here, other=0.0).to(tl.float32)
        kept = value.to(total.dtype.element_ty)
        tl.store(total + at, kept, mask=here)
        value = kept.to(tl.float32)  # the norm of what is written, as it would be read again
    return value


@triton.jit
def _shaped(value, weight, bias, at, width):
    here = at < width
    factor = tl.load(weight + at, mask=here, other=0.0).to(tl.float32)
    return value * factor + tl.load(bias + at, mask=here, other=0.0).to(tl.float32)


@triton.jit
def _read(x, at, width, GELU: tl.constexpr):
    value = tl.load(x + at, mask=at < width, other=0.0).to(tl.float32)
    if GELU:
        value = _gelu(value)
    return value


@triton.jit
def _gelu(x):
    """The exact one, not its approximation by tanh. The normal distribution is a polynomial of the square as far as
    4.5: off by 4e-6 at most there, and by 3e-6 of x beyond. `tl.erf` takes three times the instructions."""
    near = tl.minimum(tl.maximum(x, -4.5), 4.5)
    s = near * near * 0.09876543209876543 - 1.0
    p = 8.1934315e-04 * s - 2.25916045e-03
    p = p * s + 3.07921061e-03
    p = p * s - 5.41325201e-03
    p = p * s + 1.11570449e-02
    p = p * s - 1.89148284e-02
    p = p * s + 2.83720727e-02
    p = p * s - 4.01344745e-02
    p = p * s + 5.46917525e-02
    p = p * s - 7.71922822e-02
    p = p * s + 1.56905088e-01
    return x * (near * p + 0.5)


@triton.jit
def _bits(value):
    """Sizes as whole numbers: these keep their order, and what is no number is the largest, which `max` would skip."""
    return value.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _write(a, b, c, rows, scale, at, width, largest, smallest, SIZE: tl.constexpr, PARTS: tl.constexpr):
    """A row in eight bits, and what it is to be multiplied with: `eightbit.quantised`. Of one part b and c are a."""
    bits = _bits(a)
    if PARTS == 3:
        bits = tl.maximum(bits, tl.maximum(_bits(b), _bits(c)))
    divisor = (tl.max(bits).to(tl.float32, bitcast=True) + smallest) / largest
    tl.store(scale + tl.program_id(0), divisor)
    inverse = 1.0 / divisor
    tl.store(rows + at, (a * inverse).to(rows.dtype.element_ty), mask=at < width)
    if PARTS == 3:
        tl.store(rows + at + SIZE, (b * inverse).to(rows.dtype.element_ty), mask=at + SIZE < width)
        tl.store(rows + at + 2 * SIZE, (c * inverse).to(rows.dtype.element_ty), mask=at + 2 * SIZE < width)
