"""Our kernel for queries and keys against the plain rotation: on a GPU, or interpreted where there is only Triton.

Triton is no development dependency: a gigabyte, for one kernel. `pip install triton; TRITON_INTERPRET=1 pytest …`
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch
from torch import Tensor

from factorjepa.backbones import blocks
from factorjepa.backbones.blocks import Attention
from factorjepa.backbones.rope import rotary_table

interpreted = os.environ.get("TRITON_INTERPRET") == "1"
device = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="needs Triton (with TRITON_INTERPRET=1, no GPU)"
    ),
    pytest.mark.skipif(device == "cpu" and not interpreted, reason="needs a CUDA device, or TRITON_INTERPRET=1"),
]


def case(clips: int, heads: int, width: int, own: bool) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    qkv = torch.randn(clips, 18, 3, heads, width, device=device)
    table = rotary_table(2, 3, 3, width, "interleaved", None).to(device)
    if own:  # every clip has its own tokens
        table = table[:, torch.stack([torch.randperm(18) for _ in range(clips)])]
    return qkv, table


def plain(attention: Attention, qkv: Tensor, table: Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, ...]:
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "can_fuse", lambda x: False)
        return attention._turned(qkv, table)


@pytest.mark.parametrize(("heads", "width", "own"), [(3, 32, False), (3, 32, True), (2, 20, True), (22, 64, False)])
def test_the_kernel_turns_and_its_gradient_turns_back_as_plain_pytorch_does(
    heads: int, width: int, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from factorjepa.backbones.turning import turned

    qkv, table = case(3, heads, width, own)
    attention = Attention(heads * width, heads)
    mine, theirs = qkv.clone().requires_grad_(), qkv.clone().requires_grad_()
    got, wanted = turned(mine, table), plain(attention, theirs, table, monkeypatch)
    for ours, reference in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, reference, atol=1e-6, rtol=1e-6)
    # gradients as attention gives them: heads before tokens, one of them spread over something else
    gradients = [torch.randn(3, heads, 18, width, device=device).transpose(1, 2) for _ in range(3)]
    gradients[1] = torch.randn(3, 18, heads, width, 2, device=device)[..., 0]
    torch.autograd.backward(got, gradients)
    torch.autograd.backward(wanted, gradients)
    torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-6, rtol=1e-6)


def test_a_slice_of_a_longer_table_serves_a_shorter_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    from factorjepa.backbones.turning import turned

    qkv, table = case(2, 3, 32, own=False)
    got = turned(qkv[:, :9], table[:, :9])
    for ours, reference in zip(got, plain(Attention(96, 3), qkv[:, :9], table[:, :9], monkeypatch), strict=True):
        torch.testing.assert_close(ours, reference, atol=1e-6, rtol=1e-6)


def test_without_a_gradient_v_stays_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    from factorjepa.backbones.turning import turned

    qkv, table = case(2, 3, 32, own=True)
    got = turned(qkv, table)
    assert got[2].data_ptr() == qkv[:, :, 2].data_ptr()
    for ours, reference in zip(got, plain(Attention(96, 3), qkv, table, monkeypatch), strict=True):
        torch.testing.assert_close(ours, reference, atol=1e-6, rtol=1e-6)
    with torch.no_grad():
        assert turned(qkv.requires_grad_(), table)[2].data_ptr() == qkv[:, :, 2].data_ptr()


@pytest.mark.parametrize("shape", [(2, 9, 32), (2, 18, 16), (2, 2, 18, 32), (18, 32)])
def test_a_table_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    from factorjepa.backbones.turning import turned

    qkv, _ = case(3, 2, 32, own=False)
    with pytest.raises(ValueError, match="does not turn"):
        turned(qkv, torch.zeros(shape, device=device))
    with pytest.raises(ValueError, match="does not turn"):  # partners lie beside each other
        turned(torch.zeros(1, 4, 3, 2, 5, device=device), torch.zeros(2, 4, 5, device=device))


def test_the_probe_tries_it_with_a_gradient_and_without_and_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    from factorjepa.backbones import turning

    probe = blocks.triton_works.__wrapped__
    assert probe(torch.device(device))
    right = turning.turned
    for wrong in (True, False):  # without a gradient, and with one

        def twisted(qkv: Tensor, table: Tensor, wrong: bool = wrong) -> tuple[Tensor, ...]:
            q, k, v = right(qkv, table)
            return (q + (qkv.requires_grad != wrong), k, v)

        monkeypatch.setattr(turning, "turned", twisted)
        assert not probe(torch.device(device))


@pytest.mark.skipif(device == "cpu", reason="needs a CUDA device")
def test_attention_on_a_gpu_uses_it_and_answers_alike_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    _, table = case(3, 3, 32, own=False)
    torch.manual_seed(1)
    attention, x = Attention(96, 3).to(device), torch.randn(3, 18, 96, device=device)
    with torch.autocast(device, torch.bfloat16):
        fused = attention(x, table)
        monkeypatch.setattr(blocks, "can_fuse", lambda x: False)
        reference = attention(x, table)
    assert not torch.equal(fused, reference)  # rounded otherwise: the table is not lowered
    torch.testing.assert_close(fused, reference, atol=2e-2, rtol=2e-2)
