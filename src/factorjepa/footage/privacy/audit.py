"""A contact sheet for a person to judge by: what was blurred, what was thought about and left, and why a span failed.

A sheet is read by people and kept beside a corpus, so it shows no more than the corpus does. Every picture in it is cut
from frames that were blurred already; candidates too faint to be blurred in the corpus are blurred here; and of a span
that failed, frames are reduced to a few cells altogether, so that only outlines say where things were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from ...pixels import Frames
from ...words import counted
from .blur import blur, expanded
from .regions import Box
from .settings import PrivacySettings

if TYPE_CHECKING:
    from .filter import Seen

_WIDTH = 1200  # px of the sheet
_TILE, _CAPTION, _GAP = 112, 30, 8  # px
_MOMENTS = 3  # whole frames at the top
_MOST = 40  # tiles of one section
_CONTEXT = 1.2  # sides around a region that its tile shows on each side
_FAILED_CELLS = 24  # of a failed span's longer side
_COLOURS = {"seen": (40, 160, 60), "filled": (230, 140, 0), "extended": (60, 110, 220), "left": (200, 30, 30)}
_INK, _PAPER = (30, 30, 30), (250, 250, 248)
_FONT = cv2.FONT_HERSHEY_SIMPLEX


@dataclass(frozen=True)
class _Tile:
    picture: Frames
    colour: tuple[int, int, int]
    words: tuple[str, str]


def contact_sheet(
    blurred: Frames,
    covered: NDArray[np.bool_],
    seen: Sequence[Seen],
    failures: Sequence[str],
    settings: PrivacySettings,
) -> bytes:
    """PNG of one span from its blurred frames `[T, H, W, 3]` and the pixels that were blurred, `[T, H, W]`."""
    left = {one.kind: one.left(covered) for one in seen}
    faint = [(int(one.found.frame_N[k]), one.found.box_N4[k]) for one in seen for k in left[one.kind]]
    shown = _Shown(blurred, bool(failures), settings, faint)
    rows = [_line("Blurred: green seen, orange filled in, blue beyond a track's ends. Red: a candidate left alone.")]
    rows += [_line(f"FAILED: {words}", _COLOURS["left"]) for words in failures]
    rows.append(_moments(shown, seen))
    for one in seen:
        rows += _section(f"{one.kind} tracks, blurred", list(_blurred_tiles(shown, one)))
        rows += _section(
            f"{one.kind} candidates, left alone (blurred on this sheet)", list(_left_tiles(shown, one, left[one.kind]))
        )
    sheet = np.concatenate(rows)
    written, png = cv2.imencode(".png", cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))
    if not written:
        raise ValueError("the contact sheet could not be encoded as PNG")
    return bytes(png)


@dataclass(frozen=True)
class _Shown:
    """The frames as a sheet may show them."""

    blurred: Frames
    failed: bool
    settings: PrivacySettings
    faint: list[tuple[int, Box]]  # frame and box of every candidate that was left alone

    def candidates(self, t: int) -> list[Box]:
        return [box for frame, box in self.faint if frame == t]

    def frame(self, t: int) -> Frames:
        """A copy of one frame with its candidates blurred."""
        frame: Frames = self.blurred[t].copy()
        if self.failed:
            height, width = frame.shape[:2]
            cell = max(height, width) / _FAILED_CELLS
            few = cv2.resize(
                frame, (max(1, int(width / cell)), max(1, int(height / cell))), interpolation=cv2.INTER_AREA
            )
            frame = np.asarray(cv2.resize(few, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)
        blur(frame, self.candidates(t), self.settings.blur)
        return frame


def _moments(shown: _Shown, seen: Sequence[Seen]) -> Frames:
    """Whole frames with the outlines of everything in them."""
    width = (_WIDTH - (_MOMENTS + 1) * _GAP) // _MOMENTS
    count, height = len(shown.blurred), round(width * shown.blurred.shape[1] / shown.blurred.shape[2])
    strip = _paper(height + _GAP)
    for k, t in enumerate(np.linspace(0, count - 1, _MOMENTS).round().astype(int)):
        frame = shown.frame(int(t))
        thick = max(1, round(frame.shape[1] / width))
        for one in seen:
            for region in one.followed.regions:
                if region.frame == t:
                    _outline(frame, region.box, _COLOURS[region.origin], shown.settings, thick)
        for box in shown.candidates(int(t)):
            _outline(frame, box, _COLOURS["left"], shown.settings, thick)
        x = _GAP + k * (width + _GAP)
        strip[:height, x : x + width] = cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA)
    return strip


def _blurred_tiles(shown: _Shown, one: Seen) -> Iterator[_Tile]:
    """One tile a track, of its largest region; those with most filled in first."""
    regions = [[r for r in one.followed.regions if r.track == number] for number in range(len(one.known.tracks))]
    order = sorted(range(len(regions)), key=lambda k: -sum(r.origin == "filled" for r in regions[k]))
    for number in order[:_MOST]:
        largest = max(regions[number], key=lambda r: float(np.prod(r.box[2:] - r.box[:2])))
        origins = [r.origin for r in regions[number]]
        words = (
            f"{one.kind} {number}: {len(origins)} fr.",
            f"{origins.count('filled')} filled, {origins.count('extended')} ext.",
        )
        yield _Tile(_cut(shown.frame(largest.frame), largest.box), _COLOURS[largest.origin], words)


def _left_tiles(shown: _Shown, one: Seen, rows: Sequence[int]) -> Iterator[_Tile]:
    for row in rows[:_MOST]:
        t, box = int(one.found.frame_N[row]), one.found.box_N4[row]
        words = (f"frame {t}", f"score {one.found.score_N[row]:.2f}")
        yield _Tile(_cut(shown.frame(t), box), _COLOURS["left"], words)


def _cut(frame: Frames, box: Box) -> Frames:
    """The box's surroundings as a square tile."""
    centre, half = (box[:2] + box[2:]) / 2, (0.5 + _CONTEXT) * float((box[2:] - box[:2]).max())
    reach = max(2, round(half))
    padded = cv2.copyMakeBorder(frame, reach, reach, reach, reach, cv2.BORDER_CONSTANT, value=_PAPER)
    x, y = (int(c) for c in centre.clip(0, (frame.shape[1] - 1, frame.shape[0] - 1)))
    return np.asarray(cv2.resize(padded[y : y + 2 * reach, x : x + 2 * reach], (_TILE, _TILE)), np.uint8)


def _section(title: str, tiles: Sequence[_Tile]) -> list[Frames]:
    more = f", the first {_MOST}" if len(tiles) == _MOST else ""
    rows = [_line(f"{title}: {counted(len(tiles), 'tile')}{more}" if tiles else f"{title}: none")]
    per_row = (_WIDTH - _GAP) // (_TILE + _GAP)
    for start in range(0, len(tiles), per_row):
        strip = _paper(_TILE + _CAPTION + _GAP)
        for k, tile in enumerate(tiles[start : start + per_row]):
            x = _GAP + k * (_TILE + _GAP)
            strip[:_TILE, x : x + _TILE] = tile.picture
            cv2.rectangle(strip, (x, 0), (x + _TILE - 1, _TILE - 1), tile.colour, 2)
            for line, text in enumerate(tile.words):
                cv2.putText(strip, text, (x, _TILE + 12 + 13 * line), _FONT, 0.36, _INK, 1, cv2.LINE_AA)
        rows.append(strip)
    return rows


def _outline(frame: Frames, box: Box, colour: tuple[int, int, int], settings: PrivacySettings, thick: int) -> None:
    left, top, right, bottom = expanded(box, (frame.shape[0], frame.shape[1]), settings.blur)
    cv2.rectangle(frame, (left, top), (right - 1, bottom - 1), colour, thick)


def _line(text: str, colour: tuple[int, int, int] = _INK) -> Frames:
    strip = _paper(24)
    cv2.putText(strip, text, (_GAP, 17), _FONT, 0.45, colour, 1, cv2.LINE_AA)
    return strip


def _paper(height: int) -> NDArray[np.uint8]:
    return np.full((height, _WIDTH, 3), _PAPER, np.uint8)
