"""The frozen trunk's records: the same losses and gradients from them, and never those of other weights or clips."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from torch import Tensor

from factorjepa.backbones import build
from factorjepa.backbones.checkpoint import load, save
from factorjepa.errors import TrainingError
from factorjepa.training import trunk_shards
from factorjepa.training.batches import TrainingBatch
from factorjepa.training.engine import Engine
from factorjepa.training.run import RunDirectory
from factorjepa.training.settings import TrainSettings
from factorjepa.training.step import loss_of
from factorjepa.training.trunk import Trunk, lowest_trained
from factorjepa.training.trunk_shards import RecordShards

from .conftest import SPEC

Make = Callable[..., TrainSettings]
CPU = torch.device("cpu")
# Relative, of the loss and of the whole gradient. Half-precision records round each hidden state once; the gradient of
# an L1 is made of signs, some of which turn over.
TOLERANCE = {"fp32": (1e-6, 1e-5), "fp16": (2e-5, 1e-2), "bf16": (2e-4, 5e-2)}


@pytest.fixture
def cached(settings: Make, tmp_path: Path) -> Make:
    """Settings of a run that keeps its trunk in fp32."""
    return lambda **changes: settings(**{"trunk_cache": str(tmp_path / "trunk"), "trunk_dtype": "fp32", **changes})


def batch_of(engine: Engine, step: int = 0) -> TrainingBatch:
    """The first batch, as the present stage shows it at `step`."""
    batch = next(engine._first_batches(1))
    return engine.batches.complete(batch, engine.learner.stage, step, 0, engine.device)


def with_trunk(engine: Engine, batch: TrainingBatch) -> TrainingBatch:
    assert engine.trunk is not None
    return dataclasses.replace(batch, trunk=engine.trunk.of(batch.video, batch.clip_ids, batch.viewed))


def loss_and_gradients(engine: Engine, batch: TrainingBatch) -> tuple[float, dict[str, Tensor]]:
    learner = engine.learner
    learner.zero_grad(set_to_none=True)
    loss, _ = loss_of(learner, batch, engine.scales, engine.settings, 0)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), {n: p.grad.clone() for n, p in learner.named_parameters() if p.grad is not None}


def assert_same(engine: Engine, batch: TrainingBatch, dtype: str) -> None:
    loss, gradients = loss_and_gradients(engine, batch)
    from_records, theirs = loss_and_gradients(engine, with_trunk(engine, batch))
    close, closer = TOLERANCE[dtype]
    assert from_records == pytest.approx(loss, rel=close)
    assert gradients.keys() == theirs.keys()
    assert gradients
    mine, other = (torch.cat([one[name].flatten() for name in gradients]) for one in (gradients, theirs))
    assert (mine - other).norm() <= closer * mine.norm()


def losses(out: Path) -> list[float]:
    return [r["loss"] for r in RunDirectory.existing(out).metrics() if "loss" in r]


@pytest.mark.parametrize(
    ("dtype", "masks"), [("fp32", "spread"), ("fp16", "spread"), ("bf16", "spread"), ("fp32", "blocks")]
)
def test_losses_and_gradients_from_records_are_those_without(dtype: str, masks: str, cached: Make) -> None:
    engine = Engine(cached(method="factorjepa_raw", trunk_dtype=dtype, masks=masks), CPU)
    assert engine.trunk is not None
    assert ("context" in engine.trunk.shapes) == (masks == "spread")
    engine.learner.enter(0)
    batch = batch_of(engine)
    with engine.trunk:
        assert_same(engine, batch, dtype)  # made
        assert_same(engine, batch, dtype)  # read


def test_every_stage_of_the_curriculum_starts_at_the_lowest_block_that_ever_trains(cached: Make) -> None:
    engine = Engine(cached(method="factorjepa"), CPU)
    assert engine.trunk is not None
    assert engine.trunk.cut == 2
    frozen, viewed = [], 0
    for number in range(len(engine.method.stages)):
        engine.learner.enter(number)
        frozen.append(engine.learner.encoder.frozen_blocks)
        batch = next(made for step in range(50) if 0 < len((made := batch_of(engine, step)).viewed) < 4 or number == 0)
        viewed += len(batch.viewed)
        with engine.trunk:
            assert_same(engine, batch, "fp32")
    assert frozen == [4, 3, 2, 2]
    assert viewed


def test_clips_in_a_view_are_computed_and_never_kept(cached: Make) -> None:
    engine = Engine(cached(method="factorjepa"), CPU)
    assert engine.trunk is not None
    video, ids = torch.randn(3, 3, 16, 32, 32), ("a", "b", "c")
    with engine.trunk as trunk:
        states = trunk.of(video, ids, viewed=(1,))
        assert [trunk.shards.has("target", clip) for clip in ids] == [True, False, True]
        torch.testing.assert_close(states.clip_B1ND, trunk.encoder.trunk(video, trunk.cut))
        other = torch.randn_like(video)
        again = trunk.of(other, ids, viewed=(1,))
    assert torch.equal(again.clip_B1ND[[0, 2]], states.clip_B1ND[[0, 2]])
    assert not torch.equal(again.clip_B1ND[1], states.clip_B1ND[1])


@pytest.mark.parametrize(("chosen", "cut"), [((1, 3), 1), ((2, 3), 2)])
def test_auto_rgn_is_cut_at_its_lowest_chosen_block(
    chosen: tuple[int, ...], cut: int, cached: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_chosen_blocks", lambda *_: chosen)
    engine = Engine(cached(method="auto_rgn"), CPU)
    assert engine.trunk is not None
    assert engine.trunk.cut == cut
    engine.learner.enter(0)
    assert_same(engine, batch_of(engine), "fp32")


def test_interventions_are_computed_from_their_own_pixels(cached: Make) -> None:
    engine = Engine(cached(method="factorjepa_int"), CPU)
    engine.learner.enter(1)
    batch = batch_of(engine)
    assert batch.edited is not None
    assert_same(engine, batch, "fp32")


@pytest.mark.parametrize("name", ["full", "lpft", "lora"])
def test_a_method_that_freezes_no_block_has_no_trunk(name: str, cached: Make) -> None:
    with pytest.raises(TrainingError, match=f"{name!r} trains the encoder from its first block on"):
        Engine(cached(method=name), CPU)
    assert not Path(str(cached().trunk_cache)).exists()


def test_a_method_without_updates_is_told_so(cached: Make) -> None:
    with pytest.raises(TrainingError, match="makes no update: there is no trunk to keep"):
        Engine(cached(method="frozen"), CPU)


def test_norms_of_taps_do_not_move_the_cut() -> None:
    names = ["predictor.x", "encoder.norms_block.0.weight", "encoder.blocks.3.attn.qkv.weight", "encoder.blocks.2.x"]
    assert lowest_trained(names, depth=4) == 2
    assert lowest_trained([*names, "encoder.patch_embed.proj.weight"], depth=4) == 0
    assert lowest_trained(["predictor.x"], depth=4) == 4


@effort(max_examples=20)
@given(st.integers(1, 5), st.booleans(), st.booleans(), st.sets(st.integers(0, 3)))
def test_an_encoder_in_two_halves_is_the_encoder(cut: int, levels: bool, norms: bool, taps: set[int]) -> None:
    spec = {**SPEC, "depth": 5, "taps": tuple(sorted(taps | {4})), "tap_norms": norms}
    torch.manual_seed(0)
    encoder = build("nano", **spec).encoder
    video = torch.randn(2, 3, 8, 32, 32)
    with torch.no_grad():
        whole = encoder(video, levels=levels)
        states = encoder.trunk(video, cut, levels)
        assert torch.equal(encoder.from_trunk(states, encoder.grid_of(video), cut, levels), whole)
        if not levels:
            tail = encoder.from_trunk(states, encoder.grid_of(video), cut, tail=16)
            torch.testing.assert_close(tail, whole[:, -16:])


def test_the_context_record_knows_nothing_of_the_future(cached: Make) -> None:
    engine = Engine(cached(method="factorjepa_raw"), CPU)
    assert engine.trunk is not None
    video = torch.randn(2, 3, 16, 32, 32)
    other = video.clone()
    other[:, :, engine.settings.context :] = torch.randn_like(other[:, :, engine.settings.context :])
    with engine.trunk as trunk:
        one, two = trunk.of(video, ("a", "b")), trunk.of(other, ("c", "d"))
    assert one.context_BSnD is not None
    assert two.context_BSnD is not None
    assert torch.equal(one.context_BSnD, two.context_BSnD)
    assert not torch.equal(one.clip_B1ND, two.clip_B1ND)


def test_a_run_reads_what_an_earlier_one_kept(
    cached: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Make
) -> None:
    few = {"method": "factorjepa", "updates": 4, "validate_every": 4, "save_every": 4}
    Engine(settings(**few), CPU).run(tmp_path / "plain", False)
    Engine(cached(**few), CPU).run(tmp_path / "one", False)
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "plain"), rel=1e-4)
    kept = {p.relative_to(tmp_path): p.read_bytes() for p in sorted((tmp_path / "trunk").rglob("*.safetensors"))}
    assert kept

    made = []
    monkeypatch.setattr(Trunk, "record", lambda *arguments: made.append(arguments))
    validation = [record for record in RunDirectory.existing(tmp_path / "one").metrics() if "val/future_l1" in record]
    Engine(cached(**few), CPU).run(tmp_path / "two", False)
    assert not made
    assert losses(tmp_path / "two") == losses(tmp_path / "one")
    assert validation == [r for r in RunDirectory.existing(tmp_path / "two").metrics() if "val/future_l1" in r]
    assert kept == {
        p.relative_to(tmp_path): p.read_bytes() for p in sorted((tmp_path / "trunk").rglob("*.safetensors"))
    }


def test_a_stopped_run_goes_on_to_the_bit_even_if_records_were_lost(cached: Make, tmp_path: Path) -> None:
    chosen = cached(method="factorjepa_raw", updates=4, save_every=2, validate_every=4, trunk_dtype="fp16")
    Engine(chosen, CPU).run(tmp_path / "whole", False)
    shutil.rmtree(tmp_path / "trunk")
    engine = Engine(chosen, CPU)
    engine.run(tmp_path / "cut", False, lambda step, *_: engine.stop() if step == 2 else None)
    next((tmp_path / "trunk").rglob("target-*.safetensors")).unlink()
    Engine(chosen, CPU).run(tmp_path / "cut", True)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "named"),
    [({"size": 64}, "size is 32 there and 64 here"), ({"fps": 3.5}, "fps is 4.0 there"),
     ({"replication": 1}, "replication is 0 there"), ({"context": 8}, "context is 12 there"),
     ({"trunk_dtype": "bf16"}, "dtype is 'fp32' there"), ({"trainable_blocks": 1}, "cut is 2 there and 3 here")],
)  # fmt: skip
def test_records_of_other_settings_are_refused_by_name(change: dict[str, Any], named: str, cached: Make) -> None:
    method = {"method": "auto_rgn", "updates": 1}  # reads no packets: they would refuse some of this first
    fixed = pytest.MonkeyPatch()
    with fixed.context() as patch:
        patch.setattr(Engine, "_chosen_blocks", lambda self, _: tuple(range(4 - self.settings.trainable_blocks, 4)))
        engine = Engine(cached(**method), CPU)
        assert engine.trunk is not None
        with engine.trunk:
            pass
        with pytest.raises(TrainingError, match=named):
            Engine(cached(**method, **change), CPU)


def test_records_of_other_weights_or_clips_are_refused(cached: Make, tiny: Path, tmp_path: Path) -> None:
    engine = Engine(cached(method="factorjepa_raw"), CPU)
    assert engine.trunk is not None
    with engine.trunk:
        pass
    others = load(tiny / "weights.safetensors", build("nano", **SPEC).spec)
    elsewhere = cached(method="factorjepa_raw", weights=str(tmp_path / "others.safetensors"))
    others.encoder.blocks[2].mlp.fc1.weight.data[0, 0] += 1e-3  # above the cut: of no consequence to what is kept
    save(others, tmp_path / "others.safetensors")
    Engine(elsewhere, CPU)
    others.encoder.blocks[1].mlp.fc1.weight.data[0, 0] += 1e-3
    save(others, tmp_path / "others.safetensors")
    with pytest.raises(TrainingError, match="weights is"):
        Engine(elsewhere, CPU)
    header = tmp_path / "trunk" / "header.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), "fps": 99.0}))
    with pytest.raises(TrainingError, match=r"fps is 99\.0 there"):
        Engine(cached(method="factorjepa_raw"), CPU)


def test_a_disk_without_room_is_refused_before_anything_is_written(
    cached: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 2**40, 1000))
    with pytest.raises(TrainingError, match=r"128 tokens x 48 x 4 bytes = 24\.6 kB.*the disk has 1 kB free"):
        Engine(cached(method="factorjepa_raw"), CPU)
    assert not (tmp_path / "trunk").exists()


def test_what_will_be_written_is_said_beforehand_and_shrinks_as_it_is(cached: Make) -> None:
    engine = Engine(cached(method="factorjepa_raw", trunk_dtype="fp16"), CPU)
    assert engine.trunk is not None
    per_clip = 128 * 48 * 2 + 2 * 96 * 48 * 2  # the whole clip once; two states of its context
    clips = len(engine.loader.clips) + len(engine.evaluation.clips)
    assert engine.trunk.bytes_to_come() == clips * per_clip
    assert f"{clips} clips x (target 128 tokens x 48 x 2 bytes = 12.3 kB + context 2 x 96 tokens" in str(engine.trunk)
    with engine.trunk as trunk:
        trunk.of(torch.randn(2, 3, 16, 32, 32), [clip.clip_id for clip in engine.loader.clips[:2]])
        assert trunk.bytes_to_come() == (clips - 2) * per_clip


def test_hidden_states_too_large_for_fp16_are_not_kept(cached: Make) -> None:
    engine = Engine(cached(method="factorjepa_raw", trunk_dtype="fp16"), CPU)
    with engine.trunk as trunk, pytest.raises(TrainingError, match="trunk_dtype=bf16"):  # type: ignore[union-attr]
        trunk.of(torch.full((1, 3, 16, 32, 32), 1e9), ("a",))


# The folder itself, with records of eight numbers.

HEADER = {"weights": "w", "cut": 2}


def record(number: int) -> Tensor:
    return torch.full((1, 2, 4), float(number))


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three records to a shard."""
    monkeypatch.setattr(trunk_shards, "SHARD_BYTES", 3 * record(0).nbytes)


def read(shards: RecordShards, *clips: str, kind: str = "target") -> list[float | None]:
    into = torch.full((len(clips), 1, 2, 4), -1.0)
    missing = shards.read(kind, clips, into)
    return [None if row in missing else into[row, 0, 0, 0].item() for row in range(len(clips))]


KILLED = """
import os, signal, sys, torch
from pathlib import Path
from factorjepa.training import trunk_shards

def half(path, data):
    with open(path, "wb") as opened:
        opened.write(data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)

records = [torch.full((1, 2, 4), float(number)) for number in range(6)]
trunk_shards.SHARD_BYTES = 3 * records[0].nbytes
with trunk_shards.RecordShards(Path(sys.argv[1]), {"weights": "w", "cut": 2}) as shards:
    for number, record in enumerate(records):
        if number == 5:  # one shard is there, two records wait
            Path.write_bytes = half
        shards.add("target", str(number), record)
"""


@pytest.mark.usefixtures("small_shards")
def test_a_process_killed_while_writing_leaves_whole_shards_only(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "t")], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list((tmp_path / "t").rglob(".*.partial"))
    with RecordShards(tmp_path / "t", HEADER) as shards:
        assert read(shards, *"012345") == [0.0, 1.0, 2.0, None, None, None]
        assert not list((tmp_path / "t").rglob(".*.partial"))
        shards.add("target", "4", record(4))
    assert read(RecordShards(tmp_path / "t", HEADER), "4", "2") == [4.0, 2.0]


@pytest.mark.usefixtures("small_shards")
def test_a_second_run_reads_beside_the_one_that_fills(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RecordShards(tmp_path / "t", HEADER) as first:
        first.add("target", "a", record(1))
        with caplog.at_level(logging.WARNING), RecordShards(tmp_path / "t", HEADER) as second:
            assert "another process is filling" in caplog.text
            assert read(second, "a") == [None]  # it waits in the other's memory
            second.add("target", "z", record(9))
            for number, clip in enumerate("bc", start=2):
                first.add("target", clip, record(number))
            assert read(second, *"abcz") == [1.0, 2.0, 3.0, None]
        with RecordShards(tmp_path / "t", HEADER, rank=1) as other:
            other.add("target", "z", record(9))
        assert read(first, "z", "a") == [9.0, 1.0]
        assert read(first, "a", kind="context") == [None]


def test_a_full_disk_ends_the_keeping_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with RecordShards(tmp_path / "t", HEADER) as shards:
        shards.add("target", "a", record(1))
        monkeypatch.setattr(Path, "write_bytes", full)
    assert "keeps no more of the trunk" in caplog.text
    assert read(shards, "a") == [None]


def test_damage_is_found_when_a_record_is_read(tmp_path: Path) -> None:
    with RecordShards(tmp_path / "t", HEADER) as shards:
        for number in range(2):
            shards.add("target", str(number), record(number))
    path = next((tmp_path / "t").rglob("*.safetensors"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\xff")
    shards = RecordShards(tmp_path / "t", HEADER)
    assert read(shards, "0") == [0.0]
    with pytest.raises(TrainingError, match="the bytes of '1' have changed"):
        read(shards, "1")
    path.write_bytes(whole[:-3])
    with pytest.raises(TrainingError, match=r"is damaged .*delete it"):
        RecordShards(tmp_path / "t", HEADER)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(TrainingError, match="is not empty and holds no trunk cache"):
        RecordShards(tmp_path, HEADER)
