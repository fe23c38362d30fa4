# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Queries and keys turned in one kernel, by Triton: what `blocks.Attention` does with them in plain PyTorch.

There it takes six kernels, and a dozen in the backward pass, each over all of them: in models whose blocks are not
compiled that is a tenth of an update. The arithmetic is in fp32, whatever the dtype. Import this where Triton is.

Shapes: B clips, N tokens, H heads, E head width, D = H * E.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_TILE = 2048  # numbers that a program handles at once


def turned(qkv_BN3HE: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q and k turned by the table `[2, N, E]` or `[2, B, N, E]` (`rope.rotate`), and v: `[B, N, H, E]` each."""
    batch, tokens, _, _, width = qkv_BN3HE.shape
    if width % 2 or tuple(rotary.shape) not in ((2, tokens, width), (2, 1, tokens, width), (2, batch, tokens, width)):
        raise ValueError(f"a table of {tuple(rotary.shape)} does not turn {tuple(qkv_BN3HE.shape)}")
    if torch.is_grad_enabled() and qkv_BN3HE.requires_grad:
        q, k, v = _Turned.apply(qkv_BN3HE, rotary)
        return q, k, v
    qkv = qkv_BN3HE.contiguous()
    q, k = qkv.new_empty(2, *qkv[:, :, 0].shape)
    _turn_into(qkv, rotary.contiguous(), q, k, None)
    return q, k, qkv[:, :, 2]  # where no gradient is wanted, v may stay where it lies


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        qkv, rotary = qkv.contiguous(), rotary.contiguous()
        ctx.save_for_backward(rotary)
        q, k, v = qkv.new_empty(3, *qkv[:, :, 0].shape)
        _turn_into(qkv, rotary, q, k, v)
        return q, k, v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (rotary,) = ctx.saved_tensors
        q, k, v = (part if part.stride(-1) == 1 else part.contiguous() for part in gradients)
        batch, tokens, heads, width = q.shape
        qkv = q.new_empty(batch, tokens, 3, heads, width)
        size, grid, tile = _cut(batch * tokens, heads * width)
        with torch.cuda.device_of(qkv):
            _turn_back[grid](
                qkv, q, k, v, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], rotary, batch * tokens, tokens,
                rotary[0].numel() // width, HEADS=heads, WIDTH=width, SIZE=size, TILE=tile, num_warps=4,
            )  # fmt: skip
        return qkv, None


def _turn_into(qkv: Tensor, rotary: Tensor, q: Tensor, k: Tensor, v: Tensor | None) -> None:
    batch, tokens, _, heads, width = qkv.shape
    size, grid, tile = _cut(batch * tokens, heads * width)
    with torch.cuda.device_of(qkv):
        _turn[grid](
            qkv, q, k, q if v is None else v, rotary, batch * tokens, rotary[0].numel() // width, HEADS=heads,
            WIDTH=width, SIZE=size, TILE=tile, COPIES=v is not None, num_warps=4,
        )  # fmt: skip


def _cut(rows: int, numbers: int) -> tuple[int, tuple[int], int]:
    """Places for a row, the grid, and rows of a program."""
    size = triton.next_power_of_2(numbers)
    tile = max(1, _TILE // size)
    return size, (triton.cdiv(rows, tile),), tile


@triton.jit
def _turn(
    qkv, q, k, v, table, rows, period,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr, COPIES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)[:, None]
    at = tl.arange(0, SIZE)[None, :]
    numbers: tl.constexpr = HEADS * WIDTH
    here = (row < rows) & (at < numbers)
    angle = (row % period) * WIDTH + at % WIDTH
    cosine = tl.load(table + angle, mask=here).to(tl.float32)
    sine = tl.load(table + (row % period + period) * WIDTH + at % WIDTH, mask=here).to(tl.float32)
    given = qkv + row * (3 * numbers) + at
    made = row * numbers + at
    tl.store(q + made, _mixed(given, cosine, sine, here, SIZE, TILE), mask=here)
    tl.store(k + made, _mixed(given + numbers, cosine, sine, here, SIZE, TILE), mask=here)
    if COPIES:
        tl.store(v + made, tl.load(given + 2 * numbers, mask=here), mask=here)


@triton.jit
def _turn_back(
    qkv, q, k, v, q_b, q_n, q_h, k_b, k_n, k_h, v_b, v_n, v_h, table, rows, tokens, period,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The transpose of `_turn`. Gradients of q, k and v lie as they come: `_b`, `_n` and `_h` are their strides."""
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)[:, None]
    at = tl.arange(0, SIZE)[None, :]
    numbers: tl.constexpr = HEADS * WIDTH
    here = (row < rows) & (at < numbers)
    clip, token, head, place = row // tokens, row % tokens, at // WIDTH, at % WIDTH
    cosine = tl.load(table + (row % period) * WIDTH + place, mask=here).to(tl.float32)
    sine = tl.load(table + (row % period + period) * WIDTH + (place ^ 1), mask=here).to(tl.float32)
    made = qkv + row * (3 * numbers) + at
    given = q + clip * q_b + token * q_n + head * q_h + place
    tl.store(made, _mixed(given, cosine, sine, here, SIZE, TILE), mask=here)
    given = k + clip * k_b + token * k_n + head * k_h + place
    tl.store(made + numbers, _mixed(given, cosine, sine, here, SIZE, TILE), mask=here)
    given = v + clip * v_b + token * v_n + head * v_h + place
    tl.store(made + 2 * numbers, tl.load(given, mask=here), mask=here)


@triton.jit
def _mixed(given, cosine, sine, here, SIZE: tl.constexpr, TILE: tl.constexpr):
    """Each number with its partner, the one beside it: read once, and swapped in the registers."""
    value = tl.load(given, mask=here).to(tl.float32)
    even, odd = tl.split(tl.reshape(value, (TILE, SIZE // 2, 2)))
    return value * cosine + tl.reshape(tl.join(odd, even), (TILE, SIZE)) * sine
