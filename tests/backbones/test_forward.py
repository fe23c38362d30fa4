"""What encoder and predictor promise beyond parity: no leaks, light training, one graph."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import pytest
import torch

from factorjepa.backbones import Backbone, build
from factorjepa.backbones.blocks import Attention
from factorjepa.backbones.encoder import gather_tokens
from factorjepa.backbones.masks import SMALL_BLOCKS, context_masks, future_split
from factorjepa.backbones.rope import RotaryTables, rotary_table
from factorjepa.errors import BackboneError

from .conftest import TINY

GRID = (4, 4, 4)


@pytest.fixture
def backbone() -> Backbone:
    backbone = build(TINY).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in backbone.parameters():  # large enough that attention is far from uniform
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return backbone


def video(seed: int = 0, frames: int = 8, size: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, frames, size, size, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_perturbing_hidden_pixels_leaves_kept_tokens_unchanged(backbone: Backbone) -> None:
    keep = context_masks(SMALL_BLOCKS, 0, ["a", "b"], GRID)
    clip = video()
    expected = backbone.encoder(clip, keep=keep, levels=True)
    visible = torch.zeros(2, 64).scatter(1, keep, 1).view(2, 1, 4, 4, 4)
    pixels = visible.repeat_interleave(2, 2).repeat_interleave(8, 3).repeat_interleave(8, 4)
    noisy = torch.where(pixels.bool(), clip, video(1))
    assert backbone.encoder(noisy, keep=keep, levels=True).equal(expected)
    assert not backbone.encoder(video(1), keep=keep, levels=True).equal(expected)


def test_a_tail_is_the_end_of_the_whole() -> None:
    """Tokens and gradients: leaving out what nobody reads changes nothing that is read."""
    encoder = build(TINY).encoder.double()
    clip = video().double()
    found = []
    for tokens in (encoder(clip)[:, -16:], encoder(clip, tail=16)):
        encoder.zero_grad()
        tokens.square().sum().backward()
        found.append((tokens, *(p.grad.clone() for p in encoder.parameters() if p.grad is not None)))
    for whole, tail in zip(*found, strict=True):
        torch.testing.assert_close(tail, whole)
    with pytest.raises(BackboneError, match="last level"):
        encoder(clip, levels=True, tail=16)
    with pytest.raises(BackboneError, match="64 tokens, not the last 65"):
        encoder(clip, tail=65)


@pytest.mark.parametrize("recompute", [False, True])
def test_states_of_targets_alone_are_those_beside_the_context(backbone: Backbone, recompute: bool) -> None:
    split, predictor = future_split(GRID, 3), backbone.predictor
    predictor.recompute = recompute
    context = backbone.encoder(video()[:, :, :6], levels=True).detach()
    asked = (context, split.context.expand(2, -1), split.target.expand(2, -1))
    whole = predictor.transform(*asked)
    alone = predictor.transform(*asked, targets_alone=True)
    assert (whole.shape[1], alone.shape[1]) == (64, 16)
    torch.testing.assert_close(alone, whole[:, 48:], rtol=1e-4, atol=1e-4)
    gradients = [torch.autograd.grad(x.square().sum(), predictor.mask_tokens[0]) for x in (alone, whole[:, 48:])]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_perturbing_future_frames_leaves_prediction_unchanged(backbone: Backbone) -> None:
    split = future_split(GRID, 3)
    clip, other = video(), video()
    other[:, :, 6:] = video(1)[:, :, 6:]

    def predict(whole: torch.Tensor) -> torch.Tensor:
        context = backbone.encoder(whole[:, :, :6], levels=True)
        target, _ = backbone.predictor(context, split.context.expand(2, -1), split.target.expand(2, -1))
        return target

    assert predict(clip).equal(predict(other))


@torch.no_grad()
def test_keeping_every_token_is_keeping_none_away(backbone: Backbone) -> None:
    everything = torch.arange(64).expand(2, -1)
    torch.testing.assert_close(backbone.encoder(video(), keep=everything), backbone.encoder(video()), rtol=0, atol=1e-5)


@torch.no_grad()
def test_last_level_of_all_levels_is_the_default_output(backbone: Backbone) -> None:
    levels = backbone.encoder(video(), levels=True)
    assert levels[..., -TINY.dim :].equal(backbone.encoder(video()))


@torch.no_grad()
def test_a_predictor_that_reads_one_level_takes_it_from_all_levels() -> None:
    backbone = build(TINY, predictor_levels=1, predictor_out=80).eval()
    levels = torch.randn(2, 48, 4 * TINY.dim, generator=torch.Generator().manual_seed(0))
    split = future_split(GRID, 3)
    index = split.context.expand(2, -1), split.target.expand(2, -1)
    target, context = backbone.predictor(levels, *index)
    assert target.shape == (2, 16, 80)
    assert context.shape == (2, 48, 80)
    assert target.equal(backbone.predictor(levels[..., -TINY.dim :], *index)[0])


@torch.no_grad()
def test_mask_tokens_are_distinct_choices(backbone: Backbone) -> None:
    context = backbone.encoder(video()[:, :, :6], levels=True)
    index = [part.expand(2, -1) for part in future_split(GRID, 3)]
    first, second = (backbone.predictor(context, *index, mask_token=number)[0] for number in (0, 1))
    assert not first.equal(second)


def test_frozen_blocks_get_no_gradient_and_the_others_get_the_same_as_unfrozen(backbone: Backbone) -> None:
    whole, frozen = backbone.encoder, copy.deepcopy(backbone.encoder)
    frozen.freeze(2)
    for encoder in (whole, frozen):
        encoder(video(), levels=True).square().mean().backward()
    assert frozen.patch_embed.proj.weight.grad is None
    assert frozen.norms_block[1].weight.grad is None
    for number in (0, 1):
        assert all(p.grad is None and not p.requires_grad for p in frozen.blocks[number].parameters())
    for name, parameter in whole.named_parameters():
        if name.startswith(("blocks.2", "blocks.3", "norms_block.2", "norms_block.3")):
            torch.testing.assert_close(frozen.get_parameter(name).grad, parameter.grad)


def test_frozen_blocks_keep_nothing_for_the_backward_pass(backbone: Backbone) -> None:
    def saved_bytes(frozen: int) -> int:
        sizes: list[int] = []
        backbone.encoder.freeze(frozen)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.nbytes) or t, lambda t: t):
            backbone.encoder(video())
        return sum(sizes)

    assert saved_bytes(3) < 0.35 * saved_bytes(0)
    assert saved_bytes(4) == 0


def test_recomputing_activations_changes_memory_not_gradients(backbone: Backbone) -> None:
    other = copy.deepcopy(backbone)
    other.encoder.recompute = other.predictor.recompute = True
    index = [part.expand(2, -1) for part in future_split(GRID, 3)]
    sizes: dict[bool, int] = {}
    for model in (backbone, other):
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t.nbytes) or t, lambda t: t):
            target, _ = model.predictor(model.encoder(video()[:, :, :6], levels=True), *index)
        target.square().mean().backward()
        sizes[model.encoder.recompute] = sum(kept)
    assert sizes[True] < 0.6 * sizes[False]
    for (name, a), b in zip(backbone.named_parameters(), other.parameters(), strict=True):
        if a.grad is not None:
            torch.testing.assert_close(b.grad, a.grad, msg=name)


def future(backbone: Backbone, clip: torch.Tensor, keep: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    predicted, _ = backbone.predictor(backbone.encoder(clip, keep=keep, levels=True), keep, target)
    return predicted


def test_inference_and_training_are_one_graph(backbone: Backbone) -> None:
    """`fullgraph=True` raises at the first break; the eager backend tells it without compiling kernels."""
    keep, target = (part.expand(2, -1) for part in future_split(GRID, 3))
    clip = video()[:, :, :6]
    compiled: Any = torch.compile(future, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(backbone, clip, keep, target), future(backbone, clip, keep, target))
    backbone.encoder.freeze(2)
    backbone.encoder.recompute = True
    compiled(backbone, clip, keep, target).square().mean().backward()
    assert backbone.encoder.blocks[1].mlp.fc1.weight.grad is None
    assert backbone.encoder.blocks[2].mlp.fc1.weight.grad is not None


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on CPU needs a C++ compiler")
@torch.no_grad()
def test_compiled_kernels_give_the_same_numbers() -> None:
    encoder = build(TINY, depth=1, taps=(0,)).eval().encoder  # one block: each further kernel costs seconds of g++
    compiled: Any = torch.compile(encoder, fullgraph=True)
    torch.testing.assert_close(compiled(video()), encoder(video()), rtol=0, atol=1e-5)


def test_rotary_tables_are_made_once_per_shape_and_stay_out_of_the_state_dict(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int, int]] = []

    def counting(*arguments: Any) -> torch.Tensor:
        made.append(arguments[:3])
        return rotary_table(*arguments)

    monkeypatch.setattr("factorjepa.backbones.rope.rotary_table", counting)
    keys = set(backbone.state_dict())
    with torch.no_grad():
        for _ in range(2):
            backbone.encoder(video())
            backbone.encoder(video(frames=4))  # a prefix of the longer clip's table
            backbone.encoder(video(size=64))
    assert made == [(4, 8, 8)]  # the spec's own 4 x 4 x 4 was made when the model was built
    assert set(backbone.state_dict()) == keys


@pytest.mark.parametrize("grid", [(5, 7), (6, 6)])
def test_shorter_clips_read_the_same_positions_as_their_own_table(grid: tuple[int, int]) -> None:
    tables = RotaryTables(TINY.replace(grid=(5, 7), frames=16), 32)
    like = torch.zeros(1)
    tables(8, *grid, like)
    torch.testing.assert_close(tables(3, *grid, like), rotary_table(3, *grid, 32, "interleaved", 16), rtol=0, atol=0)


def test_a_model_filled_on_the_meta_device_computes(backbone: Backbone) -> None:
    filled = build(TINY, device="meta")
    filled.load_state_dict(backbone.state_dict(), assign=True)
    with torch.no_grad():
        assert filled.eval().encoder(video()).equal(backbone.encoder(video()))
    assert filled.double().encoder.rotary.table.equal(backbone.encoder.rotary.table)


def test_rotation_keeps_lengths_and_makes_scores_depend_on_offsets_only() -> None:
    """What a rotary position is for; only the interleaved form is a true rotation."""
    from factorjepa.backbones.rope import rotate

    cosine, sine = rotary_table(6, 1, 1, 32, "interleaved", None)[:, :, None]
    q, k = torch.randn(2, 1, 1, 32, generator=torch.Generator().manual_seed(2)).expand(-1, 6, -1, -1)
    turned_q, turned_k = rotate(q, cosine, sine), rotate(k, cosine, sine)
    torch.testing.assert_close(turned_q.norm(dim=-1), q.norm(dim=-1))
    scores = turned_q[:, 0] @ turned_k[:, 0].T
    for offset in range(1, 5):
        diagonal = scores.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


def test_going_to_bf16_and_back_leaves_the_tables_exact() -> None:
    """A table rounded to bf16 stays rounded in fp32; angles made in bf16 would be off by radians."""
    tables = RotaryTables(TINY.replace(grid=(24, 24), frames=16), 64)
    exact = tables.table.clone()
    assert tables.bfloat16().float().table.equal(exact)
    low = tables(8, 24, 24, torch.zeros(1, dtype=torch.bfloat16))
    assert low.dtype == torch.bfloat16
    assert (low.float() - exact).abs().max() <= 2**-8


def test_an_encoder_used_for_inference_can_train_afterwards(backbone: Backbone) -> None:
    """Tables made under inference mode would refuse to be saved for the backward pass."""
    with torch.inference_mode():
        backbone.encoder(video())
    backbone.encoder(video()).square().mean().backward()
    assert backbone.encoder.blocks[0].attn.qkv.weight.grad is not None


def test_queries_and_keys_keep_the_activation_dtype_whatever_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention kernels refuse q and k of another dtype than v, and fp32 ones are slow."""
    seen: set[torch.dtype] = set()
    original = torch.nn.functional.scaled_dot_product_attention

    def watching(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        seen.update((q.dtype, k.dtype, v.dtype))
        return original(q, k, v)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watching)
    table = rotary_table(1, 2, 2, 24, "interleaved", 16)
    Attention(48, 2).double()(torch.zeros(1, 4, 48, dtype=torch.float64), table)
    assert seen == {torch.float64}


@pytest.mark.parametrize(
    ("shape", "words"),
    [((1, 3, 7, 32, 32), "tubelets"), ((1, 3, 8, 30, 32), "patches"), ((1, 1, 8, 32, 32), "expected a video")],
)
def test_a_video_that_does_not_divide_is_refused(backbone: Backbone, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(BackboneError, match=words):
        backbone.encoder(torch.zeros(shape))


def test_context_of_a_wrong_width_is_refused_with_the_remedy(backbone: Backbone) -> None:
    with pytest.raises(BackboneError, match="levels=True"):
        backbone.predictor(torch.zeros(1, 4, 48), torch.zeros(1, 4).long(), torch.zeros(1, 4).long())


def test_gathering_follows_each_clips_own_index() -> None:
    tokens = torch.arange(12.0).view(2, 3, 2)
    assert gather_tokens(tokens, torch.tensor([[2], [0]])).equal(torch.tensor([[[4.0, 5.0]], [[6.0, 7.0]]]))
