"""Panels as wide as a phone: dots with intervals, curves, a heat map, a scatter. The page puts them side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import plot
from .curves import apart
from .markup import Markup, joined, tag
from .numbers import decimals, estimate, interval, number

NAN = math.nan
_ROW, _TOP = 19.0, 42.0


@dataclass(frozen=True)
class Dot:
    """A value with its interval; `kind` is a CSS class."""

    label: str
    value: float
    low: float = NAN
    high: float = NAN
    kind: str = "plain"
    note: str = ""


@dataclass(frozen=True)
class Series:
    """A curve, with an interval at each point where there is one."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    kind: str = "s0"
    dots: bool = True


@dataclass(frozen=True)
class Point:
    """A place in a scatter, with intervals along both axes."""

    label: str
    x: Dot
    y: Dot
    kind: str = "plain"


@dataclass(frozen=True)
class Band:
    """A stretch of the x axis with a name."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Axes:
    """What a panel of curves says about its axes."""

    x: str
    ticks: Sequence[float] | None = None
    subtitle: str = ""
    bands: Sequence[Band] = field(default_factory=tuple)


def dot_panel(title: str, subtitle: str, dots: Sequence[Dot], reference: float | None = None) -> Markup:
    """A row per method: name, interval, value. The dashed line is a reference."""
    labels, values, width = 128.0, 46.0, plot.PANEL
    left, right = labels + 6, width - values - 8
    ends = [end for dot in dots for end in (dot.value, dot.low, dot.high)]
    scale = plot.spread([*ends, reference if reference is not None else NAN], left, right)
    bottom = _TOP + _ROW * len(dots)
    ticks = scale.ticks(3)
    places = max([decimals(dot.low, dot.high, dot.value) for dot in dots if math.isfinite(dot.value)], default=3)
    parts = [_titles(title, subtitle, width), plot.axis_x(scale, bottom + 3, ticks, _TOP - 2)]
    if reference is not None:
        parts.append(plot.line(scale(reference), _TOP - 2, scale(reference), bottom + 3, "reference"))
    for row, dot in enumerate(dots):
        y = _TOP + _ROW * (row + 0.5)
        name = "ours" if dot.kind == "ours" else None
        parts.append(plot.label(0, y, dot.label, labels, name))
        if not math.isfinite(dot.value):
            parts.append(plot.words(left, y + 3.6, dot.note or "no value", "tick"))
            continue
        said = f"{dot.label}: {estimate(dot.value, dot.low, dot.high)}{f'; {dot.note}' if dot.note else ''}"
        if math.isfinite(dot.low) and math.isfinite(dot.high):
            parts.append(plot.line(scale(dot.low), y, scale(dot.high), y, f"whisker {dot.kind}"))
        parts.append(tag("circle", tag("title", said), cx=scale(dot.value), cy=y, r=3.6, class_=f"mark {dot.kind}"))
        parts.append(plot.words(width, y + 3.8, number(dot.value, min(places, 4)), name or "value", "end"))
    return plot.figure(width, bottom + 24, f"{title}: {len(dots)} methods", *parts)


def line_panel(title: str, series: Sequence[Series], axes: Axes, width: float = plot.PANEL) -> Markup:
    """Curves with their names at their ends."""
    shown = [one for one in series if any(map(math.isfinite, one.y))]
    names = max([plot.width_of(one.label) for one in shown], default=0.0)
    room = min(names + 10, 0.36 * width)
    left, right, top, bottom = 44.0, width - room, 52.0 if axes.bands else 40.0, 222.0
    known = [value for one in shown for value in (*one.y, *one.low, *one.high)]
    xs = [value for one in shown for value in one.x]
    across = plot.spread(xs, left, right, 0.0 if axes.bands else 0.03)
    up = plot.spread(known, bottom, top)
    parts = [_titles(title, axes.subtitle, width)]
    for number_, band in enumerate(axes.bands):
        start, end = across(band.start), across(band.end)
        parts.append(tag("rect", x=start, y=top, width=end - start, height=bottom - top, class_=f"stage{number_ % 2}"))
        parts.append(plot.words((start + end) / 2, top - 4, plot.fitted(band.name, end - start, 10), "tick", "middle"))
    parts.append(plot.axis_y(up, left, up.ticks(4), right))
    ticks = list(axes.ticks) if axes.ticks is not None else across.ticks(4)
    parts += [plot.axis_x(across, bottom, ticks), plot.words((left + right) / 2, bottom + 30, axes.x, "tick", "middle")]
    for one in shown:
        parts.append(_curve(one, across, up))
    ends = [next(value for value in reversed(one.y) if math.isfinite(value)) for one in shown]
    tall = 18.0 if names > room - 8 else 13.0  # names of two lines
    for one, y in zip(shown, apart([up(end) for end in ends], tall), strict=True):
        parts.append(plot.label(right + 7, y, one.label, room - 8, f"name {one.kind}"))
    return plot.figure(width, bottom + 36, f"{title}: {', '.join(one.label for one in shown)}", *parts)


def _curve(one: Series, across: plot.Linear, up: plot.Linear) -> Markup:
    path, pen = [], "M"
    for x, y in zip(one.x, one.y, strict=True):
        if math.isfinite(y):
            path.append(f"{pen}{across(x):.1f} {up(y):.1f}")
            pen = "L"
        else:
            pen = "M"
    parts: list[object] = [tag("path", tag("title", one.label), d="".join(path), class_=f"curve {one.kind}")]
    for k, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
        if not (math.isfinite(y) and one.dots):
            continue
        low, high = (one.low[k], one.high[k]) if len(one.low) else (NAN, NAN)
        if math.isfinite(low) and math.isfinite(high):
            parts.append(plot.line(across(x), up(low), across(x), up(high), f"whisker {one.kind}"))
        said = f"{one.label} at {x:g}: {estimate(y, low, high)}"
        parts.append(tag("circle", tag("title", said), cx=across(x), cy=up(y), r=2.8, class_=f"mark {one.kind}"))
    return joined(parts)


def scatter_panel(title: str, subtitle: str, points: Sequence[Point], x: str, y: str) -> Markup:
    """The same methods on two backbones."""
    width, left, top, bottom = plot.PANEL, 46.0, 42.0, 262.0
    right = width - 12
    across = plot.spread([end for p in points for end in (p.x.value, p.x.low, p.x.high)], left, right)
    up = plot.spread([end for p in points for end in (p.y.value, p.y.low, p.y.high)], bottom, top)
    parts = [
        _titles(title, subtitle, width),
        plot.axis_y(up, left, up.ticks(4), right),
        plot.axis_x(across, bottom, across.ticks(4), top),
        plot.words((left + right) / 2, bottom + 30, plot.fitted(x, right - left), "tick", "middle"),
        tag("text", plot.fitted(y, bottom - top), x=10, y=(top + bottom) / 2, class_="tick", text_anchor="middle",
            transform=f"rotate(-90 10 {(top + bottom) / 2:.0f})"),
    ]  # fmt: skip
    for point in points:
        h, v = across(point.x.value), up(point.y.value)
        if math.isfinite(point.x.low) and math.isfinite(point.x.high):
            parts.append(plot.line(across(point.x.low), v, across(point.x.high), v, f"whisker thin {point.kind}"))
        if math.isfinite(point.y.low) and math.isfinite(point.y.high):
            parts.append(plot.line(h, up(point.y.low), h, up(point.y.high), f"whisker thin {point.kind}"))
        said = f"{point.label}: {x} {_of(point.x)}; {y} {_of(point.y)}"
        parts.append(tag("circle", tag("title", said), cx=h, cy=v, r=3.8, class_=f"mark {point.kind}"))
        if point.kind in ("ours", "base", "frozen"):
            before = h > (left + right) / 2
            place = (h - 7, "end") if before else (h + 7, "start")
            parts.append(plot.words(place[0], v - 6, point.label, f"name {point.kind}", place[1]))
    return plot.figure(width, bottom + 36, f"{title}: {x} against {y}", *parts)


def heat_map(
    title: str, subtitle: str, rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[Dot | None]]
) -> Markup:
    """Shares from 0 (pale) to 1 and more (full); empty cells are what is not defined."""
    left, top, width = 92.0, 64.0, plot.PANEL
    side = (width - left) / len(columns)
    tall = min(side, 44.0)
    parts = [_titles(title, subtitle, width)]
    for column, name in enumerate(columns):
        x = left + side * (column + 0.5)
        parts.append(plot.words(x, top - 6, plot.fitted(name, side, 10.5), "tick", "middle"))
    for row, name in enumerate(rows):
        y = top + tall * row
        parts.append(plot.words(left - 8, y + tall / 2 + 4, plot.fitted(name, left - 8), "", "end"))
        for column, cell in enumerate(cells[row]):
            x = left + side * column
            box = {"x": x + 1, "y": y + 1, "width": side - 2, "height": tall - 2, "rx": 2}
            if cell is None or not math.isfinite(cell.value):
                parts.append(tag("rect", tag("title", cell.note if cell else ""), **box, class_="hollow"))
                if cell is not None:
                    parts.append(plot.words(x + side / 2, y + tall / 2 + 4, "\N{EN DASH}", "tick", "middle"))
                continue
            share = min(max(cell.value, 0.0), 1.0)
            said = f"{cell.label}: {estimate(cell.value, cell.low, cell.high)}"
            parts.append(tag("rect", tag("title", said), **box, class_="heat", style=f"--share:{share:.2f}"))
            bright = "on-heat" if share > 0.55 else ""
            parts.append(plot.words(x + side / 2, y + tall / 2 + 4, number(cell.value, 2), bright, "middle"))
    return plot.figure(width, top + tall * len(rows) + 8, f"{title}: {len(rows)} by {len(columns)}", *parts)


def _of(dot: Dot) -> str:
    places = decimals(dot.low, dot.high, dot.value)
    return f"{number(dot.value, places)} {interval(dot.low, dot.high, places)}"


def _titles(title: str, subtitle: str, width: float) -> Markup:
    return joined(
        plot.words(0, 13, plot.fitted(title, width, 12.5), "panel-title"),
        plot.words(0, 28, plot.fitted(subtitle, width, 10.5), "tick") if subtitle else None,
    )
