"""Windows decoded once for all: the same batches as from the videos, and nothing stale or half-written is shown."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import factorjepa.corpus.decoded_windows as module
import factorjepa.corpus.loader as loader_module
from factorjepa.corpus.access import Corpus, TrainingClips
from factorjepa.corpus.decoded_windows import DecodedWindows, decode_windows
from factorjepa.corpus.loader import EvaluationLoader, Loader
from factorjepa.corpus.manifest import Manifest
from factorjepa.corpus.splits import Split
from factorjepa.corpus.store import open_store
from factorjepa.corpus.windows import WindowSpec
from factorjepa.errors import CorpusError, StorageError

from .clips import four_splits, make_corpus

SPEC = WindowSpec(size=16)
SPLITS = [Split.TRAIN, Split.TEST]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "plain"
    make_corpus(folder, four_splits(train=5, others=2))
    return folder


@pytest.fixture(scope="module")
def decoded(data: Path) -> Path:
    folder = data.parent / "windows"
    decode_windows(data, folder, SPLITS, SPEC, workers=1)
    return folder


def test_batches_are_those_of_the_videos_and_no_video_is_opened(
    data: Path, decoded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus.open(data)
    trained = list(Loader(corpus.training(), SPEC, 2, seed=3))
    tested = list(EvaluationLoader(corpus.evaluation("test"), SPEC, 2))
    monkeypatch.setattr(loader_module, "read_window", lambda *given: pytest.fail("a video was decoded"))
    pairs = [
        *zip(trained, Loader(corpus.training(), SPEC, 2, seed=3, decoded=decoded), strict=True),
        *zip(tested, EvaluationLoader(corpus.evaluation("test"), SPEC, 2, decoded=decoded), strict=True),
    ]
    for plain, copied in pairs:
        assert plain.clips == copied.clips
        assert torch.equal(plain.frames, copied.frames)
        assert torch.equal(plain.times, copied.times)


def test_what_was_not_decoded_comes_from_its_video(data: Path, decoded: Path) -> None:
    corpus = Corpus.open(data)
    others = corpus.validation()
    assert len(DecodedWindows(decoded, others, SPEC, 0)) == 0
    assert len(DecodedWindows(decoded, corpus.training(), SPEC, 1)) == 0, "another window of the clips"
    plain, given = (list(EvaluationLoader(others, SPEC, 2, decoded=folder)) for folder in (None, decoded))
    assert torch.equal(plain[0].frames, given[0].frames)


def test_a_clip_whose_file_has_changed_is_not_shown_as_it_was(data: Path, decoded: Path) -> None:
    clips = Corpus.open(data).training()
    video = data / clips[0].path
    before = video.stat()
    os.utime(video, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    windows = DecodedWindows(decoded, clips, SPEC, 0)
    assert windows.of(clips[0]) is None, "other pictures may be in it now"
    assert windows.of(clips[1]) is not None
    os.utime(video, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_clip_that_was_cut_anew_is_not_shown_as_it_was(data: Path, decoded: Path) -> None:
    clips = Corpus.open(data).training()
    moved = TrainingClips(Manifest([replace(clip, t_start=clip.t_start + 0.5) for clip in clips]), open_store(data))
    assert len(DecodedWindows(decoded, clips, SPEC, 0)) == 5
    assert len(DecodedWindows(decoded, moved, SPEC, 0)) == 0


def test_another_process_opens_the_file_and_is_sent_no_windows(data: Path, decoded: Path) -> None:
    clips = Corpus.open(data).training()
    windows = DecodedWindows(decoded, clips, SPEC, 0)
    before = windows.of(clips[0])
    sent = pickle.dumps(windows)
    after = pickle.loads(sent).of(clips[0])
    assert after is not None
    assert before is not None
    assert (before == after).all()
    assert len(sent) < before.nbytes


def test_decoding_again_decodes_nothing_and_an_interrupted_one_is_made_whole(
    data: Path, decoded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, clips = tmp_path / "windows", Corpus.open(data).training()
    shutil.copytree(decoded, folder)
    monkeypatch.setattr(module, "_decoded", lambda *given: pytest.fail("decoded again"))
    decode_windows(data, folder, SPLITS, SPEC, workers=1)
    monkeypatch.undo()
    next(folder.glob("train-*.json")).unlink()  # killed between the array and its index
    assert len(DecodedWindows(folder, clips, SPEC, 0)) == 0
    decode_windows(data, folder, SPLITS, SPEC, workers=1)
    assert len(DecodedWindows(folder, clips, SPEC, 0)) == 5


def test_a_full_disk_is_said_before_anything_is_decoded(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(module, "_decoded", lambda *given: pytest.fail("decoded"))
    with pytest.raises(StorageError, match="the disk is full"):
        decode_windows(data, tmp_path, SPLITS, SPEC, workers=1)
    assert not list(tmp_path.glob("*.npy"))


def test_a_damaged_file_is_refused_with_what_to_do(data: Path, decoded: Path, tmp_path: Path) -> None:
    folder, clips = tmp_path / "windows", Corpus.open(data).training()
    shutil.copytree(decoded, folder)
    array = next(folder.glob("train-*.npy"))
    array.write_bytes(array.read_bytes()[:100])
    with pytest.raises(CorpusError, match="delete its folder"):
        DecodedWindows(folder, clips, SPEC, 0).of(clips[0])
    next(folder.glob("train-*.json")).write_text("[")
    with pytest.raises(CorpusError, match="damaged"):
        DecodedWindows(folder, clips, SPEC, 0)
