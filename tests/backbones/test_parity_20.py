"""The V-JEPA 2.0 form against an independent implementation under random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from factorjepa.backbones import Backbone, BackboneSpec, build

transformers = pytest.importorskip("transformers", reason="transformers (dev extra) holds the V-JEPA 2.0 reference")

SPEC = BackboneSpec(
    dim=64, depth=3, heads=2, mlp_hidden=256, taps=(2,), patch=16, tubelet=2, grid=(4, 4), frames=8, predictor_dim=48,
    predictor_depth=2, predictor_heads=2, mask_tokens=10, rope="tiled", rope_reference=None, modalities=False,
    tap_norms=False, context_head=False, mask_token=1,
)  # fmt: skip


def renamed(name: str) -> str:
    """The reference's parameter names in the released spelling (its q, k and v are merged by the caller)."""
    for theirs, ours in (
        ("encoder.embeddings.patch_embeddings.", "encoder.patch_embed."),
        ("encoder.layernorm.", "encoder.norm."),
        ("encoder.layer.", "encoder.blocks."),
        ("predictor.embeddings.predictor_embeddings.", "predictor.predictor_embed."),
        ("predictor.layernorm.", "predictor.predictor_norm."),
        ("predictor.layer.", "predictor.predictor_blocks."),
        ("predictor.proj.", "predictor.predictor_proj."),
    ):
        if name.startswith(theirs):
            return name.replace(theirs, ours, 1).replace(".attention.", ".attn.")
    return name


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Backbone]:
    config = transformers.VJEPA2Config(
        patch_size=16, crop_size=64, frames_per_clip=8, hidden_size=64, num_attention_heads=2, num_hidden_layers=3,
        pred_hidden_size=48, pred_num_attention_heads=2, pred_num_hidden_layers=2,
    )  # fmt: skip
    reference = transformers.VJEPA2Model(config).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in reference.named_parameters():  # sharp weights: attention must not be near uniform
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.3 + (1.0 if "norm" in name and name.endswith("weight") else 0.0))
    state: dict[str, torch.Tensor] = {}
    theirs = reference.state_dict()
    for name, tensor in theirs.items():
        if name == "predictor.embeddings.mask_tokens":
            state |= {f"predictor.mask_tokens.{number}": token for number, token in enumerate(tensor)}
        elif ".query." in name:
            merged = torch.cat([theirs[name.replace(".query.", part)] for part in (".query.", ".key.", ".value.")])
            state[renamed(name).replace(".query.", ".qkv.")] = merged
        elif ".key." not in name and ".value." not in name:
            state[renamed(name)] = tensor
    ours = build(SPEC).eval()
    ours.load_state_dict(state, strict=True)
    return reference, ours


@torch.no_grad()
def test_encoder_and_predictor_equal_the_reference(pair: tuple[Any, Backbone]) -> None:
    reference, ours = pair
    generator = torch.Generator().manual_seed(6)
    video = torch.randn(2, 3, 8, 64, 64, generator=generator)
    order = torch.stack([torch.randperm(64, generator=generator) for _ in range(2)])
    context_index, target_index = order[:, :40].sort().values, order[:, 40:].sort().values
    theirs = reference(
        pixel_values_videos=video.transpose(1, 2), context_mask=[context_index], target_mask=[target_index]
    )
    tokens = ours.encoder(video)
    torch.testing.assert_close(tokens, theirs.last_hidden_state, rtol=0, atol=1e-4)
    context = tokens.gather(1, context_index[..., None].expand(-1, -1, 64))
    target, _ = ours.predictor(context, context_index, target_index)
    torch.testing.assert_close(target, theirs.predictor_output.last_hidden_state, rtol=0, atol=1e-4)


@torch.no_grad()
def test_the_reference_tells_the_rotary_forms_apart(pair: tuple[Any, Backbone]) -> None:
    reference, ours = pair
    other = build(SPEC, rope="interleaved").eval()
    other.load_state_dict(ours.state_dict())
    video = torch.randn(1, 3, 8, 64, 64, generator=torch.Generator().manual_seed(7))
    expected = reference.encoder(video.transpose(1, 2)).last_hidden_state
    assert (other.encoder(video) - expected).abs().max() > 0.01


@torch.no_grad()
def test_one_frame_is_a_still_video_as_in_the_reference(pair: tuple[Any, Backbone]) -> None:
    reference, ours = pair
    image = torch.randn(1, 3, 1, 64, 64, generator=torch.Generator().manual_seed(8))
    expected = reference.encoder(image.transpose(1, 2)).last_hidden_state
    torch.testing.assert_close(ours.encoder(image), expected, rtol=0, atol=1e-4)
