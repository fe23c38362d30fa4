"""Our kernels for rows in eight bits against plain PyTorch: on a GPU, or interpreted where there is only Triton.

`pip install triton; TRITON_INTERPRET=1 pytest …`, as for `test_turning.py`.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorjepa.backbones import build, eightbit
from factorjepa.backbones.eightbit import EIGHT, EightBitBlock, has_kernels, in_eight_bits, quantised

interpreted = os.environ.get("TRITON_INTERPRET") == "1"
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
needs_triton = [
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="needs Triton (with TRITON_INTERPRET=1, no GPU)"
    ),
    pytest.mark.skipif(device.type == "cpu" and not interpreted, reason="needs a CUDA device, or TRITON_INTERPRET=1"),
]


def marked(test: Callable[..., None]) -> Callable[..., None]:
    for mark in needs_triton:
        test = mark(test)
    return test


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    made *= torch.logspace(-3, 3, shape[0])[:, None]  # rows of very different size
    return made.to(device, dtype)


def assert_same_rows(ours: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], tolerance: float = 1e-5) -> None:
    rows, scale = ours
    assert rows.dtype == EIGHT
    assert rows.is_contiguous()
    torch.testing.assert_close(scale, wanted[1], rtol=tolerance, atol=0)
    got, reference = rows.float(), wanted[0].float()
    if device.type == "cpu":  # Triton's interpreter drops the carry of a number that is rounded up to a power of two
        got = torch.where(2 * got == reference, reference, got)
    assert (got == reference).float().mean() > 0.9  # the others lie in the middle of two numbers, or nearly
    assert ((got - reference).abs() <= 0.14 * reference.abs() + 1e-2).all()


SHAPES = [(5, 16), (3, 20), (4, 1408), (2, 6144)]


@marked
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_what_plain_pytorch_makes_of_them(shape: tuple[int, int], dtype: torch.dtype) -> None:
    from factorjepa.backbones.eightrows import plain_rows

    x = random(*shape, dtype=dtype)
    assert_same_rows(plain_rows(x), quantised(x))
    assert_same_rows(plain_rows(x, gelu=True), quantised(F.gelu(x.float())))


@marked
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adds", [True, False])
def test_a_sum_its_norm_and_its_rows_come_together(shape: tuple[int, int], dtype: torch.dtype, adds: bool) -> None:
    from factorjepa.backbones.eightrows import normed_rows

    norm = nn.LayerNorm(shape[1], eps=1e-6, device=device)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(shape[1]) + 0.5)
        norm.bias.copy_(torch.randn(shape[1]))
    x, more = random(*shape, dtype=dtype), random(*shape, dtype=dtype, seed=1) if adds else None
    with torch.no_grad():
        total, rows = normed_rows(x, more, norm)
        torch.testing.assert_close(total, x if more is None else x + more)  # the interpreter rounds down
        assert_same_rows(rows, quantised(norm(total.float())), tolerance=1e-4)


@marked
def test_a_row_of_zeros_has_no_scale_to_divide_by_and_rows_may_lie_anyhow() -> None:
    from factorjepa.backbones.eightrows import plain_rows

    rows, scale = plain_rows(torch.zeros(2, 16, device=device))
    assert rows.float().eq(0).all()
    assert scale.isfinite().all()
    spread = random(6, 32)[::2, ::2]
    assert_same_rows(plain_rows(spread), quantised(spread))


@marked
def test_a_block_by_kernels_says_what_it_says_without() -> None:
    encoder = build("nano").encoder.requires_grad_(False).to(device)
    in_eight_bits([encoder], encoder.spec.depth)
    block = encoder.blocks[2]
    assert isinstance(block, EightBitBlock)
    x = torch.randn(2, 64, encoder.spec.dim, generator=torch.Generator().manual_seed(3)).to(device)
    rotary = encoder.rotary(1, 8, 8, like=x)
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        ours = block.by_kernels(x, rotary)
        patch.setattr(eightbit, "can_fuse", lambda x: False)
        plain = block(x, rotary)
    assert ours.shape == plain.shape
    close = 0.01 if device.type == "cuda" else 0.2  # interpreted, one number in fifty is half as large
    assert (ours - plain).norm() / (plain - x).norm() < close  # of what the block changes


@pytest.mark.skipif(device.type == "cuda", reason="is about machines without a GPU")
def test_without_a_gpu_nothing_is_tried_and_blocks_work_by_plain_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_kernels(torch.device("cpu"))
    monkeypatch.setattr(EightBitBlock, "by_kernels", lambda *given: pytest.fail("no kernels here"))
    encoder = build("nano").encoder.requires_grad_(False)
    in_eight_bits([encoder], 1)
    assert encoder(torch.zeros(1, 3, 16, 64, 64)).isfinite().all()


@pytest.mark.skipif(device.type == "cpu", reason="needs a CUDA device")
def test_on_a_gpu_kernels_are_used_and_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_kernels(device)
    has_kernels.cache_clear()
    monkeypatch.setattr(eightbit, "triton_works", lambda device: False)
    assert not has_kernels(device)
    has_kernels.cache_clear()
