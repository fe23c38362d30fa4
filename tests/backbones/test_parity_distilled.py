"""The predictor of ViT-B and ViT-L, for which there are no released outputs to compare with.

A second implementation stands in for them: the released predictor's steps written out slowly in fp64 (tokens sorted by
position, each turned pair as a complex number, softmax spelled out, tokens unsorted), sharing no code with ours. It is
first held to the released code's own outputs on the fixture, whose predictor has the structure of ViT-g; then ours is
held to it at the structure of B and L: one linear embedding of the last level, and outputs as wide as the teacher's.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from factorjepa.backbones import BackboneSpec, build, load
from factorjepa.backbones.masks import future_split

State = dict[str, Tensor]
GRID = (4, 6, 5)  # tubelets, rows, columns: no two alike, so that a swap of axes shows

# Predictor heads 32 wide, as released: three axes of 10 dims, and 2 that are not turned.
DISTILLED = BackboneSpec(
    dim=48, depth=4, heads=2, mlp_hidden=96, taps=(0, 1, 2, 3), patch=8, tubelet=2, grid=GRID[1:], frames=8,
    predictor_dim=64, predictor_depth=3, predictor_heads=2, mask_tokens=8, predictor_levels=1, predictor_out=80,
)  # fmt: skip


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def layer_norm(state: State, name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def turned(head: Tensor, position: int, grid: tuple[int, int, int]) -> Tensor:
    """One token's query or key of one head, its adjacent pairs turned by time, then row, then column."""
    _, rows, columns = grid
    time, row, column = position // (rows * columns), position // columns % rows, position % columns
    coordinates = (time, row * 15 / (rows - 1), column * 15 / (columns - 1))  # space to a reference of 16 patches
    pairs = len(head) // 3 // 2
    result = head.clone()
    for axis, coordinate in enumerate(coordinates):
        for number in range(pairs):
            first = 2 * (axis * pairs + number)
            angle = coordinate / 10_000 ** (number / pairs)
            point = complex(float(head[first]), float(head[first + 1])) * complex(math.cos(angle), math.sin(angle))
            result[first], result[first + 1] = point.real, point.imag
    return result


def attention(state: State, name: str, x: Tensor, positions: list[int], heads: int, grid: Any) -> Tensor:
    q, k, v = linear(state, f"{name}.qkv", x).chunk(3, dim=-1)
    mixed = []
    for q_head, k_head, v_head in zip(q.chunk(heads, -1), k.chunk(heads, -1), v.chunk(heads, -1), strict=True):
        q_turned = torch.stack([turned(row, at, grid) for row, at in zip(q_head, positions, strict=True)])
        k_turned = torch.stack([turned(row, at, grid) for row, at in zip(k_head, positions, strict=True)])
        score = (q_turned @ k_turned.T / math.sqrt(q_head.shape[-1])).exp()
        mixed.append(score / score.sum(-1, keepdim=True) @ v_head)
    return linear(state, f"{name}.proj", torch.cat(mixed, -1))


def slow_predictor(
    weights: State, context: Tensor, context_index: Tensor, target_index: Tensor, heads: int, grid: tuple[int, int, int]
) -> tuple[Tensor, Tensor]:
    """One clip: `context [c, W]`, `context_index [c]`, `target_index [t]` to target and context tokens."""
    state = {key: tensor.double() for key, tensor in weights.items()}
    context = context.double()
    if "predictor_embed.weight" in state:
        embedded = linear(state, "predictor_embed", context)
    else:
        embedded = linear(state, "predictor_embed.2", gelu(linear(state, "predictor_embed.0", context)))
    masks = state["mask_tokens.0"][0].expand(len(target_index), -1)
    x = torch.cat((embedded, masks)) + state["video_mod_embed"][0]
    order = torch.cat((context_index, target_index)).argsort()
    positions = torch.cat((context_index, target_index))[order].tolist()
    x = x[order]
    for number in range(sum(key.endswith("norm1.weight") for key in state)):
        block = f"predictor_blocks.{number}"
        x = x + attention(state, f"{block}.attn", layer_norm(state, f"{block}.norm1", x), positions, heads, grid)
        hidden = gelu(linear(state, f"{block}.mlp.fc1", layer_norm(state, f"{block}.norm2", x)))
        x = x + linear(state, f"{block}.mlp.fc2", hidden)
    x = layer_norm(state, "predictor_norm", x)[order.argsort()]
    kept = len(context_index)
    return linear(state, "predictor_proj", x[kept:]), linear(state, "predictor_proj_context", x[:kept])


@torch.no_grad()
def test_the_slow_predictor_gives_the_released_outputs(released: dict[str, Any], released_spec: BackboneSpec) -> None:
    weights = {key.removeprefix("module.").removeprefix("backbone."): t for key, t in released["predictor"].items()}
    grid = (released_spec.tubelets, *released_spec.grid)
    for clip in range(len(released["z"])):
        target, context = slow_predictor(
            weights, released["z"][clip], released["m_enc"][clip], released["m_pred"][clip],
            released_spec.predictor_heads, grid,
        )  # fmt: skip
        torch.testing.assert_close(target.float(), released["z_pred"][clip], rtol=0, atol=1e-4)
        torch.testing.assert_close(context.float(), released["z_ctx"][clip], rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def distilled_weights() -> State:
    """Large enough that attention is far from uniform and every bias, norm and token counts."""
    generator = torch.Generator().manual_seed(11)
    state = build(DISTILLED).predictor.state_dict()
    return {key: tensor + 0.3 * torch.randn(tensor.shape, generator=generator) for key, tensor in state.items()}


@torch.no_grad()
def test_the_distilled_predictor_equals_the_slow_one(distilled_weights: State) -> None:
    backbone = build(DISTILLED).eval()
    backbone.predictor.load_state_dict(distilled_weights, strict=True)
    generator = torch.Generator().manual_seed(12)
    order = torch.stack([torch.randperm(120, generator=generator) for _ in range(2)])
    context_index, target_index = order[:, :50], order[:, 50:80]  # unsorted, and some tokens in neither set
    levels = torch.randn(2, 50, 4 * 48, generator=generator)
    target, context = backbone.predictor(levels, context_index, target_index)
    for clip in range(2):
        wanted_target, wanted_context = slow_predictor(
            distilled_weights, levels[clip, :, -48:], context_index[clip], target_index[clip], 2, GRID
        )
        torch.testing.assert_close(target[clip], wanted_target.float(), rtol=0, atol=1e-4)
        torch.testing.assert_close(context[clip], wanted_context.float(), rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("wrong", [{"rope": "tiled"}, {"rope_reference": None}, {"grid": (5, 6)}])
def test_the_slow_predictor_tells_wrong_positions_apart(distilled_weights: State, wrong: dict[str, Any]) -> None:
    """Guards the test above."""
    backbone = build(DISTILLED, **wrong).eval()
    backbone.predictor.load_state_dict(distilled_weights, strict=True)
    split = future_split(GRID, 3)
    context = torch.randn(90, 48, generator=torch.Generator().manual_seed(13))
    wanted, _ = slow_predictor(distilled_weights, context, split.context, split.target, 2, GRID)
    actual, _ = backbone.predictor(context[None], split.context[None], split.target[None])
    assert (actual[0] - wanted.float()).abs().max() > 0.05


@pytest.mark.parametrize("arch", ["vjepa2_1_vit_base_384", "vjepa2_1_vit_large_384"])
def test_b_and_l_have_the_structure_that_was_tested(arch: str) -> None:
    """Same predictor keys but for the number of blocks; last level in, the teacher's 1664 out, both heads."""
    released, small = build(arch, device="meta"), build(DISTILLED, device="meta")

    def outside_blocks(backbone: Any) -> set[str]:
        return {key for key in backbone.predictor.state_dict() if "blocks." not in key}

    assert outside_blocks(released) == outside_blocks(small)
    assert released.predictor.predictor_embed.weight.shape == (384, released.spec.dim)
    assert released.predictor.predictor_proj.weight.shape == (1664, 384)
    assert released.predictor.predictor_proj_context.weight.shape == (1664, 384)
    assert (released.spec.rope, released.spec.rope_reference) == (small.spec.rope, small.spec.rope_reference)


@torch.no_grad()
def test_a_distilled_file_loads_and_predicts_as_the_slow_one(distilled_weights: State, tmp_path: Any) -> None:
    """`ema_encoder`, prefixes, predictor: as B and L are published."""
    source = build(DISTILLED, seed=4)
    state = {f"module.backbone.{key}": tensor for key, tensor in source.encoder.state_dict().items()}
    torch.save({"ema_encoder": state, "predictor": distilled_weights, "opt": {}}, tmp_path / "dist.pt")
    backbone = load(tmp_path / "dist.pt", DISTILLED).eval()
    video = torch.randn(1, 3, 8, 48, 40, generator=torch.Generator().manual_seed(14))
    split = future_split(GRID, 3)
    levels = backbone.encoder(video[:, :, :6], levels=True)
    target, _ = backbone.predictor(levels, split.context[None], split.target[None])
    wanted, _ = slow_predictor(distilled_weights, levels[0, :, -48:], split.context, split.target, 2, GRID)
    torch.testing.assert_close(target[0], wanted.float(), rtol=0, atol=1e-4)
