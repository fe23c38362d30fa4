"""One long file keeps several cores busy, and the corpus is the one that a single process makes."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from factorjepa.corpus.manifest import MANIFEST, Manifest
from factorjepa.corpus.rejected import read_rejected
from factorjepa.engines import Engine, Here, Processes
from factorjepa.footage import underway, writing
from factorjepa.footage.ingest import Ingested, ingest
from factorjepa.footage.listing import list_sources
from factorjepa.footage.making import read_record, shares
from factorjepa.footage.underway import FOLDER
from factorjepa.video import Frames

from .filters import Deadly, Patient, Signing
from .test_ingest import OFF, begin, contents, wait_for
from .videos import SETTINGS, corner, encode, seconds, still, street


def bright(frames: Iterator[Frames]) -> Iterator[Frames]:
    return ((frame // 4 + 190).astype(np.uint8) for frame in frames)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute with everything: long shots, a short one, one at rest, one that privacy refuses, a damaged stretch."""
    folder = tmp_path_factory.mktemp("long")
    shots = [street(1, seconds(26)), corner(2, seconds(3)), still(3, seconds(8)), bright(street(4, seconds(8)))]
    file = encode(folder / "Pune" / "s01" / "long.ts", chain(*shots, street(5, seconds(22))))
    data = bytearray(file.read_bytes())
    place = len(data) * 11 // 12
    data[place : place + 4000] = bytes(range(200)) * 20
    file.write_bytes(data)
    return folder


def run(footage: Path, out: Path, build: Any, engine: Engine) -> Ingested:
    return ingest(out, list_sources([footage], "walk"), SETTINGS, build, engine, audit=True)


def signing(folder: Path) -> Any:
    writing._builds.clear()  # a filter of another test says the same of itself
    folder.mkdir(parents=True, exist_ok=True)
    return functools.partial(Signing, folder)


@pytest.fixture(scope="module")
def alone(long: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus as one process makes it."""
    folder = tmp_path_factory.mktemp("alone")
    run(long, folder / "corpus", signing(folder / "pids"), Here())
    assert [path.name for path in (folder / "pids").iterdir()] == [f"pid-{os.getpid()}"]
    return folder / "corpus"


class TestOneLongFile:
    def test_everything_can_happen_in_it(self, alone: Path) -> None:
        assert len(Manifest.read(alone)) >= 4
        assert {row.reason for row in read_rejected(alone)} >= {"short shot", "static", "failed checks", "damaged"}

    def test_several_processes_make_the_same_bytes(self, long: Path, alone: Path, tmp_path: Path) -> None:
        made = run(long, tmp_path / "corpus", signing(tmp_path / "pids"), Processes(2))
        assert contents(tmp_path / "corpus") == contents(alone)
        assert len(list((tmp_path / "pids").iterdir())) == 2
        assert made.spent["decode"] > 0
        assert made.spent["encode"] > 0

    def test_a_clip_whose_process_is_killed_is_made_by_another(self, long: Path, alone: Path, tmp_path: Path) -> None:
        build = signing(tmp_path / "pids")
        (tmp_path / "pids" / "mortal").touch()
        run(long, tmp_path / "corpus", build, Processes(2))
        assert len(list((tmp_path / "pids").iterdir())) == 3  # the one that died, and two
        assert contents(tmp_path / "corpus") == contents(alone)

    def test_killed_in_the_middle_and_run_again_gives_the_same_bytes(self, long: Path, tmp_path: Path) -> None:
        process = begin(long, tmp_path / "killed", "--workers", "2")
        wait_for(lambda: any(tmp_path.glob("killed/clips/*/*/*/*.mp4")), process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()  # returns when the processes of its processes are gone, too
        assert not (tmp_path / "killed" / MANIFEST).exists()
        run(long, tmp_path / "killed", OFF, Processes(2))
        run(long, tmp_path / "straight", OFF, Here())
        assert contents(tmp_path / "killed") == contents(tmp_path / "straight")


@pytest.fixture(scope="module")
def deadly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shots, and the one in the middle kills whoever filters it."""
    folder = tmp_path_factory.mktemp("deadly")
    shots = [street(1, seconds(7)), bright(street(2, seconds(7))), street(3, seconds(7))]
    encode(folder / "Pune" / "s01" / "three.mp4", chain(*shots))
    return folder


class TestAClipThatKillsEveryProcess:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_is_rejected_with_its_reason_and_the_rest_of_its_source_is_kept(
        self, deadly: Path, tmp_path: Path, workers: int
    ) -> None:
        made = run(deadly, tmp_path / "out", Deadly, Processes(workers))
        assert [clip.shot for clip in made.manifest] == [0, 2]
        (row,) = read_rejected(tmp_path / "out")
        assert (row.stage, row.reason, row.clip_id) == ("writing", "not made", "pune/s01/three#1.0")
        assert (row.t_start, row.t_end) == pytest.approx((7.0, 14.0), abs=0.2)
        assert "ended with SIGSEGV, each time" in row.detail
        assert "records/pune/s01/three.json" in row.detail
        record = read_record(tmp_path / "out", "pune/s01/three")
        assert record is not None
        assert [one["clip_id"] for one in record["rejected"]] == [row.clip_id]
        before = contents(tmp_path / "out")
        assert not (tmp_path / "out" / FOLDER).exists()
        assert len(run(deadly, tmp_path / "out", Deadly, Here()).manifest) == 2  # nobody dies again: it is known
        assert contents(tmp_path / "out") == before


class TestProgress:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_one_long_file_moves_the_line_before_it_is_done(
        self, deadly: Path, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(underway, "_EVERY", 0.01)
        seen: list[tuple[int, int, str]] = []

        @contextlib.contextmanager
        def counting(what: str, thing: str) -> Iterator[Any]:
            def progress(done: int, total: int, note: str = "") -> None:
                if thing == "second":
                    seen.append((done, total, note))
                    if 0 < done < total:
                        (tmp_path / "moved").touch()

            yield progress

        found = list_sources([deadly], "walk")
        ingest(tmp_path / "out", found, SETTINGS, functools.partial(Patient, tmp_path / "moved"), Processes(workers),
               counting=counting)  # fmt: skip
        assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
        assert seen[0] == (0, 21, "0 of 1 source")
        assert seen[-1] == (21, 21, "1 of 1 source")
        between = {done for done, _, note in seen if 0 < done < 21 and note == "0 of 1 source"}
        assert between
        assert {-(-done // 7) * 7 - done for done in between} <= {0, 1}  # whole clips; what waits for its filter is not

    def test_what_is_finished_already_counts_from_the_start(self, deadly: Path, tmp_path: Path) -> None:
        seen: list[tuple[int, str]] = []

        def counting(what: str, thing: str) -> Any:
            told = (lambda done, _, note: seen.append((done, note))) if thing == "second" else (lambda *_: None)
            return contextlib.nullcontext(told)

        for _ in range(2):
            seen.clear()
            ingest(tmp_path, list_sources([deadly], "walk"), SETTINGS, OFF, Here(), counting=counting)
        assert (seen[0], seen[-1]) == ((20, "0 of 1 source"), (21, "1 of 1 source"))
        assert [note for _, note in seen].count("1 of 1 source") == 1

    def test_without_a_source_there_is_no_line(self, tmp_path: Path) -> None:
        (tmp_path / "footage").mkdir()
        (tmp_path / "footage" / "notes.mp4").write_text("no video")
        told: list[str] = []
        ingest(tmp_path / "out", list_sources([tmp_path / "footage"], "walk"), SETTINGS, OFF, Here(),
               counting=lambda what, thing: contextlib.nullcontext(lambda *_: told.append(thing)))  # fmt: skip
        assert "second" not in told


class TestShares:
    @given(
        st.lists(st.floats(0, 1e5), min_size=1, max_size=20),
        st.integers(1, 256),
        st.floats(1, 30),
    )
    @example([37617.55653464204], 223, 1.0)  # 223 times it, over it, is a little more than 223
    def test_cores_are_dealt_by_length_and_none_is_left_over(
        self, lengths: list[float], cores: int, clip: float
    ) -> None:
        dealt = shares(lengths, cores, clip)
        assert all(1 <= one <= cores for one in dealt)
        assert sum(dealt) <= cores + len(lengths)
        for one, length in zip(dealt, lengths, strict=True):
            enough = one >= cores * length / sum(lengths) - 1e-6 if length else True
            assert enough or one >= length / clip
        by_length = [one for _, one in sorted(zip(lengths, dealt, strict=True))]
        assert by_length == sorted(by_length)

    def test_one_long_file_gets_them_all_and_short_ones_do_without(self) -> None:
        assert shares([3600], 8, 10) == [8]
        assert shares([3600, 60, 60], 8, 10) == [8, 1, 1]
        assert shares([60] * 10, 8, 10) == [1] * 10
        assert shares([15], 8, 10) == [2]
        assert shares([0, 0], 8, 10) == [1, 1]
        assert shares([9892.253911121763], 53, 1) == [53]  # 53 x / x is a little more than 53
