"""What can be wrong with the rows of a manifest, in words; every problem at once, each with its first rows."""

from __future__ import annotations

import math
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from .splits import Split

if TYPE_CHECKING:
    from .manifest import Clip

CAPTURE_MODES = ("drive", "walk", "aerial")
_SHOWN = 3  # rows or values named per problem; a broken column concerns all of them


def report(where: str, problems: Sequence[str]) -> str:
    """One message for all problems of `where`."""
    heading = f"Found {len(problems)} error{'s' if len(problems) != 1 else ''} in {where}:"
    return "\n".join([heading, *(f"  {problem}" for problem in problems)])


def row_problems(clips: Sequence[Clip]) -> list[str]:
    """Everything that breaks the manifest's contract; empty if nothing does."""
    return [*_row_by_row(clips), *_repeated(clips), *_divided(clips), *_attributes(clips)]


def unsafe_path(path: str) -> bool:
    """Absolute (here or on Windows), leading out of its folder, or naming no file."""
    parts = path.split("/")
    return (
        path.startswith("/")
        or ".." in parts
        or parts[-1] in ("", ".")
        or "\\" in path
        or "\0" in path
        or path[1:2] == ":"
    )


def _row_by_row(clips: Sequence[Clip]) -> Iterator[str]:
    modes = ", ".join(CAPTURE_MODES)
    splits = ", ".join(Split)
    known = frozenset(Split)
    rules: list[tuple[Callable[[Clip], bool], Callable[[Clip], str]]] = [
        (lambda clip: not clip.clip_id, lambda clip: "clip_id is empty"),
        (
            lambda clip: clip.capture_mode not in CAPTURE_MODES,
            lambda clip: f"capture_mode {clip.capture_mode!r} is none of {modes}",
        ),
        (lambda clip: clip.split not in known, lambda clip: f"split {clip.split!r} is none of {splits}"),
        (lambda clip: unsafe_path(clip.path), lambda clip: f"path {clip.path!r} leaves the corpus folder"),
        (
            lambda clip: not 0 <= clip.t_start < clip.t_end < math.inf,
            lambda clip: f"t_start {clip.t_start:g} and t_end {clip.t_end:g} do not enclose a stretch of time",
        ),
        (lambda clip: not 0 < clip.fps < math.inf, lambda clip: f"fps {clip.fps:g} is not a frame rate"),
        (
            lambda clip: clip.width < 1 or clip.height < 1,
            lambda clip: f"size {clip.width}x{clip.height} is not a picture size",
        ),
    ]
    for broken, message in rules:
        rows = [row for row, clip in enumerate(clips) if broken(clip)]
        for row in rows[:_SHOWN]:
            yield f"row {row} (clip {clips[row].clip_id!r}): {message(clips[row])}{_more(rows, row)}"


def _repeated(clips: Sequence[Clip]) -> Iterator[str]:
    """Paths are compared without their suffix: two clips that share the rest would share their sidecars."""
    stems = [posixpath.splitext(posixpath.normpath(clip.path))[0] for clip in clips]
    for name, keys in (("clip_id", [clip.clip_id for clip in clips]), ("path", stems)):
        if len(set(keys)) == len(keys):
            continue
        rows: dict[str, list[int]] = defaultdict(list)
        for row, key in enumerate(keys):
            rows[key].append(row)
        twice = [(value, where) for value, where in rows.items() if len(where) > 1]
        for value, where in twice[:_SHOWN]:
            yield f"{name} {value!r} is used by rows {_listed(where)}; it must be unique"
        yield from _left_out(len(twice), f"repeated {name}s")


def _divided(clips: Sequence[Clip]) -> Iterator[str]:
    """A source in two splits leaks; so does a city that is audited and trained on."""
    splits: dict[str, set[str]] = defaultdict(set)
    cities: dict[str, set[str]] = defaultdict(set)
    audited: dict[str, set[bool]] = defaultdict(set)
    for clip in clips:
        splits[clip.source].add(str(clip.split))
        cities[clip.source].add(clip.city)
        audited[clip.city].add(clip.split == Split.AUDIT)
    for name, groups in (("splits", splits), ("cities", cities)):
        divided = [source for source, values in groups.items() if len(values) > 1]
        for source in divided[:_SHOWN]:
            yield f"source {source!r} is in {len(groups[source])} {name} ({_listed(sorted(groups[source]))})"
        yield from _left_out(len(divided), f"sources in several {name}")
    for city in [city for city, values in audited.items() if len(values) > 1][:_SHOWN]:
        yield f"city {city!r} is partly audit; an audit city must be audit altogether"


def _attributes(clips: Sequence[Clip]) -> Iterator[str]:
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    for clip in clips:
        for name, value in clip.attributes.items():
            kinds[name].setdefault(type(value).__name__, clip.clip_id)
    fixed = clips[0].__dataclass_fields__.keys() if clips else ()
    for name, found in sorted(kinds.items()):
        if name in fixed:
            yield f"attribute {name!r} has the name of a fixed column; rename it"
        for kind in found.keys() - {"str", "int", "float", "bool"}:
            yield f"attribute {name!r} of clip {found[kind]!r} is a {kind}, not a str, int, float or bool"
        if len(found) > 1:
            yield f"attribute {name!r} mixes types: " + ", ".join(f"{k} in clip {c!r}" for k, c in found.items())


def _more(rows: Sequence[int], row: int) -> str:
    """After the last row shown, how many others have the same problem."""
    return f" (and {len(rows) - _SHOWN} more rows)" if len(rows) > _SHOWN and row == rows[_SHOWN - 1] else ""


def _left_out(count: int, what: str) -> Iterator[str]:
    if count > _SHOWN:
        yield f"... and {count - _SHOWN} more {what}"


def _listed(values: Iterable[object]) -> str:
    words = [str(value) for value in values]
    return ", ".join(words[:_SHOWN]) + (", ..." if len(words) > _SHOWN else "")
