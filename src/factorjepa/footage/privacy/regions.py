"""Where to blur: what was seen, what lies between two sightings, and a while before the first and after the last.

R: regions of a span. Boxes are left, top, right, bottom in pixels; what leaves the picture is cut off last of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .association import Association, Found
from .settings import TrackingSettings

Box = NDArray[np.float64]
Origin = Literal["seen", "filled", "extended"]

_RECENT = 5  # frames over which the speed at a track's end is taken
_AT_BORDER = 0.1  # of the box's side: this near to the border, a box touches it


@dataclass(frozen=True)
class Region:
    """One box of one frame that is to be blurred."""

    frame: int
    box: Box  # [4]
    track: int
    origin: Origin


@dataclass(frozen=True)
class Followed:
    """All regions of one kind in a span, and the tracks that were lost at the border while still in the picture."""

    regions: list[Region]
    truncated: list[int]  # numbers of tracks


def follow(
    found: Found, known: Association, size: tuple[int, int], frames: int, fps: float, settings: TrackingSettings
) -> Followed:
    """Regions of all tracks; `size` is height and width, `frames` the span's length."""
    track_of = {row: number for number, rows in enumerate(known.tracks) for row in rows}
    regions = [Region(int(found.frame_N[row]), found.box_N4[row], track, "seen") for row, track in track_of.items()]
    for a, b in sorted(known.links):
        regions += [Region(t, box, track_of[a], "filled") for t, box in _between(found, a, b)]
    truncated = []
    for number, rows in enumerate(known.tracks):
        for towards, ordered in ((-1, rows[::-1]), (1, rows)):
            ending = _Ending.of(found, ordered, size)
            at_border = ending.touching.any()
            usual = round(fps * settings.extend_seconds)
            steps = round(fps * settings.border_seconds) if at_border else usual
            for step in range(1, steps + 1):
                t = ending.frame + towards * step
                if not 0 <= t < frames or _outside(ending.moved(step), size):
                    break
                regions.append(Region(t, ending.swept(min(step, usual)), number, "extended"))
            else:
                if at_border and len(rows) > 1:
                    truncated.append(number)
    return Followed(regions, sorted(set(truncated)))


@dataclass(frozen=True)
class _Ending:
    """The first or last box of a track, and how it moves away from the track, in pixels per frame."""

    frame: int
    box: Box
    touching: NDArray[np.bool_]  # [4] sides that lie at the picture's border
    speed: NDArray[np.float64]  # [2]

    @classmethod
    def of(cls, found: Found, rows: Sequence[int], size: tuple[int, int]) -> _Ending:
        """Of boxes that come to an end with the last of `rows`."""
        end, box = int(found.frame_N[rows[-1]]), found.box_N4[rows[-1]]
        first = next(row for row in rows if abs(end - int(found.frame_N[row])) <= _RECENT)
        touching = _touching(box, size)
        way = (box - found.box_N4[first]).reshape(2, 2)  # corner, axis
        # A side at the border stands still while the face goes on: the other side tells the speed.
        free = ~touching.reshape(2, 2) | touching.reshape(2, 2).all(axis=0)
        speed = (way * free).sum(axis=0) / free.sum(axis=0) / max(1, abs(end - int(found.frame_N[first])))
        return cls(end, box, touching, speed)

    def moved(self, step: int) -> Box:
        return self.box + np.tile(self.speed * step, 2)

    def swept(self, step: int) -> Box:
        """Around where it was and where it would be by now: it may have stopped or gone on."""
        moved = self.moved(step)
        return np.concatenate([np.minimum(self.box[:2], moved[:2]), np.maximum(self.box[2:], moved[2:])])


def _between(found: Found, a: int, b: int) -> Iterator[tuple[int, Box]]:
    """Boxes on the straight way from one sighting to the next."""
    start, end = int(found.frame_N[a]), int(found.frame_N[b])
    for t in range(start + 1, end):
        share = (t - start) / (end - start)
        yield t, (1 - share) * found.box_N4[a] + share * found.box_N4[b]


def _touching(box: Box, size: tuple[int, int]) -> NDArray[np.bool_]:
    near = _AT_BORDER * float((box[2:] - box[:2]).max())
    return np.concatenate([box[:2] < near, box[2:] > np.array([size[1], size[0]]) - near])


def _outside(box: Box, size: tuple[int, int]) -> bool:
    return bool((box[2:] <= 0).any() or box[0] >= size[1] or box[1] >= size[0])
