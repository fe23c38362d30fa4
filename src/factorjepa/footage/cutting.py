"""From frames of a source to clips: resampled by timestamp, gathered shot by shot, and each shot divided wholly.

A long shot is cut as it comes, so that no more than some 18 seconds of pictures are held: a clip of the usual length is
let go as soon as what follows in the shot is certainly long enough for another. The rest of a shot is one clip, or two
halves if it is too long for one. So every shot of at least the minimum ends up in clips, to the last frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..video import Frames
from .settings import ClipSettings

EARLY = 0.001  # seconds; as in `video`: timestamps are rounded, and frame k must be found at k / fps


@dataclass(frozen=True)
class Sampled:
    """A picture of the resampled source: at second `number / fps`, showing frame `index` of the source."""

    number: int
    index: int
    picture: Frames


class Sampler:
    """Which frame of the source is shown at each k / fps."""

    def __init__(self, fps: float) -> None:
        self._fps = fps
        self._next = 0

    def shown(self, at: float, until: float) -> range:
        """The numbers k for which the frame shown from `at` until `until` is the one; call in order of time."""
        first = max(self._next, math.ceil((at - EARLY) * self._fps))
        self._next = max(first, math.ceil((until - EARLY) * self._fps))
        return range(first, self._next)


@dataclass(frozen=True)
class Span:
    """A clip to be: its pictures, and what the shot shows around it."""

    shot: int
    clip: int
    first: int  # number of its first picture in the resampled source
    frames: list[Sampled]  # with what comes before and after
    before: int  # how many of them come before
    length: int  # how many of them are the clip

    @property
    def last(self) -> int:
        return self.first + self.length


@dataclass(frozen=True)
class ShortShot:
    """A shot that no clip can be cut from."""

    shot: int
    first: int
    length: int

    @property
    def last(self) -> int:
        return self.first + self.length


class ClipCutter:
    """Push pictures, tell it of boundaries, and clips come out; nothing of two shots is ever in one."""

    def __init__(self, settings: ClipSettings) -> None:
        fps = settings.fps
        self._least, self._usual = math.ceil(settings.min_seconds * fps), round(settings.seconds * fps)
        self._most, self._margin = math.floor(settings.max_seconds * fps), round(settings.margin * fps)
        # A boundary is known late, by less than a second of footage that is fast enough to be taken.
        self._ahead = max(self._margin, math.ceil(fps))
        self._held: list[Sampled] = []  # of this shot: the margin before the next clip, and what is not given out yet
        self._before = 0  # how many of them are that margin
        self._shot = self._clip = 0

    def push(self, picture: Sampled) -> Iterator[Span]:
        self._held.append(picture)
        if len(self._held) - self._before >= self._usual + self._least + self._ahead:
            yield self._give(self._usual)

    def boundary(self, index: int) -> Iterator[Span | ShortShot]:
        """A shot begins with frame `index` of the source."""
        split = next((k for k, held in enumerate(self._held) if held.index >= index), len(self._held))
        following = self._held[split:]
        del self._held[split:]
        yield from self._close()
        self._held = following

    def end(self) -> Iterator[Span | ShortShot]:
        """The source is over."""
        yield from self._close()

    def _close(self) -> Iterator[Span | ShortShot]:
        left = len(self._held) - self._before
        if 0 < left < self._least and self._clip == 0:
            yield ShortShot(self._shot, self._held[0].number, left)
        elif left > self._most:
            yield self._give(left // 2)
            yield self._give(left - left // 2)
        elif left:
            yield self._give(left)
        if left or self._clip:
            self._shot += 1
        self._held, self._before, self._clip = [], 0, 0

    def _give(self, length: int) -> Span:
        until = self._before + length
        frames = self._held[: until + self._margin]
        span = Span(self._shot, self._clip, self._held[self._before].number, frames, self._before, length)
        kept = max(0, until - self._margin)
        self._held, self._before = self._held[kept:], until - kept
        self._clip += 1
        return span
