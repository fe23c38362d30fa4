"""What README and docs say: their links, their commands and their Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name != "tables.md"  # made by scripts
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^|\n\n)((?: {4}[^\n]*\n)+)")
_INLINE = re.compile(r"`((?:factorjepa |python benchmarks/)[^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SHELL = {";", "&&", "|", "||", ">"}


class Said(NamedTuple):
    """A command as a page has it."""

    words: tuple[str, ...]
    whole: bool  # not one of a sentence, which may leave arguments out


def links(page: Path) -> Iterator[tuple[str, str]]:
    """File and heading of every link that stays in the repository."""
    for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target and not target.startswith("mailto:"):
            file, _, heading = target.partition("#")
            yield file, heading


def headings(page: Path) -> set[str]:
    """As the sites that show Markdown name them in addresses."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-") for title in titles}


def python(page: Path) -> list[str]:
    return [code for language, code in _FENCE.findall(page.read_text(encoding="utf-8")) if language == "python"]


def commands(page: Path) -> Iterator[Said]:
    """Of blocks, line by line, and of sentences."""
    text = page.read_text(encoding="utf-8")
    blocks = [code for language, code in _FENCE.findall(text) if language != "python"]
    prose = _FENCE.sub("", text)
    blocks += [re.sub("^ {4}", "", block, flags=re.MULTILINE) for block in _INDENTED.findall(prose)]
    for block in blocks:
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            yield from _split(line.removeprefix("$ "), whole=True)
    for inline in _INLINE.findall(prose):
        yield from _split(inline.replace("\n", " "), whole=False)


def _split(line: str, whole: bool) -> Iterator[Said]:
    if not re.match(r"(factorjepa |python benchmarks/|torchrun )", line):
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _SHELL:
            words.append(word)
        elif words:
            yield Said(tuple(words), whole)
            words = []
