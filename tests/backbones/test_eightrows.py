"""Our kernels for rows in eight bits against plain PyTorch: on a GPU, or interpreted where there is only Triton.

`pip install triton; TRITON_INTERPRET=1 pytest …`, as for `test_turning.py`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorjepa.backbones import blocks, build, eightbit
from factorjepa.backbones.eightbit import EIGHT, EightBitBlock, has_kernels, in_eight_bits, quantised
from factorjepa.backbones.encoder import Encoder

interpreted = os.environ.get("TRITON_INTERPRET") == "1"
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
runs = importlib.util.find_spec("triton") is not None and (device.type == "cuda" or interpreted)
needs_triton = pytest.mark.skipif(not runs, reason="needs Triton and a CUDA device, or TRITON_INTERPRET=1")


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
        got = torch.where(
            (reference == 0) & (got.abs() <= 2**-6), reference, got
        )  # and makes too much of next to nothing
    assert (got == reference).float().mean() > 0.9  # the others lie in the middle of two numbers, or nearly
    assert ((got - reference).abs() <= 0.14 * reference.abs() + 1e-2).all()


SHAPES = [(5, 16), (3, 20), (4, 1408), (3, 70), (2, 6144), (2, 8192)]  # in one part and in three


@needs_triton
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_what_plain_pytorch_makes_of_them(shape: tuple[int, int], dtype: torch.dtype) -> None:
    from factorjepa.backbones.eightrows import plain_rows

    x = random(*shape, dtype=dtype)
    assert_same_rows(plain_rows(x), quantised(x))
    assert_same_rows(plain_rows(x, gelu=True), quantised(F.gelu(x.float())))


@needs_triton
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


@needs_triton
def test_a_row_of_zeros_has_no_scale_to_divide_by_and_rows_may_lie_anyhow() -> None:
    from factorjepa.backbones.eightrows import plain_rows

    rows, scale = plain_rows(torch.zeros(2, 16, device=device))
    assert rows.float().eq(0).all()
    assert scale.isfinite().all()
    spread = random(6, 32)[::2, ::2]
    assert_same_rows(plain_rows(spread), quantised(spread))


@needs_triton
@pytest.mark.filterwarnings("ignore:invalid value encountered")  # of the interpreter
def test_what_is_no_number_is_not_hidden() -> None:
    from factorjepa.backbones.eightrows import plain_rows

    x = torch.ones(3, 32, device=device)
    x[1, 5], x[2, 7] = torch.nan, torch.inf
    rows, scale = plain_rows(x)
    assert (rows.float() * scale).isnan().any(-1).tolist() == [False, True, True]


def lowered(dtype: torch.dtype = torch.float32) -> tuple[Encoder, Tensor, Tensor]:
    """An encoder in eight bits whose norms and biases all differ, tokens for it, and their positions."""
    encoder = build("nano").encoder.requires_grad_(False)
    for number, parameter in enumerate(encoder.parameters()):
        if parameter.dim() == 1:
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)) * 0.3)
    encoder.to(device, dtype)
    in_eight_bits([encoder], encoder.spec.depth)
    x = torch.randn(2, 64, encoder.spec.dim, generator=torch.Generator().manual_seed(3)).to(device, dtype)
    return encoder, x, encoder.rotary(1, 8, 8, like=x)


@pytest.mark.parametrize("dtype", [torch.float32, *([torch.bfloat16] if device.type == "cuda" else [])])
@pytest.mark.parametrize("tail", [None, 16])
@pytest.mark.parametrize("kernels", [pytest.param(True, marks=needs_triton), False])
def test_a_block_by_kernels_says_what_it_says_without(
    dtype: torch.dtype, kernels: bool, tail: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so it does where plain PyTorch stands in for them, which shows what goes where on any machine."""
    encoder, x, rotary = lowered(dtype)
    block = encoder.blocks[2]
    assert isinstance(block, EightBitBlock)
    if not kernels:
        plainly = types.ModuleType("eightrows")
        plainly.normed_rows = lambda x, more, norm: (  # type: ignore[attr-defined]
            (total := x if more is None else x + more),
            quantised(norm(total)),
        )
        plainly.plain_rows = lambda x, gelu=False: quantised(F.gelu(x) if gelu else x)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "factorjepa.backbones.eightrows", plainly)
    ours = block.by_kernels(x, rotary, tail)
    monkeypatch.setattr(eightbit, "can_fuse", lambda x: False)
    plain = block(x, rotary, tail)
    assert ours.shape == plain.shape
    assert ours.dtype == plain.dtype
    # Of what the block changes. Interpreted, one number in fifty is half as large.
    close = 0.2 if kernels and device.type == "cpu" else 0.02 if kernels else 1e-6
    assert (ours - plain).float().norm() / (plain - blocks.last(x, tail)).float().norm() < close


def test_a_block_in_eight_bits_is_the_block_that_it_was_made_of() -> None:
    encoder = build("nano").encoder.requires_grad_(False).eval()
    names = [name for name, _ in encoder.named_parameters()]
    in_eight_bits([encoder], encoder.spec.depth)
    assert not any(block.training for block in encoder.blocks)
    assert [name for name, _ in encoder.named_parameters() if not name.endswith(".scale")] == names


@pytest.mark.skipif(device.type == "cuda", reason="is about machines without a GPU")
def test_without_a_gpu_nothing_is_tried_and_blocks_work_by_plain_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_kernels(torch.device("cpu"), torch.float32, 64, 16)
    monkeypatch.setattr(EightBitBlock, "by_kernels", lambda *given: pytest.fail("no kernels here"))
    encoder = build("nano").encoder.requires_grad_(False)
    in_eight_bits([encoder], 1)
    assert encoder(torch.zeros(1, 3, 16, 64, 64)).isfinite().all()


@pytest.fixture
def forgetful() -> Iterator[None]:
    """What was found out about a device is found out anew, before and after."""
    for tried in (has_kernels, blocks.triton_works):
        tried.cache_clear()
    yield
    for tried in (has_kernels, blocks.triton_works):
        tried.cache_clear()


@pytest.mark.skipif(device.type == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("wanted", [True, False])
def test_on_a_gpu_kernels_are_used_and_can_be_left_out(
    wanted: bool, monkeypatch: pytest.MonkeyPatch, forgetful: None
) -> None:
    monkeypatch.setenv("FACTORJEPA_FUSED", "1" if wanted else "0")
    used: list[Tensor] = []
    by_kernels = EightBitBlock.by_kernels

    def noted(block: EightBitBlock, x: Tensor, rotary: Tensor | None, tail: int | None = None) -> Tensor:
        used.append(x)
        return by_kernels(block, x, rotary, tail)

    monkeypatch.setattr(EightBitBlock, "by_kernels", noted)
    encoder, x, rotary = lowered()
    encoder.blocks[0](x, rotary)
    assert bool(used) == wanted
    with_gradient = x.clone().requires_grad_()
    used.clear()
    assert encoder.blocks[0](with_gradient, rotary).requires_grad
    assert not used  # they have no gradient


@needs_triton
def test_gelu_is_the_exact_one() -> None:
    """Rows of one number each are that number, in the scale that they were divided by."""
    from factorjepa.backbones.eightrows import plain_rows

    x = torch.cat((torch.linspace(-6, 6, 97), torch.tensor([0.0, 1e-6, -1e-6, 40.0, -40.0]))).to(device)
    _, scale = plain_rows(x[:, None], gelu=True)
    wanted = F.gelu(x.double()).abs().clamp(min=eightbit.SMALLEST).float()
    assert ((scale[:, 0] * eightbit.LARGEST - wanted).abs() < 5e-6 + 3e-6 * x.abs()).all()
