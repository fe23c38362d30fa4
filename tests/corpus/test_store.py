"""The clip store: folder and shards serve the same bytes; packing survives kills, full disks and rivals; hostile tars
are refused."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from factorjepa.corpus.manifest import Manifest
from factorjepa.corpus.store import TRUTH, ClipStore, FolderStore, ShardStore, open_store, pack, sidecar_path
from factorjepa.errors import CorpusError, StorageError, VideoError
from factorjepa.video import read_frames

from .clips import four_splits, make_clip, make_corpus

SHARD = 6_000  # bytes: two or three of the small clips


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder, four_splits())
    (folder / "world.yaml").write_text("seed: 7\n")
    return folder


@pytest.fixture(scope="module")
def packed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed")
    pack(corpus, out, SHARD)
    return out


def shard_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("shard-*.tar"))}


def run_pack(corpus: Path, out: Path, before: str = "", after: str = "") -> subprocess.Popen[str]:
    script = (
        "from pathlib import Path; from factorjepa.corpus.store import pack\n"
        f"{before}\npack(Path({str(corpus)!r}), Path({str(out)!r}), {SHARD}, progress=progress)\n{after}"
    )
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_folder_and_shards_serve_the_same_bytes(corpus: Path, packed: Path) -> None:
    plain, shards = open_store(corpus), open_store(packed)
    assert isinstance(plain, FolderStore)
    assert isinstance(shards, ShardStore)
    assert len(shard_bytes(packed)) > 2
    before, after = Manifest.read(corpus), Manifest.read(packed)
    assert [clip.clip_id for clip in before] == [clip.clip_id for clip in after]
    for old, new in zip(before, after, strict=True):
        for suffix in (".mp4", TRUTH, ".json"):
            source, target = sidecar_path(old.path, suffix), sidecar_path(new.path, suffix)
            assert plain.exists(source)
            assert shards.exists(target)
            assert plain.read(source) == shards.read(target)
            assert plain.size(source) == shards.size(target)
        times = np.array([0.5, 1.0])
        np.testing.assert_array_equal(
            read_frames(plain.open(old.path), times), read_frames(shards.open(new.path), times)
        )
    assert (packed / "world.yaml").read_text() == "seed: 7\n"


def test_shards_have_the_webdataset_layout(packed: Path) -> None:
    """Members of one key are adjacent, and everything after the first dot of a name is the extension."""
    for shard in packed.glob("shard-*.tar"):
        with tarfile.open(shard) as archive:
            names = archive.getnames()
        keys = [name.rpartition("/")[0] + "/" + name.rpartition("/")[2].partition(".")[0] for name in names]
        assert names == [key + suffix for key in dict.fromkeys(keys) for suffix in (".mp4", TRUTH, ".json")]


def test_a_dot_in_a_clip_name_is_packed_as_one_key(tmp_path: Path) -> None:
    make_corpus(tmp_path / "in", [make_clip(0, path="a/v1#4.0.mp4"), make_clip(1, path="a/v1#4.1.mp4")])
    moved = pack(tmp_path / "in", tmp_path / "out", SHARD)
    assert [clip.path for clip in moved] == ["a/v1#4_0.mp4", "a/v1#4_1.mp4"]
    assert open_store(tmp_path / "out").read("a/v1#4_1.json") == b'{"clip": "navapur/s01/v01#1.0"}'


def test_packing_again_changes_nothing(corpus: Path, packed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in packed.glob("shard-*.tar")}
    pack(corpus, packed, SHARD)
    assert {path: path.stat().st_mtime_ns for path in packed.glob("shard-*.tar")} == before


def test_a_killed_pack_leaves_whole_shards_and_is_finished_by_the_next_run(
    corpus: Path, packed: Path, tmp_path: Path
) -> None:
    # The child stops in the middle of writing its second shard, and is then killed there.
    slow = (
        "import tarfile, time; from factorjepa.corpus import packing\n"
        "add, count = packing.add_member, 0\n"
        "def slowly(archive, name, path):\n"
        "    global count; count += 1; add(archive, name, path); archive.fileobj.flush()\n"
        "    if 'shard-00001' in archive.name and count % 3 == 2: print('inside', flush=True); time.sleep(60)\n"
        "packing.add_member, progress = slowly, None"
    )
    child = run_pack(corpus, tmp_path, slow)
    assert child.stdout is not None
    assert child.stdout.readline() == "inside\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert list(shard_bytes(tmp_path)) == ["shard-00000.tar"]
    assert len(list(tmp_path.glob(".*.partial"))) == 1
    with pytest.raises(CorpusError, match="interrupted run writes its manifest last"):
        Manifest.read(tmp_path)
    first = (tmp_path / "shard-00000.tar").stat().st_mtime_ns
    pack(corpus, tmp_path, SHARD)
    assert (tmp_path / "shard-00000.tar").stat().st_mtime_ns == first
    assert shard_bytes(tmp_path) == shard_bytes(packed)
    assert Manifest.read(tmp_path) == Manifest.read(packed)
    assert list(tmp_path.glob(".*.partial")) == []


def test_a_full_disk_is_explained_and_the_next_run_finishes(corpus: Path, packed: Path, tmp_path: Path) -> None:
    small = (
        "import resource\nprogress = lambda done, total: resource.setrlimit("
        f"resource.RLIMIT_FSIZE, (4096, {resource.RLIM_INFINITY}))"
    )
    child = run_pack(corpus, tmp_path, small)
    _, errors = child.communicate()
    assert child.returncode != 0
    assert f"{StorageError.__name__}: {tmp_path / 'shard-00001.tar'}: the disk is full" in errors
    assert list(shard_bytes(tmp_path)) == ["shard-00000.tar"]
    assert list(tmp_path.glob(".*.partial")) == []
    pack(corpus, tmp_path, SHARD)
    assert shard_bytes(tmp_path) == shard_bytes(packed)


def test_a_second_packer_is_refused_and_the_first_is_not_disturbed(corpus: Path, packed: Path, tmp_path: Path) -> None:
    waiting = "import sys\ndef progress(done, total):\n    print(done, flush=True); sys.stdin.readline()"
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"{waiting}\nfrom pathlib import Path; from factorjepa.corpus.store import pack\n"
            f"pack(Path({str(corpus)!r}), Path({str(tmp_path)!r}), {SHARD}, progress)",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert int(child.stdout.readline()) > 0
    with pytest.raises(StorageError, match="another process is packing into it"):
        pack(corpus, tmp_path, SHARD)
    child.communicate()
    assert child.returncode == 0
    assert shard_bytes(tmp_path) == shard_bytes(packed)


def test_rivals_that_start_together_leave_one_whole_result(corpus: Path, packed: Path, tmp_path: Path) -> None:
    rivals = [run_pack(corpus, tmp_path, "progress = None") for _ in range(3)]
    errors = [rival.communicate()[1] for rival in rivals]
    assert any(rival.returncode == 0 for rival in rivals)
    assert all("another process is packing" in error for error in errors if error)
    assert shard_bytes(tmp_path) == shard_bytes(packed)


def test_another_plan_is_refused(corpus: Path, packed: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="of another size than 9000 bytes; choose an empty folder"):
        pack(corpus, packed, 9_000)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(CorpusError, match="is not empty and was not begun by packing"):
        pack(corpus, tmp_path, SHARD)
    with pytest.raises(CorpusError, match="is packed already"):
        pack(packed, tmp_path / "out", SHARD)


def test_a_corpus_that_changed_since_is_not_mixed_into_the_old_shards(tmp_path: Path) -> None:
    make_corpus(tmp_path / "in", [make_clip(0), make_clip(1)])
    pack(tmp_path / "in", tmp_path / "out", SHARD)
    note = tmp_path / "in" / sidecar_path(make_clip(1).path, ".json")
    note.write_text(note.read_text().replace("v01", "v99"))
    with pytest.raises(CorpusError, match="an earlier state"):
        pack(tmp_path / "in", tmp_path / "out", SHARD)


def test_missing_clips_are_counted_before_anything_is_written(tmp_path: Path) -> None:
    clips = four_splits(train=4)
    make_corpus(tmp_path / "in", clips)
    for clip in clips[1:3]:
        (tmp_path / "in" / clip.path).unlink()
    with pytest.raises(CorpusError, match=r"the files of 2 clips are missing, first 'clips/navapur/s01/v01/1-0\.mp4'"):
        pack(tmp_path / "in", tmp_path / "out", SHARD)
    assert not (tmp_path / "out").exists()


def test_a_corpus_without_clips_is_not_packed(tmp_path: Path) -> None:
    Manifest([]).write(tmp_path / "empty")
    with pytest.raises(CorpusError, match="empty: has no clips to pack"):
        pack(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "clip.mp4").symlink_to(tmp_path / "secret.mp4")
    store = open_store(tmp_path / "in")
    for path in ("clip.mp4", "../secret.mp4", str(tmp_path / "secret.mp4")):
        with pytest.raises(StorageError, match="leaves its folder"):
            store.open(path)
    Manifest([make_clip(0, path="clip.mp4")]).write(tmp_path / "in")
    with pytest.raises(StorageError, match="leaves its folder"):
        pack(tmp_path / "in", tmp_path / "out", SHARD)


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    return info, data


def hostile(folder: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = folder / "shard-00000.tar"
    with tarfile.open(path, "w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (member("/etc/passwd", data=b"x"), "leaves its folder"),
        (member("clips/../../x.mp4", data=b"x"), "leaves its folder"),
        (member("..\\x.mp4", data=b"x"), "leaves its folder"),
        (member("a.mp4", tarfile.SYMTYPE, "/etc/passwd"), "is a link to '/etc/passwd'"),
        (member("a.mp4", tarfile.LNKTYPE, "b.mp4"), "is a link to 'b.mp4'"),
        (member("a.mp4", tarfile.CHRTYPE), "is a device"),
        (member("a.mp4", tarfile.FIFOTYPE), "a pipe"),
        (member("./good.mp4", data=b"x"), "appears twice"),
    ],
)
def test_a_hostile_member_is_refused(bad: tuple[tarfile.TarInfo, bytes], message: str, tmp_path: Path) -> None:
    hostile(tmp_path, member("good.mp4", data=b"good"), bad)
    with pytest.raises(CorpusError, match=message):
        open_store(tmp_path)
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.parametrize("keep", [0, 100, 700, 1024, 1300])
def test_a_shard_that_is_cut_short_is_refused(keep: int, tmp_path: Path) -> None:
    shard = hostile(tmp_path, member("a.mp4", data=b"a" * 400), member("b.mp4", data=b"b" * 400))
    os.truncate(shard, keep)
    with pytest.raises(CorpusError, match=r"cut short|cannot be read as a tar archive"):
        open_store(tmp_path)


def test_a_compressed_or_foreign_file_is_not_a_shard(tmp_path: Path) -> None:
    (tmp_path / "shard-00000.tar").write_bytes(b"\x1f\x8b" + bytes(range(256)) * 8)
    with pytest.raises(CorpusError, match="cannot be read as a tar archive"):
        open_store(tmp_path)


def test_one_member_in_two_shards_is_refused(tmp_path: Path) -> None:
    hostile(tmp_path, member("a.mp4", data=b"one")).rename(tmp_path / "shard-00001.tar")
    hostile(tmp_path, member("a.mp4", data=b"two"))
    with pytest.raises(CorpusError, match=r"member 'a\.mp4' is also in shard-00000\.tar"):
        open_store(tmp_path)


def test_the_index_is_rebuilt_when_the_shard_changes(tmp_path: Path) -> None:
    hostile(tmp_path, member("a.mp4", data=b"first"))
    assert open_store(tmp_path).read("a.mp4") == b"first"
    index = tmp_path / "shard-00000.index.json"
    assert json.loads(index.read_text())["members"] == {"a.mp4": [512, 5]}
    time.sleep(0.01)
    hostile(tmp_path, member("b.mp4", data=b"x" * 600), member("a.mp4", data=b"other"))
    assert open_store(tmp_path).read("a.mp4") == b"other"
    for damage in ("", "{", "[]", '{"shard": null}', index.read_text().replace("512", "99999")):
        index.write_text(damage)
        assert open_store(tmp_path).read("a.mp4") == b"other"


def test_a_shard_that_shrinks_or_goes_while_open_names_the_clip(tmp_path: Path) -> None:
    shard = hostile(tmp_path, member("a.mp4", data=b"a" * 400))
    store = open_store(tmp_path)
    os.truncate(shard, 600)
    with pytest.raises(VideoError, match=r"a\.mp4: .* has become shorter"):
        store.read("a.mp4")
    shard.unlink()
    with pytest.raises(VideoError, match=r"a\.mp4: cannot be read from .*shard-00000\.tar"):
        store.read("a.mp4")


def read_all(store: ClipStore, paths: list[str], _: int) -> list[bytes]:
    return [store.read(path) for path in paths]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_read_the_same_bytes(packed: Path, method: str) -> None:
    store = open_store(packed)
    paths = [clip.path for clip in Manifest.read(packed)]
    expected = read_all(store, paths, 0)
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        assert list(pool.map(partial(read_all, store, paths), range(4))) == [expected] * 4
    assert pickle.loads(pickle.dumps(store)).read(paths[0]) == expected[0]


def test_unknown_paths_are_named(packed: Path, corpus: Path, tmp_path: Path) -> None:
    assert not open_store(packed).exists("nowhere.mp4")
    with pytest.raises(VideoError, match=r"nowhere\.mp4: is in none of the \d+ shards"):
        open_store(packed).open("nowhere.mp4")
    assert not open_store(corpus).exists("nowhere.mp4")
    with pytest.raises(VideoError, match=r"nowhere\.mp4: no such file"):
        open_store(corpus).open("nowhere.mp4")
    with pytest.raises(CorpusError, match="no such folder"):
        open_store(tmp_path / "none")
