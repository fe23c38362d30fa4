"""HTML and SVG as text that is safe by construction: what is not `Markup` is escaped."""

from __future__ import annotations

import html
import math
import re

_VOID = {"br", "hr", "img", "input", "link", "meta"}
_OPTION = re.compile(r"(--[\w-]+)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]|[\ud800-\udfff]")  # no page may hold them


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """A value as text of a page; characters that no page may hold become a question mark."""
    return value if isinstance(value, Markup) else Markup(html.escape(_CONTROL.sub("?", str(value)), quote=True))


def joined(*children: object) -> Markup:
    """Children one after the other; lists are spread, None is nothing."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, list | tuple):
            parts.append(joined(*child))
        elif child is not None:
            parts.append(text(child))
    return Markup("".join(parts))


def coded(said: str) -> Markup:
    """A sentence in which what stands in backticks is code."""
    return joined([code(part) if k % 2 else part for k, part in enumerate(said.split("`"))])


def code(line: str) -> Markup:
    """A command; its options are not divided at their hyphens where a line ends."""
    parts = enumerate(_OPTION.split(line))
    return tag("code", [tag("span", part, class_="whole") if k % 2 else part for k, part in parts])


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """`tag("circle", cx=3.14159, class_="dot")` is `<circle cx="3.14" class="dot"/>`; None leaves an attribute out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(_short(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def _short(value: object) -> object:
    """Coordinates to a hundredth of a pixel; `True` is an attribute without a value."""
    if value is True:
        return ""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no coordinate")
        written = f"{value:.2f}".rstrip("0").rstrip(".")
        return "0" if written == "-0" else written
    return value
