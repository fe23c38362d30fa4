"""Masks: disjoint, in range, of the right size, and a property of the clip alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.backbones.masks import (
    LARGE_BLOCKS,
    POLICIES,
    SMALL_BLOCKS,
    BlockPolicy,
    context_masks,
    future_split,
    released_masks,
)
from factorjepa.errors import BackboneError
from factorjepa.seeding import stream

policies = st.sampled_from(POLICIES)
sides = st.integers(2, 24)
tubelets = st.integers(1, 6)
clips = st.lists(st.text("abc/#0123", min_size=1, max_size=8), min_size=1, max_size=6, unique=True)
quick = settings(max_examples=40, deadline=None)


@quick
@given(policies, tubelets, sides, sides, clips, st.integers(0, 99))
def test_context_masks_keep_the_policys_count_of_distinct_full_time_tubes(
    policy: BlockPolicy, tubelets: int, rows: int, columns: int, clip_ids: list[str], replication: int
) -> None:
    kept = context_masks(policy, replication, clip_ids, (tubelets, rows, columns))
    k = policy.kept(rows, columns)
    assert kept.shape == (len(clip_ids), tubelets * k)
    assert kept.min() >= 0
    assert kept.max() < tubelets * rows * columns
    assert (kept.diff(dim=1) > 0).all()  # ascending, hence distinct
    frames = kept.unflatten(1, (tubelets, k)) - torch.arange(tubelets)[:, None] * rows * columns
    assert (frames == frames[:, :1]).all()  # the same positions in every tubelet


@quick
@given(policies, clips, st.integers(0, 99), st.randoms())
def test_a_clips_mask_is_the_same_in_any_batch(
    policy: BlockPolicy, clip_ids: list[str], replication: int, shuffle: object
) -> None:
    grid = (6, 12, 16)
    together = dict(zip(clip_ids, context_masks(policy, replication, clip_ids, grid), strict=True))
    order = sorted(clip_ids, key=lambda _: shuffle.random())  # type: ignore[attr-defined]
    for clip, mask in zip(order[:3], context_masks(policy, replication, order[:3], grid), strict=True):
        assert mask.equal(together[clip])
    assert context_masks(policy, replication, clip_ids[:1], grid)[0].equal(together[clip_ids[0]])


def test_replication_clip_and_policy_each_change_the_mask() -> None:
    grid = (1, 24, 24)
    base = context_masks(SMALL_BLOCKS, 0, ["a"], grid, kept=100)
    assert not base.equal(context_masks(SMALL_BLOCKS, 1, ["a"], grid, kept=100))
    assert not base.equal(context_masks(SMALL_BLOCKS, 0, ["b"], grid, kept=100))
    assert not base.equal(context_masks(LARGE_BLOCKS, 0, ["a"], grid, kept=100))


def test_what_is_hidden_is_blocks_not_confetti() -> None:
    """A hidden position's neighbours are hidden far more often than under a random mask of the same size."""
    for policy in POLICIES:
        kept = context_masks(policy, 0, [str(i) for i in range(64)], (1, 24, 24))
        hidden = torch.ones(64, 576).scatter(1, kept, 0).view(64, 24, 24)
        rate = hidden.mean()
        visible_next_to_visible = ((1 - hidden[:, :, 1:]) * (1 - hidden[:, :, :-1])).sum() / (
            1 - hidden[:, :, 1:]
        ).sum()
        assert visible_next_to_visible > 2 * (1 - rate)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("side", [8, 16, 24])
def test_the_kept_count_is_the_mean_that_blocks_leave(policy: BlockPolicy, side: int) -> None:
    """Against the released sampler, one clip at a time so that nothing is cut."""
    counts = [released_masks(policy, 1, (1, side, side), stream(seed)).context.shape[1] for seed in range(400)]
    assert policy.kept(side, side) == pytest.approx(np.mean(counts), abs=4 * np.std(counts) / 20 + 0.5)


@quick
@given(st.integers(2, 8), sides, sides, st.data())
def test_future_split_is_a_partition_with_the_future_whole(
    tubelets: int, rows: int, columns: int, data: st.DataObject
) -> None:
    context_tubelets = data.draw(st.integers(1, tubelets - 1))
    split = future_split((tubelets, rows, columns), context_tubelets)
    assert torch.cat(split).equal(torch.arange(tubelets * rows * columns))
    assert len(split.context) == context_tubelets * rows * columns
    kept = context_masks(SMALL_BLOCKS, 0, ["clip"], (context_tubelets, rows, columns))
    assert not np.intersect1d(kept.numpy(), split.target.numpy()).size
    assert np.isin(kept.numpy(), split.context.numpy()).all()


def test_a_split_without_context_or_future_is_refused() -> None:
    for context_tubelets in (0, 8):
        with pytest.raises(BackboneError, match="no context or no future"):
            future_split((8, 4, 4), context_tubelets)


@quick
@given(policies, st.integers(1, 8), tubelets, st.integers(8, 24), st.integers(8, 24), st.integers(0, 99))
def test_released_masks_are_disjoint_in_range_and_rectangular(
    policy: BlockPolicy, batch: int, tubelets: int, rows: int, columns: int, seed: int
) -> None:
    context, target = released_masks(policy, batch, (tubelets, rows, columns), stream(seed))
    assert len(context) == len(target) == batch
    assert context.shape[1] > 0
    assert target.shape[1] > 0
    for seen, wanted in zip(context.numpy(), target.numpy(), strict=True):
        assert (np.diff(seen) > 0).all()
        assert (np.diff(wanted) > 0).all()
        assert not np.intersect1d(seen, wanted).size
        assert min(seen.min(), wanted.min()) >= 0
        assert max(seen.max(), wanted.max()) < tubelets * rows * columns


def test_released_masks_of_one_clip_are_complementary_and_one_size_serves_the_batch() -> None:
    grid = (4, 16, 16)
    context, target = released_masks(LARGE_BLOCKS, 1, grid, stream(3))
    assert torch.cat((context, target), 1).sort().values.equal(torch.arange(4 * 256)[None])
    one_block = BlockPolicy("one", blocks=1, scale=0.3)
    context, target = released_masks(one_block, 16, grid, stream(4))  # one block each: the size is the count
    assert context.shape[1] + target.shape[1] == 4 * 256
    assert len({tuple(row.tolist()) for row in target}) > 1  # places differ
