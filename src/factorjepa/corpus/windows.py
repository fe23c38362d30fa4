"""A window: 16 frames at 4 fps out of one clip, as the network sees them (appendix, Temporal sampling).

Which window a clip gives is drawn from (replication, clip_id) alone, so every method sees the same frames in one
replication, in whatever order and by whichever worker they are read.

Spatially, the largest centred square of the picture is kept, resized to `size` and normalised: see `factorjepa.pixels`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..config import Settings
from ..errors import CorpusError
from ..pixels import centre_part
from ..seeding import stream
from ..words import counted
from .manifest import Clip

_ROUNDING = 1e-6  # seconds; t_end - t_start of a clip of exactly one window may come out a hair short


class WindowSpec(Settings):
    """The shape of a window; the paper's is 16 frames at 4 fps, 384 px."""

    frames: int = Field(default=16, ge=1)  # T
    fps: float = Field(default=4.0, gt=0, allow_inf_nan=False)  # frames per second of the window, not of the video
    size: int = Field(default=128, ge=2)  # pixels, H = W

    @property
    def seconds(self) -> float:
        """The stretch of the clip that the window covers: its last frame, too, is shown for 1 / fps."""
        return self.frames / self.fps


def window_times(clip: Clip, spec: WindowSpec, replication: int = 0) -> NDArray[np.float64]:
    """When the window's frames are shown, `[T]` seconds from the clip's first frame.

    The start is one of the clip's own frames, drawn evenly among those after which the whole window still fits.
    """
    refuse_unfit([clip], spec)
    starts = math.floor((clip.seconds - spec.seconds + _ROUNDING) * clip.fps) + 1
    start = int(stream(replication, "window", clip.clip_id).integers(starts)) / clip.fps
    return start + np.arange(spec.frames, dtype=np.float64) / spec.fps


def refuse_unfit(clips: Iterable[Clip], spec: WindowSpec) -> None:
    """Raise an error that names the first clip shorter or slower than the window, and counts the others."""
    clips = list(clips)
    if short := [clip for clip in clips if clip.seconds + _ROUNDING < spec.seconds]:
        raise CorpusError(
            f"clip {short[0].clip_id!r}: {short[0].seconds:.3g} s is shorter than the {spec.seconds:g} s window "
            f"({counted(spec.frames, 'frame')} at {spec.fps:g} fps; use fewer frames or leave the clip out)"
            f"{_others(short)}"
        )
    if slow := [clip for clip in clips if clip.fps * (1 + _ROUNDING) < spec.fps]:
        raise CorpusError(
            f"clip {slow[0].clip_id!r}: shows {slow[0].fps:g} frames a second, and a window of {spec.fps:g} would "
            f"repeat them: set fps to {math.floor(slow[0].fps * 1000) / 1000:g} or less{_others(slow)}"
        )


def _others(clips: Sequence[Clip]) -> str:
    more = len(clips) - 1
    return f"; so {'is' if more == 1 else 'are'} {counted(more, 'other clip')}" if more else ""


def centre_square(width: int, height: int) -> tuple[int, int, int]:
    """Left, top and side of the square that is kept: maps annotations into the window, `(x - left) * size / side`."""
    left, top, side, _ = centre_part(width, height)
    return left, top, side
