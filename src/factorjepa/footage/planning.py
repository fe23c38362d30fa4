"""Before anything is cut: every file is examined, every readable one becomes a source with an id and a split.

Splits are dealt to sources (or sessions) that can be read, so that a broken file does not cost a split its only source;
what is too short for a clip, or gave none when it was made, takes no share from the others. A corpus may grow: what was
planned before stays as it is, and what is new comes after it. A source without a clip binds nobody: where its file or
its words have changed, it is taken in anew.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..corpus.checks import report, unsafe_path
from ..corpus.rejected import Rejected
from ..corpus.splits import Source, Split, assign_splits, extend_splits
from ..engines import Engine, Lost, still_alive
from ..errors import CorpusError, FactorJEPAError
from ..storage import write_text
from ..video import reason_of
from ..words import counted
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
    """The sources of a corpus in the order in which they came, by name within one run, and the files that are none."""

    sources: tuple[PlannedSource, ...] = ()
    refused: tuple[Rejected, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The sources as an earlier run has planned them; none where there was none."""
        if not path.exists():
            return cls()
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))["sources"]
            if unsafe := [row["source"] for row in rows if unsafe_path(row["source"])]:
                raise ValueError(f"source {unsafe[0]!r} leads out of its folder")  # files of sources may be removed
            return cls(tuple(PlannedSource(**{**row, "split": Split(row["split"])}) for row in rows))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorpusError(f"{path}: cannot be read ({error}); restore it, or ingest into an empty folder") from None

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
            why = str(error).removeprefix(f"{job.path.name}: ")  # the table of refused files names it
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
    return read_header(job.path, job.path.name, job.limits)


def plan_sources(
    found: Sequence[Listed],
    examined: Mapping[str, Examination],
    splits: SplitSettings,
    begun: Plan | None = None,
    clipless: Mapping[str, bool] | None = None,
    min_seconds: float = 0.0,
) -> Plan:
    """Ids and splits for what can be read; the rest with its reason. What was `begun` with stays as it is.

    `clipless`: sources of `begun` that have no clip -> whether they were made. Those that changed are planned anew.
    `min_seconds`: of a clip.
    """
    clipless = clipless or {}
    _refuse_two_spellings(found)
    begun = _unchanged(found, examined, begun or Plan(), clipless)
    refused = [Rejected(one.file, "reading", "not a file to open", one.refused) for one in found if one.refused]
    there = {one.file for one in begun.sources}
    first = {one.sha256: one.file for one in begun.sources}
    taken: list[Listed] = []
    for one in found:
        if one.refused or one.file in there:
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
    used = Counter([*names, *(one.source for one in begun.sources)])
    ids = [
        name if used[name] == 1 else f"{name}-{examined[one.file].sha256[:8]}"
        for name, one in zip(names, taken, strict=True)
    ]
    barren = {one.source for one in begun.sources if clipless.get(one.source)}
    barren |= {name for name, one in zip(ids, taken, strict=True) if 0 < examined[one.file].seconds < min_seconds}
    dealt = _deal(dict(zip(ids, taken, strict=True)), splits, begun.sources, barren)
    planned = [
        PlannedSource(
            name, one.file, examined[one.file].sha256, one.city, one.session, one.capture_mode, dealt[name],
            examined[one.file].seconds, one.attributes,
        )
        for name, one in zip(ids, taken, strict=True)
    ]  # fmt: skip
    joining = sorted(planned, key=lambda one: one.source)
    return Plan((*begun.sources, *joining), tuple(refused))


def _unchanged(
    found: Sequence[Listed], examined: Mapping[str, Examination], begun: Plan, clipless: Collection[str]
) -> Plan:
    """A corpus may get more sources; those with clips must still be given, with the same bytes and words.

    Of the others, those that are.
    """
    given = {one.file: one for one in found}
    if missing := [one.file for one in begun.sources if one.file not in given and one.source not in clipless]:
        raise CorpusError(
            f"{counted(len(missing), 'source')} of this corpus {'is' if len(missing) == 1 else 'are'} not given now, "
            f"first {missing[0]!r}: give all of them, and new ones beside them, or choose an empty folder"
        )
    changed = {
        one: [f"{one.file}: {change}" for change in _changes(one, given[one.file], examined.get(one.file))]
        for one in begun.sources
        if one.file in given
    }
    if changes := [what for one, said in changed.items() if one.source not in clipless for what in said]:
        advice = "Put it back, or choose an empty folder: clips that are there were made of what it was"
        raise CorpusError(f"{report('the sources of this corpus', changes)}\n{advice}")
    return Plan(tuple(one for one, said in changed.items() if not said))


def _changes(before: PlannedSource, now: Listed, seen: Examination | None) -> Iterator[str]:
    if why := now.refused or (seen.refused if seen else "was not examined"):
        yield f"can no longer be read ({why})"
    elif seen and seen.sha256 != before.sha256:
        yield "is another file than it was (its SHA-256 differs)"
    for name in ("city", "session", "capture_mode", "attributes"):
        then, words = getattr(before, name), getattr(now, name)
        if not now.refused and then != words:
            yield f"its {name.replace('_', ' ')} was {then!r} and is {words!r}"
    if now.split and now.split != before.split:
        yield f"its split was {before.split.value!r} and is {now.split!r}"


def _deal(
    sources: Mapping[str, Listed],
    settings: SplitSettings,
    begun: Sequence[PlannedSource] = (),
    barren: Collection[str] = (),
) -> dict[str, Split]:
    """Source -> split: as the table says, audit cities altogether, the rest dealt by source or by session.

    `barren` ones, of which no clip comes, do not count for the others, and are dealt after them.
    """
    cities = {one.city for one in sources.values()} | {one.city for one in begun}
    if unknown := sorted(set(settings.audit_cities) - cities):
        raise CorpusError(f"audit city {unknown[0]!r} has no readable sources; cities: {', '.join(sorted(cities))}")
    splits = {name: Split(one.split) for name, one in sources.items() if one.split}
    audited = set(settings.audit_cities) | {
        sources[name].city for name, split in splits.items() if split == Split.AUDIT
    }
    if seen := [one for one in begun if one.city in audited and one.split != Split.AUDIT]:
        raise CorpusError(
            f"{seen[0].city!r} cannot become an audit city: {seen[0].file} is {seen[0].split}; choose an empty folder"
        )
    audited |= {one.city for one in begun if one.split == Split.AUDIT}
    for name, one in sources.items():
        if one.city in audited and splits.setdefault(name, Split.AUDIT) != Split.AUDIT:
            raise CorpusError(
                f"{one.file}: is {splits[name]}, but {one.city!r} is an audit city: all of it must be audit"
            )
    if settings.by == "session":  # what the table says of one source of a session holds for the others
        given = {_session(one.source): one.split for one in begun}
        given |= {_session(name): split for name, split in splits.items()}
        splits |= {name: given[_session(name)] for name in sources if name not in splits and _session(name) in given}
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sources:
        if name not in splits:
            groups[name if settings.by == "source" else _session(name)].append(name)
    fruitful, others = list[Source](), list[Source]()
    for group, members in groups.items():
        one = sources[members[0]]
        into = others if all(name in barren for name in members) else fruitful
        into.append(Source(group, one.city, one.capture_mode))
    counting = [one for one in reversed(begun) if one.source not in barren]
    first = {one.source if settings.by == "source" else _session(one.source): one for one in counting}
    known = {Source(group, one.city, one.capture_mode): one.split for group, one in first.items()}
    for named in (fruitful, others):
        if known:
            dealt = extend_splits(known, named, settings.seed, settings.shares)
        else:
            dealt = assign_splits(named, settings.seed, fractions=settings.shares)
        known |= {source: dealt[source.source] for source in named}
    for source, split in known.items():
        splits |= dict.fromkeys(groups.get(source.source, ()), split)
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
