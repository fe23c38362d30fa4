"""What we compute with V-JEPA 2.1 weights is what the released code computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from factorjepa.backbones import Backbone, BackboneSpec, build
from factorjepa.backbones.encoder import gather_tokens
from factorjepa.backbones.pretraining import context_loss, context_weights, normalised_levels, target_loss

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def backbone(released: dict[str, Any], released_spec: BackboneSpec) -> Backbone:
    backbone = build(released_spec).eval()
    backbone.encoder.load_state_dict(released["encoder"], strict=True)
    backbone.predictor.load_state_dict(released["predictor"], strict=True)
    return backbone


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE)


@torch.no_grad()
def test_encoder_gives_the_released_last_level_and_all_levels(backbone: Backbone, released: dict[str, Any]) -> None:
    close(backbone.encoder(released["x"]), released["full"])
    close(backbone.encoder(released["x"], levels=True), released["hier"])


@torch.no_grad()
def test_encoder_gives_the_released_tokens_under_a_mask(backbone: Backbone, released: dict[str, Any]) -> None:
    close(backbone.encoder(released["x"], keep=released["m_enc"], levels=True), released["z"])


@torch.no_grad()
def test_one_frame_takes_the_released_image_path(backbone: Backbone, released: dict[str, Any]) -> None:
    close(backbone.encoder(released["img"], levels=True), released["img_out"])


@torch.no_grad()
def test_predictor_gives_the_released_target_and_context_tokens(backbone: Backbone, released: dict[str, Any]) -> None:
    target, context = backbone.predictor(released["z"], released["m_enc"], released["m_pred"])
    close(target, released["z_pred"])
    close(context, released["z_ctx"])


@torch.no_grad()
def test_both_losses_of_a_whole_step_are_the_released_ones(backbone: Backbone, released: dict[str, Any]) -> None:
    kept, predicted = released["m_enc"], released["m_pred"]
    wanted = normalised_levels(backbone.encoder(released["x"], levels=True), backbone.spec.dim)
    target, context = backbone.predictor(backbone.encoder(released["x"], keep=kept, levels=True), kept, predicted)
    close(target_loss(target, gather_tokens(wanted, predicted)), released["L_pred"])
    weights = context_weights(kept, predicted, *backbone.spec.grid)
    close(context_loss(context, gather_tokens(wanted, kept), weights), released["L_ctx"])


@torch.no_grad()
def test_predictor_does_not_depend_on_the_order_of_its_tokens(backbone: Backbone, released: dict[str, Any]) -> None:
    """The released code sorts tokens by position; we do not, because order carries nothing."""
    order = torch.randperm(released["m_enc"].shape[1], generator=torch.Generator().manual_seed(1))
    target, context = backbone.predictor(
        released["z"][:, order], released["m_enc"][:, order], released["m_pred"].flip(1)
    )
    close(target.flip(1), released["z_pred"])
    close(context[:, order.argsort()], released["z_ctx"])


@torch.no_grad()
@pytest.mark.parametrize("wrong", [{"rope": "tiled"}, {"rope_reference": None}])
def test_a_wrong_rotary_form_is_far_off(released: dict[str, Any], released_spec: BackboneSpec, wrong: Any) -> None:
    """Guards the tests above: the fixture tells the forms apart."""
    other = build(released_spec, **wrong).eval()
    other.encoder.load_state_dict(released["encoder"])
    assert (other.encoder(released["x"]) - released["full"]).abs().max() > 0.05
