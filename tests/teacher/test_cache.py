"""The packet cache: what is written comes back, from the right split only, and damage is named."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from corpus.clips import four_splits, make_corpus
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import EvaluationLoader, Loader
from factorjepa.corpus.splits import Split
from factorjepa.corpus.windows import WindowSpec, window_times
from factorjepa.errors import TeacherError
from factorjepa.teacher.batch import collate
from factorjepa.teacher.cache import HEADER, PROJECTIONS, PacketCache, shard_folder, write_header
from factorjepa.teacher.packet import COLUMNS, Packet, build_packet, projections_for
from factorjepa.teacher.packet_shards import Shard, write_shard
from factorjepa.teacher.scales import target_scales
from factorjepa.teacher.settings import TeacherSettings

from .evidence import evidence_of, random_evidence

SETTINGS = TeacherSettings()
PROJECTED = projections_for(12, SETTINGS)
SPEC = WindowSpec(size=32)


def packet(seed: int, agents: int = 4, times: np.ndarray | None = None) -> Packet:
    evidence = random_evidence(seed, agents) if agents else evidence_of([])
    return build_packet(evidence, np.arange(16) / 4 if times is None else times, SETTINGS, PROJECTED)


def assert_same(one: Packet, two: Packet) -> None:
    for name, (_, dtype) in COLUMNS.items():
        a, b = getattr(one, name), getattr(two, name)
        assert a.dtype == b.dtype == dtype, name
        assert np.array_equal(a, b), name


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips of all four splits, with a packet each; the seed of a packet is the clip's place in the manifest."""
    folder = tmp_path_factory.mktemp("data")
    manifest = make_corpus(folder, four_splits())
    cache = folder / "targets"
    header = {
        "digest": SETTINGS.digest(),
        "settings": SETTINGS.model_dump(mode="json"),
        "features": "f",
        "regions": "r",
    }
    write_header(cache, header, PROJECTED)
    for split in Split:
        clips = [clip for clip in manifest if clip.split == split]
        for number, start in enumerate(range(0, len(clips), 4)):
            part = clips[start : start + 4]
            packets = [packet(list(manifest).index(clip), times=window_times(clip, SPEC)) for clip in part]
            about = {"digest": SETTINGS.digest(), "replication": 0, "split": str(split)}
            path = shard_folder(cache, 0) / f"{split}-{number:05d}.safetensors"
            write_shard(path, [clip.clip_id for clip in part], packets, about)
    return folder


@pytest.fixture
def copied(data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(data, tmp_path / "copy"))


def first_shard(folder: Path, split: str = "train") -> Path:
    return shard_folder(folder / "targets", 0) / f"{split}-00000.safetensors"


class TestReading:
    def test_packets_come_back_as_they_were(self, data: Path) -> None:
        corpus = Corpus.open(data)
        packets = PacketCache.open(data / "targets", SETTINGS).packets(corpus.training())
        assert len(packets) == 6
        for index in (5, 0, 3):
            expected = packet(index, times=window_times(corpus.training()[index], SPEC))
            assert_same(packets[index], expected)
            assert_same(packets.of(corpus.training()[index]), expected)

    @pytest.mark.parametrize("agents", [[0], [0, 0], [0, 3, 0], [2, 30, 1]])
    def test_a_shard_holds_any_mixture(self, tmp_path: Path, agents: list[int]) -> None:
        packets = [packet(seed, count) for seed, count in enumerate(agents)]
        write_shard(tmp_path / "x.safetensors", [str(k) for k in range(len(agents))], packets, {})
        shard = Shard(tmp_path / "x.safetensors")
        shard.verify()
        for row, expected in enumerate(packets):
            assert_same(shard.packet(row), expected)

    def test_masks_come_back_from_their_runs(self) -> None:
        evidence = random_evidence(5, 6)
        stored = build_packet(evidence, np.arange(16) / 4, SETTINGS, PROJECTED)
        everything = np.ones(len(stored.region_frame), bool)
        masks = {(int(stored.region_frame[k]), where[0].start, where[1].start): mask
                 for k, where, mask in stored.region_masks(everything)}  # fmt: skip
        assert sum(map(len, evidence.regions)) == len(everything)
        for frame, regions in enumerate(evidence.regions):
            for region in regions:
                assert np.array_equal(masks[frame, region.top, region.left], region.mask)

    def test_packets_travel_to_worker_processes(self, data: Path) -> None:
        packets = PacketCache.open(data / "targets").packets(Corpus.open(data).training())
        sent = pickle.dumps(packets)
        assert len(sent) < 20_000  # the way to the files, not what is in them
        assert_same(pickle.loads(sent)[2], packets[2])

    def test_projections_are_kept_beside_them(self, data: Path) -> None:
        from safetensors.numpy import load_file

        kept = load_file(data / "targets" / PROJECTIONS)
        assert np.array_equal(kept["descriptor_DE"], PROJECTED.descriptor_DE)


class TestSplits:
    def test_training_clips_reach_no_other_packets(self, data: Path) -> None:
        corpus = Corpus.open(data)
        packets = PacketCache.open(data / "targets").packets(corpus.training())
        for clip in corpus.manifest:
            if clip.split != Split.TRAIN:
                with pytest.raises(TeacherError, match="no train packet"):
                    packets.of(clip)

    def test_a_test_shard_under_a_training_name_is_refused(self, copied: Path) -> None:
        shutil.copy(first_shard(copied, "test"), first_shard(copied))
        with pytest.raises(TeacherError, match="split is 'test' and not 'train'"):
            PacketCache.open(copied / "targets").packets(Corpus.open(copied).training())

    def test_only_shards_of_the_split_are_opened(self, copied: Path) -> None:
        first_shard(copied, "test").write_bytes(b"broken")
        cache, corpus = PacketCache.open(copied / "targets"), Corpus.open(copied)
        assert len(cache.packets(corpus.training())) == 6
        with pytest.raises(TeacherError, match="damaged"):
            cache.packets(corpus.evaluation("test"))

    def test_clips_without_a_packet_are_counted_and_named(self, copied: Path) -> None:
        first_shard(copied).unlink()
        with pytest.raises(TeacherError, match=r"4 of 6 train clips have no packet .* --split train"):
            PacketCache.open(copied / "targets").packets(Corpus.open(copied).training())
        with pytest.raises(TeacherError, match="replication 3"):
            PacketCache.open(copied / "targets").packets(Corpus.open(copied).audit(), replication=3)


class TestBatches:
    def test_a_loaders_batch_gets_its_own_targets(self, data: Path) -> None:
        corpus = Corpus.open(data)
        packets = PacketCache.open(data / "targets").packets(corpus.training())
        for batch in Loader(corpus.training(), SPEC, batch_size=3, seed=1):
            targets = packets.for_batch(batch)
            for row, clip in enumerate(batch.clips):
                own = packets.of(clip)
                assert torch.equal(targets.layout_BW[row], torch.tensor(own.layout).float())
                count = int(own.slots)
                mine = torch.tensor(own.track_visibility[:count]).float()
                assert torch.equal(targets.visibility_BN[row, :count], mine)
                assert not targets.visibility_reliability_BN[row, count:].any()

    def test_another_window_is_refused(self, data: Path) -> None:
        corpus = Corpus.open(data)
        packets = PacketCache.open(data / "targets").packets(corpus.validation())
        other = next(iter(EvaluationLoader(corpus.validation(), replace_frames(SPEC), batch_size=1)))
        with pytest.raises(TeacherError, match="16 frames at 4 fps"):
            packets.for_batch(other)

    def test_flags_follow_the_thresholds_and_nothing_stands_for_no_evidence(self) -> None:
        settings = TeacherSettings(targets={"exclude_below": {"layout": 0.9, "agents": 0.0, "interactions": 0.0}})
        some, none = packet(1, 4), packet(1, 0)
        batch = collate([replace(some, reliability=np.array([0.85, 0.5, 0.1], np.float32)), none], settings)
        assert batch.retained_B3.tolist() == [[False, True, True], [bool(none.reliability[0] >= 0.9), False, False]]
        assert not (batch.retained_B3[1] & (batch.reliability_B3[1] == 0)).any()
        assert not batch.visibility_retained_BN[1].any()

    def test_moving_to_a_device_leaves_the_evidence_on_the_host(self) -> None:
        moved = collate([packet(0)], SETTINGS).to(torch.device("meta"))
        assert moved.layout_BW.is_meta
        assert moved.cells.descriptor_CE.device.type == "cpu"


def replace_frames(spec: WindowSpec) -> WindowSpec:
    return spec.model_copy(update={"frames": 8})


class TestScales:
    def test_targets_standardised_with_them_have_mean_0_and_deviation_1(self, data: Path) -> None:
        packets = PacketCache.open(data / "targets").packets(Corpus.open(data).training())
        scales = target_scales(packets)
        kept = [packets[k] for k in range(6) if packets[k].reliability[1] >= 0.2]
        standard = scales["agents"].standardised(torch.stack([torch.tensor(one.agents).float() for one in kept]))
        assert standard.mean(0).abs().max() < 1e-4
        assert (standard.std(0, correction=0) - 1).abs().max() < 1e-3

    def test_test_clips_have_no_say_in_them(self, data: Path) -> None:
        packets = PacketCache.open(data / "targets").packets(Corpus.open(data).evaluation("test"))
        with pytest.raises(TeacherError, match="training clips"):
            target_scales(packets)  # type: ignore[arg-type]

    def test_a_factor_that_is_never_retained_is_left_as_it_is(self, data: Path) -> None:
        cache = PacketCache.open(data / "targets")
        cache.settings = TeacherSettings(targets={"exclude_below": {"layout": 1.0}})
        scale = target_scales(cache.packets(Corpus.open(data).training()))["layout"]
        assert torch.equal(scale.standardised(torch.ones(1, 256)), torch.ones(1, 256))


class TestRefusals:
    def test_other_settings_are_named(self, data: Path) -> None:
        other = TeacherSettings(targets={"pair_distance": 0.3}, tracks={"max_gap": 2})
        with pytest.raises(TeacherError, match=r"tracks.max_gap is 4 there and 2 here; targets.pair_distance is 0.25"):
            PacketCache.open(data / "targets", other)

    def test_no_cache_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(TeacherError, match="factorjepa targets DATA"):
            PacketCache.open(tmp_path)

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1}', '{"format": 1, "settings": {"colour": 3}}'])
    def test_a_damaged_header(self, copied: Path, text: str) -> None:
        (copied / "targets" / HEADER).write_text(text)
        with pytest.raises(TeacherError, match=HEADER):
            PacketCache.open(copied / "targets")

    def test_a_header_of_another_format(self, copied: Path) -> None:
        path = copied / "targets" / HEADER
        path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
        with pytest.raises(TeacherError, match="format 99"):
            PacketCache.open(copied / "targets")

    def test_a_shard_cut_at_any_place_is_damaged(self, copied: Path) -> None:
        path = first_shard(copied)
        whole = path.read_bytes()
        for length in (0, 5, 8, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            with pytest.raises(TeacherError, match=r"damaged.*delete it"):
                Shard(path)

    def test_a_changed_byte_is_found_when_asked_for(self, copied: Path) -> None:
        path = first_shard(copied)
        changed = bytearray(path.read_bytes())
        changed[-1000] ^= 4
        path.write_bytes(changed)
        with pytest.raises(TeacherError, match="have changed"):
            Shard(path).verify()

    def test_packets_of_other_settings_among_ours(self, copied: Path) -> None:
        clips = Corpus.open(copied).training()
        about = {"digest": "0" * 16, "replication": 0, "split": "train"}
        write_shard(first_shard(copied), [clip.clip_id for clip in clips[:4]], [packet(k) for k in range(4)], about)
        with pytest.raises(TeacherError, match="its digest is"):
            PacketCache.open(copied / "targets").packets(clips)
