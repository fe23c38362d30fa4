"""Sizes: the released ones to the last parameter, and specs that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from factorjepa.backbones import BackboneSpec, build, names
from factorjepa.errors import BackboneError

from .conftest import TINY

# name: encoder parameters, keys; predictor parameters, keys
RELEASED = {
    "vjepa2_1_vit_base_384": (86_833_152, 158, 22_874_752, 162),
    "vjepa2_1_vit_large_384": (304_680_960, 302, 22_973_056, 162),
    "vjepa2_1_vit_giant_384": (1_013_267_968, 494, 55_400_704, 308),
    "vjepa2_1_vit_gigantic_384": (1_845_216_768, 590, 59_433_472, 308),
}


@pytest.mark.parametrize("name", RELEASED)
def test_released_sizes_have_the_released_parameter_and_key_counts(name: str) -> None:
    backbone = build(name, device="meta")
    encoder, predictor = backbone.encoder, backbone.predictor
    counted = (
        sum(p.numel() for p in encoder.parameters()),
        len(encoder.state_dict()),
        sum(p.numel() for p in predictor.parameters()),
        len(predictor.state_dict()),
    )
    assert counted == RELEASED[name]


def test_nano_is_small_and_has_the_structure_of_the_large_ones() -> None:
    nano, giant = build("nano", device="meta"), build("vjepa2_1_vit_giant_384", device="meta")
    assert 5e6 <= sum(p.numel() for p in nano.parameters()) <= 8e6

    def outside_blocks(backbone: Any) -> set[str]:
        return {key for key in backbone.state_dict() if "blocks." not in key}

    assert outside_blocks(nano) == outside_blocks(giant)
    assert nano.spec.levels == 4
    assert nano.spec.dim // nano.spec.heads in (32, 64)
    assert set(nano.spec.pixels) <= set(range(64, 129))


def test_small_is_nano_four_times_over() -> None:
    nano, small = build("nano", device="meta"), build("small", device="meta")
    for part in ("encoder", "predictor"):
        ours, theirs = (sum(p.numel() for p in getattr(one, part).parameters()) for one in (small, nano))
        assert 3.6 < ours / theirs < 4.4, part
    same = ("patch", "tubelet", "grid", "frames", "mask_tokens", "mask_token", "levels", "rope_reference")
    assert [getattr(small.spec, name) for name in same] == [getattr(nano.spec, name) for name in same]
    assert small.spec.dim > nano.spec.dim
    assert small.spec.depth > nano.spec.depth


def test_every_registered_name_builds() -> None:
    assert {"nano", "vjepa2_vit_large", "vjepa2_vit_huge", "vjepa2_vit_giant", *RELEASED} <= set(names())
    for name in names():
        assert build(name, device="meta").spec.depth > 0


def test_building_twice_gives_the_same_weights_and_another_seed_gives_others() -> None:
    first, second, other = build(TINY), build(TINY), build(TINY, seed=1)
    for (key, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert a.equal(b), key
    assert not first.encoder.blocks[0].attn.qkv.weight.equal(other.encoder.blocks[0].attn.qkv.weight)
    assert "RANDOM" in first.origin


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 5}, "head width"),
        ({"taps": (0, 1)}, "last tap"),
        ({"taps": (3, 1)}, "ascending"),
        ({"frames": 7}, "tubelet"),
        ({"depth": 0}, "depth"),
        ({"grid": (4, 0)}, "grid"),
        ({"rope": "spiral"}, "rope"),
        ({"predictor_levels": 3}, "predictor_levels"),
        ({"preditor_dim": 3}, "did you mean 'predictor_dim'"),
    ],
)
def test_impossible_specs_are_refused_with_the_field(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BackboneError, match=words):
        TINY.replace(**change)


def test_unknown_name_names_the_nearest() -> None:
    with pytest.raises(BackboneError, match="did you mean 'vjepa2_1_vit_giant_384'"):
        build("vjepa2_1_vit_giant_38")


def test_spec_survives_json() -> None:
    assert BackboneSpec.from_json(TINY.to_json()) == TINY
