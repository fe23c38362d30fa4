"""A simulated corpus on disk: the same bytes however it was made, and whatever interrupted it."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from factorjepa import commands
from factorjepa.config import resolve
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import Loader
from factorjepa.corpus.manifest import MANIFEST, Manifest, listed
from factorjepa.corpus.simulated import (
    PLAN,
    SimulationPlan,
    choose_audit_cities,
    enough_clips,
    simulate_corpus,
    splits_of,
    without_clips,
)
from factorjepa.corpus.simulated import planned as planned_of
from factorjepa.corpus.splits import Split
from factorjepa.corpus.windows import WindowSpec
from factorjepa.errors import ConfigError, CorpusError, StorageError
from factorjepa.video import probe, read_frames
from factorjepa.world import ClipTruth, WorldSettings, clip
from factorjepa.world.cities import CITIES
from factorjepa.world.simulator import CLIPS_PER_SOURCE, clip_spec
from factorjepa.world.taxonomy import SUPERCLASSES

SEED, CLIPS = 3, 22  # five sources, the last of them with two clips
CITY_NAMES = tuple(CITIES)[:4]
OVERRIDES = ("size=32", "seconds=[1.0,1.5]", "fps=8", f"cities=[{','.join(CITY_NAMES)}]")
WORLD = resolve(WorldSettings, "dense", OVERRIDES)
PLANNED = SimulationPlan(seed=SEED, clips=CLIPS, world=WORLD, audit_cities=choose_audit_cities(WORLD, SEED, CLIPS))
WORDS = ("--clips", str(CLIPS), "--seed", str(SEED), *OVERRIDES)  # the same plan in words


def planned(clips: int, **changed: object) -> SimulationPlan:
    world = WorldSettings()
    cities = choose_audit_cities(world, 0, clips)
    return SimulationPlan.model_validate({"clips": clips, "world": world, "audit_cities": cities} | changed)


def test_forty_clips_leave_no_split_without_any() -> None:
    plan = planned(40)
    assert set(splits_of(plan, plan.specs()).values()) == set(Split)


class TestPilots:
    """A pilot is made of the first streets of a larger corpus: what was looked at there is not tested on here."""

    def splits(self, clips: int, dealt_as: int | None = None) -> dict[str, Split]:
        plan = planned_of(WorldSettings(), 7, clips, 5, (0.7, 0.1, 0.2), dealt_as)
        return splits_of(plan, plan.specs())

    def test_its_streets_lie_in_the_splits_that_the_larger_corpus_gives_them(self) -> None:
        whole, alone, pilot = self.splits(600), self.splits(250), self.splits(250, 600)
        assert alone.keys() == pilot.keys() < whole.keys()
        assert pilot == {source: whole[source] for source in pilot}
        assert alone != pilot  # which is why

    def test_it_is_said_in_the_plan_and_a_corpus_is_not_finished_as_another(self, tmp_path: Path) -> None:
        plans = [planned_of(WORLD, SEED, 2, 1, (0.8, 0.1, 0.1), dealt_as) for dealt_as in (None, 40)]
        assert simulate_corpus(tmp_path / "pilot", plans[1], workers=1)
        with pytest.raises(CorpusError, match=r"other settings \(.*dealt_as 40 there, None here\)"):
            simulate_corpus(tmp_path / "pilot", plans[0], workers=1)

    def test_no_more_clips_are_advised_than_the_larger_corpus_has(self) -> None:
        shares = (0.9, 0.05, 0.05)
        assert enough_clips(planned_of(WorldSettings(), 7, 20, 5, shares)) is not None
        assert enough_clips(planned_of(WorldSettings(), 7, 20, 5, shares, 25)) is None

    def test_a_larger_corpus_that_is_smaller_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"dealt_as: a pilot has fewer clips than the corpus .*, and has 40"):
            planned_of(WORLD, SEED, 40, 1, (0.8, 0.1, 0.1), 39)


@pytest.mark.parametrize("clips", [1, 10, 20])
def test_the_number_of_clips_said_to_be_enough_is_and_a_source_less_is_not(clips: int) -> None:
    few = planned(clips)
    assert Split.TEST in without_clips(few, splits_of(few, few.specs()).values())
    enough = enough_clips(few)
    assert enough is not None
    for number, lacking in ((enough, False), (enough - CLIPS_PER_SOURCE, True)):
        plan = planned(number)
        assert bool(without_clips(plan, splits_of(plan, plan.specs()).values())) is lacking


def test_a_split_that_was_given_no_share_is_not_missed() -> None:
    plan = planned(40, shares=(0.9, 0.1, 0.0))
    assert without_clips(plan, splits_of(plan, plan.specs()).values()) == []
    assert (
        enough_clips(planned(5, world=resolve(WorldSettings, "dense", OVERRIDES[-1:]), shares=(1.0, 0, 0))) is not None
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("simulated") / "corpus"
    simulate_corpus(out, PLANNED, workers=1)
    return out


@pytest.fixture(scope="module")
def manifest(made: Path) -> Manifest:
    return Manifest.read(made)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(folder: Path) -> dict[str, str]:
    """All of a corpus but which command made it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != commands.FILE)
    return {str(path.relative_to(folder)): digest(path) for path in files}


def begin(out: Path, *words: str, workers: int = 1, limit: Callable[[], object] | None = None) -> subprocess.Popen[str]:
    program = Path(sys.executable).with_name("factorjepa")
    return subprocess.Popen(
        [str(program), "simulate", str(out), *(words or WORDS), "--workers", str(workers)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit, start_new_session=True,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(3000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("nothing happened for half a minute")


class TestContents:
    def test_clips_are_h264_files_of_the_stated_size_rate_and_length(self, made: Path, manifest: Manifest) -> None:
        assert len(manifest) == CLIPS
        for one in manifest:
            info = probe(made / one.path)
            assert info.codec == "h264"
            assert (info.width, info.height, info.fps) == (32, 32, 8.0)
            assert info.seconds == pytest.approx(one.seconds)
            assert 1.0 - 1 / 16 <= one.seconds <= 1.5 + 1 / 16

    def test_videos_show_what_the_simulator_drew(self, made: Path, manifest: Manifest) -> None:
        for index in (0, 7, 21):
            frames = np.stack(list(clip(WORLD, SEED, index).frames()))
            shown = read_frames(made / manifest[index].path, np.arange(len(frames)) / 8.0)
            error = np.abs(shown.astype(float) - frames)
            assert error.mean() < 12  # colour at half resolution and H.264's own losses
            grey, drawn = shown.mean(axis=3).ravel(), frames.mean(axis=3).ravel()
            assert np.corrcoef(grey, drawn)[0, 1] > 0.98

    def test_truth_lies_beside_each_clip_and_is_of_that_clip(self, made: Path, manifest: Manifest) -> None:
        for index, one in enumerate(manifest):
            path = (made / one.path).with_suffix(".truth.npz")
            truth = ClipTruth.from_bytes(path.read_bytes(), one.clip_id)
            assert truth.frames == round(one.seconds * one.fps)
            assert truth.attributes["scene_type"] == one.attributes["scene_type"]
            if index in (0, 13):
                simulated = clip(WORLD, SEED, index)
                expected = simulated.annotate([t for _, t in simulated.frames_with_truth()])
                assert truth.to_bytes() == expected.to_bytes()

    def test_provenance_is_complete_and_consistent(self, manifest: Manifest) -> None:
        by_source = defaultdict(list)
        for one in manifest:
            by_source[one.source].append(one)
            assert one.clip_id == f"{one.source}#{one.shot}.0"
            assert one.source.startswith(f"{one.city}/{one.session}/")
            assert one.city in CITY_NAMES
            assert one.attributes["regime"] == "dense"
            assert {"scene_type", "illumination", "weather", "road_context", "displaced"} <= one.attributes.keys()
            assert set(listed(str(one.attributes["taxonomy"]))) <= set(SUPERCLASSES)
        assert len(by_source) == 5
        for clips in by_source.values():
            assert len({one.split for one in clips}) == 1  # a source is indivisible
            assert len({(one.capture_mode, one.attributes["scene_type"]) for one in clips}) == 1
            for before, after in itertools.pairwise(clips):
                assert after.t_start == pytest.approx(before.t_end)

    def test_audit_cities_are_seen_nowhere_else(self, manifest: Manifest) -> None:
        assert len(PLANNED.audit_cities) == 1
        audit = {one.city for one in manifest if one.split == Split.AUDIT}
        assert audit == set(PLANNED.audit_cities)
        assert not audit & {one.city for one in manifest if one.split != Split.AUDIT}

    @pytest.mark.parametrize(("cities", "count"), [(10, 2), (5, 1), (4, 1), (3, 0), (1, 0)])
    def test_a_fifth_of_the_cities_is_for_audit(self, cities: int, count: int) -> None:
        world = resolve(WorldSettings, None, cities=tuple(CITIES)[:cities])
        chosen = choose_audit_cities(world, 1, 1000)
        assert len(chosen) == count
        assert set(chosen) <= set(world.cities)
        if count:
            assert len({choose_audit_cities(world, seed, 1000) for seed in range(12)}) > 1

    def test_a_loader_reads_windows_of_it(self, made: Path) -> None:
        spec = WindowSpec(frames=4, fps=4.0, size=32)
        training = Corpus.open(made).training()
        batches = list(Loader(training, spec, batch_size=3, seed=0))
        assert sum(len(batch.clips) for batch in batches) >= 9
        for batch in batches:
            assert all(one.split == Split.TRAIN for one in batch.clips)
            assert float(batch.video().std()) > 0.3
            first = batch.clips[0]
            direct = read_frames(made / first.path, batch.times[0].numpy())[0].astype(float).mean() / 255
            channels = batch.video()[0, :, 0].mean(dim=(1, 2)).numpy()
            shown = (channels * [0.229, 0.224, 0.225] + [0.485, 0.456, 0.406]).mean()
            assert float(shown) == pytest.approx(direct, abs=0.01)

    def test_only_audit_clips_hand_out_their_truth(self, made: Path) -> None:
        audit = Corpus.open(made).audit()
        assert ClipTruth.from_bytes(audit.truth(audit[0])).frames > 0


class TestRuns:
    def test_two_workers_write_the_same_bytes(self, made: Path, tmp_path: Path) -> None:
        counted: list[tuple[int, int]] = []
        simulate_corpus(tmp_path / "out", PLANNED, workers=2, progress=lambda *done: counted.append(done))
        assert contents(tmp_path / "out") == contents(made)
        assert counted == [(5, 22), (10, 22), (15, 22), (20, 22), (22, 22)]

    def test_a_second_run_changes_nothing(self, made: Path) -> None:
        def moments() -> dict[str, int]:
            return {str(p): p.stat().st_mtime_ns for p in made.rglob("*") if p.is_file() and p.name != MANIFEST}

        before, times = contents(made), moments()
        simulate_corpus(made, PLANNED, workers=1)
        assert contents(made) == before
        assert moments() == times

    def test_a_finished_corpus_stays_readable_while_it_is_run_again(
        self, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = tmp_path / "out"
        shutil.copytree(made, out)

        def interrupt(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            simulate_corpus(out, PLANNED, workers=1, progress=interrupt)
        assert len(Manifest.read(out)) == CLIPS

    def test_what_is_missing_is_made_again_to_the_same_bytes(self, made: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        shutil.copytree(made, out)
        victims = [out / one.path for one in Manifest.read(out)][3:9:2]
        for victim in victims:
            victim.unlink()
        (out / MANIFEST).unlink()
        simulate_corpus(out, PLANNED, workers=1)
        assert contents(out) == contents(made)

    @pytest.mark.parametrize("suffix", [".mp4", ".truth.npz"])
    def test_what_was_damaged_is_noticed_and_made_again(self, made: Path, tmp_path: Path, suffix: str) -> None:
        out = tmp_path / "out"
        shutil.copytree(made, out)
        cut, altered, gone, noteless = (
            (out / one.path).with_name(Path(one.path).stem + suffix) for one in Manifest.read(out)[3:15:3]
        )
        whole = cut.read_bytes()
        cut.write_bytes(whole[: len(whole) // 2])
        changed = bytearray(altered.read_bytes())
        changed[len(changed) // 2] ^= 1
        altered.write_bytes(changed)
        gone.unlink()
        noteless.with_name(noteless.name.removesuffix(suffix) + ".json").write_text("{")
        said: list[str] = []
        simulate_corpus(out, PLANNED, workers=2, repaired=said.append)
        assert contents(out) == contents(made)
        assert said == [
            f"{cut}: had {len(whole) // 2} of {len(whole)} bytes",
            f"{altered}: its bytes had changed",
            f"{gone}: was missing",
        ]
        said.clear()
        simulate_corpus(out, PLANNED, workers=1, repaired=said.append)
        assert said == []

    def test_a_shorter_plan_is_the_beginning_of_a_longer_one(self, made: Path, tmp_path: Path) -> None:
        world = resolve(WorldSettings, "dense", OVERRIDES)
        short = SimulationPlan(seed=SEED, clips=3, world=world)
        simulate_corpus(tmp_path, short, workers=1)
        whole = contents(made)
        shared = {path: text for path, text in contents(tmp_path).items() if path.startswith("clips/")}
        assert len(shared) == 9
        assert shared.items() <= whole.items()

    def test_fewer_clips_of_a_source_mean_more_sources_and_shares_are_kept(self) -> None:
        plan = SimulationPlan(seed=SEED, clips=40, clips_per_source=2, shares=(0.5, 0.1, 0.4), world=WORLD)
        specs = plan.specs()
        assert Counter(spec.source.source for spec in specs).most_common(1)[0][1] == 2
        assert {spec.clip_id for spec in specs} <= {
            clip_spec(WORLD, SEED, index).clip_id for index in range(20 * CLIPS_PER_SOURCE)
        }  # the same streets, not other ones
        splits = Counter(splits_of(plan, specs).values())
        assert (splits[Split.TRAIN], splits[Split.VALIDATION], splits[Split.TEST]) == (10, 2, 8)


class TestInterruptions:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_killed_in_the_middle_and_run_again_gives_the_same_bytes(
        self, made: Path, tmp_path: Path, workers: int
    ) -> None:
        """With two workers the second run starts while the orphans of the first may still be writing."""
        out = tmp_path / "out"
        process = begin(out, workers=workers)
        wait_for(lambda: len(list(out.glob("clips/*/*/*/*.mp4"))) >= 6, process)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        whole = contents(made)
        half = {str(path.relative_to(out)): digest(path) for path in out.glob("clips/*/*/*/[0-9]*.mp4")}
        assert not (out / MANIFEST).exists()
        assert 6 <= len(half) < CLIPS
        assert half.items() <= whole.items()  # what is there is complete
        (out / "clips" / ".left.mp4.1.partial").write_bytes(b"half a video")
        again = begin(out)
        said, wrong = again.communicate(timeout=120)
        process.communicate(timeout=60)  # its workers are gone, too
        assert again.returncode == 0, wrong
        assert f"{CLIPS} clips in" in said
        assert contents(out) == whole

    def test_ctrl_c_says_how_to_go_on(self, tmp_path: Path) -> None:
        process = begin(tmp_path / "out", "--clips", "200", "size=64")
        wait_for(lambda: (tmp_path / "out" / "clips").is_dir(), process)
        os.killpg(process.pid, signal.SIGINT)
        _, wrong = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "run the same command again" in wrong
        assert "Traceback" not in wrong

    def test_a_full_disk_is_said_and_the_next_run_completes(self, made: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (12_000, 12_000))
        process = begin(out, limit=limit)
        _, wrong = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "the disk is full" in wrong
        assert "run the same command again" in wrong
        assert "Traceback" not in wrong
        assert not list(out.rglob("*.partial"))
        assert not (out / MANIFEST).exists()
        simulate_corpus(out, PLANNED, workers=1)
        assert contents(out) == contents(made)

    def test_a_full_disk_in_a_worker_process_is_said_the_same_way(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, before[1]))
        try:
            with pytest.raises(StorageError, match="disk is full"):
                simulate_corpus(tmp_path / "out", PLANNED, workers=2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def test_a_second_process_at_the_same_time_is_refused(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        first = begin(out, "--clips", "200", "size=64")
        wait_for(lambda: (out / PLAN).exists(), first)
        second = begin(out, "--clips", "200", "size=64")
        _, wrong = second.communicate(timeout=60)
        still = first.poll() is None
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
        assert still
        assert second.returncode == 1
        assert "another process is simulating into it" in wrong


class TestRefusals:
    @pytest.mark.parametrize("change", [{"seed": SEED + 1}, {"clips": CLIPS + 1}, {"audit_cities": ()}])
    def test_other_settings_in_the_same_folder(self, made: Path, change: dict[str, object]) -> None:
        before = contents(made)
        with pytest.raises(CorpusError, match="other settings"):
            simulate_corpus(made, PLANNED.model_copy(update=change), workers=1)
        assert contents(made) == before

    def test_a_folder_of_somebody_else(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("years of work")
        with pytest.raises(CorpusError, match="not empty and was not begun by simulate"):
            simulate_corpus(tmp_path, PLANNED, workers=1)
        assert (tmp_path / "thesis.txt").read_text() == "years of work"

    def test_a_file_in_place_of_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("x")
        with pytest.raises(CorpusError, match="out"):
            simulate_corpus(tmp_path / "out", PLANNED, workers=1)

    def test_a_corpus_too_small_for_its_audit_cities_is_made_or_explained(self, tmp_path: Path) -> None:
        """`factorjepa simulate out --clips 5` with the defaults: one source, so eight cities have none."""
        world = resolve(WorldSettings, "dense", ["size=32", "seconds=[1,1]"])
        plan = SimulationPlan(seed=0, clips=2, world=world, audit_cities=choose_audit_cities(world, 0, 2))
        try:
            simulate_corpus(tmp_path, plan, workers=1)
        except CorpusError as error:
            assert "clips" in str(error)  # noqa: PT017 (either outcome will do, a riddle will not)
