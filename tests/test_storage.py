"""Files are whole or absent, whatever happens to the writer."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError

from factorjepa.errors import ConfigError, StorageError
from factorjepa.storage import (
    atomic_path,
    in_turn,
    inside,
    only_writer,
    refuse_unwritable,
    remove_partials,
    storage_error,
    write_atomic,
    write_text,
)


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


class TestAtomicWrites:
    def test_files_that_a_library_keeps_to_the_owner_are_as_any_other(self, tmp_path: Path) -> None:
        write_text(tmp_path / "plain", "")
        write_atomic(tmp_path / "private", lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)))
        assert (tmp_path / "private").stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_a_written_file_is_there_and_nothing_else(self, tmp_path: Path) -> None:
        write_text(tmp_path / "deep" / "er" / "a.txt", "hällo")
        assert (tmp_path / "deep/er/a.txt").read_text(encoding="utf-8") == "hällo"
        assert os.listdir(tmp_path / "deep/er") == ["a.txt"]

    def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        write_text(path, "old")

        def fail(temporary: Path) -> None:
            temporary.write_text("half of the n")
            raise RuntimeError("no more")

        with pytest.raises(RuntimeError, match="no more"):
            write_atomic(path, fail)
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["a.txt"]

    def test_readers_see_the_old_file_until_the_new_one_is_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "a.txt"
        write_text(path, "old")
        with atomic_path(path) as temporary:
            temporary.write_text("new")
            assert path.read_text() == "old"
            assert temporary.parent == path.parent  # the rename stays within one file system
        assert path.read_text() == "new"

    def test_a_writer_killed_in_the_middle_leaves_no_half_file(self, tmp_path: Path) -> None:
        path = tmp_path / "sub" / "a.bin"
        code = (
            "import sys, time, pathlib\n"
            "from factorjepa.storage import atomic_path\n"
            "with atomic_path(pathlib.Path(sys.argv[1])) as temporary:\n"
            "    temporary.write_bytes(b'x' * 1000); print('half', flush=True); time.sleep(60)\n"
        )
        writer = python(code, path)
        assert writer.stdout is not None
        assert writer.stdout.readline().strip() == "half"
        writer.kill()
        writer.communicate()
        assert writer.returncode == -signal.SIGKILL
        assert not path.exists()
        assert [name.endswith(".partial") for name in os.listdir(path.parent)] == [True]
        assert remove_partials(tmp_path) == 1
        assert os.listdir(path.parent) == []
        write_text(path, "whole")
        assert path.read_text() == "whole"

    def test_removing_partials_touches_nothing_else(self, tmp_path: Path) -> None:
        keep = ["a.partial", ".b", "c.txt", ".writer.lock"]
        for name in [*keep, ".d.txt.17.partial"]:
            (tmp_path / name).write_text("x")
        assert remove_partials(tmp_path) == 1
        assert sorted(os.listdir(tmp_path)) == sorted(keep)

    def test_a_full_disk_gives_advice(self, tmp_path: Path) -> None:
        code = (
            "import resource, sys, pathlib\n"
            "from factorjepa.storage import write_text\n"
            "from factorjepa.errors import StorageError\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
            "try: write_text(pathlib.Path(sys.argv[1]), 'x' * 5000)\n"
            "except StorageError as error: print(error)\n"
        )
        ran = python(code, tmp_path / "big.txt")
        said, wrong = ran.communicate(timeout=60)
        assert "big.txt: the disk is full" in said, wrong
        assert "free some space" in said
        assert "run the same command again" in said
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize(
        ("number", "words"),
        [(errno.ENOSPC, "disk is full"), (errno.EDQUOT, "disk is full"), (errno.EROFS, "not writable"),
         (errno.EACCES, "Choose a folder you may write to"), (errno.EIO, "could not be written")],
    )  # fmt: skip
    def test_what_the_system_refuses_is_named_with_the_file(self, tmp_path: Path, number: int, words: str) -> None:
        def refuse(temporary: Path) -> None:
            temporary.write_text("some")
            raise OSError(number, os.strerror(number))

        with pytest.raises(StorageError, match=words) as caught:
            write_atomic(tmp_path / "a.txt", refuse)
        assert str(tmp_path / "a.txt") in str(caught.value)
        assert os.listdir(tmp_path) == []

    def test_a_file_in_place_of_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(StorageError, match="file: is a file, where a folder has to be"):
            write_text(tmp_path / "file" / "a.txt", "y")

    def test_a_link_that_leads_nowhere_in_place_of_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "gone")
        with pytest.raises(StorageError, match="link: is a link that leads nowhere, where a folder has to be"):
            write_text(tmp_path / "link" / "a.txt", "y")

    def test_a_link_that_leads_somewhere_is_not_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "big").mkdir()
        (tmp_path / "runs").symlink_to(tmp_path / "big")
        told = storage_error(tmp_path / "runs" / "a", FileExistsError(errno.EEXIST, "File exists"))
        assert "could not be written" in str(told)

    @pytest.mark.parametrize("cause", ["words", "context"])
    def test_a_library_that_hides_what_the_system_said_is_understood(self, tmp_path: Path, cause: str) -> None:
        def safetensors(temporary: Path) -> None:
            temporary.write_text("some")
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

        def torch(temporary: Path) -> None:
            try:
                raise OSError(errno.ENOSPC, "No space left on device")
            finally:
                raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")

        with pytest.raises(StorageError, match=r"a\.bin: the disk is full"):
            write_atomic(tmp_path / "a.bin", safetensors if cause == "words" else torch)
        assert os.listdir(tmp_path) == []

    def test_what_is_no_refusal_of_the_system_stays_what_it_is(self, tmp_path: Path) -> None:
        def wrong(temporary: Path) -> None:
            try:
                raise FileNotFoundError("elsewhere")
            except FileNotFoundError:
                raise ValueError("of another kind")  # noqa: B904

        with pytest.raises(ValueError, match="of another kind"):
            write_atomic(tmp_path / "a.bin", wrong)

        def elsewhere(temporary: Path) -> None:
            raise ConfigError("weights.pt: cannot be read (No such file or directory (os error 2))")

        with pytest.raises(ConfigError, match="cannot be read"):
            write_atomic(tmp_path / "a.bin", elsewhere)

        def device(temporary: Path) -> None:
            raise RuntimeError("CUDA error")

        try:
            raise FileNotFoundError("handled already")
        except FileNotFoundError:
            with pytest.raises(RuntimeError, match="CUDA error"):
                write_atomic(tmp_path / "a.bin", device)


pieces = st.lists(
    st.sampled_from(["a", "b", "..", ".", "", "link", "up", "...", "a b", "~", "é", "loop/.."]), min_size=1, max_size=6
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a link that leads out, one that leads up and one that stays."""
    base = tmp_path_factory.mktemp("tree")
    root = base / "root"
    (root / "a" / "b").mkdir(parents=True)
    (base / "outside").mkdir()
    (root / "link").symlink_to(base / "outside")
    (root / "a" / "up").symlink_to("..")
    (root / "b").symlink_to("a")
    return root


class TestInside:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(pieces)
    def test_the_result_lies_in_the_folder_or_is_refused(self, tree: Path, words: list[str]) -> None:
        relative = "/".join(words)
        real = os.path.realpath(os.path.join(tree, relative))
        within = real == os.path.realpath(tree) or real.startswith(os.path.realpath(tree) + os.sep)
        if within and not relative.startswith("/"):
            assert str(inside(tree, relative)) == real
        else:
            with pytest.raises(StorageError, match="leaves its folder"):
                inside(tree, relative)

    @pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "link/secret", "a/up/../outside", "link"])
    def test_ways_out_are_refused(self, tree: Path, path: str) -> None:
        with pytest.raises(StorageError, match="leaves its folder"):
            inside(tree, path)

    def test_an_absolute_path_is_refused_even_if_it_leads_inside(self, tree: Path) -> None:
        with pytest.raises(StorageError, match="leaves its folder"):
            inside(tree, str(tree / "a"))

    @pytest.mark.parametrize("path", ["a", "a/b", "b/b", "a/up/a/new.txt", "a/../a"])
    def test_ways_that_stay_are_not(self, tree: Path, path: str) -> None:
        assert inside(tree, path).is_relative_to(tree.resolve())

    @pytest.mark.parametrize("path", ["round", "nul\0byte"])
    def test_what_cannot_be_a_path_is_refused_as_such(self, tmp_path: Path, path: str) -> None:
        (tmp_path / "round").symlink_to("round")
        with pytest.raises(StorageError):
            inside(tmp_path, path)


HOLD = (
    "import sys, time, pathlib\n"
    "from factorjepa.storage import only_writer\n"
    "with only_writer(pathlib.Path(sys.argv[1]), 'simulating'):\n"
    "    print('holding', flush=True); time.sleep(60)\n"
)


class TestOnlyWriter:
    def test_a_second_process_is_refused_until_the_first_is_dead(self, tmp_path: Path) -> None:
        first = python(HOLD, tmp_path / "out")
        assert first.stdout is not None
        assert first.stdout.readline().strip() == "holding"
        with (
            pytest.raises(StorageError, match="another process is packing into it"),
            only_writer(tmp_path / "out", "packing"),
        ):
            pass
        first.kill()
        first.communicate()
        entered = False
        for _ in range(50):  # the system lets go of a dead process's lock by itself
            try:
                with only_writer(tmp_path / "out", "packing"):
                    entered = True
                break
            except StorageError:
                time.sleep(0.1)
        assert entered

    def test_leaving_lets_the_next_one_in_even_after_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="oops"), only_writer(tmp_path, "writing"):
            raise RuntimeError("oops")
        with only_writer(tmp_path, "writing"):
            pass

    def test_who_fails_before_writing_leaves_no_new_folder(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="oops"), only_writer(tmp_path / "new" / "out", "writing"):
            raise RuntimeError("oops")
        assert list(tmp_path.iterdir()) == []

    def test_who_fails_after_writing_leaves_what_is_whole(self, tmp_path: Path) -> None:
        def fail() -> None:
            with only_writer(tmp_path / "out", "writing"):
                write_text(tmp_path / "out" / "part", "whole")
                raise RuntimeError("oops")

        with pytest.raises(RuntimeError, match="oops"):
            fail()
        assert (tmp_path / "out" / "part").read_text() == "whole"

    def test_an_empty_folder_that_was_there_before_stays(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        with pytest.raises(RuntimeError, match="oops"), only_writer(tmp_path / "out", "writing"):
            raise RuntimeError("oops")
        assert (tmp_path / "out").is_dir()

    @pytest.mark.parametrize("third", [False, True], ids=["nobody else", "a third has made it anew"])
    def test_a_lock_that_is_removed_before_it_is_taken_keeps_nobody_out_and_is_taken_anew(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, third: bool
    ) -> None:
        out, take, first = tmp_path / "out", fcntl.flock, only_writer(tmp_path / "out", "writing")
        first.__enter__()

        def late(lock: int, how: int) -> None:
            """The second has opened the first one's lock; now the first fails, and only then the second takes it."""
            monkeypatch.setattr(fcntl, "flock", take)
            oops = RuntimeError("oops")
            assert not first.__exit__(type(oops), oops, None)
            assert not out.exists()
            if third:
                with only_writer(out, "writing"):
                    pass
            take(lock, how)

        monkeypatch.setattr(fcntl, "flock", late)
        with only_writer(out, "writing"):
            assert out.is_dir()
            with pytest.raises(StorageError, match="another process"), only_writer(out, "writing"):
                pass

    def test_a_blocked_read_inside_is_not_mistaken_for_another_writer(self, tmp_path: Path) -> None:
        with pytest.raises(BlockingIOError), only_writer(tmp_path, "writing"):
            raise BlockingIOError(errno.EAGAIN, "a pipe was empty")

    def test_a_file_in_place_of_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("x")
        with pytest.raises(StorageError, match="out"), only_writer(tmp_path / "out", "writing"):
            pass


WAIT = (
    "import sys, time, pathlib\n"
    "from factorjepa.storage import in_turn\n"
    "with in_turn(pathlib.Path(sys.argv[1]), 'study', lambda: print('waiting', flush=True)):\n"
    "    print('holding', flush=True); time.sleep(float(sys.argv[2]))\n"
)


class TestInTurn:
    def test_the_second_says_that_it_waits_and_comes_after_the_first_even_if_that_is_killed(
        self, tmp_path: Path
    ) -> None:
        first = python(WAIT, tmp_path, 60)
        assert first.stdout is not None
        assert first.stdout.readline().strip() == "holding"
        second = python(WAIT, tmp_path, 0)
        assert second.stdout is not None
        assert second.stdout.readline().strip() == "waiting"
        with only_writer(tmp_path, "writing"), in_turn(tmp_path, "other", lambda: pytest.fail("nobody holds this")):
            assert second.poll() is None  # it still waits
        first.kill()
        first.communicate()
        assert second.communicate(timeout=30)[0].strip() == "holding"

    def test_a_folder_that_is_not_there_is_an_error_in_words(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="missing"), in_turn(tmp_path / "missing", "study", lambda: None):
            pass


def test_where_nothing_can_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    refuse_unwritable(tmp_path / "new" / "folder")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        refuse_unwritable(tmp_path / "file" / "folder")
