"""Video in and out through PyAV: H.264 files written whole, frames read by timestamp.

Frames are `uint8 [T, H, W, 3]` RGB arrays everywhere in this project. A video is read from a path or from an open
binary file (a member of a tar shard, bytes in memory); every refusal is a `VideoError` that names it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from .errors import VideoError
from .storage import atomic_path

Frames = NDArray[np.uint8]
VideoSource = Path | BinaryIO

# The same frames give the same bytes: one thread, no version strings, and no look-ahead. With x264's look-ahead (and
# the weighted prediction and macroblock tree that hang on it) one in a hundred encodings of small frames differed.
# A keyframe each second keeps seeks short.
_X264 = {
    "preset": "veryfast",
    "crf": "20",
    "threads": "1",
    "bf": "0",
    "x264-params": "sync-lookahead=0:rc-lookahead=0:weightp=0:mbtree=0:lookahead-threads=1",
}

# Only containers that hold their own pictures, only from disk: a playlist that calls itself .mp4 would otherwise make
# the decoder open whatever file or address it names.
_READING = {
    "protocol_whitelist": "file",
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,flv,ogg,asf,h264,hevc,wav,mp3,aac",
}

# A frame counts as shown this many seconds early: containers round timestamps (Matroska to 1 ms), and a time that was
# computed as k / fps must still find frame k.
_EARLY = 0.001


@dataclass(frozen=True)
class VideoInfo:
    """What the container says of its first video stream."""

    width: int
    height: int
    fps: float
    seconds: float
    frames: int  # as stated by the container; 0 where it does not say
    codec: str


def write_video(path: Path, frames: Iterable[Frames], fps: float) -> int:
    """Encode `frames` (each `[H, W, 3]`, even sides) as H.264 mp4, atomically; return how many were written."""
    if not (math.isfinite(fps) and fps > 0):
        raise VideoError(f"{path}: cannot be written at {fps} frames per second; the rate must be above 0")
    count = 0
    with atomic_path(path) as temporary, _encoding(path), _created(temporary) as container:
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001), options=dict(_X264))
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = max(1, round(fps))
        stream.codec_context.flags |= av.codec.context.Flags.bitexact
        for frame in frames:
            if count == 0:
                shape = _writable(path, frame)
                stream.height, stream.width = shape[:2]
            elif frame.shape != shape:
                raise VideoError(
                    f"{path}: frame {count} is {frame.shape}, the first was {shape}; sizes must not change"
                )
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            count += 1
        if count == 0:
            raise VideoError(f"{path}: no frames to write")
        container.mux(stream.encode())
    return count


def probe(source: VideoSource, name: str | None = None) -> VideoInfo:
    """Read the header of a video; a file that is missing, empty, not a video or of zero length is an error."""
    name = name or _name_of(source)
    with opened(source, name) as (container, stream):
        rate = stream.average_rate or stream.guessed_rate
        if rate is None or rate <= 0 or not stream.width or not stream.height:
            raise VideoError(f"{name}: the header gives no frame rate or size; re-encode it, for example to H.264 mp4")
        seconds = _duration(container, stream)
        if seconds <= 0:
            raise VideoError(f"{name}: has zero duration; remove it or record it again")
        return VideoInfo(stream.width, stream.height, float(rate), seconds, stream.frames, stream.codec_context.name)


def read_frames(source: VideoSource, times: NDArray[np.float64], name: str | None = None) -> Frames:
    """Decode the frames shown at `times` (seconds from the first frame, ascending) as `[T, H, W, 3]`.

    A frame is shown from its own timestamp until the next one's, so variable frame rates need no special case. A time
    after the last decodable frame is an error: a truncated file must not turn into repeated frames.
    """
    wanted = np.asarray(times, dtype=np.float64)
    if wanted.ndim != 1 or wanted.size == 0 or not np.all(np.diff(wanted) >= 0) or not 0 <= wanted[0] < math.inf:
        raise ValueError(f"times must be a non-empty ascending list of seconds >= 0, got {wanted!r}")
    name = name or _name_of(source)
    picked: list[Frames] = []
    converter = VideoReformatter()  # one for all: setting one up takes longer than converting a small picture
    with opened(source, name) as (container, stream):
        try:
            shown: _Shown | None = None
            for following in _from(container, stream, float(wanted[0]), name):
                while shown is not None and len(picked) < wanted.size and wanted[len(picked)] < following.start:
                    picked.append(shown.picture(name, converter))
                if len(picked) == wanted.size:
                    break
                shown = following
            while shown is not None and len(picked) < wanted.size and wanted[len(picked)] < shown.end:
                picked.append(shown.picture(name, converter))
        except av.FFmpegError as error:
            at = f"{wanted[min(len(picked), wanted.size - 1)]:.2f} s"
            raise VideoError(f"{name}: damaged near {at} ({reason_of(error)}); re-encode or remove it") from None
    if len(picked) < wanted.size:
        missing = f"{wanted[len(picked)]:.2f} s"
        raise VideoError(f"{name}: ends before {missing} (truncated?); remove it or produce it again")
    if len({picture.shape for picture in picked}) > 1:
        raise VideoError(f"{name}: the picture size changes within the file; re-encode it to one size")
    return np.stack(picked)


def frame_index(times: NDArray[np.float64], fps: float) -> NDArray[np.int64]:
    """Which frame of a constant-rate video `read_frames` gives for each of `times`: aligns per-frame annotations."""
    return np.floor((np.asarray(times, dtype=np.float64) + _EARLY) * fps).astype(np.int64)


@dataclass(frozen=True)
class _Shown:
    """A decoded frame and when it is on screen, in seconds from the first frame."""

    start: float
    end: float
    frame: av.VideoFrame

    def picture(self, name: str, converter: VideoReformatter) -> Frames:
        if self.frame.is_corrupt:
            raise VideoError(
                f"{name}: the frame at {max(0.0, self.start):.2f} s is damaged; re-encode or remove the file"
            )
        return np.asarray(converter.reformat(self.frame, format="rgb24", threads=1).to_ndarray(), dtype=np.uint8)


def _from(container: av.container.InputContainer, stream: av.VideoStream, start: float, name: str) -> Iterator[_Shown]:
    """Frames in order of display, from one shown at or before `start` on."""
    base = float(stream.time_base or Fraction(1, av.time_base))
    origin = (stream.start_time or 0) * base
    step = 1.0 / float(stream.average_rate or stream.guessed_rate or 25)
    offset = int((origin + start) / base)
    stream.thread_type = "NONE"  # loaders run one process per core already
    container.seek(offset, stream=stream, backward=True)
    first: _Shown | None = None
    untimed = False
    for frame in container.decode(stream):
        if frame.pts is None:
            untimed = True
            continue
        at = frame.pts * base - origin
        duration = (frame.duration or 0) * base or step
        shown = _Shown(at - _EARLY, at + duration, frame)
        if first is None and shown.start > start:
            # Either the index sent us too far, or the stream starts late by the decoder's delay of a frame or two.
            if start == 0 or offset == 0:
                if shown.start > 2 * step:
                    raise VideoError(f"{name}: has no frame before {at:.2f} s; re-encode it")
            else:
                yield from _from(container, stream, 0.0, name)
                return
        first = first or shown
        yield shown
    if first is None and untimed:
        raise VideoError(f"{name}: its frames carry no timestamps; put them in a container, for example mp4")


@contextlib.contextmanager
def opened(source: VideoSource, name: str) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    """The container and its first video stream, checked to be decodable."""
    if isinstance(source, (str, Path)):
        path = Path(source)
        if not path.is_file():
            raise VideoError(f"{name}: no such file")
        size = path.stat().st_size
        target: str | BinaryIO = f"file:{path.resolve()}"  # else `a:b.mp4` would be read as protocol `a`
    else:
        size = source.seek(0, io.SEEK_END)
        source.seek(0)
        target = source
    if size == 0:
        raise VideoError(f"{name}: is empty (0 bytes); remove it or produce it again")
    try:
        container = av.open(target, "r", options=dict(_READING), metadata_errors="replace")
    except (av.FFmpegError, OSError) as error:
        raise VideoError(
            f"{name}: cannot be opened as a video ({reason_of(error)}); it may be damaged or cut short"
        ) from None
    with container:
        if not container.streams.video:
            raise VideoError(f"{name}: has no video stream (audio only?)")
        stream = container.streams.video[0]
        if stream.codec_context is None:
            raise VideoError(f"{name}: its codec is not known to this FFmpeg; re-encode it, for example to H.264 mp4")
        yield container, stream


def _created(path: Path) -> av.container.OutputContainer:
    return av.open(str(path), "w", format="mp4", container_options={"fflags": "+bitexact"})


@contextlib.contextmanager
def _encoding(path: Path) -> Iterator[None]:
    """The encoder's refusals as `VideoError`; what the disk refuses stays an OSError for `atomic_path` to explain."""
    try:
        yield
    except av.FFmpegError as error:
        if error.errno is not None and error.errno in errno.errorcode:
            raise OSError(error.errno, os.strerror(error.errno)) from error
        raise VideoError(f"{path}: the encoder refused these frames ({reason_of(error)})") from None


def _writable(path: Path, frame: Frames) -> tuple[int, ...]:
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.size == 0:
        raise VideoError(f"{path}: frames must be uint8 [H, W, 3], got {frame.dtype} {list(frame.shape)}")
    if frame.shape[0] % 2 or frame.shape[1] % 2:
        raise VideoError(f"{path}: H.264 needs even sides, got {frame.shape[1]}x{frame.shape[0]}; crop one pixel")
    return frame.shape


def _duration(container: av.container.InputContainer, stream: av.VideoStream) -> float:
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return container.duration / av.time_base if container.duration else 0.0


def _name_of(source: VideoSource) -> str:
    return str(source) if isinstance(source, (str, Path)) else str(getattr(source, "name", "video in memory"))


def reason_of(error: Exception) -> str:
    """FFmpeg's own words, without the error number and the temporary name around them."""
    return getattr(error, "strerror", None) or str(error)
