"""The loader: right frames, the same batches for any number of workers and processes, exact resume, damaged clips."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import factorjepa.corpus.decoded_windows as windows_module
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import Batch, EvaluationLoader, Loader
from factorjepa.corpus.manifest import Clip
from factorjepa.corpus.store import pack
from factorjepa.corpus.windows import WindowSpec, window_times
from factorjepa.errors import CorpusError, VideoError
from factorjepa.pixels import IMAGENET_MEAN, IMAGENET_STD
from factorjepa.video import frame_index

from .clips import STEP, four_splits, make_corpus, shade_of, write_clip

SPEC = WindowSpec(size=16)
TRAIN = 11  # not a multiple of the batch size


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus(folder / "plain", four_splits(train=TRAIN, others=5))
    pack(folder / "plain", folder / "packed", shard_bytes=6_000)
    return folder


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Corpus:
    return Corpus.open(folder / "plain")


def ids(batches: Iterable[Batch]) -> list[tuple[str, ...]]:
    return [tuple(clip.clip_id for clip in batch.clips) for batch in batches]


def assert_same(first: list[Batch], second: list[Batch]) -> None:
    assert ids(first) == ids(second)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.frames, other.frames)
        assert torch.equal(one.times, other.times)


def expected_greys(clip: Clip, times: torch.Tensor) -> np.ndarray:  # type: ignore[type-arg]
    return shade_of(clip) + STEP * frame_index(times.numpy(), clip.fps)


def test_a_batch_shows_its_clips_at_its_times(corpus: Corpus) -> None:
    seen = set()
    for batch in Loader(corpus.training(), SPEC, batch_size=2, seed=1, replication=4):
        assert batch.video().dtype == torch.float32
        assert batch.video().shape == (2, 3, 16, 16, 16)
        for video, clip, times in zip(batch.video(), batch.clips, batch.times, strict=True):
            np.testing.assert_array_equal(times, window_times(clip, SPEC, replication=4))
            for channel in range(3):
                grey = (video[channel].mean(dim=(1, 2)) * IMAGENET_STD[channel] + IMAGENET_MEAN[channel]) * 255
                np.testing.assert_allclose(grey, expected_greys(clip, times), atol=STEP / 2)
            seen.add(clip.clip_id)
    assert len(seen) == TRAIN - 1  # 5 batches of 2; one clip waits for another epoch's order


def test_epochs_are_different_orders_of_the_same_clips(corpus: Corpus) -> None:
    loader = Loader(corpus.training(), SPEC, batch_size=1, seed=3)
    epochs = [ids(loader) for _ in range(3)]
    assert loader.epoch == 3
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs == [ids(again) for again in [Loader(corpus.training(), SPEC, 1, seed=3)] for _ in range(3)]
    assert epochs[0] != ids(Loader(corpus.training(), SPEC, 1, seed=4))
    unshuffled = ids(Loader(corpus.training(), SPEC, 1, seed=3, shuffle=False))
    assert unshuffled == [(clip.clip_id,) for clip in corpus.training()]


def test_workers_start_methods_and_stores_do_not_change_a_bit(folder: Path, corpus: Corpus) -> None:
    reference = list(Loader(corpus.training(), SPEC, batch_size=3, seed=5))
    assert_same(reference, list(Loader(corpus.training(), SPEC, 3, seed=5, workers=2)))
    shards = Corpus.open(folder / "packed").training()
    assert_same(reference, list(Loader(shards, SPEC, 3, seed=5, workers=1, start_method="spawn")))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_resume_gives_exactly_the_remaining_batches(corpus: Corpus, workers: int, stop: int) -> None:
    def loader() -> Loader:
        return Loader(corpus.training(), SPEC, batch_size=2, seed=9, workers=workers)

    whole = loader()
    reference = list(whole) + list(whole)
    interrupted = loader()
    before: list[Batch] = []
    for batch in interrupted:
        before.append(batch)
        if len(before) == stop:
            state = pickle.loads(pickle.dumps(interrupted.state_dict()))
            break
    resumed = loader()
    resumed.load_state_dict(state)
    assert_same(before + list(resumed) + list(resumed), reference)
    assert_same(before + list(interrupted), reference[:5])  # the loop that was left goes on, too


def test_a_state_of_another_order_is_refused(corpus: Corpus) -> None:
    state = Loader(corpus.training(), SPEC, batch_size=2, seed=9).state_dict()
    other = Loader(corpus.training().subset(9, seed=0), SPEC, batch_size=3, seed=9)
    with pytest.raises(
        CorpusError, match=r"its batches differ: clips was \w+ and is \w+, clips of a step was 2 and is 3"
    ):
        other.load_state_dict(state)


def test_ranks_share_each_step_evenly(corpus: Corpus) -> None:
    whole = ids(Loader(corpus.training(), SPEC, batch_size=4, seed=2))
    ranks = [ids(Loader(corpus.training(), SPEC, batch_size=2, seed=2, rank=rank, world=2)) for rank in range(2)]
    assert [first + second for first, second in zip(*ranks, strict=True)] == whole


def test_reading_leaves_the_random_state_of_training_alone(corpus: Corpus) -> None:
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    assert len(list(Loader(corpus.training(), SPEC, batch_size=5, seed=0, workers=1))) == 2
    assert torch.equal(torch.random.get_rng_state(), before)


def test_evaluation_reads_every_clip_once_in_order_and_anew(corpus: Corpus) -> None:
    for clips in (corpus.validation(), corpus.evaluation("test"), corpus.audit()):
        loader = EvaluationLoader(clips, SPEC, batch_size=2)
        assert len(loader) == 3
        assert [clip for batch in loader for clip in batch.clips] == list(clips)
        assert [len(batch.clips) for batch in loader] == [2, 2, 1]
    shares = [EvaluationLoader(corpus.audit(), SPEC, batch_size=2, rank=rank, world=2) for rank in range(2)]
    read = [clip.clip_id for share in shares for batch in share for clip in batch.clips]
    assert sorted(read) == sorted(clip.clip_id for clip in corpus.audit())
    assert [len(share) for share in shares] == [2, 1]


def damage(folder: Path, clip: Clip, kind: str) -> None:
    path = folder / clip.path
    if kind == "missing":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        path.write_bytes(path.read_bytes()[:500])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "no such file"),
        ("empty", "is empty"),
        ("truncated", r"cannot be opened as a video.* cut short\. If "),
    ],
)
def test_a_damaged_clip_stops_the_loader_by_name(kind: str, message: str, workers: int, tmp_path: Path) -> None:
    clips = four_splits(train=4)
    make_corpus(tmp_path, clips)
    damage(tmp_path, clips[2], kind)
    loader = Loader(Corpus.open(tmp_path).training(), SPEC, batch_size=1, seed=0, workers=workers, shuffle=False)
    with pytest.raises(VideoError, match=rf"^clip 'navapur/s01/v02#1\.0'.*{message}.*on_error='skip'"):
        list(loader)
    assert loader.position == 2  # the two before it were handed out


def test_skipping_goes_on_without_damaged_clips_and_lists_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clips = four_splits(train=6)
    make_corpus(tmp_path, clips)
    damage(tmp_path, clips[1], "truncated")
    damage(tmp_path, clips[4], "missing")
    damage(tmp_path, clips[5], "empty")
    loader = Loader(
        Corpus.open(tmp_path).training(), SPEC, batch_size=2, seed=0, workers=1, shuffle=False, on_error="skip"
    )
    batches = list(loader)
    assert [[clip.clip_id for clip in batch.clips] for batch in batches] == [
        ["navapur/s01/v00#1.0"],
        ["navapur/s01/v02#1.0", "navapur/s01/v03#1.0"],
    ]
    assert [batch.video().shape[0] for batch in batches] == [1, 2]
    assert sorted(loader.skipped) == [f"navapur/s01/v0{n}#1.0" for n in (1, 4, 5)]
    assert "no such file" in loader.skipped["navapur/s01/v04#1.0"]
    assert caplog.text.count("skipped clip") == 3
    again = Loader(Corpus.open(tmp_path).training(), SPEC, batch_size=2, seed=0, shuffle=False, on_error="skip")
    again.load_state_dict(loader.state_dict())
    assert again.skipped == loader.skipped
    ranked = Loader(Corpus.open(tmp_path).training(), SPEC, 1, seed=0, shuffle=False, on_error="skip", rank=1, world=2)
    with pytest.raises(VideoError, match="no clip of batch 0 on rank 1 can be read"):
        list(ranked)


def test_a_clip_whose_file_is_shorter_than_its_row_says_is_refused(tmp_path: Path) -> None:
    clips = four_splits(train=2)
    make_corpus(tmp_path, clips)
    (tmp_path / clips[0].path).unlink()
    write_clip(tmp_path, replace(clips[0], t_end=5.0))
    loader = Loader(Corpus.open(tmp_path).training(), SPEC, batch_size=1, seed=0, shuffle=False)
    with pytest.raises(VideoError, match=r"clip 'navapur/s01/v00#1\.0' .*: ends before \d\.\d\d s \(truncated\?\)"):
        list(loader)


def test_short_clips_are_refused_before_the_first_batch(corpus: Corpus) -> None:
    long = WindowSpec(frames=28)
    with pytest.raises(CorpusError, match=r"6 s is shorter than the 7 s window .* so are 10 other clips"):
        Loader(corpus.training(), long, batch_size=2, seed=0)
    loader = Loader(corpus.training(), long, batch_size=2, seed=0, on_error="skip")
    assert list(loader) == []
    assert len(loader.skipped) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size >= 1"),
        ({"batch_size": 12}, "11 training clips do not fill one step of 1 x 12"),
        ({"batch_size": 2, "rank": 2, "world": 2}, "0 <= rank < world"),
        ({"batch_size": 2, "on_error": "ignore"}, "on_error must be"),
    ],
)
def test_impossible_settings_are_refused(corpus: Corpus, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        Loader(corpus.training(), SPEC, seed=0, **arguments)  # type: ignore[arg-type]


# --- windows in memory


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What this process has decoded."""
    read: list[str] = []
    real = windows_module.read_frames

    def counted(source: Any, *rest: Any) -> Any:
        read.append(str(source))
        return real(source, *rest)

    monkeypatch.setattr(windows_module, "read_frames", counted)
    return read


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_the_same_with_windows_in_memory(corpus: Corpus, workers: int) -> None:
    plain = Loader(corpus.training(), SPEC, 2, seed=3)
    remembering = Loader(corpus.training(), SPEC, 2, seed=3, workers=workers, memory_gb=1.0)
    for _ in range(3):
        assert_same(list(plain), list(remembering))


def test_windows_in_memory_are_not_decoded_again(corpus: Corpus, decoded: list[str]) -> None:
    loader = Loader(corpus.training(), SPEC, 1, seed=3, memory_gb=1.0)
    first = {clip for batch in ids(loader) for clip in batch}
    assert len(decoded) == len(first) == TRAIN
    assert {clip for batch in ids(loader) for clip in batch} == first
    assert len(decoded) == TRAIN


def test_memory_holds_no_more_than_it_may(corpus: Corpus, decoded: list[str]) -> None:
    window = next(iter(Loader(corpus.training(), SPEC, 1, seed=3))).frames.nbytes
    loader = Loader(corpus.training(), SPEC, 1, seed=3, memory_gb=2.5 * window / 1e9)
    list(loader)
    decoded.clear()
    list(loader)
    assert len(decoded) == TRAIN - 2
