"""Which targets and which views a clip is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from factorjepa.adaptation import METHODS, Stage
from factorjepa.corpus.access import Corpus, TrainingClips
from factorjepa.corpus.loader import Batch, Loader
from factorjepa.predictors import PerFactor
from factorjepa.teacher.cache import PacketCache, Packets
from factorjepa.teacher.scales import target_scales
from factorjepa.teacher.states import object_states
from factorjepa.training.batches import TrainingBatches, edit, factor_targets, shown
from factorjepa.training.masking import SPREAD, training_masks
from factorjepa.training.settings import TrainSettings

Make = Callable[..., TrainSettings]
CPU = torch.device("cpu")


def randoms(seed: int) -> list[np.random.Generator]:
    return [np.random.default_rng((seed, row)) for row in range(4)]


@pytest.fixture
def packets(tiny: Path) -> Packets[TrainingClips]:
    return PacketCache.open(tiny / "corpus" / "targets").packets(Corpus.open(tiny / "corpus").training(), 0)


@pytest.fixture
def loader(tiny: Path, settings: Make) -> Loader:
    return Loader(Corpus.open(tiny / "corpus").training(), settings().window, batch_size=4, seed=1)


@pytest.fixture
def batch(loader: Loader) -> Batch:
    return next(iter(loader))


def test_shuffled_targets_are_those_of_other_clips_with_the_clips_own_evidence(
    loader: Loader, packets: Packets[TrainingClips], batch: Batch
) -> None:
    stage = Stage("all", 1.0)
    aligned = (
        TrainingBatches(loader, packets, None, METHODS["no_curriculum"], 0).complete(batch, stage, 3, 0, CPU).targets
    )
    shuffled = (
        TrainingBatches(loader, packets, None, METHODS["shuffled_targets"], 0).complete(batch, stage, 3, 0, CPU).targets
    )
    assert aligned is not None
    assert shuffled is not None
    assert torch.equal(aligned.cells.pixels_C, shuffled.cells.pixels_C)
    rows = [{tuple(row.tolist()) for row in one.layout_BW} for one in (aligned, shuffled)]
    assert rows[0] == rows[1]
    assert not any(torch.equal(a, b) for a, b in zip(aligned.layout_BW, shuffled.layout_BW, strict=True))


def test_views_are_drawn_with_the_stage_s_probabilities(packets: Packets[TrainingClips], batch: Batch) -> None:
    known = [packets.of(clip) for clip in batch.clips]
    raw, viewed = shown(batch.video(), known, Stage("raw", 1.0), randoms(0))
    assert torch.equal(raw, batch.video())
    assert viewed == ()
    agents = Stage("agents", 1.0, views=(("agents", 1.0),))
    assert not torch.equal(shown(batch.video(), known, agents, randoms(0))[0], batch.video())
    half = Stage("half", 1.0, views=(("raw", 0.5), ("agents", 0.5)))
    kept = 0
    for seed in range(40):
        made, viewed = shown(batch.video(), known, half, randoms(seed))
        same = [row for row, (a, b) in enumerate(zip(made, batch.video(), strict=True)) if torch.equal(a, b)]
        assert set(range(4)) - set(viewed) <= set(same)
        kept += len(same)
    assert 0.35 < kept / 160 < 0.65


def test_an_edit_changes_the_clip_where_the_agent_was_and_takes_it_out_of_the_states(
    packets: Packets[TrainingClips], batch: Batch
) -> None:
    known = [packets.of(clip) for clip in batch.clips]
    edited, removed = edit(batch.video(), known, randoms(0))
    states = object_states(packets.collate(batch.clips).cells)
    left = states.without(removed)
    for row, slot in enumerate(removed.tolist()):
        changed = not torch.equal(edited[row], batch.video()[row])
        assert changed == (slot >= 0)
        gone = states.valid_BN[row] & ~left.valid_BN[row]
        assert states.slot_BN[row][gone].tolist() == ([slot] if slot >= 0 else [])
        pairs = left.pairs_BP2[row][left.pair_valid_BP[row]]
        assert left.valid_BN[row][pairs].all()


def test_targets_are_standardised_and_weigh_one_without_reliability(
    packets: Packets[TrainingClips], batch: Batch
) -> None:
    scales, targets = target_scales(packets), packets.collate([packets.clips[k] for k in range(len(packets))])
    with_it, without = (factor_targets(targets, scales, flag, PerFactor(1.0, 2.0, 3.0)) for flag in (True, False))
    kept = without.weights.layout > 0
    assert with_it.targets.layout[kept].mean(0).abs().max() < 1e-3
    assert set(without.weights.layout.tolist()) <= {0.0, 1.0}
    assert torch.equal(with_it.weights.agents > 0, without.weights.agents > 0)
    assert with_it.emphasis == PerFactor(1.0, 2.0, 3.0)


def test_training_masks_depend_on_replication_epoch_and_clip_alone() -> None:
    grid = (6, 8, 8)
    for kind in ("blocks", "spread"):
        one = training_masks(kind, 0, 2, ["a", "b", "c"], grid, step=5)
        other = training_masks(kind, 0, 2, ["c", "a"], grid, step=5)
        assert all(torch.equal(first[2], second[0]) for first, second in zip(one, other, strict=True))
        later = training_masks(kind, 0, 3, ["a", "b", "c"], grid, step=5)
        assert not all(torch.equal(a, b) for a, b in zip(one, later, strict=True))


def test_spread_masks_show_everything_once_and_a_share_once() -> None:
    grid = (6, 8, 8)
    shares = set()
    for step in range(50):
        whole, thinned = training_masks("spread", 0, 0, ["a"], grid, step)
        assert whole.tolist() == [list(range(6 * 64))]
        shares.add(thinned.shape[1] / (6 * 64))
    assert len(shares) > 10
    assert SPREAD[0] - 0.01 <= min(shares)
    assert max(shares) <= SPREAD[1] + 0.01
