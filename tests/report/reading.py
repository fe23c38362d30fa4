"""A page as a reader's program sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "img", "br", "hr", "input", "link"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    inside: tuple[str, ...]  # names and classes of what it stands in


@dataclass
class Page(HTMLParser):
    """Elements, their text, and whether everything that was opened was closed."""

    elements: list[Element] = field(default_factory=list)
    text: str = ""
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        inside = tuple(word for name, kind in self._open for word in (name, *kind.split()))
        self.elements.append(Element(tag, attributes, inside))
        if tag not in _VOID:
            self._open.append((tag, attributes.get("class", "")))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            self.problems.append(f"</{tag}> closes {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1][0] not in ("style", "script"):
            self.text += data

    def of(self, name: str) -> list[Element]:
        return [element for element in self.elements if element.name == name]


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    if page._open:
        page.problems.append(f"left open: {page._open}")
    return page
