"""Reading and writing video: exact frames by timestamp, and a clear refusal for every kind of broken file."""

from __future__ import annotations

import io
import resource
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from factorjepa.errors import StorageError, VideoError
from factorjepa.video import Frames, frame_index, probe, read_frames, write_video

LEVELS = 8  # grey steps between neighbouring frames; far more than H.264 loses on a flat picture


def numbered(count: int, height: int = 32, width: int = 48) -> list[Frames]:
    """Flat frames whose grey level is their number."""
    return [np.full((height, width, 3), LEVELS * index, np.uint8) for index in range(count)]


def numbers(frames: Frames) -> list[int]:
    return [round(float(frame.mean()) / LEVELS) for frame in frames]


def noisy(count: int) -> list[Frames]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, (48, 64, 3), dtype=np.uint8) for _ in range(count)]


def encode(path: Path, frames: Sequence[Frames], pts: Sequence[int], codec: str = "libx264", **options: str) -> None:
    """A video with explicit timestamps in units of 1/100 s, as cameras with variable rates write them."""
    with av.open(str(path), "w", container_options=options) as container:
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, 100)
        for frame, at in zip(frames, pts, strict=True):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts, picture.time_base = at, Fraction(1, 100)
            container.mux(stream.encode(picture))
        container.mux(stream.encode())


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("video") / "clip.mp4"
    write_video(path, numbered(30), fps=12)
    return path


def test_frames_come_back_at_their_own_times(clip: Path) -> None:
    assert numbers(read_frames(clip, np.arange(30) / 12)) == list(range(30))
    assert numbers(read_frames(clip, np.array([0.02, 0.51, 1.49, 2.45]))) == [0, 6, 17, 29]


def test_a_time_may_repeat_and_may_start_late(clip: Path) -> None:
    assert numbers(read_frames(clip, np.array([2.0, 2.0, 2.2]))) == [24, 24, 26]


def test_bytes_in_memory_read_like_the_file(clip: Path) -> None:
    times = np.array([0.3, 1.0, 2.1])
    memory = io.BytesIO(clip.read_bytes())
    np.testing.assert_array_equal(read_frames(memory, times), read_frames(clip, times))
    assert probe(memory) == probe(clip)  # an open file may be read more than once


def test_probe_reports_the_header(clip: Path) -> None:
    info = probe(clip)
    assert (info.width, info.height, info.fps, info.frames, info.codec) == (48, 32, 12.0, 30, "h264")
    assert info.seconds == pytest.approx(2.5)


@pytest.mark.parametrize("fps", [10.0, 12.0, 24.0, 25.0, 30.0])
def test_frame_index_agrees_with_what_is_decoded(tmp_path: Path, fps: float) -> None:
    path = tmp_path / "clip.mp4"
    write_video(path, numbered(30), fps)
    times = np.arange(0, 30 / fps - 0.01, 0.25)
    assert numbers(read_frames(path, times)) == frame_index(times, fps).tolist()


def test_equal_frames_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, noisy(10), fps=10)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


@pytest.mark.parametrize("name", ["variable.mp4", "variable.mkv"])
def test_variable_frame_rate_is_read_by_timestamp(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    encode(path, numbered(6), pts=[0, 4, 50, 60, 100, 180])
    assert numbers(read_frames(path, np.array([0.0, 0.3, 0.49, 0.52, 0.99, 1.5, 1.79]))) == [0, 1, 1, 2, 3, 4, 4]


def test_a_stream_that_starts_late_counts_from_its_first_frame(tmp_path: Path) -> None:
    path = tmp_path / "late.mkv"
    encode(path, numbered(4), pts=[300, 310, 320, 330])
    assert numbers(read_frames(path, np.array([0.0, 0.15, 0.25]))) == [0, 1, 2]


def test_another_codec_in_another_container_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.avi"
    encode(path, numbered(8), pts=range(0, 32, 4), codec="mpeg4")
    assert probe(path).codec == "mpeg4"
    assert numbers(read_frames(path, np.array([0.0, 0.12]))) == [0, 3]


def broken(kind: str, folder: Path) -> Path:
    path = folder / f"{kind}.mp4"
    good = folder / "good.mp4"
    write_video(good, noisy(24), fps=12)
    data = good.read_bytes()
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "header cut off":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "text":
        path.write_text("this is not a video\n" * 100)
    elif kind == "unknown codec":
        path.write_bytes(data.replace(b"avc1", b"zzzz"))
    elif kind == "playlist":
        path.write_text(f"ffconcat version 1.0\nfile '{good.name}'\n")
    elif kind == "audio only":
        with av.open(str(path), "w") as container:
            stream = container.add_stream("aac", rate=16_000)
            sound = av.AudioFrame.from_ndarray(np.zeros((1, 16_000), np.float32), format="fltp", layout="mono")
            sound.sample_rate = 16_000
            container.mux(stream.encode(sound))
            container.mux(stream.encode())
    elif kind == "zero duration":
        with av.open(str(path), "w", container_options={"movflags": "empty_moov+frag_keyframe"}) as container:
            stream = container.add_stream("libx264", rate=12)
            stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
            container.start_encoding()
    return path


REFUSALS = {
    "missing": "no such file",
    "empty": r"is empty \(0 bytes\)",
    "header cut off": "cannot be opened as a video",
    "text": "cannot be opened as a video",
    "playlist": "cannot be opened as a video",
    "unknown codec": "codec is not known",
    "audio only": "no video stream",
    "zero duration": "zero duration",
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_broken_file_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    path = broken(kind, tmp_path)
    with pytest.raises(VideoError, match=REFUSALS[kind]) as refused:
        probe(path)
    assert str(path) in str(refused.value)
    with pytest.raises(VideoError):
        read_frames(path, np.array([0.0, 0.5]))
    if path.exists():
        with pytest.raises(VideoError, match=r"^clip 'x': "):
            probe(io.BytesIO(path.read_bytes()), name="clip 'x'")


def test_a_file_cut_in_its_pictures_is_refused_but_its_whole_part_reads(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.mp4", tmp_path / "cut.mp4"
    encode(whole, noisy(40), pts=range(0, 400, 10), movflags="frag_keyframe+empty_moov", frag_duration="500000")
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    np.testing.assert_array_equal(read_frames(cut, np.array([0.0, 0.5])), read_frames(whole, np.array([0.0, 0.5])))
    with pytest.raises(VideoError, match=r"cut\.mp4: (ends before|damaged near)"):
        read_frames(cut, np.array([0.0, 3.9]))


def test_damaged_pictures_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.mp4"
    write_video(path, noisy(24), fps=12)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 3000] = np.random.default_rng(0).bytes(3000)
    path.write_bytes(data)
    with pytest.raises(VideoError, match="damaged"):
        read_frames(path, np.arange(24) / 12)


def test_random_damage_ends_in_frames_or_in_a_video_error(tmp_path: Path) -> None:
    """Anything else that escapes here (it was a UnicodeDecodeError from a bent tag) would stop a loader that skips."""
    path = tmp_path / "clip.mp4"
    write_video(path, noisy(12), fps=12)
    data, rng = path.read_bytes(), np.random.default_rng(5)
    header = data.index(b"moov")
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for position in rng.integers(header, len(data), 4):
            damaged[position] = rng.integers(256)
        try:
            assert read_frames(io.BytesIO(damaged), np.arange(12) / 12).shape[0] == 12
        except VideoError:
            refused += 1
    assert 100 < refused < 300


def test_a_time_after_the_end_is_refused(clip: Path) -> None:
    with pytest.raises(VideoError, match=r"ends before 2\.60 s"):
        read_frames(clip, np.array([2.4, 2.6]))


@pytest.mark.parametrize("times", [[], [-0.1], [1.0, 0.5], [float("nan")], [0.0, float("nan")]])
def test_times_must_ascend_from_zero(clip: Path, times: list[float]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        read_frames(clip, np.array(times))


def test_a_relative_name_with_a_colon_is_a_file(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "http:x.mp4").write_bytes(clip.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert probe(Path("http:x.mp4")).frames == 30


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "no frames"),
        ([np.zeros((31, 48, 3), np.uint8)], "even sides"),
        ([np.zeros((32, 48, 3), np.float32)], "uint8"),
        ([np.zeros((32, 48, 3), np.uint8), np.zeros((16, 48, 3), np.uint8)], "sizes must not change"),
    ],
)
def test_unwritable_frames_leave_nothing_behind(tmp_path: Path, frames: list[Frames], message: str) -> None:
    with pytest.raises(VideoError, match=message):
        write_video(tmp_path / "clip.mp4", frames, fps=12)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_explained_and_leaves_nothing_behind(tmp_path: Path) -> None:
    script = (
        "import resource, numpy as np; from pathlib import Path; from factorjepa.video import write_video\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, {resource.RLIM_INFINITY}))\n"
        "rng = np.random.default_rng(0)\n"
        "frames = [rng.integers(0, 256, (96, 96, 3), dtype=np.uint8) for _ in range(40)]\n"
        f"write_video(Path({str(tmp_path / 'clip.mp4')!r}), frames, 12)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert f"{StorageError.__name__}: {tmp_path / 'clip.mp4'}: the disk is full" in run.stderr
    assert list(tmp_path.iterdir()) == []
