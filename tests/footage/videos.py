"""Small source videos as cameras and accidents make them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import av
import cv2
import numpy as np

from factorjepa.footage.settings import ClipSettings, IngestSettings
from factorjepa.video import Frames

FPS = 8.0
SETTINGS = IngestSettings(clips=ClipSettings(fps=FPS, short_side=64))


def street(seed: int, count: int, width: int = 96, height: int = 64) -> Iterator[Frames]:
    """A textured ground that moves under textured boxes."""
    ground = _ground(seed, width + 2 * count, height)
    rng = np.random.default_rng(seed)
    boxes = rng.uniform((0, 0, -4, -1), (width, height, 4, 1), (6, 4))
    colours = rng.integers(0, 256, (6, 3))
    for step in range(count):
        frame = ground[:, step : step + width].copy()
        for (x, y, dx, dy), colour in zip(boxes, colours, strict=True):
            left, top = int(x + dx * step) % width, int(y + dy * step) % height
            frame[top : top + height // 6, left : left + width // 8] = colour
        yield frame


@lru_cache
def _ground(seed: int, width: int, height: int) -> Frames:
    rng = np.random.default_rng(seed)
    rough = rng.integers(0, 256, (height // 4, width // 4 + 1, 3), dtype=np.uint8)
    large = cv2.resize(rough, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.int16)
    fine = rng.integers(-25, 25, (height, width, 3), dtype=np.int16)
    return np.asarray(np.clip(large + fine, 0, 255), dtype=np.uint8)


def numbered(count: int, height: int = 64, width: int = 96) -> list[Frames]:
    """Flat frames whose grey level is their number, modulo 60."""
    return [np.full((height, width, 3), 10 + 4 * (index % 60), np.uint8) for index in range(count)]


def number_of(picture: Frames) -> int:
    return round((float(picture.mean()) - 10) / 4)


def encode(
    path: Path,
    frames: Iterable[Frames],
    times: Sequence[float] | None = None,
    fps: float = 12.0,
    codec: str = "libx264",
    aspect: Fraction | None = None,
    key_every: int = 12,
    **options: str,
) -> Path:
    """A video with the frames at `times` (seconds), or evenly at `fps`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=round(fps), options={"threads": "1", **options})
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = key_every
        stream.codec_context.time_base = Fraction(1, 1000) if times is not None else Fraction(1, round(fps))
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        for index, frame in enumerate(frames):
            if index == 0:
                stream.height, stream.width = frame.shape[:2]
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts = index if times is None else round(1000 * times[index])
            picture.time_base = stream.codec_context.time_base
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return path


def sound(path: Path, seconds: float = 7.0) -> Path:
    """A file with audio only."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        for start in range(0, int(8000 * seconds), 1024):
            wave = np.sin(np.arange(start, start + 1024) / 20).astype(np.float32)[None]
            frame = av.AudioFrame.from_ndarray(wave, format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 8000, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def turn(path: Path, degrees: int) -> Path:
    """Say in an mp4 that it is to be shown turned clockwise, as phones do: the matrix of its track header."""
    cosine, sine = {90: (0, 1), 180: (-1, 0), 270: (0, -1)}[degrees]
    matrix = struct.pack(">9i", cosine << 16, sine << 16, 0, -sine << 16, cosine << 16, 0, 0, 0, 1 << 30)
    data = bytearray(path.read_bytes())
    header = data.index(b"tkhd") + 4
    data[header + 40 : header + 76] = matrix
    path.write_bytes(data)
    return path


def corner(seed: int, count: int, width: int = 96, height: int = 64) -> Iterator[Frames]:
    """A fixed camera: boxes pass in front of a street that stays."""
    background = next(street(seed, 1, width, height))
    rng = np.random.default_rng(seed)
    passers = rng.uniform((0, 0, 0.5), (width, height - 8, 2), (4, 3))
    for step in range(count):
        frame = background.copy()
        for x, y, speed in passers:
            left = int(x + speed * step) % (width - 6)
            frame[int(y) : int(y) + 8, left : left + 6] = 255 - background[int(y), left]
        yield frame


def seconds(count: float) -> int:
    """So many frames at `encode`'s default rate."""
    return round(12 * count)


def still(seed: int, count: int) -> list[Frames]:
    return [next(street(seed, 1))] * count


def make_footage(folder: Path) -> Path:
    """A folder as a photographer leaves it: good takes, poor ones, copies, sound, notes."""
    agra, pune = folder / "Agra" / "walk" / "s01", folder / "Pune" / "drive" / "s01"
    encode(agra / "a.mp4", street(1, seconds(21)))
    encode(agra / "copy of a.mkv", [cv2.resize(one, (80, 54)) for one in street(1, seconds(21))], crf="30")
    shots = [*corner(3, seconds(8)), *corner(4, seconds(2)), *corner(5, seconds(7))]
    encode(agra / "three shots.mp4", shots)
    encode(agra / "still.mp4", still(6, seconds(8)))
    (agra / "notes.txt").write_text("rain after lunch\n")
    encode(pune / "b.mp4", corner(7, seconds(9)))
    encode(pune / "blurred.mp4", (cv2.GaussianBlur(one, (0, 0), 4) for one in corner(8, seconds(7))))
    encode(pune / "dark.mp4", (one // 200 for one in corner(8, seconds(7))))
    cut = encode(pune / "cut.ts", street(9, seconds(18)))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size * 6 // 10])
    (pune / "empty.mp4").write_bytes(b"")
    sound(pune / "talk.m4a")
    cv2.imwrite(str(pune / "photo.jpg"), next(street(1, 1)))
    return folder
