"""V-JEPA 1, I-JEPA and LeJEPA compute what independent implementations compute with the same weights."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from factorjepa.backbones.absolute import AbsoluteSpec
from factorjepa.backbones.families import Model, Spec, build_encoder, parameters
from factorjepa.backbones.lejepa import LejepaSpec
from factorjepa.errors import BackboneError

transformers = pytest.importorskip("transformers")
TOLERANCE = 1e-4

IMAGES = AbsoluteSpec(dim=48, depth=3, heads=4, patch=14, grid=4, mlp_hidden=100)
TIMM = dataclasses.replace(IMAGES, class_token=True)
VIDEO = AbsoluteSpec(dim=24, depth=2, heads=2, patch=4, grid=3, frames=8, tubelet=2)
ROTARY = LejepaSpec(dim=64, depth=3, heads=4, patch=8, registers=4)


def lively(spec: Spec) -> Model:
    """Random weights in which every parameter matters: fresh scales of 1 and biases of 0 would hide a mistake."""
    model = build_encoder(spec).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


# Our names to those of transformers, whose versions differ: the first that exists is meant.
NAMES = (
    (r"blocks\.(\d+)\.norm1", r"layers.\1.layernorm_before encoder.layer.\1.layernorm_before model.layer.\1.norm1"),
    (r"blocks\.(\d+)\.norm2", r"layers.\1.layernorm_after encoder.layer.\1.layernorm_after model.layer.\1.norm2"),
    (r"blocks\.(\d+)\.attn\.proj", r"layers.\1.attention.o_proj encoder.layer.\1.attention.output.dense "
                                   r"model.layer.\1.attention.o_proj"),
    (r"blocks\.(\d+)\.attn\.([qkv])", r"layers.\1.attention.\2_proj encoder.layer.\1.attention.attention.\2 "
                                      r"model.layer.\1.attention.\2_proj"),
    (r"blocks\.(\d+)\.mlp\.fc1", r"layers.\1.mlp.fc1 encoder.layer.\1.intermediate.dense model.layer.\1.mlp.up_proj"),
    (r"blocks\.(\d+)\.mlp\.fc2", r"layers.\1.mlp.fc2 encoder.layer.\1.output.dense model.layer.\1.mlp.down_proj"),
    (r"blocks\.(\d+)\.ls([12])\.gamma", r"model.layer.\1.layer_scale\2.lambda1 layer.\1.layer_scale\2.lambda1"),
    (r"norm", "layernorm norm"),
    (r"patch_embed\.proj", "embeddings.patch_embeddings.projection embeddings.patch_embeddings"),
    (r"pos_embed", "embeddings.position_embeddings"),
    (r"cls_token", "embeddings.cls_token"),
    (r"storage_tokens", "embeddings.register_tokens"),
)  # fmt: skip


def renamed(state: Mapping[str, Tensor], names: Mapping[str, Any]) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}
    for key, tensor in state.items():
        if ".qkv." in key:
            thirds = {key.replace("qkv", letter): third for letter, third in zip("qkv", tensor.chunk(3), strict=True)}
        else:
            thirds = {key: tensor}
        for source, part in thirds.items():
            stem, _, kind = source.rpartition(".") if source.endswith((".weight", ".bias")) else (source, "", "")
            candidates = next(match.expand(to).split() for name, to in NAMES if (match := re.fullmatch(name, stem)))
            endings = [f"{candidate}.{kind}" if kind else candidate for candidate in candidates]
            made[next(ending for ending in endings if ending in names)] = part
    return made


def reference(model: Model, kind: str, size: int, **more: Any) -> Any:
    """transformers' model with our weights, every one of them used."""
    spec: Any = model.spec
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=spec.dim, num_hidden_layers=spec.depth, num_attention_heads=spec.heads, image_size=size,
        patch_size=spec.patch, hidden_act="gelu", **more,
    )  # fmt: skip
    theirs = getattr(transformers, f"{kind}Model")(config).eval()
    state = renamed(model.state_dict(), theirs.state_dict())
    # Not strict, because theirs has a pooler that ours has no weights for; that nothing else is missing is checked.
    left = theirs.load_state_dict(state, strict=False)
    assert not left.unexpected_keys
    assert all("pooler" in key or "mask_token" in key for key in left.missing_keys)
    return theirs


def test_ijepa_equals_transformers() -> None:
    ours = lively(IMAGES)
    theirs = reference(ours, "IJepa", 56, intermediate_size=100, layer_norm_eps=1e-6)
    images = noise(2, 3, 56, 56)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images).last_hidden_state, rtol=0, atol=TOLERANCE)


def test_lejepa_in_the_layout_of_timm_equals_transformers_vit() -> None:
    ours = lively(TIMM)
    theirs = reference(ours, "ViT", 56, intermediate_size=100, layer_norm_eps=1e-6)
    images = noise(2, 3, 56, 56)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images).last_hidden_state[:, 1:], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (40, 24)])
def test_lejepa_as_published_equals_transformers_dinov3(height: int, width: int) -> None:
    ours = lively(ROTARY)
    theirs = reference(ours, "DINOv3ViT", 32, intermediate_size=256, num_register_tokens=4, key_bias=True)
    images = noise(2, 3, height, width)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images).last_hidden_state[:, 5:], rtol=0, atol=TOLERANCE)


def slow_vjepa1(state: Mapping[str, Tensor], spec: AbsoluteSpec, video: Tensor) -> NDArray[np.float64]:
    """V-JEPA 1 written down again: one clip, one token and one head at a time, in float64."""
    w = {key: tensor.double().numpy() for key, tensor in state.items()}
    pixels = video.double().numpy()

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x * 0.5 * (1 + torch.erf(torch.from_numpy(x / np.sqrt(2))).numpy())

    table = w["pos_embed"][0].reshape(-1, spec.grid**2, spec.dim)
    steps = video.shape[2] // spec.tubelet
    stored = len(table)
    outputs = []
    for clip in pixels:
        tokens = []
        for t in range(steps):
            at = np.clip((t + 0.5) * stored / steps - 0.5, 0, stored - 1)  # linear in time, cells' centres aligned
            low, share = int(at), at - int(at)
            place = (1 - share) * table[low] + share * table[min(low + 1, stored - 1)]
            for r in range(spec.grid):
                for c in range(spec.grid):
                    cube = clip[:, t * spec.tubelet : (t + 1) * spec.tubelet, r * spec.patch : (r + 1) * spec.patch,
                                c * spec.patch : (c + 1) * spec.patch]  # fmt: skip
                    token = np.tensordot(w["patch_embed.proj.weight"], cube, 4) + w["patch_embed.proj.bias"]
                    tokens.append(token + place[r * spec.grid + c])
        x = np.stack(tokens)
        for number in range(spec.depth):
            name = f"blocks.{number}"
            qkv = norm(x, f"{name}.norm1") @ w[f"{name}.attn.qkv.weight"].T + w[f"{name}.attn.qkv.bias"]
            width = spec.dim // spec.heads
            mixed = np.zeros_like(x)
            for head in range(spec.heads):
                q, k, v = (qkv[:, part * spec.dim + head * width :][:, :width] for part in range(3))
                logits = q @ k.T / np.sqrt(width)
                chance = np.exp(logits - logits.max(1, keepdims=True))
                mixed[:, head * width : (head + 1) * width] = chance / chance.sum(1, keepdims=True) @ v
            x = x + mixed @ w[f"{name}.attn.proj.weight"].T + w[f"{name}.attn.proj.bias"]
            hidden = gelu(norm(x, f"{name}.norm2") @ w[f"{name}.mlp.fc1.weight"].T + w[f"{name}.mlp.fc1.bias"])
            x = x + hidden @ w[f"{name}.mlp.fc2.weight"].T + w[f"{name}.mlp.fc2.bias"]
        outputs.append(norm(x, "norm"))
    return np.stack(outputs)


@pytest.mark.parametrize("frames", [8, 4, 6, 12])
def test_vjepa1_equals_a_slow_rewriting_at_the_table_s_length_and_others(frames: int) -> None:
    ours = lively(VIDEO)
    video = noise(2, 3, frames, 12, 12)
    with torch.no_grad():
        made = ours(video).double().numpy()
    np.testing.assert_allclose(made, slow_vjepa1(ours.state_dict(), VIDEO, video), rtol=0, atol=TOLERANCE)


def test_parameters_are_as_many_as_in_the_published_models() -> None:
    """timm's ViT-S/16 and ViT-B/16 without a head; V-JEPA 1's table of 16 frames beside 12 D^2 + 13 D per block."""
    assert parameters("lejepa_vits16") == 21_665_664
    assert parameters("lejepa_vitb16") == 85_798_656
    for arch, dim, depth, table in (
        ("vjepa1_vit_large", 1024, 24, 1568),
        ("vjepa1_vit_huge", 1280, 32, 1568),
        ("vjepa1_vit_huge_384", 1280, 32, 4608),
    ):
        tokeniser = (3 * 2 * 16 * 16 + 1) * dim
        assert parameters(arch) == depth * (12 * dim**2 + 13 * dim) + 2 * dim + tokeniser + table * dim


@pytest.mark.parametrize(
    ("arch", "hidden"), [("ijepa_vith14_1k", 5120), ("ijepa_vith16_448_1k", 5120), ("ijepa_vitg16_22k", 6144)]
)
def test_parameters_of_ijepa_are_as_many_as_in_transformers(arch: str, hidden: int) -> None:
    spec = build_encoder(arch, device="meta").spec
    assert isinstance(spec, AbsoluteSpec)
    with torch.device("meta"):
        theirs = transformers.IJepaModel(transformers.IJepaConfig(
            hidden_size=spec.dim, num_hidden_layers=spec.depth, num_attention_heads=spec.heads, image_size=spec.side,
            patch_size=spec.patch, intermediate_size=hidden,
        ))  # fmt: skip
    assert parameters(arch) == sum(tensor.numel() for tensor in theirs.parameters())


def test_other_sizes_than_those_of_the_table_are_errors() -> None:
    with pytest.raises(BackboneError, match=r"expected images \[B, 3, 56, 56\].*got \[1, 3, 56, 70\]"):
        lively(IMAGES)(torch.zeros(1, 3, 56, 70))
    with pytest.raises(BackboneError, match=r"whole tubelets of 2 frames, got \[1, 3, 5, 12, 12\]"):
        lively(VIDEO)(torch.zeros(1, 3, 5, 12, 12))
    with pytest.raises(BackboneError, match=r"whole patches of 8 px, got \[1, 3, 30, 32\]"):
        lively(ROTARY)(torch.zeros(1, 3, 30, 32))
