"""Panels in rows and columns on white paper, with heads that fit. Letters grow with the panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from ..corpus.preview import font
from .panels import Frame

_INK, _QUIET, _PAPER, _EMPTY = (27, 31, 35), (93, 102, 111), (255, 255, 255), (240, 242, 244)
_LETTER = 15.0  # a panel is so many letters wide
_SMALLEST = 12


@dataclass(frozen=True)
class Row:
    """Panels of a row, None where there is none; words above all of them, or before the first."""

    panels: Sequence[Frame | None]
    above: str = ""
    before: str = ""
    follows: bool = False  # belongs to the row above it: no larger gap between them
    blank: bool = False  # leave nothing where there is no panel, not a grey place


def sheet(heads: Sequence[str], rows: Sequence[Row], said: str = "") -> Frame:
    """Heads stand above their columns, `said` below everything."""
    present = [panel for row in rows for panel in row.panels if panel is not None]
    width = max(panel.shape[1] for panel in present)
    large = max(_SMALLEST, round(width / _LETTER))
    small, gap = max(_SMALLEST - 1, round(0.82 * large)), max(4, round(width / 40))
    names = [_wrapped(row.before, width * 0.62, large) for row in rows]
    left = round(width * 0.66) if any(row.before for row in rows) else 0
    titles = [_wrapped(head, width, large) for head in heads]
    total = 2 * gap + left + len(heads) * (width + gap) - gap
    top = 2 * gap + max(title.count("\n") + 1 for title in titles) * round(1.25 * large)
    notes = _wrapped(said, total - 2 * gap, small)

    places, below = [], top
    for number, row in enumerate(rows):
        below += 0 if row.follows or not number else 2 * gap
        below += round(1.5 * small) if row.above else 0
        places.append(below)
        below += _height(row) + gap
    height = below + (gap + (notes.count("\n") + 1) * round(1.35 * small) if said else 0)

    paper = Image.new("RGB", (total + total % 2, height + height % 2), _PAPER)  # even, as a film needs it
    draw = ImageDraw.Draw(paper)
    for column, title in enumerate(titles):
        x = gap + left + column * (width + gap) + width / 2
        draw.multiline_text((x, top - gap), title, fill=_INK, font=font(large), anchor="md", align="center")
    for row, name, y in zip(rows, names, places, strict=True):
        tall = _height(row)
        if row.above:
            draw.text((gap + left, y - round(0.4 * small)), row.above, fill=_QUIET, font=font(small), anchor="ls")
        if row.before:
            draw.multiline_text((gap, y + tall / 2), name, fill=_INK, font=font(large), anchor="lm")
        for column, panel in enumerate(row.panels):
            x = gap + left + column * (width + gap)
            if panel is not None:
                paper.paste(Image.fromarray(panel), (x + (width - panel.shape[1]) // 2, y))
            elif not row.blank:
                draw.rectangle((x, y, x + width - 1, y + tall - 1), fill=_EMPTY)
                draw.text((x + width / 2, y + tall / 2), "not decoded", fill=_QUIET, font=font(small), anchor="mm")
    if said:
        draw.multiline_text((gap, below), notes, fill=_QUIET, font=font(small))
    return np.asarray(paper)


def _height(row: Row) -> int:
    return max((panel.shape[0] for panel in row.panels if panel is not None), default=0)


def abreast(titled: Sequence[tuple[str, Frame]], said: str, columns: int) -> Frame:
    """Panels with their titles above them, a few in a row, and one sentence that says when it is."""
    bands = []
    for start in range(0, len(titled), columns):
        part = titled[start : start + columns]
        free = min(columns, len(titled)) - len(part)
        row = Row([*(picture for _, picture in part), *[None] * free], blank=True)
        last = start + columns >= len(titled)
        bands.append(sheet([*(title for title, _ in part), *[""] * free], [row], said if last else ""))
    return np.concatenate(bands)


def _wrapped(words: str, width: float, size: int) -> str:
    """Lines that fit; a single word that does not is left as it is."""
    letters, lines = font(size), [""]
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and letters.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)
