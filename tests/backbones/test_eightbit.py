"""Eight bits in frozen layers: close to what the layer says, shared where weights are shared, never in training."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from factorjepa.backbones import build
from factorjepa.backbones.eightbit import (
    EIGHT,
    EightBitBlock,
    EightBitLinear,
    _product,
    _product_by_hand,
    in_eight_bits,
    quantised,
)
from factorjepa.backbones.encoder import Encoder
from factorjepa.backbones.momentum import MomentumEncoder
from factorjepa.errors import BackboneError


def layer(inputs: int = 64, outputs: int = 48, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs, bias)


@pytest.mark.parametrize("bias", [True, False])
def test_it_says_what_the_layer_says_but_for_three_bits_of_rounding(bias: bool) -> None:
    linear = layer(bias=bias)
    x = torch.randn(2, 5, 64)
    exact, rounded = linear(x), EightBitLinear(linear)(x)
    assert rounded.shape == exact.shape
    assert rounded.dtype == exact.dtype
    error = (rounded - exact).norm() / exact.norm()
    assert 0.001 < error < 0.04  # it is rounded, and no more than that


def test_every_token_and_every_output_has_its_own_scale() -> None:
    """One loud token, or one loud output, must not drown the others."""
    linear = layer(bias=False)
    with torch.no_grad():
        linear.weight[7] *= 1e4
    x = torch.randn(6, 64)
    x[2] *= 1e5
    exact, rounded = linear(x), EightBitLinear(linear)(x)
    loud = torch.arange(48) == 7
    for some in (loud, ~loud):
        error, size = (rounded - exact)[:, some].norm(dim=1), exact[:, some].norm(dim=1)
        assert (error / size).max() < 0.1


def test_zeros_stay_zeros() -> None:
    assert EightBitLinear(layer(bias=False))(torch.zeros(3, 64)).eq(0).all()


def test_quantised_rows_use_the_whole_range() -> None:
    rows, scale = quantised(torch.tensor([[1e-6, -2e-6], [3.0, 1.5]]))
    assert rows.dtype == EIGHT
    assert torch.allclose(rows.float() * scale, torch.tensor([[1e-6, -2e-6], [3.0, 1.5]]), rtol=0.07)
    assert rows.float().abs().amax(1).tolist() == [448.0, 448.0]


def test_an_encoder_with_frozen_blocks_in_eight_bits_gives_nearly_the_same_tokens() -> None:
    encoder = build("nano").encoder.requires_grad_(False)
    video = torch.randn(1, 3, 16, 64, 64, generator=torch.Generator().manual_seed(1))
    exact = F.layer_norm(encoder(video), (encoder.spec.dim,))
    in_eight_bits([encoder], encoder.spec.depth)
    rounded = F.layer_norm(encoder(video), (encoder.spec.dim,))
    assert F.cosine_similarity(exact, rounded, dim=-1).mean() > 0.99
    assert not torch.equal(exact, rounded)


def test_encoders_that_share_weights_share_them_in_eight_bits_too() -> None:
    encoder: Encoder = build("nano").encoder.requires_grad_(False)
    encoder.blocks[-1].requires_grad_(True)
    target = MomentumEncoder(encoder, 0.9)
    in_eight_bits([encoder, target.encoder], encoder.spec.depth - 1)
    for mine, its in zip(encoder.blocks[:-1], target.encoder.blocks[:-1], strict=True):
        assert isinstance(mine.mlp.fc1, EightBitLinear)
        assert mine.mlp.fc1 is its.mlp.fc1
        assert mine.attn.qkv is its.attn.qkv
    assert isinstance(encoder.blocks[-1].mlp.fc1, nn.Linear)
    target.update()  # what is averaged still has its partner
    assert set(target.owned_state()) == {
        name for name, parameter in encoder.named_parameters() if parameter.requires_grad
    }


def test_what_trains_or_does_not_fit_is_refused_and_left_as_it_is() -> None:
    trained = build("nano").encoder.requires_grad_(False)
    trained.blocks[1].attn.qkv.requires_grad_(True)
    with pytest.raises(BackboneError, match=r"blocks\.1\.attn\.qkv trains"):
        in_eight_bits([trained], 2)
    odd = build("nano").encoder.requires_grad_(False)
    odd.blocks[1].mlp.fc1 = nn.Linear(odd.spec.dim, 24).requires_grad_(False)
    with pytest.raises(BackboneError, match=r"blocks\.1\.mlp\.fc1 is 192 x 24: eight bits need multiples of 16"):
        in_eight_bits([odd], 2)
    for encoder in (trained, odd):
        assert not any(isinstance(module, EightBitLinear | EightBitBlock) for module in encoder.modules())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpus_product_is_the_one_by_hand() -> None:
    linear = layer(256, 128).cuda()
    rows, scale = quantised(torch.randn(40, 256, device="cuda"))
    lowered = EightBitLinear(linear)
    given = (rows, scale, lowered.weight, lowered.scale, lowered.bias, torch.bfloat16)
    assert torch.allclose(_product(*given).float(), _product_by_hand(*given).float(), rtol=0.02, atol=0.02)
