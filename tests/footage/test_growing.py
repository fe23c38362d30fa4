"""A corpus that gets more sources, contact sheets asked for later, and clips in tar shards: what is there stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import pytest

from factorjepa.corpus.access import Corpus
from factorjepa.corpus.manifest import MANIFEST, Clip, Manifest
from factorjepa.corpus.rejected import read_rejected
from factorjepa.corpus.shards import scan
from factorjepa.corpus.splits import Split
from factorjepa.engines import Engine, Here
from factorjepa.errors import CorpusError
from factorjepa.footage import sharding
from factorjepa.footage.ingest import SOURCES, Ingested, ingest
from factorjepa.footage.listing import Listed, list_sources
from factorjepa.footage.making import make_source
from factorjepa.footage.settings import IngestSettings, SplitSettings, StoreSettings
from factorjepa.footage.sharding import lay_into_shards
from factorjepa.verbs.footage import _behind

from .filters import Failing, Recorder, Unfiltered
from .test_ingest import OFF, begin, contents, wait_for
from .videos import SETTINGS, encode, seconds, street

SHARDS = SETTINGS.model_copy(update={"store": StoreSettings(kind="shards")})


def run(
    footage: Path,
    out: Path,
    settings: IngestSettings = SETTINGS,
    build: Any = Unfiltered,
    engine: Engine | None = None,
    audit: bool = False,
) -> Ingested:
    return ingest(out, list_sources([footage], "walk"), settings, build, engine or Here(), audit)


def moments(folder: Path, pattern: str = "clips/**/*.*") -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.glob(pattern)}


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sources of one clip each."""
    folder = tmp_path_factory.mktemp("few")
    for number, city in enumerate(("Agra", "Pune", "Pune")):
        encode(folder / city / "s01" / f"m{number}.mp4", street(20 + number, seconds(7)))
    return folder


@pytest.fixture(scope="module")
def more(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, one more, and one that shows what another shows under a name that comes first."""
    folder = tmp_path_factory.mktemp("more") / "footage"
    shutil.copytree(few, folder)
    encode(folder / "Pune" / "s02" / "new.mp4", street(30, seconds(7)))
    encode(folder / "Agra" / "s01" / "a copy.mkv", street(20, seconds(7)), crf="30")
    return folder


@pytest.fixture(scope="module")
def small(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of the three."""
    out = tmp_path_factory.mktemp("small") / "corpus"
    run(few, out)
    return out


@pytest.fixture(scope="module")
def grown(small: Path, more: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("grown") / "corpus"
    shutil.copytree(small, out)
    run(more, out)
    return out


@pytest.fixture
def copied(small: Path, tmp_path: Path) -> Path:
    shutil.copytree(small, tmp_path / "corpus")
    return tmp_path / "corpus"


def rows(folder: Path) -> dict[str, Clip]:
    return {clip.clip_id: clip for clip in Manifest.read(folder)}


class TestGrowing:
    def test_what_is_there_keeps_its_split_ids_and_files_and_is_not_decoded_again(
        self, small: Path, more: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "corpus"
        shutil.copytree(small, out)  # keeps times of change
        before, files = rows(out), moments(out)
        result = run(more, out)
        assert result.added == 2
        assert result.seconds == pytest.approx(14)  # of the two new ones
        assert {clip_id: rows(out)[clip_id] for clip_id in before} == before
        assert {name: time for name, time in moments(out).items() if name in files} == files
        assert set(rows(out)) - set(before) == {"pune/s02/new#0.0"}
        assert list(rows(out)) == sorted(rows(out))

    def test_the_newcomer_is_the_duplicate_whatever_its_name(self, grown: Path) -> None:
        (row,) = read_rejected(grown)
        assert (row.file, row.reason) == ("Agra/s01/a copy.mkv", "duplicate")
        assert "agra/s01/m0#0.0" in row.detail

    def test_run_again_nothing_changes(self, grown: Path, more: Path) -> None:
        before, files = contents(grown), moments(grown)
        again = run(more, grown)
        assert (again.seconds, again.added) == (0, 0)
        assert (contents(grown), moments(grown)) == (before, files)

    def test_columns_that_others_added_stay_with_the_clips_that_are_as_they_were(
        self, copied: Path, few: Path, more: Path
    ) -> None:
        added = [
            replace(clip, attributes={**clip.attributes, "density_stratum": "low", "rank": k})
            for k, clip in enumerate(Manifest.read(copied))
        ]
        added[0] = replace(added[0], attributes={**added[0].attributes, "privacy": "other than it was made"})
        Manifest(added).write(copied)
        run(few, copied)
        first, *others = Manifest.read(copied)
        assert others == added[1:]
        assert "rank" not in first.attributes
        before = contents(copied)
        run(few, copied)
        assert contents(copied) == before
        run(more, copied)
        ranks = {clip_id: clip.attributes.get("rank") for clip_id, clip in rows(copied).items()}
        assert ranks == dict.fromkeys(ranks) | {clip.clip_id: clip.attributes["rank"] for clip in others}

    @pytest.mark.parametrize("jobs", [3, 4])
    def test_interrupted_while_growing_and_run_again_it_is_the_same(
        self, copied: Path, grown: Path, more: Path, jobs: int
    ) -> None:
        before = rows(copied)
        with pytest.raises(KeyboardInterrupt):
            run(more, copied, engine=Stopping(jobs))
        assert rows(copied) == before  # still the corpus that it was
        run(more, copied)
        assert contents(copied) == contents(grown)

    def test_a_name_that_is_taken_gets_a_suffix_and_leaves_the_first_alone(
        self, copied: Path, few: Path, tmp_path: Path
    ) -> None:
        footage = tmp_path / "footage"
        shutil.copytree(few, footage)
        encode(footage / "Agra" / "s01" / "m0!.mp4", street(31, seconds(7)))
        run(footage, copied)
        first, second = (clip.source for clip in Manifest.read(copied) if clip.city == "Agra")
        assert first == "agra/s01/m0"
        assert second.startswith("agra/s01/m0-")

    def test_whole_sessions_stay_in_their_split(self, few: Path, tmp_path: Path) -> None:
        settings = SETTINGS.model_copy(update={"splits": SplitSettings(by="session", shares=(0.0, 0.0, 1.0))})
        footage, out = tmp_path / "footage", tmp_path / "out"
        shutil.copytree(few, footage)
        made = run(footage, out, settings).manifest
        assert {clip.split for clip in made} == {Split.TEST}
        encode(footage / "Pune" / "s01" / "m9.mp4", street(32, seconds(7)))
        assert {clip.split for clip in run(footage, out, settings).manifest} == {Split.TEST}

    def test_sources_that_are_taken_away_or_changed_are_named(self, copied: Path, few: Path, tmp_path: Path) -> None:
        footage, before = tmp_path / "footage", contents(copied)
        shutil.copytree(few, footage)
        (footage / "Pune" / "s01" / "m1.mp4").rename(tmp_path / "kept.mp4")
        with pytest.raises(CorpusError, match=r"1 source of this corpus is not given now, first 'Pune/s01/m1\.mp4'"):
            run(footage, copied)
        shutil.copy(footage / "Pune" / "s01" / "m2.mp4", footage / "Pune" / "s01" / "m1.mp4")
        with pytest.raises(CorpusError, match=r"m1\.mp4: is another file than it was"):
            run(footage, copied)
        found = list_sources([few], "drive")
        with pytest.raises(CorpusError, match=r"its capture mode was 'walk' and is 'drive'"):
            ingest(copied, found, SETTINGS, Unfiltered, Here())
        assert contents(copied) == before


class TestSourcesWithoutClips:
    """They bind nobody: no clip was made of what they were."""

    def listed(self, footage: Path, modes: dict[str, str]) -> list[Listed]:
        return [replace(one, capture_mode=modes.get(one.path.name, "walk")) for one in list_sources([footage], "walk")]

    @pytest.fixture
    def footage(self, few: Path, tmp_path: Path) -> Path:
        """Two sources with a clip, two without: one blurred, one that repeats another."""
        folder = tmp_path / "footage"
        shutil.copytree(few / "Pune", folder / "Pune")
        blurred = (cv2.GaussianBlur(one, (0, 0), 4) for one in street(40, seconds(7)))
        encode(folder / "Agra" / "s01" / "blurred.mp4", blurred)
        encode(folder / "Pune" / "s01" / "n.mkv", street(21, seconds(7)), crf="30")
        return folder

    @pytest.mark.parametrize("name", ["blurred.mp4", "n.mkv"])
    def test_their_words_may_be_corrected_and_those_of_the_others_may_not(self, footage: Path, name: str) -> None:
        out = footage.parent / "out"
        ingest(out, self.listed(footage, {name: "aerial"}), SETTINGS, Recorder, Here(), audit=True)
        before = rows(out)
        assert {Path(str(clip.attributes["source_file"])).name for clip in before.values()} == {"m1.mp4", "m2.mp4"}
        again = ingest(out, self.listed(footage, {}), SETTINGS, Recorder, Here(), audit=True)
        assert (again.added, again.seconds) == (1, pytest.approx(7))
        assert rows(out) == before
        told = {
            Path(one["file"]).name: one["capture_mode"] for one in json.loads((out / SOURCES).read_text())["sources"]
        }
        assert told == dict.fromkeys(("blurred.mp4", "m1.mp4", "m2.mp4", "n.mkv"), "walk")
        with pytest.raises(CorpusError, match=r"m1\.mp4: its capture mode was 'walk' and is 'drive'"):
            ingest(out, self.listed(footage, {"m1.mp4": "drive", name: "drive"}), SETTINGS, Recorder, Here())

    def test_their_files_may_be_replaced_or_taken_away_and_leave_nothing(self, footage: Path) -> None:
        out = footage.parent / "out"
        run(footage, out)
        before = rows(out)
        encode(footage / "Agra" / "s01" / "blurred.mp4", street(40, seconds(7)))
        (footage / "Pune" / "s01" / "n.mkv").unlink()
        assert run(footage, out).added == 1
        assert rows(out).items() > before.items()
        assert set(rows(out)) - set(before) == {"agra/s01/blurred#0.0"}
        assert read_rejected(out) == []
        assert not (out / "records" / "pune" / "s01" / "n.json").exists()

    def test_a_folder_of_which_no_clip_came_is_as_good_as_an_empty_one(self, footage: Path) -> None:
        out, fresh = footage.parent / "out", footage.parent / "fresh"
        shutil.rmtree(footage / "Pune")
        assert not ingest(out, self.listed(footage, {"blurred.mp4": "aerial"}), SETTINGS, Unfiltered, Here()).manifest
        encode(footage / "Pune" / "s01" / "a.mp4", street(41, seconds(7)))
        for folder in (out, fresh):
            run(footage, folder)
        assert contents(out) == contents(fresh)

    def test_clips_of_an_interrupted_run_still_bind(self, few: Path, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            run(few, tmp_path, engine=Stopping(1))
        (made,) = (path.stem for path in (tmp_path / "records").rglob("*.json"))
        with pytest.raises(CorpusError) as refused:
            ingest(tmp_path, self.listed(few, dict.fromkeys((f"m{k}.mp4" for k in range(3)), "drive")), SETTINGS,
                   Unfiltered, Here())  # fmt: skip
        assert str(refused.value).count("capture mode was") == 1
        assert f"{made}.mp4: its capture mode was 'walk'" in str(refused.value)

    def test_a_plan_that_names_another_folder_removes_nothing_there(self, footage: Path) -> None:
        out = footage.parent / "out"
        run(footage, out)
        plan = json.loads((out / SOURCES).read_text())
        stranger = {**plan["sources"][0], "source": "../../footage", "file": "gone.mp4"}
        (out / SOURCES).write_text(json.dumps({**plan, "sources": [*plan["sources"], stranger]}))
        with pytest.raises(CorpusError, match=r"'\.\./\.\./footage' leads out of its folder"):
            run(footage, out)
        assert len([*footage.rglob("*.m*")]) == 4

    def test_clips_on_the_disk_bind_where_manifest_and_record_are_gone(self, footage: Path) -> None:
        out = footage.parent / "out"
        run(footage, out)
        before = sorted((out / "clips").rglob("*.mp4"))
        (out / MANIFEST).unlink()
        (out / "records" / "pune" / "s01" / "m1.json").unlink()
        (footage / "Pune" / "s01" / "m1.mp4").unlink()
        with pytest.raises(CorpusError, match=r"not given now, first 'Pune/s01/m1\.mp4'"):
            run(footage, out)
        assert sorted((out / "clips").rglob("*.mp4")) == before

    def test_where_the_manifest_is_damaged_all_sources_bind(self, footage: Path) -> None:
        out = footage.parent / "out"
        run(footage, out)
        (out / MANIFEST).write_bytes(b"damaged")
        with pytest.raises(CorpusError, match=r"blurred\.mp4: its capture mode was"):
            ingest(out, self.listed(footage, {"blurred.mp4": "aerial"}), SETTINGS, Unfiltered, Here())


class TestSaying:
    """What was made of a corpus does not know clips that came later."""

    def test_verbs_to_run_again_are_named_in_their_order(self, small: Path, grown: Path, tmp_path: Path) -> None:
        for folder in ("regime", "targets"):
            (tmp_path / folder).mkdir()
        before, after = Manifest.read(small), Manifest.read(grown)
        assert _behind(tmp_path, Ingested(after, [], added=1)) == ["targets", "regime measure"]
        assert _behind(tmp_path, Ingested(before, [])) == []
        assert _behind(tmp_path / "elsewhere", Ingested(after, [], added=1)) == []

    def test_clips_without_strata_beside_clips_with_them_are_noticed_at_any_time(
        self, small: Path, grown: Path, tmp_path: Path
    ) -> None:
        measured = {clip.clip_id for clip in Manifest.read(small)}
        mixed = [
            replace(clip, attributes={**clip.attributes, "density_stratum": "low"})
            if clip.clip_id in measured
            else clip
            for clip in Manifest.read(grown)
        ]
        assert _behind(tmp_path, Ingested(Manifest(mixed), [])) == ["regime measure"]
        whole = [clip for clip in mixed if clip.clip_id in measured]
        assert _behind(tmp_path, Ingested(Manifest(whole), [])) == []


class Stopping(Here):
    """Is interrupted when so many sources are made."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def run(self, work: Any, jobs: Any, cores: Any = None) -> Iterator[Any]:
        for number, made in super().run(work, jobs, cores):
            if work is make_source and number == self._jobs - 1:
                raise KeyboardInterrupt
            yield number, made


class TestAuditLater:
    def test_sheets_of_a_finished_corpus_are_written_and_nothing_else_is(self, few: Path, tmp_path: Path) -> None:
        run(few, tmp_path, build=Recorder)
        before, files = contents(tmp_path), moments(tmp_path)
        run(few, tmp_path, build=Recorder, audit=True)
        after = contents(tmp_path)
        assert {name for name in after if name not in before} == {
            f"audit/{source}/0-0.png" for source in ("agra/s01/m0", "pune/s01/m1", "pune/s01/m2")
        }
        assert {name: after[name] for name in before} == before
        assert moments(tmp_path) == files
        assert (tmp_path / "audit/agra/s01/m0/0-0.png").read_bytes() == b"a sheet"

    def test_asked_again_nobody_looks_again(self, few: Path, tmp_path: Path) -> None:
        run(few, tmp_path, build=Recorder, audit=True)
        assert run(few, tmp_path, build=Recorder, audit=True).seconds == 0
        (tmp_path / "audit/agra/s01/m0/0-0.png").unlink()
        assert run(few, tmp_path, build=Recorder, audit=True).seconds == pytest.approx(7)
        assert (tmp_path / "audit/agra/s01/m0/0-0.png").exists()

    def test_what_failed_is_shown_too_and_still_left_out(self, few: Path, tmp_path: Path) -> None:
        run(few, tmp_path, build=Failing)
        run(few, tmp_path, build=Failing, audit=True)
        assert len(list(tmp_path.glob("audit/*/*/*/0-0.png"))) == 3
        assert not list(tmp_path.rglob("*.mp4"))

    def test_without_privacy_there_is_nothing_to_show(self, few: Path, copied: Path) -> None:
        assert run(few, copied, audit=True).seconds == 0
        assert not (copied / "audit").exists()


def tars(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("shard-*.tar"))}


@pytest.fixture(scope="module")
def sharded(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sharded") / "corpus"
    run(few, out, SHARDS)
    return out


class TestShards:
    @pytest.fixture
    def copied(self, sharded: Path, tmp_path: Path) -> Path:
        shutil.copytree(sharded, tmp_path / "corpus")
        return tmp_path / "corpus"

    def test_the_clips_are_those_of_a_folder_and_lie_in_shards_only(self, sharded: Path, small: Path) -> None:
        assert rows(sharded) == rows(small)
        assert not (sharded / "clips").exists()
        store = Corpus.open(sharded)
        assert store.missing() == []
        for clip in Manifest.read(small):
            assert sharding.held(sharded, clip.path) == (small / clip.path).read_bytes()

    def test_run_again_nothing_is_decoded_or_written(self, copied: Path, few: Path) -> None:
        before, times = tars(copied), moments(copied, "shard-*")
        assert run(few, copied, SHARDS).seconds == 0
        assert (tars(copied), moments(copied, "shard-*")) == (before, times)

    def test_a_damaged_clip_is_made_again_and_its_shard_is_as_it_was(self, copied: Path, few: Path) -> None:
        before = tars(copied)
        offset, _ = scan(copied / "shard-00000.tar")["clips/pune/s01/m1/0-0.mp4"]
        data = bytearray(before["shard-00000.tar"])
        data[offset + 500] ^= 255
        (copied / "shard-00000.tar").write_bytes(data)
        again = run(few, copied, SHARDS)
        assert again.seconds == pytest.approx(7)
        assert len(again.repaired) == 1
        assert tars(copied) == before
        assert not (copied / "clips").exists()

    def test_a_shard_that_is_cut_short_or_gone_is_made_again(self, copied: Path, few: Path) -> None:
        before = tars(copied)
        (copied / "shard-00000.tar").write_bytes(before["shard-00000.tar"][:3000])
        assert "shard-00000.tar: was damaged" in run(few, copied, SHARDS).repaired[0]
        assert tars(copied) == before
        (copied / "shard-00000.tar").unlink()
        assert len(run(few, copied, SHARDS).repaired) == 3
        assert tars(copied) == before

    def test_a_corpus_that_grows_gets_a_new_shard(self, copied: Path, more: Path) -> None:
        before = tars(copied)
        run(more, copied, SHARDS)
        assert tars(copied)["shard-00000.tar"] == before["shard-00000.tar"]
        assert list(scan(copied / "shard-00001.tar")) == [f"clips/pune/s02/new/0-0.{end}" for end in ("mp4", "json")]
        assert Corpus.open(copied).missing() == []

    def test_killed_while_growing_and_run_again_it_is_the_same(self, few: Path, more: Path, tmp_path: Path) -> None:
        """The command line in its own process, killed with the first new clip on disk."""
        for name in ("straight", "killed"):
            run(few, tmp_path / name, SHARDS, OFF)
        run(more, tmp_path / "straight", SHARDS, OFF)
        process = begin(more, tmp_path / "killed", "--store", "shards", "--workers", "1")
        wait_for(lambda: any(tmp_path.glob("killed/clips/*/*/*/*.mp4")), process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        run(more, tmp_path / "killed", SHARDS, OFF)
        assert {name: hash_ for name, hash_ in contents(tmp_path / "killed").items() if "index" not in name} == {
            name: hash_ for name, hash_ in contents(tmp_path / "straight").items() if "index" not in name
        }

    def test_the_other_store_in_the_same_folder_is_refused(self, copied: Path, few: Path) -> None:
        with pytest.raises(CorpusError, match=r"other settings \(store"):
            run(few, copied)

    @pytest.mark.parametrize("whole", [0, 1, 2])
    def test_interrupted_between_shards_no_clip_is_lost_or_doubled(
        self, small: Path, tmp_path: Path, whole: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("straight", "broken"):
            shutil.copytree(small / "clips", tmp_path / name / "clips")
        clips = [entry(small, clip) for clip in Manifest.read(small)]
        size = max(clip["size"] for clip in clips) + 2000  # one clip with its notes in each
        lay_into_shards(tmp_path / "straight", clips, size)
        assert len(tars(tmp_path / "straight")) == 3
        write, calls = sharding.write_shard, iter(range(3))

        def dying(path: Path, members: Any) -> None:
            if next(calls) == whole:
                raise KeyboardInterrupt
            write(path, members)

        with monkeypatch.context() as patch:
            patch.setattr(sharding, "write_shard", dying)
            with pytest.raises(KeyboardInterrupt):
                lay_into_shards(tmp_path / "broken", clips, size)
        for clip in clips:
            assert sharding.damage_of(tmp_path / "broken", clip) == ""
        lay_into_shards(tmp_path / "broken", clips, size)
        assert tars(tmp_path / "broken") == tars(tmp_path / "straight")
        assert not (tmp_path / "broken" / "clips").exists()


def entry(folder: Path, clip: Clip) -> dict[str, Any]:
    notes: dict[str, Any] = json.loads((folder / clip.path).with_suffix(".json").read_text())
    return notes
