"""Before anything is cut: every file is examined, every readable one becomes a source with an id and a split.

Splits are dealt to sources (or sessions) that can be read, so that a broken file does not cost a split its only source.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..corpus.rejected import Rejected
from ..corpus.splits import Source, Split, assign_splits
from ..engines import Engine, Lost, still_alive
from ..errors import CorpusError, FactorJEPAError
from ..storage import write_text
from ..video import reason_of
from .decoding import Header, read_header
from .limits import limited
from .listing import Listed, slug
from .settings import LimitSettings, SplitSettings

_CHUNK = 1 << 24
_PICTURES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".heic", ".dng", ".raw")
EXAMINED = ".examined.json"  # hashes of files by size and time of change: terabytes are not read again for nothing


@dataclass(frozen=True)
class Examination:
    """What one file turned out to be."""

    sha256: str
    seconds: float = 0.0  # as its header states
    refused: str = ""


@dataclass(frozen=True)
class PlannedSource:
    """A source video of the corpus."""

    source: str  # "pune/s03/gopr0017": unique in the corpus
    file: str
    sha256: str
    city: str
    session: str
    capture_mode: str
    split: Split
    seconds: float
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Plan:
    """The sources of a corpus, and the files that are none."""

    sources: tuple[PlannedSource, ...]
    refused: tuple[Rejected, ...]

    def to_json(self) -> str:
        return json.dumps(
            {"sources": [asdict(one) for one in self.sources],
             "refused": [{"file": one.file, "detail": one.detail} for one in self.refused]},
            indent=1, ensure_ascii=False,
        )  # fmt: skip


@dataclass(frozen=True)
class _Examine:
    path: Path
    limits: LimitSettings


def examine_files(
    out: Path,
    found: Sequence[Listed],
    limits: LimitSettings,
    engine: Engine,
    progress: Callable[..., object] = lambda *_: None,
) -> dict[str, Examination]:
    """File -> what it is; opened in worker processes, and hashed again only if it has changed."""
    known = _read_examined(out)
    wanted = [one for one in found if not one.refused]
    stamps = {one.file: _stamp(one.path, limits) for one in wanted}
    examined = {
        file: Examination(**known[file]["found"])
        for file, stamp in stamps.items()
        if file in known and known[file]["stamp"] == stamp
    }
    missing = [one for one in wanted if one.file not in examined]
    for number, result in engine.run(examine, [_Examine(one.path, limits) for one in missing]):
        if isinstance(result, Lost):
            result = Examination("", refused=f"the process that opened it {result.why}")
        examined[missing[number].file] = result
        progress(len(examined), len(wanted))
    if missing:
        kept = {
            file: {"stamp": stamps[file], "found": asdict(found)}
            for file, found in sorted(examined.items())
            if found.sha256
        }
        write_text(out / EXAMINED, json.dumps(kept, ensure_ascii=False))
    return examined


def _stamp(path: Path, limits: LimitSettings) -> list[float]:
    """What an examination depends on; nothing of a file that has gone since, which opening it will say."""
    try:
        state = path.stat()
    except OSError:
        return []
    return [state.st_size, state.st_mtime_ns, limits.pixels, limits.min_fps]


def examine(job: _Examine) -> Examination:
    """Hash a file and read its header."""
    with limited(job.limits):
        sha256 = ""
        try:
            sha256 = _hash(job)
            return Examination(sha256, _header(job).seconds)
        except FactorJEPAError as error:
            why = str(error)
        except Exception as error:  # whatever a decoder makes of a hostile file concerns that file
            why = f"cannot be opened ({type(error).__name__}: {reason_of(error)})"
        return Examination(sha256, refused=why)


def _hash(job: _Examine) -> str:
    digest = hashlib.sha256()
    with open(job.path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            still_alive(job.limits.patience)
    return digest.hexdigest()


def _header(job: _Examine) -> Header:
    if job.path.suffix.lower() in _PICTURES:
        raise CorpusError("a picture, not a video")
    return read_header(job.path, "", job.limits)


def plan_sources(found: Sequence[Listed], examined: Mapping[str, Examination], splits: SplitSettings) -> Plan:
    """Ids and splits for what can be read; the rest with its reason."""
    _refuse_two_spellings(found)
    refused = [Rejected(one.file, "reading", "not a file to open", one.refused) for one in found if one.refused]
    first: dict[str, str] = {}
    taken: list[Listed] = []
    for one in found:
        if one.refused:
            continue
        seen = examined[one.file]
        if seen.refused:
            refused.append(Rejected(one.file, "reading", "unreadable", seen.refused))
        elif seen.sha256 in first:
            refused.append(Rejected(one.file, "reading", "same file", f"has the same bytes as {first[seen.sha256]}"))
        else:
            first[seen.sha256] = one.file
            taken.append(one)
    names = [f"{slug(one.city)}/{slug(one.session)}/{slug(Path(one.file).stem)}" for one in taken]
    used = Counter(names)
    ids = [
        name if used[name] == 1 else f"{name}-{examined[one.file].sha256[:8]}"
        for name, one in zip(names, taken, strict=True)
    ]
    dealt = _deal(dict(zip(ids, taken, strict=True)), splits)
    planned = [
        PlannedSource(
            name, one.file, examined[one.file].sha256, one.city, one.session, one.capture_mode, dealt[name],
            examined[one.file].seconds, one.attributes,
        )
        for name, one in zip(ids, taken, strict=True)
    ]  # fmt: skip
    return Plan(tuple(sorted(planned, key=lambda one: one.source)), tuple(refused))


def _deal(sources: Mapping[str, Listed], settings: SplitSettings) -> dict[str, Split]:
    """Source -> split: as the table says, audit cities altogether, the rest dealt by source or by session."""
    cities = {one.city for one in sources.values()}
    if unknown := sorted(set(settings.audit_cities) - cities):
        raise CorpusError(f"audit city {unknown[0]!r} has no readable sources; cities: {', '.join(sorted(cities))}")
    splits = {name: Split(one.split) for name, one in sources.items() if one.split}
    audited = set(settings.audit_cities) | {
        sources[name].city for name, split in splits.items() if split == Split.AUDIT
    }
    for name, one in sources.items():
        if one.city in audited and splits.setdefault(name, Split.AUDIT) != Split.AUDIT:
            raise CorpusError(
                f"{one.file}: is {splits[name]}, but {one.city!r} is an audit city: all of it must be audit"
            )
    if settings.by == "session":  # what the table says of one source of a session holds for the others
        given = {_session(name): split for name, split in splits.items()}
        splits |= {name: given[_session(name)] for name in sources if name not in splits and _session(name) in given}
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sources:
        if name not in splits:
            groups[name if settings.by == "source" else _session(name)].append(name)
    named = [
        Source(group, sources[members[0]].city, sources[members[0]].capture_mode) for group, members in groups.items()
    ]
    for group, split in assign_splits(named, settings.seed, fractions=settings.shares).items():
        splits |= dict.fromkeys(groups[group], split)
    return splits


def _session(source: str) -> str:
    return source.rsplit("/", 1)[0]


def _refuse_two_spellings(found: Sequence[Listed]) -> None:
    spellings: dict[str, set[str]] = defaultdict(set)
    for one in found:
        if one.city:
            spellings[slug(one.city)].add(one.city)
    for names in spellings.values():
        if len(names) > 1:
            raise CorpusError(f"one city has {len(names)} spellings: {', '.join(map(repr, sorted(names)))}; use one")


def _read_examined(out: Path) -> dict[str, dict[str, Any]]:
    try:
        known = json.loads((out / EXAMINED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
