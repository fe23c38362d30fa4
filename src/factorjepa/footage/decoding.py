"""A source video as upright, progressive, square-pixel frames with their times; decoded once, packet by packet.

Damage does not end a source: what cannot be decoded is left out up to the next key frame, and the frame after it says
that something is missing before it. Times are seconds from the first frame shown.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from statistics import median

import av
import av.filter
import numpy as np
from av.stream import Disposition
from av.video.reformatter import VideoReformatter

from ..errors import VideoError
from ..video import Frames, opened, reason_of
from ..words import counted
from .settings import LimitSettings

_DEINTERLACER = "bwdif"
_LONGEST = 1.0  # seconds a single frame may claim to last
_STEADY = 12  # steps between frames that tell whether the rate is constant
_SKIPPED = 2.5  # steps at once: at least two frames are missing


@dataclass(frozen=True)
class Header:
    """What a file says of its video before anything is decoded."""

    codec: str
    width: int
    height: int
    fps: float  # on average, as stated; 0 where it is not
    seconds: float  # as stated; 0 where it is not


@dataclass(frozen=True)
class Decoded:
    """A frame of the source: the how-manyeth it is, and when it is shown."""

    index: int
    at: float
    duration: float
    frame: av.VideoFrame
    broken: bool  # frames are missing, or could not be decoded, before this one
    deinterlaced: bool  # fields were found up to here


@dataclass
class Faults:
    """What went wrong on the way, counted while the frames are read."""

    packets: int = 0  # could not be decoded
    frames: int = 0  # damaged, or decoded from what was not there
    untimed: int = 0  # without a usable time
    ended: str = ""  # why reading stopped before the end

    def __str__(self) -> str:
        parts = {"undecodable packet": self.packets, "damaged frame": self.frames, "untimed frame": self.untimed}
        return "; ".join(
            [counted(count, what) for what, count in parts.items() if count] + [self.ended] * bool(self.ended)
        )


def read_header(path: Path, name: str, limits: LimitSettings) -> Header:
    """What the container says; a file that cannot become clips is refused with the reason."""
    with opened(path, name) as (container, stream):
        if stream.disposition & Disposition.attached_pic:
            raise VideoError("audio only, with a cover picture")
        width, height = stream.width, stream.height
        if not width or not height:
            raise VideoError("the header gives no picture size")
        if width * height > limits.pixels:
            raise VideoError(f"{width}x{height} pixels are more than limits.pixels={limits.pixels} allows")
        rate = stream.average_rate or stream.guessed_rate
        seconds = _lasting(container)
        if stream.duration is not None and stream.time_base is not None:
            seconds = float(stream.duration * stream.time_base)
        fps = float(rate) if rate else 0.0
        if 0 < fps < limits.min_fps:
            raise VideoError(f"{fps:.3g} frames per second are fewer than limits.min_fps={limits.min_fps:g}")
        return Header(stream.codec_context.name, width, height, fps, max(0.0, seconds))


def _lasting(container: av.container.InputContainer) -> float:
    """Seconds of the file, as stated. Matroska states when the last frame ends, whenever the first begins."""
    stated, start = container.duration or 0, container.start_time or 0
    if "matroska" in container.format.name and 0 < start < stated:
        stated -= start
    return stated / av.time_base


@dataclass
class SourceVideo:
    """A source file, to be read once from beginning to end.

    By one thread: what FFmpeg makes of damaged packets depends on how many decode them, and a corpus must not depend on
    the machine.
    """

    path: Path
    name: str
    faults: Faults = field(default_factory=Faults)
    deinterlaced: bool = False
    aspect: Fraction | None = None  # of a pixel, width over height; known once a frame is

    def frames(self) -> Iterator[Decoded]:
        """Every frame that can be decoded, in order of display, no two at the same time."""
        with opened(self.path, self.name) as (container, stream):
            stream.thread_type = "NONE"
            stream.codec_context.thread_count = 1
            self.aspect = stream.sample_aspect_ratio
            clock, pace = _Clock(stream), _Pace()
            index, origin, last = 0, math.nan, -math.inf
            broken = False
            for frame in self._progressive(self._decodable(container, stream), stream):
                if frame is None:
                    broken = True
                    continue
                at = clock.time(frame)
                if at is None or at <= last:
                    self.faults.untimed += 1
                    continue
                if index == 0:
                    origin = at
                elif pace.skips(at - last):
                    broken = True
                last = at
                yield Decoded(index, at - origin, clock.duration(frame), frame, broken and index > 0, self.deinterlaced)
                index, broken = index + 1, False
        if index == 0:
            why = str(self.faults)
            raise VideoError("no frame of it can be decoded" + (f" ({why})" if why else ""))

    def _decodable(
        self, container: av.container.InputContainer, stream: av.VideoStream
    ) -> Iterator[av.VideoFrame | None]:
        """Frames as they are decoded; None where some are lost. After a loss, nothing before the next key frame."""
        until_key = False
        packets = iter(container.demux(stream))
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except av.FFmpegError as error:
                self.faults.ended = f"reading stopped: {reason_of(error)}"
                return
            try:
                frames = packet.decode()
            except av.FFmpegError:
                if packet.size:
                    self.faults.packets += 1
                    until_key = True
                    yield None
                continue
            for frame in frames:
                assert isinstance(frame, av.VideoFrame)
                until_key = until_key and not frame.key_frame
                if frame.is_corrupt or until_key:
                    self.faults.frames += 1
                    until_key = True
                    yield None
                else:
                    yield frame

    def _progressive(
        self, frames: Iterator[av.VideoFrame | None], stream: av.VideoStream
    ) -> Iterator[av.VideoFrame | None]:
        """Fields become frames from the first interlaced frame on; the filter leaves progressive ones as they are."""
        graph: av.filter.Graph | None = None
        shape: tuple[int, int, str] | None = None
        for frame in frames:
            if frame is not None and shape is None:
                shape = frame.width, frame.height, frame.format.name
            if frame is not None and (frame.width, frame.height, frame.format.name) != shape:
                raise VideoError(f"the picture changes from {shape} to {frame.width}x{frame.height} within the file")
            if frame is not None and frame.interlaced_frame and graph is None:
                graph = _deinterlacing(frame, stream)
                self.deinterlaced = True
            if graph is None:
                yield frame
            elif frame is None:
                yield from _flushed(graph)
                graph = None  # made anew at the next interlaced frame: none is woven of fields across the gap
                yield None
            else:
                graph.push(frame)
                yield from _available(graph)
        if graph is not None:
            yield from _flushed(graph)


def _deinterlacing(frame: av.VideoFrame, stream: av.VideoStream) -> av.filter.Graph:
    graph = av.filter.Graph()
    source = graph.add_buffer(template=stream, format=frame.format, time_base=frame.time_base or stream.time_base)
    deinterlace = graph.add(_DEINTERLACER, "mode=send_frame:parity=auto:deint=interlaced")
    sink = graph.add("buffersink")
    source.link_to(deinterlace)
    deinterlace.link_to(sink)
    graph.configure()
    return graph


def _available(graph: av.filter.Graph) -> Iterator[av.VideoFrame]:
    while True:
        try:
            frame = graph.pull()
        except (av.BlockingIOError, av.EOFError):
            return
        assert isinstance(frame, av.VideoFrame)
        yield frame


def _flushed(graph: av.filter.Graph) -> Iterator[av.VideoFrame]:
    graph.push(None)
    yield from _available(graph)


class _Clock:
    """The time of a frame. Old AVI files number frames as they are stored: then the decoder's own order is better.

    As FFmpeg guesses it: whichever of the two stamps has run backwards less often.
    """

    def __init__(self, stream: av.VideoStream) -> None:
        self._step = 1.0 / float(stream.average_rate or stream.guessed_rate or 25)
        self._base = float(stream.time_base or Fraction(1, av.time_base))
        self._last = {"pts": -math.inf, "dts": -math.inf}
        self._faulty = {"pts": 0, "dts": 0}

    def time(self, frame: av.VideoFrame) -> float | None:
        stamps = {"pts": frame.pts, "dts": frame.dts}
        for name, stamp in stamps.items():
            if stamp is not None:
                self._faulty[name] += stamp <= self._last[name]
                self._last[name] = stamp
        better = "pts" if self._faulty["pts"] <= self._faulty["dts"] or stamps["dts"] is None else "dts"
        stamp = stamps[better] if stamps[better] is not None else stamps["dts"]
        base = float(frame.time_base) if frame.time_base else self._base
        return None if stamp is None else stamp * base

    def duration(self, frame: av.VideoFrame) -> float:
        base = float(frame.time_base) if frame.time_base else self._base
        stated = (frame.duration or 0) * base
        return stated if 0 < stated <= _LONGEST else self._step


class _Pace:
    """Notices frames that are missing without a word: containers skip what they cannot read.

    Only where the rate was constant so far. A camera of variable rate takes its time as it likes.
    """

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=_STEADY)

    def skips(self, step: float) -> bool:
        usual = median(self._steps) if self._steps else step
        even = sum(abs(one - usual) < 0.25 * usual for one in self._steps)
        skipped = even >= _STEADY - 2 and step > _SKIPPED * usual
        if not skipped:
            self._steps.append(step)
        return skipped


@dataclass(frozen=True)
class Framing:
    """How frames of a source become pictures of a clip: square pixels, upright, not too large, even sides."""

    width: int
    height: int  # of the picture, upright
    turns: int  # quarter turns counter-clockwise, done last
    transforms: tuple[str, ...]  # in words
    # One for all frames: to set one up, with threads of its own unless told, takes longer than to convert a picture.
    converter: VideoReformatter = field(default_factory=VideoReformatter, repr=False, compare=False)

    @classmethod
    def of(cls, frame: av.VideoFrame, aspect: Fraction | None, short_side: int) -> Framing:
        said = []
        stretch = float(aspect) if aspect and 0.1 < aspect < 10 else 1.0
        width, height = frame.width * stretch, float(frame.height)
        if stretch != 1.0:
            said.append(f"pixels of {aspect} made square")
        turns = round(frame.rotation / 90) % 4
        if turns:
            said.append(f"turned by {90 * turns} degrees")
        scale = min(1.0, short_side / min(width, height))
        even = [max(2, 2 * round(side * scale / 2)) for side in (width, height)]
        stored_w, stored_h = even[::-1] if turns % 2 else even
        if [frame.width, frame.height] != even:
            said.append(f"{frame.width}x{frame.height} resized to {stored_w}x{stored_h}")
        return cls(stored_w, stored_h, turns, tuple(said))

    def picture(self, frame: av.VideoFrame) -> Frames:
        """`[H, W, 3]` RGB."""
        width, height = (self.height, self.width) if self.turns % 2 else (self.width, self.height)
        scaled = self.converter.reformat(frame, width, height, "rgb24", interpolation="AREA", threads=1).to_ndarray()
        return np.ascontiguousarray(np.rot90(scaled, self.turns), dtype=np.uint8)
