"""`factorjepa targets`: the same bytes however they were made, and whatever interrupted it."""

from __future__ import annotations

import functools
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factorjepa import commands
from factorjepa.config import resolve
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.manifest import Manifest
from factorjepa.corpus.simulated import SimulationPlan, simulate_corpus
from factorjepa.corpus.splits import Split
from factorjepa.errors import CorpusError, FactorJEPAError, TeacherError, VideoError
from factorjepa.teacher.cache import PacketCache
from factorjepa.teacher.making import make_packets
from factorjepa.teacher.packet import COLUMNS
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.world import WorldSettings

CITIES = ("navapur", "gulmohar")
WORLD = resolve(WorldSettings, "dense", ["size=48", "seconds=[4.25,4.5]", "fps=8", f"cities=[{','.join(CITIES)}]"])
CLIPS, PER_SHARD = 7, 2
TRUTH = TeacherSettings(regions={"kind": "truth", "side": 48})
# The command line with small shards: what it would take hundreds of clips to see otherwise.
PROGRAM = f"""
import factorjepa.teacher.making as making
from factorjepa.cli import main
making.PER_SHARD = {PER_SHARD}
if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated corpus of audit clips: the only ones whose ground truth can be asked for."""
    folder = tmp_path_factory.mktemp("simulated") / "corpus"
    simulate_corpus(folder, SimulationPlan(seed=4, clips=CLIPS, world=WORLD, audit_cities=CITIES), workers=1)
    return folder


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "targets"
    make_packets(data, out, TRUTH, workers=1, per_shard=PER_SHARD)
    return out


def contents(folder: Path) -> dict[str, str]:
    """All but who writes, and by which command."""
    apart = (".writer.lock", commands.FILE)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in apart)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def begin(
    script: Path, data: Path, out: Path, workers: int = 1, limit: Callable[[], object] | None = None
) -> subprocess.Popen[str]:
    script.write_text(PROGRAM)
    words = [
        "targets",
        str(data),
        "regions.kind=truth",
        "regions.side=48",
        "--out",
        str(out),
        "--workers",
        str(workers),
    ]
    return subprocess.Popen(
        [sys.executable, str(script), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=limit, start_new_session=True, env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


class TestRuns:
    def test_every_clip_has_its_packet_with_the_agents_that_are_there(self, data: Path, made: Path) -> None:
        audit = Corpus.open(data).audit()
        packets = PacketCache.open(made, TRUTH).packets(audit)
        assert len(packets) == CLIPS
        assert sum(int(packets[k].slots) for k in range(CLIPS)) > CLIPS
        assert "ground truth" in PacketCache.open(made).teacher
        assert len(list(made.rglob("audit-*.safetensors"))) == 4

    def test_two_workers_write_the_same_bytes_and_count_clips(self, data: Path, made: Path, tmp_path: Path) -> None:
        counted: list[tuple[int, int]] = []
        make_packets(
            data, tmp_path / "out", TRUTH, workers=2, per_shard=PER_SHARD, progress=lambda *done: counted.append(done)
        )
        assert contents(tmp_path / "out") == contents(made)
        assert counted == [(k, CLIPS) for k in range(CLIPS + 1)]

    def test_what_is_missing_is_made_again_to_the_same_bytes(self, data: Path, made: Path, tmp_path: Path) -> None:
        out = Path(shutil.copytree(made, tmp_path / "out"))
        for victim in sorted(out.rglob("audit-*"))[1:3]:
            victim.unlink()
        counted: list[tuple[int, int]] = []
        make_packets(data, out, TRUTH, workers=1, per_shard=PER_SHARD, progress=lambda *done: counted.append(done))
        assert contents(out) == contents(made)
        assert counted[0] == (3, CLIPS)

    def test_another_replication_lies_beside_and_shows_other_windows(
        self, data: Path, made: Path, tmp_path: Path
    ) -> None:
        out = Path(shutil.copytree(made, tmp_path / "out"))
        cache = make_packets(data, out, TRUTH, workers=1, per_shard=PER_SHARD, replication=1)
        audit = Corpus.open(data).audit()
        first, second = cache.packets(audit), cache.packets(audit, replication=1)
        assert any(not np.array_equal(first[k].times, second[k].times) for k in range(CLIPS))


def without(data: Path, folder: Path, *left_out: int) -> Path:
    """A corpus as it was before some of its clips came."""
    shutil.copytree(data, folder)
    Manifest([clip for number, clip in enumerate(Manifest.read(data)) if number not in left_out]).write(folder)
    return folder


class TestGrowing:
    def test_new_clips_get_packets_and_the_others_keep_theirs(self, data: Path, made: Path, tmp_path: Path) -> None:
        fewer, out = without(data, tmp_path / "fewer", 1, 4), tmp_path / "out"
        make_packets(fewer, out, TRUTH, workers=1, per_shard=PER_SHARD)
        before = contents(out)
        counted: list[tuple[int, int]] = []
        cache = make_packets(data, out, TRUTH, workers=1, per_shard=PER_SHARD, progress=lambda *n: counted.append(n))
        after = contents(out)
        assert counted == [(CLIPS - 2 + k, CLIPS) for k in range(3)]
        assert {name: after[name] for name in before} == before
        assert [*after.keys() - before.keys()] == ["replication-0/audit-00003.safetensors"]
        audit = Corpus.open(data).audit()
        for one, other in zip(cache.packets(audit), PacketCache.open(made).packets(audit), strict=True):
            assert all(np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in COLUMNS)
        make_packets(data, out, TRUTH, workers=1, per_shard=PER_SHARD)
        assert contents(out) == after

    def test_a_shard_that_is_lost_while_the_corpus_grows_is_made_too(self, data: Path, tmp_path: Path) -> None:
        three, four = (without(data, tmp_path / str(number), *range(number)) for number in (4, 3))
        out = tmp_path / "out"
        make_packets(three, out, TRUTH, workers=1, per_shard=PER_SHARD)
        first, last = sorted(out.rglob("audit-*"))
        first.unlink()
        last.write_bytes(last.read_bytes()[:-9])
        cache = make_packets(four, out, TRUTH, workers=1, per_shard=PER_SHARD)
        assert len(cache.packets(Corpus.open(four).audit()).verify()) == 4
        assert [len(shard) for shard in cache.shards(Split.AUDIT, 0)] == [2, 2]

    def test_a_clip_that_is_another_one_now_is_named(self, data: Path, made: Path, tmp_path: Path) -> None:
        other = without(data, tmp_path / "other")
        clips = list(Manifest.read(other))
        clips[2] = replace(clips[2], t_start=clips[2].t_start + 0.1)
        Manifest(clips).write(other)
        before = contents(made)
        with pytest.raises(TeacherError, match=f"clip '{clips[2].clip_id}' is another one now"):
            make_packets(other, made, TRUTH, workers=1, per_shard=PER_SHARD)
        assert contents(made) == before


class TestInterruptions:
    def test_killed_in_the_middle_and_run_again_gives_the_same_bytes(
        self, data: Path, made: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        process = begin(tmp_path / "program.py", data, out, workers=2)
        for _ in range(12_000):
            if len(list(out.rglob("audit-*.safetensors"))) >= 1:
                break
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        half = {name: text for name, text in contents(out).items() if "partial" not in name}
        assert half.items() <= contents(made).items()  # what is there is complete
        (out / "replication-0" / ".audit-00009.safetensors.1.partial").write_bytes(b"half a shard")
        again = begin(tmp_path / "program.py", data, out)
        said, wrong = again.communicate(timeout=240)
        process.communicate(timeout=60)  # its workers are gone, too
        assert again.returncode == 0, wrong
        assert "ground truth" in said
        assert contents(out) == contents(made)

    def test_a_full_disk_is_said_and_the_next_run_completes(self, data: Path, made: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        largest = max(path.stat().st_size for path in made.rglob("audit-*"))
        room = (made / "projections.safetensors").stat().st_size
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (min(largest - 1, room - 1),) * 2)
        process = begin(tmp_path / "program.py", data, out, limit=limit)
        _, wrong = process.communicate(timeout=240)
        assert process.returncode == 1
        assert "the disk is full" in wrong
        assert "Traceback" not in wrong
        assert not list(out.rglob("*.partial"))
        make_packets(data, out, TRUTH, workers=1, per_shard=PER_SHARD)
        assert contents(out) == contents(made)


class TestRefusals:
    def test_other_settings_in_the_same_folder_are_named_and_nothing_is_rebuilt(self, data: Path, made: Path) -> None:
        before = contents(made)
        other = TRUTH.model_copy(update={"tracks": TRUTH.tracks.model_copy(update={"min_length": 5})})
        with pytest.raises(TeacherError, match=r"tracks\.min_length is 3 there and 5 here"):
            make_packets(data, made, other, workers=1, per_shard=PER_SHARD)
        assert contents(made) == before

    def test_another_corpus_in_the_same_folder(self, data: Path, made: Path, tmp_path: Path) -> None:
        fewer = Path(shutil.copytree(data, tmp_path / "fewer"))
        Manifest(list(Manifest.read(fewer))[:-1]).write(fewer)
        with pytest.raises(TeacherError, match="the corpus has changed"):
            make_packets(fewer, made, TRUTH, workers=1, per_shard=PER_SHARD)

    @pytest.mark.parametrize("harm", ["cut", "changed"])
    def test_a_damaged_shard_is_made_again(self, data: Path, made: Path, tmp_path: Path, harm: str) -> None:
        out = Path(shutil.copytree(made, tmp_path / "out"))
        victim = sorted(out.rglob("audit-*"))[1]
        whole = victim.read_bytes()
        flipped = bytes(255 - byte for byte in whole[-40:-36])  # never what was there
        victim.write_bytes(whole[:-7] if harm == "cut" else whole[:-40] + flipped + whole[-36:])
        make_packets(data, out, TRUTH, workers=1, per_shard=PER_SHARD)
        assert victim.read_bytes() == whole

    def test_a_folder_of_somebody_else(self, data: Path, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("years of work")
        with pytest.raises(TeacherError, match="not empty"):
            make_packets(data, tmp_path, TRUTH, workers=1)

    def test_a_split_that_the_corpus_does_not_have(self, data: Path, tmp_path: Path) -> None:
        with pytest.raises(CorpusError, match="no train clips"):
            make_packets(data, tmp_path / "out", TRUTH, [Split.TRAIN], workers=1)

    def test_a_damaged_clip_is_named(self, data: Path, tmp_path: Path) -> None:
        broken = Path(shutil.copytree(data, tmp_path / "broken"))
        clip = Manifest.read(broken)[3]
        (broken / clip.path).write_bytes(b"no video")
        with pytest.raises(VideoError, match=clip.clip_id):
            make_packets(broken, tmp_path / "out", TRUTH, workers=1, per_shard=PER_SHARD)

    def test_a_run_refused_before_its_first_shard_leaves_nothing_behind(self, data: Path, tmp_path: Path) -> None:
        broken, out = Path(shutil.copytree(data, tmp_path / "broken")), tmp_path / "out"
        clip = Manifest.read(broken)[1]
        whole = (broken / clip.path).read_bytes()
        (broken / clip.path).write_bytes(b"no video")
        with pytest.raises(VideoError, match=clip.clip_id):
            make_packets(broken, out, TRUTH, workers=1, per_shard=PER_SHARD)
        assert contents(out) == {}
        (broken / clip.path).write_bytes(whole)
        other = TRUTH.model_copy(update={"tracks": TRUTH.tracks.model_copy(update={"min_length": 5})})
        assert make_packets(broken, out, other, workers=1, per_shard=PER_SHARD).settings == other

    def test_projections_without_a_header_do_not_stand_in_the_way(self, data: Path, made: Path, tmp_path: Path) -> None:
        """A run was killed between the two."""
        out = tmp_path / "out"
        out.mkdir()
        shutil.copy(made / "projections.safetensors", out)
        make_packets(data, out, TRUTH, workers=1, per_shard=PER_SHARD)
        assert contents(out) == contents(made)

    def test_projections_that_were_altered_are_made_again(self, data: Path, made: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        shutil.copytree(made, out)
        with open(out / "projections.safetensors", "r+b") as opened:
            opened.truncate(100)
        make_packets(data, out, TRUTH, workers=1, per_shard=PER_SHARD)
        assert contents(out) == contents(made)

    def test_a_corpus_without_clips_is_said(self, data: Path, tmp_path: Path) -> None:
        Manifest([]).write(tmp_path / "empty")
        with pytest.raises(TeacherError, match="has no clips"):
            make_packets(tmp_path / "empty", tmp_path / "out", TRUTH, workers=1)
        assert not (tmp_path / "out").exists()

    def test_clips_shorter_than_the_window_are_refused_at_once(self, data: Path, tmp_path: Path) -> None:
        longer = TRUTH.model_copy(update={"frames": 24})
        with pytest.raises(FactorJEPAError, match="shorter than the 6 s window"):
            make_packets(data, tmp_path / "out", longer, workers=1)

    def test_ground_truth_comes_out_of_audit_clips_alone(self, tmp_path: Path) -> None:
        simulate_corpus(tmp_path / "data", SimulationPlan(seed=4, clips=2, world=WORLD), workers=1)
        with pytest.raises(TeacherError, match="audit clips alone, not of train clips"):
            make_packets(tmp_path / "data", tmp_path / "out", TRUTH, [Split.TRAIN], workers=1)
