"""From a folder of footage to a corpus: what is kept, what is left out and why, the same bytes however it was made."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factorjepa.commands import FILE, recorded
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import Loader
from factorjepa.corpus.manifest import MANIFEST, Manifest
from factorjepa.corpus.rejected import read_rejected
from factorjepa.corpus.store import pack
from factorjepa.corpus.windows import WindowSpec
from factorjepa.engines import Engine, Here, Processes
from factorjepa.errors import CorpusError, FactorJEPAError, StorageError
from factorjepa.footage.ingest import Ingested, ingest
from factorjepa.footage.listing import list_sources
from factorjepa.footage.privacy import PrivacySettings, build
from factorjepa.footage.settings import IngestSettings, LimitSettings
from factorjepa.storage import PARTIAL, only_writer
from factorjepa.video import probe, read_frames

from .filters import Deadly, Endless, Failing, Raising, Recorder, Shrinking
from .videos import FPS, SETTINGS, encode, make_footage, seconds, street

OFF = functools.partial(build, PrivacySettings(mode="off"))


@pytest.fixture(scope="module")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_footage(tmp_path_factory.mktemp("footage"))


@pytest.fixture(scope="module")
def made(footage: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "corpus"
    run(footage, out)
    return out


def run(
    footage: Path, out: Path, settings: IngestSettings = SETTINGS, build: Any = OFF, engine: Engine | None = None,
    audit: bool = False,
) -> Ingested:  # fmt: skip
    return ingest(out, list_sources([footage], "walk"), settings, build, engine or Here(), audit)


def contents(folder: Path) -> dict[str, str]:
    """Every file of a corpus but the hidden ones, which remember times of change, and the commands that were given."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.name != FILE
    }


def reasons(folder: Path) -> set[tuple[str, str, str]]:
    return {(Path(row.file).name, row.stage, row.reason) for row in read_rejected(folder)}


class TestContents:
    def test_every_file_is_kept_or_listed_with_its_reason(self, made: Path) -> None:
        assert {clip.source for clip in Manifest.read(made)} == {
            "agra/s01/a", "agra/s01/three-shots", "pune/s01/b", "pune/s01/cut",
        }  # fmt: skip
        assert reasons(made) == {
            ("copy of a.mkv", "quality", "duplicate"),
            ("three shots.mp4", "shots", "short shot"),
            ("still.mp4", "quality", "static"),
            ("notes.txt", "reading", "unreadable"),
            ("blurred.mp4", "quality", "blurred"),
            ("dark.mp4", "quality", "dark"),
            ("cut.ts", "reading", "damaged"),
            ("empty.mp4", "reading", "unreadable"),
            ("talk.m4a", "reading", "unreadable"),
            ("photo.jpg", "reading", "unreadable"),
        }
        details = {Path(row.file).name: row.detail for row in read_rejected(made)}
        assert "audio only" in details["talk.m4a"]
        assert details["empty.mp4"].startswith("is empty (0 bytes)")
        assert "picture" in details["photo.jpg"]
        assert "agra/s01/a#0." in details["copy of a.mkv"]

    def test_clips_are_h264_of_the_stated_size_rate_and_length(self, made: Path) -> None:
        for clip in Manifest.read(made):
            info = probe(made / clip.path)
            assert (info.codec, info.fps, info.width, info.height) == ("h264", FPS, clip.width, clip.height)
            assert info.seconds == pytest.approx(clip.seconds)
            assert 6 <= clip.seconds <= 13

    def test_a_clip_shows_the_stretch_of_its_source_that_it_names(self, made: Path, footage: Path) -> None:
        for clip in Manifest.read(made):
            (source,) = footage.rglob(Path(str(clip.attributes["source_file"])).name)
            if source.suffix == ".ts":
                continue  # has no index to seek in
            times = np.arange(0, clip.seconds, 1.0)
            shown = read_frames(made / clip.path, times).astype(float)
            filmed = read_frames(source, clip.t_start + times).astype(float)
            assert np.abs(shown - filmed).mean() < 12
            assert np.corrcoef(shown.ravel(), filmed.ravel())[0, 1] > 0.95

    def test_no_clip_crosses_a_shot(self, made: Path) -> None:
        clips = [clip for clip in Manifest.read(made) if clip.source.endswith("three-shots")]
        assert [(clip.shot, clip.t_start, clip.t_end) for clip in clips] == [(0, 0.0, 8.0), (2, 10.0, 17.0)]

    def test_provenance_is_complete(self, made: Path, footage: Path) -> None:
        for clip in Manifest.read(made):
            (source,) = footage.rglob(Path(str(clip.attributes["source_file"])).name)
            assert clip.attributes["source_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
            assert clip.clip_id.startswith(f"{clip.source}#{clip.shot}.")
            assert clip.capture_mode == {"Agra": "walk", "Pune": "drive"}[clip.city]
            assert "resampled to 8 fps" in str(clip.attributes["transforms"])
            notes = json.loads((made / clip.path).with_suffix(".json").read_text())
            assert (notes["clip_id"], notes["t_start"]) == (clip.clip_id, clip.t_start)

    def test_all_footage_is_accounted_for(self, made: Path) -> None:
        """Kept seconds and seconds left out add up to what was decoded."""
        for source in ("agra/s01/three-shots", "agra/s01/copy-of-a", "pune/s01/blurred", "pune/s01/cut"):
            length = json.loads((made / "records" / f"{source}.json").read_text())["seconds"]
            kept = sum(clip.seconds for clip in Manifest.read(made) if clip.source == source)
            left = sum(row.seconds for row in read_rejected(made) if row.source == source)
            assert kept + left == pytest.approx(length)

    def test_removed_duplicates_leave_no_file(self, made: Path) -> None:
        there = {str(path.relative_to(made)) for path in made.rglob("*.mp4")}
        assert there == {clip.path for clip in Manifest.read(made)}

    def test_the_data_card_says_uses_processing_privacy_and_counts(self, made: Path) -> None:
        card = (made / "DATACARD.md").read_text()
        for part in ("not looked for and not blurred", "person identification", "surveillance", "AdaptiveDetector",
                     "adaptive_threshold=3, min_content_val=15, window_width=2, min_scene_len=15",
                     "| quality | static | 1 |"):  # fmt: skip
            assert part in card

    def test_nothing_in_the_corpus_names_this_machine(self, made: Path, footage: Path) -> None:
        for path in made.rglob("*"):
            if path.suffix in (".json", ".yaml", ".md") and not path.name.startswith("."):
                assert str(footage) not in path.read_text()

    def test_packed_into_shards_it_loads_like_any_corpus(self, made: Path, tmp_path: Path) -> None:
        pack(made, tmp_path / "shards")
        assert (tmp_path / "shards" / "DATACARD.md").exists()
        assert read_rejected(tmp_path / "shards") == read_rejected(made)
        clips = Corpus.open(tmp_path / "shards").training()
        spec = WindowSpec(frames=4, size=32)
        packed, plain = (
            [batch.frames for batch in Loader(one, spec, batch_size=2, seed=0)]
            for one in (clips, Corpus.open(made).training())
        )
        assert len(packed) == len(plain) > 0
        assert all(bool((a == b).all()) for a, b in zip(packed, plain, strict=True))


class TestRuns:
    def test_a_second_run_decodes_nothing_and_changes_nothing(self, made: Path, footage: Path) -> None:
        before = contents(made)
        moments = {path: path.stat().st_mtime_ns for path in made.rglob("*.mp4")}
        again = run(footage, made)
        assert again.seconds == 0
        assert contents(made) == before
        assert {path: path.stat().st_mtime_ns for path in made.rglob("*.mp4")} == moments

    def test_two_worker_processes_write_the_same_bytes(self, made: Path, footage: Path, tmp_path: Path) -> None:
        run(footage, tmp_path / "out", engine=Processes(2))
        assert contents(tmp_path / "out") == contents(made)

    def test_damaged_and_deleted_clips_are_made_again(self, made: Path, footage: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        shutil.copytree(made, out)
        cut, gone = (out / clip.path for clip in Manifest.read(out)[:2])
        cut.write_bytes(cut.read_bytes()[:100])
        gone.unlink()
        again = run(footage, out)
        assert len(again.repaired) == 2
        assert contents(out) == contents(made)


def begin(footage: Path, out: Path, *words: str, limit: Callable[[], object] | None = None) -> subprocess.Popen[str]:
    """The command line in its own process, with the settings of these tests."""
    program = Path(sys.executable).with_name("factorjepa")
    settings = (
        "--set",
        f"clips.fps={FPS}",
        "--set",
        "clips.short_side=64",
        "--capture-mode",
        "walk",
        "--privacy",
        "off",
    )
    return subprocess.Popen(
        [str(program), "ingest", str(footage), "--out", str(out), *settings, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit, start_new_session=True,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("nothing happened for a minute")


class TestInterruptions:
    def test_killed_in_the_middle_and_run_again_gives_the_same_bytes(
        self, made: Path, footage: Path, tmp_path: Path
    ) -> None:
        """The second run starts while orphans of the first may still be writing."""
        out = tmp_path / "out"
        process = begin(footage, out, "--workers", "2")
        wait_for(lambda: len(list(out.glob("clips/*/*/*/*.mp4"))) >= 2, process)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not (out / MANIFEST).exists()
        half = {name: text for name, text in contents(out).items() if name.endswith(".mp4")}
        assert 2 <= len(half) < len(list(made.rglob("*.mp4"))) + 3  # some, and not all of them and the duplicates
        (out / "clips" / ".left.mp4.1.partial").write_bytes(b"half a video")
        again = begin(footage, out)
        said, wrong = again.communicate(timeout=120)
        process.communicate(timeout=60)  # its workers are gone, too
        assert again.returncode == 0, wrong
        assert f"{len(Manifest.read(made))} clips" in said
        assert contents(out) == contents(made)

    def test_a_full_disk_is_said_and_the_next_run_completes(self, made: Path, footage: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (60_000, 60_000))
        process = begin(footage, out, limit=limit)
        _, wrong = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "the disk is full" in wrong
        assert "Traceback" not in wrong
        assert not (out / MANIFEST).exists()
        assert not [*out.rglob(f".*{PARTIAL}")]
        run(footage, out)
        assert contents(out) == contents(made)

    def test_a_second_process_at_the_same_time_is_refused(self, footage: Path, tmp_path: Path) -> None:
        with only_writer(tmp_path, "ingesting"), pytest.raises(StorageError, match="another process is ingesting"):
            run(footage, tmp_path)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    encode(folder / "Pune" / "s01" / "a.mp4", street(1, seconds(21)))
    return folder


class TestPrivacy:
    def test_only_filtered_frames_are_written_and_the_filter_sees_a_second_around(
        self, one: Path, tmp_path: Path
    ) -> None:
        Recorder.given.clear()
        made = run(one, tmp_path, build=Recorder, audit=True)
        assert len(made.manifest) == 2
        for clip in made.manifest:
            frames = read_frames(tmp_path / clip.path, np.array([0.0, 3.0]))
            assert frames[:, :30].mean() < 4
            assert frames[:, 34:].mean() > 60
            assert clip.attributes["privacy"] == "on"
            assert clip.attributes["privacy_face_tracks"] == 2
        lengths = [round(clip.seconds * FPS) for clip in made.manifest]
        assert Recorder.given == [lengths[0] + FPS, lengths[1] + FPS]  # one side of each lies in the shot
        assert len(list((tmp_path / "audit").rglob("*.png"))) == 2
        assert "faces: upper halves" in (tmp_path / "DATACARD.md").read_text()

    @pytest.mark.parametrize(
        ("build", "detail"),
        [(Failing, "track broken"), (Raising, "RuntimeError: out of anchors"), (Shrinking, "the filter returned")],
    )
    def test_whatever_fails_excludes_the_clip(self, one: Path, tmp_path: Path, build: Any, detail: str) -> None:
        made = run(one, tmp_path, build=build)
        assert len(made.manifest) == 0
        assert {(row.stage, row.reason) for row in made.rejected} == {("privacy", "failed checks")}
        assert all(detail in row.detail for row in made.rejected)
        assert not list(tmp_path.rglob("*.mp4"))

    def test_another_filter_in_the_same_folder_is_refused(self, one: Path, tmp_path: Path) -> None:
        run(one, tmp_path, build=Recorder)
        with pytest.raises(CorpusError, match=r"other settings \(privacy"):
            run(one, tmp_path)


class TestHostileFiles:
    @pytest.mark.parametrize(("build", "why"), [(Deadly, "SIGSEGV"), (Endless, "made no progress")])
    def test_a_file_that_kills_or_hangs_its_worker_is_listed_and_the_rest_is_made(
        self, tmp_path: Path, build: Any, why: str
    ) -> None:
        folder = tmp_path / "footage" / "Pune" / "s01"
        encode(folder / "bomb.mp4", (((one // 4) + 190).astype(np.uint8) for one in street(1, seconds(7))))
        for number in range(2):
            encode(folder / f"{number}.mp4", street(10 + number, seconds(7)))
        settings = SETTINGS.model_copy(update={"limits": LimitSettings(privacy_patience=1)})
        made = run(tmp_path / "footage", tmp_path / "out", settings, build, Processes(2))
        assert {clip.source for clip in made.manifest} == {"pune/s01/0", "pune/s01/1"}
        (row,) = made.rejected
        assert (row.file, row.reason) == ("Pune/s01/bomb.mp4", "not made")
        assert why in row.detail
        assert not list((tmp_path / "out" / "clips" / "pune" / "s01").glob("bomb/*.mp4"))

    def test_what_came_before_a_failure_is_kept(self, tmp_path: Path) -> None:
        folder = tmp_path / "footage" / "Pune" / "s01"
        first = encode(folder / "joined.ts", street(1, seconds(8))).read_bytes()
        second = encode(tmp_path / "b.ts", street(2, seconds(8), 128, 96)).read_bytes()
        (folder / "joined.ts").write_bytes(first + second)
        made = run(tmp_path / "footage", tmp_path / "out")
        assert [round(clip.seconds) for clip in made.manifest] == [8]
        assert any("changes from" in row.detail and "from 8.0 s on" in row.detail for row in made.rejected)

    def test_memory_is_limited(self, tmp_path: Path) -> None:
        encode(tmp_path / "footage" / "Pune" / "s01" / "large.mp4", street(1, seconds(7)))
        settings = SETTINGS.model_copy(update={"limits": LimitSettings(memory_gib=0.05)})
        made = run(tmp_path / "footage", tmp_path / "out", settings, engine=Processes(1))
        assert len(made.manifest) == 0
        assert made.rejected

    def test_names_with_every_kind_of_character_stay_inside_the_corpus(self, tmp_path: Path) -> None:
        video = encode(tmp_path / "v.mp4", street(1, seconds(7))).read_bytes()
        folder = tmp_path / "footage" / "दिल्ली" / "-rf; $(touch x)"
        folder.mkdir(parents=True)
        (folder / "a\nb\"'|&`.mp4").write_bytes(video)
        made = run(tmp_path / "footage", tmp_path / "out")
        (clip,) = made.manifest
        assert clip.clip_id == "दिल्ली/rf-touch-x/a-b#0.0"
        assert clip.city == "दिल्ली"
        assert (tmp_path / "out" / clip.path).is_file()


class TestCommand:
    def test_a_template_and_then_a_question_about_privacy(self, tmp_path: Path, command: Callable[..., Any]) -> None:
        encode(tmp_path / "Pune" / "drive" / "a.mp4", street(1, 12))
        table = tmp_path / "table.csv"
        wrote = command("ingest", tmp_path, "--template", table)
        assert wrote.returncode == 0, wrote.stderr
        assert "1 file" in wrote.stdout
        assert table.read_text().splitlines()[1] == "Pune/drive/a.mp4,Pune,all,drive,,,,,"
        asked = command("ingest", table, "--out", tmp_path / "out")
        assert asked.returncode == 1
        assert "--privacy off" in asked.stderr
        assert not (tmp_path / "out").exists()

    def test_the_command_is_kept_and_test_clips_of_one_source_are_pointed_out(
        self, tmp_path: Path, command: Callable[..., Any]
    ) -> None:
        rows = ["file,city,session,capture_mode,split"]
        for number, split in enumerate(("train", "validation", "test")):
            encode(tmp_path / f"{number}.mp4", street(number, seconds(7)))
            rows.append(f"{number}.mp4,Pune,s{number},drive,{split}")
        (tmp_path / "table.csv").write_text("\n".join(rows))
        made = command("ingest", tmp_path / "table.csv", "--out", tmp_path / "out", "--privacy", "off")
        assert made.returncode == 0, made.stderr
        assert "the test clips come from one source" in " ".join(made.stderr.split())
        (line,) = recorded(tmp_path / "out")
        assert line.startswith("factorjepa ingest ")

    def test_a_split_without_clips_is_said_with_who_refuses_it_and_what_to_do(
        self, tmp_path: Path, command: Callable[..., Any]
    ) -> None:
        rows = ["file,city,session,capture_mode,split"]
        for number in range(3):
            encode(tmp_path / f"{number}.mp4", street(number, seconds(7)))
            rows.append(f"{number}.mp4,Pune,s{number},drive,{'validation' if number else 'train'}")
        for given, said in (
            (rows[:2], "no clips for validation, test, and `train` refuses a corpus without"),
            (rows, "no clips for test, and `evaluate --split test` refuses a corpus without"),
        ):
            (tmp_path / "table.csv").write_text("\n".join(given))
            made = command("ingest", tmp_path / "table.csv", "--out", tmp_path / "out", "--privacy", "off")
            assert made.returncode == 0, made.stderr
            assert said in made.stderr
            assert "column `split`" in made.stderr
            assert "into another --out" in made.stderr
        corpus = Corpus.open(tmp_path / "out")
        with pytest.raises(CorpusError, match="into a new folder"):
            corpus.evaluation("test")

    def test_footage_of_which_nothing_comes_is_an_error(self, tmp_path: Path, command: Callable[..., Any]) -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "b" / "empty.mp4").write_bytes(b"")
        words = ["--out", tmp_path / "out", "--capture-mode", "drive", "--privacy", "off"]
        made = command("ingest", tmp_path / "a", *words)
        assert made.returncode == 1
        assert "no clip came of this footage" in made.stderr
        assert "taken from folder names: ." not in made.stderr
        assert "rejected.csv" in made.stderr
        assert "empty.mp4" in (tmp_path / "out" / "rejected.csv").read_text()


class TestRefusals:
    def test_other_settings_in_the_same_folder(self, made: Path, footage: Path) -> None:
        other = SETTINGS.model_copy(update={"clips": SETTINGS.clips.model_copy(update={"seconds": 8.0})})
        with pytest.raises(CorpusError, match=r"other settings \(clips"):
            run(footage, made, other)

    def test_a_folder_of_somebody_else(self, footage: Path, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("years of work")
        with pytest.raises(CorpusError, match="not begun by ingest"):
            run(footage, tmp_path)

    def test_without_models_or_a_clear_no_nothing_is_written(self, footage: Path, tmp_path: Path) -> None:
        with pytest.raises(FactorJEPAError, match="--privacy off"):
            run(footage, tmp_path / "out", build=functools.partial(build, PrivacySettings()))
        assert not (tmp_path / "out").exists()
