"""The headline figure: paired effects in units of their interval, a column per diagnostic, a row per contrast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..statistics import ContrastRow
from ..statistics.verdict import BETTER, UNTESTABLE, WORSE, words
from ..words import counted
from . import plot
from .markup import Markup, joined, tag
from .numbers import estimate, number, p_value

_ROW, _HEAD, _GROUP, _FOOT = 23.0, 40.0, 26.0, 40.0
_FURTHEST = 60.0  # units; what lies beyond is drawn at the edge
_NEAREST = 2.5
_TICKS = 16.0  # pixels between two of them


@dataclass(frozen=True)
class Line:
    """One contrast over the diagnostics."""

    label: str
    rows: Mapping[str, ContrastRow]
    short: str = ""  # where there is little room


@dataclass(frozen=True)
class Group:
    """Contrasts that were adjusted together."""

    title: str
    lines: Sequence[Line]
    short: str = ""


def kind_of(row: ContrastRow) -> str:
    """The mark's class, which is the decision."""
    if row.decision.startswith(UNTESTABLE):
        return "untested"
    return {BETTER: "better", WORSE: "worse"}.get(row.decision, "open")


def hint(row: ContrastRow, label: str, diagnostic: str) -> str:
    """What a pointer over a mark says."""
    if row.decision.startswith(UNTESTABLE):
        return f"{label}, {diagnostic}: {row.decision}"
    unstable = "" if row.stable else "; direction unstable"
    effect = estimate(row.effect, row.low, row.high, sign=True)
    return (
        f"{label}, {diagnostic}: effect {effect}, {number(row.units, 1, sign=True)} units, "
        f"p = {p_value(row.p)}; {words(row)}{unstable}"
    )


def units_of(row: ContrastRow) -> tuple[float, float, float] | None:
    """The effect and its interval over the half that faces zero; None where there is none."""
    if not all(math.isfinite(value) for value in (row.effect, row.low, row.high)):
        return None
    if not row.effect:
        return 0.0, -1.0, 1.0
    if not math.isfinite(row.units):  # nothing varies
        return (math.copysign(math.inf, row.effect),) * 3
    half = abs(row.effect / row.units)
    return row.units, row.low / half, row.high / half


def forest(groups: Sequence[Group], diagnostics: Mapping[str, str], width: float, labels: float) -> Markup:
    """`diagnostics` by name, with their titles; `labels` is the width of the names' column."""
    drawn = [units_of(row) for group in groups for each in group.lines for row in each.rows.values()]
    ends = [value for found in drawn if found for value in found if math.isfinite(value)]
    low = max(-_FURTHEST, min([-_NEAREST, *ends])) * 1.25
    high = min(_FURTHEST, max([_NEAREST, *ends])) * 1.25
    gap, roomy = 14.0, len(diagnostics) > 1 or width > plot.PANEL
    column = (width - labels - gap * len(diagnostics)) / max(len(diagnostics), 1)
    starts = {name: labels + gap + position * (column + gap) for position, name in enumerate(diagnostics)}
    scales = {name: plot.Signed(low, high, start, start + column) for name, start in starts.items()}
    height = _HEAD + sum(_GROUP + _ROW * len(group.lines) for group in groups) + _FOOT
    bottom = height - _FOOT
    parts = [_ground(scale, diagnostics[name], column, bottom) for name, scale in scales.items()]
    y = _HEAD
    for group in groups:
        parts.append(
            plot.words(
                0, y + 17, plot.fitted(group.title if roomy else group.short or group.title, width, 11.5), "group"
            )
        )
        parts.append(plot.line(0, y + 23, width, y + 23, "rule"))
        y += _GROUP
        for each in group.lines:
            centre = y + _ROW / 2
            shown = each.label if roomy else each.short or each.label
            parts.append(plot.label(0, centre, shown, labels - 4, hint=each.label))
            for name, scale in scales.items():
                if name in each.rows:
                    parts.append(
                        _effect(each.rows[name], scale, centre, hint(each.rows[name], each.label, diagnostics[name]))
                    )
            y += _ROW
    count = counted(sum(len(group.lines) for group in groups), "contrast")
    said = f"Paired effects of {count} on {', '.join(diagnostics.values())}, in interval units"
    return plot.figure(width, height, said, *parts)


def _ground(scale: plot.Signed, title: str, column: float, bottom: float) -> Markup:
    """Title, the band inside which nothing is separated, zero, ticks."""
    left, right = scale(-1.0), scale(1.0)
    ticks: list[float] = []
    for tick in sorted(scale.ticks(), key=abs):  # from zero outwards, while there is room
        if all(abs(scale(tick) - scale(other)) > _TICKS for other in ticks):
            ticks.append(tick)
    return joined(
        tag("rect", x=left, y=_HEAD - 4, width=right - left, height=bottom - _HEAD + 4, class_="band"),
        plot.line(scale(0.0), _HEAD - 4, scale(0.0), bottom, "zero"),
        plot.words(scale.start, 14, plot.fitted(title, column, 12), "panel-title"),
        plot.words(scale.start, 29, "\N{LEFTWARDS ARROW} worse", "tick"),
        plot.words(scale.end, 29, "better \N{RIGHTWARDS ARROW}", "tick", "end"),
        plot.axis_x(scale, bottom + 2, ticks),
    )


def _effect(row: ContrastRow, scale: plot.Signed, centre: float, said: str) -> Markup:
    found = units_of(row)
    if found is None:
        return tag(
            "text",
            tag("title", said),
            "not testable",
            x=scale(0.0),
            y=centre + 3.5,
            class_="tick",
            text_anchor="middle",
        )
    units, low, high = found
    kind = kind_of(row)
    target = tag(
        "rect",
        tag("title", said),
        x=scale.start,
        y=centre - 10,
        width=scale.end - scale.start,
        height=20.0,
        class_="hit",
    )
    parts = [target, plot.line(scale(low), centre, scale(high), centre, f"whisker {kind}")]
    if not scale.low <= units <= scale.high:
        edge, turn = (scale.end, -7) if units > 0 else (scale.start, 7)
        parts.append(tag("path", tag("title", said), d=f"M{edge:.1f} {centre:.1f}l{turn} -4v8z", class_=f"mark {kind}"))
        return joined(parts)
    parts.append(plot.mark(scale(units), centre, kind, said))
    return joined(parts)
