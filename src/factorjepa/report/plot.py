"""What every figure of the page is drawn with: scales, ticks, text, marks. Pixels of a viewBox, y downwards.

Colours are CSS classes, so that a figure follows the page into the dark. A figure is drawn near the size at which it is
read: panels are as wide as a phone, and the page puts several beside each other where there is room.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from .markup import Markup, joined, tag

PANEL = 340.0  # width of a panel
SIZE = 11.0  # of text; page.css says the same
SMALL = 8.8  # of names on two lines
_EM = 0.51  # mean width of a letter, in sizes


@dataclass(frozen=True)
class Linear:
    """From a number to a place."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 4) -> list[float]:
        """Round numbers inside the range."""
        span = self.high - self.low
        raw = span / max(count, 1)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Signed:
    """Linear about zero, logarithmic far from it (asinh): effects of 1 and of 40 units in one picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        low, high = math.asinh(self.low), math.asinh(self.high)
        inside = min(max(value, self.low), self.high)
        return self.start + (math.asinh(inside) - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        known = (-100.0, -30.0, -10.0, -3.0, -1.0, 0.0, 1.0, 3.0, 10.0, 30.0, 100.0)
        return [tick for tick in known if self.low <= tick <= self.high]


def spread(values: Sequence[float], start: float, end: float, margin: float = 0.06) -> Linear:
    """A scale over the finite values, a little wider than they are."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-12):
        room = abs(low) * 0.1 or 1.0
        low, high, margin = low - room, high + room, 0.0
    room = margin * (high - low)
    return Linear(low - room, high + room, start, end)


def tick_label(value: float, ticks: Sequence[float]) -> str:
    """As many decimals as tell the ticks apart."""
    step = min((b - a for a, b in itertools.pairwise(ticks)), default=abs(value) or 1.0)
    places = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    if places and abs(step * 10**places - round(step * 10**places)) > 1e-6:
        places += 1
    written = f"{value:.{min(places, 6)}f}"
    return (written if float(written) else written.lstrip("-")).replace("-", "\N{MINUS SIGN}")


def figure(width: float, height: float, label: str, *children: object, class_: str = "") -> Markup:
    return tag(
        "svg", *children, viewBox=f"0 0 {width:g} {height:g}", class_=f"fig {class_}".strip(), role="img",
        aria_label=label, style=f"max-width:{width * 1.25:g}px",
    )  # fmt: skip


def words(x: float, y: float, said: object, class_: str = "", anchor: str = "start") -> Markup:
    return tag("text", said, x=x, y=y, class_=class_ or None, text_anchor=None if anchor == "start" else anchor)


def fitted(said: str, room: float, size: float = SIZE) -> str:
    """Shortened to the room there is."""
    most = int(room / (_EM * size))
    return said if len(said) <= most else said[: max(most - 1, 1)].rstrip() + "…"


def label(x: float, y: float, said: str, room: float, class_: str | None = None, hint: str = "") -> Markup:
    """A name in the middle of a row at `y`: whole where there is room, else on two lines of small letters."""
    whole = tag("title", hint or said)
    if width_of(said) <= room:
        return tag("text", whole, said, x=x, y=y + 3.8, class_=class_)
    first, *rest = textwrap.wrap(said, int(room / (_EM * SMALL)))
    lines = [(first, -1.2), (fitted(" ".join(rest), room, SMALL), 7.8)] if rest else [(first, 3.2)]
    parts = (tag("tspan", part, x=x, y=y + shift) for part, shift in lines)
    return tag("text", whole, *parts, class_=f"two {class_ or ''}".strip())


def width_of(said: str, size: float = SIZE) -> float:
    return _EM * size * len(said)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def mark(x: float, y: float, kind: str, hint: str = "") -> Markup:
    """A circle; a diamond for what is worse; hollow for what is not separated; a cross for what was not tested."""
    inner = tag("title", hint) if hint else None
    if kind == "worse":
        return tag("path", inner, d=f"M{x:.2f} {y - 5:.2f}l5 5l-5 5l-5-5z", class_="mark worse")
    if kind == "untested":
        return tag("path", inner, d=f"M{x - 4:.2f} {y - 4:.2f}l8 8m0-8l-8 8", class_="mark untested")
    return tag("circle", inner, cx=x, cy=y, r=4.0, class_=f"mark {kind}")


def axis_x(scale: Linear | Signed, y: float, ticks: Sequence[float], top: float | None = None) -> Markup:
    """Ticks below `y`; quiet grid lines up to `top`."""
    drawn: list[Markup] = []
    for tick in ticks:
        x = scale(tick)
        if top is not None:
            drawn.append(line(x, top, x, y, "grid"))
        drawn.append(words(x, y + 14, tick_label(tick, ticks), "tick", "middle"))
    return joined(drawn)


def axis_y(scale: Linear, x: float, ticks: Sequence[float], right: float) -> Markup:
    drawn: list[Markup] = []
    for tick in ticks:
        y = scale(tick)
        drawn += [line(x, y, right, y, "grid"), words(x - 6, y + 3.6, tick_label(tick, ticks), "tick", "end")]
    return joined(drawn)
