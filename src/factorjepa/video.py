"""Video in and out through PyAV: H.264 files written whole, frames read by timestamp.

Frames are `uint8 [T, H, W, 3]` RGB arrays everywhere in this project.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from .errors import VideoError
from .storage import atomic_path

Frames = NDArray[np.uint8]

# One thread and no version strings: the same frames give the same bytes. A keyframe each second keeps seeks short.
_X264 = {"preset": "veryfast", "crf": "20", "threads": "1", "bf": "0"}
_TICKS = 90_000  # time base that holds 4, 8, 10, 12, 24, 25 and 30 fps exactly


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
    count = 0
    with atomic_path(path) as temporary, av.open(
        str(temporary), "w", format="mp4", container_options={"fflags": "+bitexact"}
    ) as container:
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001), options=dict(_X264))
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = max(1, round(fps))
        stream.codec_context.flags |= av.codec.context.Flags.bitexact
        for frame in frames:
            if count == 0:
                stream.height, stream.width = frame.shape[:2]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            count += 1
        if count == 0:
            raise VideoError(f"{path}: no frames to write")
        container.mux(stream.encode())
    return count


def probe(path: Path) -> VideoInfo:
    """Read the header of a video; a file that is missing, empty, not a video or of zero length is an error."""
    with _opened(path) as container:
        stream = container.streams.video[0]
        rate = stream.average_rate or stream.guessed_rate
        if rate is None or rate <= 0 or not stream.width or not stream.height:
            raise VideoError(f"{path}: the header gives no frame rate or size; re-encode it, for example to H.264 mp4")
        seconds = _duration(container, stream)
        if seconds <= 0:
            raise VideoError(f"{path}: has zero duration; remove it or record it again")
        return VideoInfo(
            stream.width, stream.height, float(rate), seconds, stream.frames, stream.codec_context.name
        )


def read_frames(path: Path, times: NDArray[np.float64]) -> Frames:
    """Decode the frames shown at `times` (seconds from the first frame, ascending) as `[T, H, W, 3]`.

    A frame is shown from its own timestamp until the next one's. A time after the last decodable frame is an error:
    a truncated file must not turn into repeated frames.
    """
    wanted = np.asarray(times, dtype=np.float64)
    if wanted.ndim != 1 or wanted.size == 0 or np.any(np.diff(wanted) < 0) or wanted[0] < 0:
        raise ValueError(f"times must be a non-empty ascending list of seconds >= 0, got {wanted!r}")
    picked: list[Frames] = []
    with _opened(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"  # loaders run one process per core already
        base = float(stream.time_base) if stream.time_base else 1.0 / _TICKS
        origin = (stream.start_time or 0) * base
        tolerance = 0.25 / float(stream.average_rate or 25)
        try:
            container.seek(int((origin + wanted[0]) / base), stream=stream, backward=True)
            current: av.VideoFrame | None = None
            last_step = 1.0 / float(stream.average_rate or 25)
            for frame in container.decode(stream):
                if frame.pts is None:
                    continue
                shown_at = frame.pts * base - origin
                while len(picked) < wanted.size and current is not None and wanted[len(picked)] < shown_at - tolerance:
                    picked.append(current.to_ndarray(format="rgb24"))
                if len(picked) == wanted.size:
                    break
                current = frame
            if current is not None:
                end = current.pts * base - origin + last_step if current.pts is not None else 0.0
                while len(picked) < wanted.size and wanted[len(picked)] < end + tolerance:
                    picked.append(current.to_ndarray(format="rgb24"))
        except av.FFmpegError as error:
            raise VideoError(f"{path}: damaged near {_reached(wanted, picked)} s ({error}); re-encode or remove it") from None
    if len(picked) < wanted.size:
        raise VideoError(
            f"{path}: ends before {wanted[len(picked)]:.2f} s (truncated?); remove it or produce it again"
        )
    return np.stack(picked)


def _opened(path: Path) -> av.container.InputContainer:
    path = Path(path)
    if not path.is_file():
        raise VideoError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise VideoError(f"{path}: is empty (0 bytes); remove it or produce it again")
    try:
        container = av.open(str(path))
    except (av.FFmpegError, OSError) as error:
        raise VideoError(f"{path}: cannot be opened as a video ({error})") from None
    if not container.streams.video:
        container.close()
        raise VideoError(f"{path}: has no video stream (audio only?)")
    return container


def _duration(container: av.container.InputContainer, stream: av.VideoStream) -> float:
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return container.duration / av.time_base if container.duration else 0.0


def _reached(wanted: NDArray[np.float64], picked: list[Frames]) -> str:
    return f"{wanted[min(len(picked), wanted.size - 1)]:.2f}"
