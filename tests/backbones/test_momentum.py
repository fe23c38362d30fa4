"""A momentum encoder that shares what is frozen is the full momentum encoder."""

from __future__ import annotations

import copy

import pytest
import torch

from factorjepa.backbones import build
from factorjepa.backbones.encoder import Encoder
from factorjepa.backbones.momentum import MomentumEncoder
from factorjepa.errors import BackboneError

from .conftest import TINY

MOMENTUM = 0.9


class FullMomentum:
    """The plain thing: a whole second encoder, every parameter averaged."""

    def __init__(self, online: Encoder) -> None:
        self.encoder = copy.deepcopy(online).requires_grad_(False)

    @torch.no_grad()
    def update(self, online: Encoder) -> None:
        for target, source in zip(self.encoder.parameters(), online.parameters(), strict=True):
            target.lerp_(source, 1 - MOMENTUM)


def train_a_little(online: Encoder, shared: MomentumEncoder, full: FullMomentum, steps: int) -> None:
    generator = torch.Generator().manual_seed(steps)
    optimiser = torch.optim.SGD([p for p in online.parameters() if p.requires_grad], lr=0.5)
    for _ in range(steps):
        video = torch.randn(1, 3, 4, 32, 32, generator=generator)
        online(video, levels=True).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
        shared.update()
        full.update(online)


def assert_equal_outputs(shared: MomentumEncoder, full: FullMomentum) -> None:
    video = torch.randn(2, 3, 8, 32, 32, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        expected = full.encoder(video, levels=True)
    actual = shared(video, levels=True)
    assert not actual.requires_grad
    assert actual.equal(expected)


@pytest.mark.parametrize("frozen", [0, 2, 3, 4])
def test_sharing_frozen_blocks_equals_the_full_average_to_the_bit(frozen: int) -> None:
    online = build(TINY).encoder
    online.freeze(frozen)
    shared, full = MomentumEncoder(online, MOMENTUM), FullMomentum(online)
    if frozen < 4:
        train_a_little(online, shared, full, steps=4)
    assert_equal_outputs(shared, full)
    for name, target in full.encoder.named_parameters():
        assert shared.encoder.get_parameter(name).equal(target), name


def test_it_stays_equal_when_more_blocks_start_to_train() -> None:
    """The staged curriculum unfreezes deeper blocks as it goes, and may freeze them again."""
    online = build(TINY).encoder
    online.freeze(3)
    shared, full = MomentumEncoder(online, MOMENTUM), FullMomentum(online)
    for frozen in (3, 1, 2):
        online.freeze(frozen)
        shared.own_trainable()
        train_a_little(online, shared, full, steps=3)
        assert_equal_outputs(shared, full)


def test_it_owns_only_what_trains() -> None:
    online = build(TINY).encoder
    online.freeze(3)
    shared = MomentumEncoder(online, MOMENTUM)
    trainable = {name for name, p in online.named_parameters() if p.requires_grad}
    assert set(shared.owned_state()) == trainable
    assert shared.encoder.blocks[0].mlp.fc1.weight is online.blocks[0].mlp.fc1.weight


def test_owned_state_restores_it_and_another_set_is_refused() -> None:
    online = build(TINY).encoder
    online.freeze(3)
    shared, full = MomentumEncoder(online, MOMENTUM), FullMomentum(online)
    train_a_little(online, shared, full, steps=2)
    state = {name: tensor.clone() for name, tensor in shared.owned_state().items()}
    restored = MomentumEncoder(online, MOMENTUM)
    restored.load_owned_state(state)
    assert_equal_outputs(restored, full)
    state.popitem()
    with pytest.raises(BackboneError, match="1 missing"):
        restored.load_owned_state(state)


def test_bf16_weights_are_refused_because_their_average_stands_still() -> None:
    with pytest.raises(BackboneError, match="float32"):
        MomentumEncoder(build(TINY).encoder.bfloat16(), 0.99925)
