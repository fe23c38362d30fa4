"""Coverage, sensitivity and pictures of packets, and the verbs that show them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from factorjepa.config import resolve
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.simulated import SimulationPlan, simulate_corpus
from factorjepa.errors import FactorJEPAError
from factorjepa.teacher.cache import PacketCache
from factorjepa.teacher.coverage import coverage_of
from factorjepa.teacher.making import make_packets
from factorjepa.teacher.packet_shards import Shard, write_shard
from factorjepa.teacher.report import histogram_text
from factorjepa.teacher.sensitivity import sensitivity, variants_of
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.teacher.teacher import Teacher
from factorjepa.terminal import console
from factorjepa.verbs.look import preview
from factorjepa.verbs.teacher import targets
from factorjepa.video import probe
from factorjepa.world import WorldSettings

CITIES = ("gulmohar",)
WORLD = resolve(WorldSettings, "dense", ["size=64", "seconds=[4.25,4.5]", "fps=8", f"cities=[{','.join(CITIES)}]"])
TRUTH = TeacherSettings(regions={"kind": "truth", "side": 64})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "corpus"
    simulate_corpus(folder, SimulationPlan(seed=4, clips=3, world=WORLD, audit_cities=CITIES), workers=1)
    make_packets(folder, folder / "targets", TRUTH, workers=1)
    return folder


def test_coverage_counts_what_the_packets_hold(data: Path, tmp_path: Path) -> None:
    """Reliabilities set by hand: one clip without evidence, one below the threshold, one above."""
    cache, clips = PacketCache.open(data / "targets"), Corpus.open(data).audit()
    packets = cache.packets(clips)
    shard = next((data / "targets").rglob("audit-*"))
    original = Shard(shard)
    changed = [
        replace(original.packet(row), reliability=np.array([0.9, omega, 0.0], np.float32))
        for row, omega in enumerate((0.0, 0.15, 0.7))
    ]
    elsewhere = tmp_path / "targets"
    (elsewhere / "replication-0").mkdir(parents=True)
    (elsewhere / "header.json").write_bytes((data / "targets" / "header.json").read_bytes())
    about = {key: original.about[key] for key in ("digest", "replication", "split")}
    write_shard(elsewhere / "replication-0" / shard.name, original.clips, changed, about)
    coverage = coverage_of(PacketCache.open(elsewhere).packets(clips))
    agents = coverage.factors["agents"]
    assert (agents.total, agents.retained, agents.below_threshold, agents.without_evidence) == (3, 1, 1, 1)
    assert agents.coverage == pytest.approx(1 / 3)
    assert coverage.factors["layout"].coverage == 1
    assert coverage.factors["interactions"].without_evidence == 3
    assert np.isnan(coverage.factors["interactions"].quantiles()).all()
    assert agents.histogram(4).tolist() == [1, 0, 1, 0]
    assert coverage.agents.tolist() == [int(packets[k].slots) for k in range(3)]
    assert coverage.factors["visibility"].total == int(coverage.agents.sum())


def test_a_histogram_shows_the_smallest_count() -> None:
    assert histogram_text(np.array([0, 1, 500, 1000])) == " ▁▄█"
    assert histogram_text(np.zeros(3, np.int64)) == "   "


def test_sensitivity_varies_one_threshold_at_a_time_and_finds_what_it_must(data: Path) -> None:
    for setting, value, settings in variants_of(TRUTH):
        section, key = setting.split(".")
        assert getattr(getattr(settings, section), key) == value
        others = settings.model_dump()
        others[section][key] = TRUTH.model_dump()[section][key]
        assert others == TRUTH.model_dump()
    clips = Corpus.open(data).audit()
    variants = {(one.setting, one.value): one for one in sensitivity(Teacher(TRUTH), clips)}
    as_set = [one for one in variants.values() if one.as_set]
    assert len(as_set) == 4
    packets = PacketCache.open(data / "targets").packets(clips)
    for one in as_set:  # running the cheap stages again gives what the packets hold
        assert one.agents == pytest.approx(np.mean([int(packets[k].slots) for k in range(3)]))
        assert one.pairs == pytest.approx(np.mean([len(packets[k].pair_tracks) for k in range(3)]))
        assert one.agreement == pytest.approx(1)
    wide, narrow = variants["targets.pair_distance", 0.35], variants["targets.pair_distance", 0.15]
    assert wide.pairs > narrow.pairs
    assert wide.agents == narrow.agents
    assert variants["regions.min_area", 0.002].agents < variants["regions.min_area", 0.0005].agents


def test_the_report_and_the_preview(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", 100)
    targets(data, report=True, sample=1)
    said = capsys.readouterr().out
    for word in ("Coverage", "layout", "interactions", "Reliability", "min_area", "0.25*", "ground truth"):
        assert word in said
    preview(data, out=tmp_path, targets=True)
    with Image.open(tmp_path / "targets.gif") as picture:
        frames = [np.asarray(frame.convert("RGB"), int) for frame in ImageSequence.Iterator(picture)]
    assert len(frames) == 16
    assert np.abs(frames[0] - frames[8]).mean() > 0.2  # it moves
    clip = Corpus.open(data).manifest[1].clip_id
    preview(data, out=tmp_path, targets=True, clip=clip, movie=True)
    assert clip in capsys.readouterr().out
    assert probe(tmp_path / "targets.mp4").fps == 4


def test_of_a_clip_without_ground_truth_the_preview_draws_what_the_teacher_saw(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    footage = tmp_path / "footage"
    shutil.copytree(data, footage, ignore=shutil.ignore_patterns("*.truth.npz"))
    clip = Corpus.open(footage).manifest[1]
    preview(footage, out=tmp_path, clip=clip.clip_id)
    said = capsys.readouterr().out
    assert "what the teacher saw" in said
    assert not (tmp_path / "clip.gif").exists()
    with Image.open(tmp_path / "overlay.gif") as picture:
        frames = np.stack([np.asarray(frame.convert("RGB"), int) for frame in ImageSequence.Iterator(picture)])
    cache = PacketCache.open(footage / "targets")
    assert len(frames) == cache.settings.frames
    bare, drawn = frames[:, :, :320], frames[:, :, 328:]
    strength = np.abs(drawn - bare).mean(-1)
    packet = cache.packets(Corpus.open(footage).audit()).of(clip)
    seen = np.zeros((len(frames), int(packet.side), int(packet.side)), bool)
    for region, where, visible in packet.region_masks(packet.region_track >= 0):
        seen[int(packet.region_frame[region])][where] |= np.asarray(visible, bool)
    seen = seen.repeat(5, 1).repeat(5, 2)
    assert strength[seen].mean() > 1.5 * strength[~seen].mean()  # in the places of its tracks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": ["tests"]}, "choose train, validation, test, audit"),
        ({"overrides": ["targets.pair_distanse=1"]}, "did you mean 'pair_distance'"),
        ({"report": True, "out": Path("nowhere")}, "there are no packets"),
        ({"report": True, "replication": 5}, "no packets of replication 5"),
        ({"overrides": ["regions.kind=truth"], "split": ["train"]}, "no train clips"),
        ({"overrides": ["targets.grid=24"]}, r"targets\.grid is 16 there and 24 here"),
    ],
)
def test_errors_say_what_to_do(data: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(FactorJEPAError, match=message):
        targets(data, **options)
