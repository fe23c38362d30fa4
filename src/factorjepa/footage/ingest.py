"""Source videos to a corpus: plan, make every source, drop repeated footage, write the tables.

Everything that determines the corpus lies beside it (`ingest.yaml`, `sources.json`). Run the same command again after
an interruption and it goes on where it stopped; run it again after it has finished and nothing changes; run it with
more sources and they are added, the others staying as they are. The manifest is written last.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..config import dump, resolve
from ..corpus.datacard import write_datacard
from ..corpus.manifest import MANIFEST, SEPARATOR, Attribute, Clip, Manifest
from ..corpus.rejected import Rejected, write_rejected
from ..corpus.shards import sidecar_path
from ..engines import Engine, Lost
from ..errors import CorpusError, StorageError
from ..storage import only_writer, remove_partials, write_text
from ..words import counted
from .duplicates import Catalogue
from .job import AUDIT, Build, SourceJob, record_path
from .listing import Listed, refuse_unknown
from .making import make_source, read_record, shares
from .planning import Plan, PlannedSource, examine_files, plan_sources
from .settings import IngestSettings
from .sharding import NOTES, discard_unreadable, lay_into_shards
from .statement import PLAN, IngestPlan
from .underway import watched

SOURCES = "sources.json"


Progress = Callable[..., object]  # (done, total, note)
Counting = Callable[[str, str], contextlib.AbstractContextManager[Progress]]  # of what, in which things


def uncounted(what: str, thing: str) -> contextlib.AbstractContextManager[Progress]:
    return contextlib.nullcontext(lambda *_: None)


@dataclass
class Ingested:
    """What came of it."""

    manifest: Manifest
    rejected: list[Rejected]
    repaired: list[str] = field(default_factory=list)
    added: int = 0  # sources that joined a corpus begun earlier
    seconds: float = 0.0  # of footage decoded in this run
    spent: dict[str, float] = field(default_factory=dict)  # seconds of work by stage, in this run


def ingest(
    out: Path,
    found: Sequence[Listed],
    settings: IngestSettings,
    build: Build,
    engine: Engine,
    audit: bool = False,
    counting: Counting = uncounted,
) -> Ingested:
    """Make the corpus of the files `found` in `out`, or finish it.

    `build` makes the privacy filter; it is called in every worker process, and here once for its statement. `counting`
    shows how far it is, as `terminal.counting` does.
    """
    out = Path(out)
    refuse_unknown(found)
    _refuse_foreign(out)
    statement = build().statement
    blurs = not statement["privacy"].startswith("off")  # else there is nothing to show on a contact sheet
    with only_writer(out, "ingesting"):
        _claim(out, IngestPlan(settings=settings, privacy=statement))
        remove_partials(out)
        with counting("examine", "file") as progress:
            examined = examine_files(out, found, settings.limits, engine, progress)
        begun = Plan.read(out / SOURCES)
        clipless = _clipless(out, begun)
        plan = plan_sources(found, examined, settings.splits, begun, clipless, settings.clips.min_seconds)
        stayed = _forget_changed(out, begun, plan)
        if not begun.sources or plan.to_json() != (out / SOURCES).read_text(encoding="utf-8"):
            write_text(out / SOURCES, plan.to_json())
        unreadable = discard_unreadable(out)
        paths = {one.file: one.path for one in found}
        longest_first = sorted(plan.sources, key=lambda source: -source.seconds)  # so that none is waited for
        recorded = {source.source for source in plan.sources if read_record(out, source.source)}
        ahead = [0.0 if source.source in recorded else source.seconds for source in longest_first]
        cores = shares(ahead, engine.cores, settings.clips.seconds)
        jobs = [
            SourceJob(out, paths[source.file], source, settings, build, statement, audit and blurs, busy)
            for source, busy in zip(longest_first, cores, strict=True)
        ]
        with counting("ingest", "second") as progress:
            try:
                result = _make(out, jobs, engine, _Line(plan.sources, recorded, progress))
            except StorageError:
                remove_partials(out)  # a full disk gets back what half-written clips have taken
                raise
        result.rejected += plan.refused
        result.repaired = unreadable + result.repaired
        result.added = len(plan.sources) - stayed if stayed else 0
        return _assemble(out, plan, settings, statement, result)


def _clipless(out: Path, begun: Plan) -> dict[str, bool]:
    """Sources without a clip in the manifest, in a record that an interrupted run left, or on the disk.

    Source -> whether it was made.
    """
    try:
        rows = {clip.source for clip in Manifest.read(out)} if (out / MANIFEST).exists() else set()
    except CorpusError:  # damaged: nobody knows
        return {}
    bare = [one.source for one in begun.sources if one.source not in rows and not _has_files(out, one.source)]
    records = {source: read_record(out, source) for source in bare}
    return {
        source: record is not None
        for source, record in records.items()
        if record is None or all("duplicate_of" in clip for clip in record["clips"])
    }


def _has_files(out: Path, source: str) -> bool:
    return any(path.is_file() for path in (out / "clips" / source).rglob("*"))


def _forget_changed(out: Path, begun: Plan, plan: Plan) -> int:
    """Remove what was made of sources that are planned anew, or no more; how many have stayed as they were."""
    now = {one.source: one for one in plan.sources}
    changed = [one for one in begun.sources if now.get(one.source) != one]
    for one in changed:
        _forget(out, one.source)
        shutil.rmtree(out / AUDIT / one.source, ignore_errors=True)
    return len(begun.sources) - len(changed)


def _forget(out: Path, source: str) -> None:
    shutil.rmtree(out / "clips" / source, ignore_errors=True)
    record_path(out, source).unlink(missing_ok=True)


class _Line:
    """The line of progress, in seconds of footage: a long file moves it, too. It never goes back.

    `there` are sources that seem to be made already: they count from the start, though each is still looked at.
    """

    def __init__(self, sources: Sequence[PlannedSource], there: set[str], progress: Progress) -> None:
        self._seconds = {source.source: source.seconds for source in sources}
        self._there, self._progress, self._lock = there, progress, threading.Lock()
        self._finished: set[str] = set()
        self._shown = 0
        self.look({})

    def look(self, underway: Mapping[str, float]) -> None:
        """Sources that somebody is busy with, and how far they are."""
        with self._lock:
            if len(self._finished) < len(self._seconds):
                self._show(underway)

    def finish(self, source: str) -> None:
        with self._lock:
            self._finished.add(source)
            self._show({})

    def _show(self, underway: Mapping[str, float]) -> None:
        total = math.ceil(sum(self._seconds.values()))
        reached = {**underway, **dict.fromkeys(self._finished | self._there, math.inf)}
        now = math.floor(sum(min(at, self._seconds[name]) for name, at in reached.items()))
        finished, sources = len(self._finished), len(self._seconds)
        self._shown = total if finished == sources else max(self._shown, min(now, total - 1))
        self._progress(self._shown, total, f"{finished} of {counted(sources, 'source')}")


def _make(out: Path, jobs: Sequence[SourceJob], engine: Engine, line: _Line) -> Ingested:
    result = Ingested(Manifest([]), [])
    with watched(out, line.look):
        for number, made in engine.run(make_source, jobs, [job.cores for job in jobs]):
            source = jobs[number].source
            if isinstance(made, Lost):
                why = f"the process that decoded it {made.why}"
                result.rejected.append(Rejected(source.file, "reading", "unreadable", why, source.source))
                _forget(out, source.source)
            else:
                result.repaired += made.repaired
                result.seconds += made.seconds
                for stage, seconds in made.spent.items():
                    result.spent[stage] = result.spent.get(stage, 0.0) + seconds
            line.finish(source.source)
    return result


def _assemble(out: Path, plan: Plan, settings: IngestSettings, statement: dict[str, str], result: Ingested) -> Ingested:
    """The tables of the corpus, and its shards, from the records of its sources.

    Of clips that show the same, the first is kept: in the order in which sources came, so that none is lost again.
    """
    rows: list[Clip] = []
    kept: list[dict[str, Any]] = []
    catalogue = Catalogue()
    for source in plan.sources:
        record = read_record(out, source.source)
        if record is None:
            continue  # lost; said already
        result.rejected += [Rejected(**one) for one in record["rejected"]]
        for clip in record["clips"]:
            film = base64.b64decode(clip["signature"])
            match = catalogue.nearest(film)
            if match is not None and match.similarity > settings.quality.max_similarity:
                _drop(out, source, record, clip, match.name, f"{match.similarity:.2f}")
            if "duplicate_of" in clip:  # also if that clip's source cannot be read any more: this one's file is gone
                detail = f"shows what {clip['duplicate_of']} shows (similarity {clip['similarity']})"
                where = {key: clip[key] for key in ("clip_id", "shot", "t_start", "t_end")}
                result.rejected.append(Rejected(source.file, "quality", "duplicate", detail, source.source, **where))
            else:
                catalogue.add(clip["clip_id"], film)
                kept.append(clip)
                rows.append(_row(source, record, clip, settings, statement))
    if settings.store.kind == "shards":
        lay_into_shards(out, kept, settings.store.shard_mb * 1_000_000)
    rows = _with_columns_of_others(out, rows)
    rows.sort(key=lambda row: row.source)
    result.rejected.sort(key=lambda one: (one.file, one.t_start or 0.0, one.stage, one.reason))
    result.manifest = Manifest(rows)
    write_rejected(out, result.rejected)
    write_datacard(out, result.manifest, _processing(settings, plan), statement, result.rejected)
    result.manifest.write(out)
    return result


def _with_columns_of_others(out: Path, rows: Sequence[Clip]) -> list[Clip]:
    """Clips that are as they were keep attributes that were added since, such as the strata of `regime measure`."""
    try:
        before = {clip.clip_id: clip for clip in Manifest.read(out)}
    except CorpusError:  # none yet, or damaged: it is written anew
        return list(rows)
    return [
        replace(row, attributes={**was.attributes, **row.attributes})
        if (was := before.get(row.clip_id)) and _is_as_it_was(row, was)
        else row
        for row in rows
    ]


def _is_as_it_was(row: Clip, was: Clip) -> bool:
    return row.attributes.items() <= was.attributes.items() and row == replace(was, attributes=row.attributes)


def _drop(
    out: Path, source: PlannedSource, record: dict[str, Any], clip: dict[str, Any], repeats: str, similarity: str
) -> None:
    """Remove a clip that repeats another; its record says so first, so that nobody takes the file for lost."""
    if clip.get("duplicate_of") != repeats:
        clip |= {"duplicate_of": repeats, "similarity": similarity}
        write_text(record_path(out, source.source), json.dumps(record, ensure_ascii=False))
    for path in (clip["path"], sidecar_path(clip["path"], NOTES)):
        with contextlib.suppress(FileNotFoundError):
            (out / path).unlink()


def _row(
    source: PlannedSource,
    record: dict[str, Any],
    clip: dict[str, Any],
    settings: IngestSettings,
    statement: dict[str, str],
) -> Clip:
    attributes: dict[str, Attribute] = {
        **source.attributes,
        **clip["measures"],
        **{f"privacy_{name}": count for name, count in clip["privacy"].items()},
        "privacy": statement["privacy"].split(":")[0],
        "source_file": source.file,
        "source_sha256": source.sha256,
        "transforms": SEPARATOR.join(record["transforms"]),
    }
    return Clip(
        clip_id=clip["clip_id"],
        city=source.city,
        session=source.session,
        source=source.source,
        shot=clip["shot"],
        capture_mode=source.capture_mode,
        t_start=clip["t_start"],
        t_end=clip["t_end"],
        fps=settings.clips.fps,
        width=clip["width"],
        height=clip["height"],
        path=clip["path"],
        split=source.split,
        attributes=attributes,
    )


def _processing(settings: IngestSettings, plan: Plan) -> list[str]:
    """What was done to the footage, for the data card."""
    clips, shots, quality, splits = settings.clips, settings.shots, settings.quality, settings.splits
    shares = "/".join(f"{100 * share:g}" for share in splits.shares)
    return [
        f"{len(plan.sources)} source videos were decoded once with FFmpeg (through PyAV), their timestamps kept: "
        "turned upright, deinterlaced and brought to square pixels where needed.",
        "Shot boundaries: PySceneDetect AdaptiveDetector with "
        f"adaptive_threshold={shots.adaptive_threshold:g}, min_content_val={shots.min_content_val:g}, "
        f"window_width={shots.window_width}, min_scene_len={shots.min_scene_len} frames; also wherever more than "
        f"{shots.max_gap:g} s of frames are missing. No clip crosses one.",
        f"Clips of {clips.min_seconds:g}-{clips.max_seconds:g} s, resampled by timestamp to {clips.fps:g} frames per "
        f"second, short side at most {clips.short_side} pixels, stored as H.264.",
        f"Splits were dealt to whole {splits.by}s before anything was cut, {shares} by city and capture mode (or as "
        "the table of sources said); audit cities are seen by no other split.",
        f"Left out: clips with sharpness below {quality.min_sharpness:g}, mean brightness outside "
        f"{quality.min_brightness:g}-{quality.max_brightness:g}, more than "
        f"{quality.max_clipped:.0%} of the picture black or white, less than "
        f"{quality.min_motion:.2%} of it moving, or similarity above {quality.max_similarity:g} with another clip.",
    ]  # fmt: skip


def _refuse_foreign(out: Path) -> None:
    """Before anything is written: the folder must be new, empty, or one of ours."""
    if out.exists() and not out.is_dir():
        raise CorpusError(f"{out}: is a file; name a folder")
    if out.is_dir() and not (out / PLAN).exists() and any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise CorpusError(f"{out}: is not empty and was not begun by ingest; choose an empty folder")


def _claim(out: Path, plan: IngestPlan) -> None:
    path = out / PLAN
    if not path.exists():
        write_text(path, dump(plan))
        return
    there = resolve(IngestPlan, path)
    mine, theirs = (_identity(one) for one in (plan, there))
    if differing := [name for name in mine | theirs if mine.get(name) != theirs.get(name)]:
        raise CorpusError(
            f"{out}: was begun with other settings ({', '.join(differing)}; see {PLAN}); choose an empty folder, or "
            "repeat its settings to finish it"
        )


def _identity(plan: IngestPlan) -> dict[str, Any]:
    """Everything in which two runs of one corpus must agree, by name."""
    settings = plan.settings
    privacy = {name if name == "privacy" else f"privacy: {name}": value for name, value in plan.privacy.items()}
    return settings.deciding() | privacy | {"store": settings.store.model_dump(), "version": plan.version}
