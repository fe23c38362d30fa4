"""One source video to clips on disk: decoded once, cut, judged, filtered for privacy, encoded.

A source's record is written last and holds size and checksum of its clips: a source that agrees with its record is
complete. A source that was interrupted is decoded again, but clips that are whole are kept as they are. So it is where
contact sheets are asked for later: the filter looks again, and only the sheet is written.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..corpus.rejected import Rejected
from ..corpus.shards import sidecar_path
from ..engines import still_alive
from ..errors import FactorJEPAError, StorageError
from ..storage import write_atomic, write_text
from ..video import Frames, reason_of, write_video
from .cutting import ClipCutter, Sampled, Sampler, ShortShot, Span
from .decoding import Decoded, Framing, SourceVideo
from .duplicates import signature
from .limits import limited
from .measuring import faults, measure
from .planning import PlannedSource
from .privacy.interface import Filtered, PrivacyFilter
from .settings import IngestSettings
from .sharding import NOTES, damage_of, held
from .shots import ShotDetector

RECORDS, AUDIT = "records", "audit"
Build = Callable[[], PrivacyFilter]  # makes the filter in the process that uses it
_builds: dict[str, PrivacyFilter] = {}  # of this process: a filter holds networks


@dataclass(frozen=True)
class SourceJob:
    """All that a worker needs to know of one source."""

    out: Path
    path: Path
    source: PlannedSource
    settings: IngestSettings
    build: Build
    statement: dict[str, str]
    audit: bool = False
    threads: int = 1

    @property
    def identity(self) -> str:
        """What decides the bytes of this source's clips."""
        parts = [__version__, self.settings.deciding(), self.statement, asdict(self.source)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass
class Made:
    """How making a source went; what came of it is in its record."""

    clips: int = 0
    seconds: float = 0.0  # of footage that was decoded here; 0 if everything was there
    repaired: list[str] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)  # seconds by stage


def make_source(job: SourceJob) -> Made:
    """Make what is missing of one source."""
    made, repeats = Made(), {}
    record = read_record(job.out, job.source.source)
    if record is not None and record["identity"] == job.identity:
        repeats = {clip["clip_id"]: clip for clip in record["clips"] if "duplicate_of" in clip}
        kept = [clip for clip in record["clips"] if "duplicate_of" not in clip]
        made.repaired = [what for clip in kept if (what := damage_of(job.out, clip))]
        if not made.repaired and not (job.audit and _lacks_sheets(job.out, kept, record["rejected"])):
            made.clips = len(record["clips"])
            return made
    with limited(job.settings.limits):
        record = _Maker(job, made, _filter_of(job), repeats).make()
        made.clips = len(record["clips"])
        write_text(record_path(job.out, job.source.source), json.dumps(record, ensure_ascii=False))
    return made


def _lacks_sheets(out: Path, kept: list[dict[str, Any]], rejected: list[dict[str, Any]]) -> bool:
    """Whether a clip that the filter has looked at, kept or not, has no contact sheet."""
    seen = [*kept, *(one for one in rejected if one["stage"] == "privacy")]
    return any(not sheet_path(out, one["clip_id"]).exists() for one in seen)


def sheet_path(out: Path, clip_id: str) -> Path:
    source, _, place = clip_id.rpartition("#")
    return out / AUDIT / source / f"{place.replace('.', '-')}.png"


def record_path(out: Path, source: str) -> Path:
    return out / RECORDS / f"{source}.json"


def read_record(out: Path, source: str) -> dict[str, Any] | None:
    """What came of a source, if it is complete."""
    try:
        found = json.loads(record_path(out, source).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"identity", "clips", "rejected"} <= found.keys() else None


class _Maker:
    """The way of one source through the stages. `repeats` are clips of it that are known to repeat others."""

    def __init__(self, job: SourceJob, made: Made, privacy: PrivacyFilter, repeats: dict[str, dict[str, Any]]) -> None:
        self._job, self._made, self._settings = job, made, job.settings
        self._privacy, self._repeats = privacy, repeats
        self._video = SourceVideo(job.path, job.source.file, job.threads)
        self._clips: list[dict[str, Any]] = []
        self._rejected: list[Rejected] = []
        self._framing: Framing | None = None
        self._frames = 0

    def make(self) -> dict[str, Any]:
        reached = 0.0
        try:
            for span in self._spans():
                self._take(span)
                reached = span.last / self._settings.clips.fps
        except StorageError:
            raise
        except FactorJEPAError as error:
            self._refuse_rest(reached, str(error))
        except Exception as error:  # whatever a decoder makes of a hostile file concerns that file
            self._refuse_rest(reached, f"{type(error).__name__}: {reason_of(error)}")
        seconds, stated = self._frames / self._settings.clips.fps, self._job.source.seconds
        self._made.seconds = seconds
        if faulty := str(self._video.faults):
            self._reject("reading", "damaged", faulty)
        if seconds and stated - seconds > max(1.0, 0.02 * stated):
            self._reject("reading", "shorter than stated", f"{seconds:.1f} s could be read of {stated:.1f} s")
        return {
            "identity": self._job.identity,
            "seconds": seconds,
            "transforms": self._transforms(),
            "clips": self._clips,
            "rejected": [asdict(one) for one in self._rejected],
        }

    def _spans(self) -> Iterator[Span | ShortShot]:
        """Decoded frames, resampled and gathered: clips to be, and shots too short for one."""
        settings = self._settings
        detector, cutter = ShotDetector(settings.shots), ClipCutter(settings.clips)
        sampler = Sampler(settings.clips.fps)
        before: Decoded | None = None
        failure: Exception | None = None
        try:
            for frame in self._timed("decode", self._video.frames()):
                still_alive(settings.limits.patience)
                gap = frame.broken or (before is not None and frame.at - before.at > settings.shots.max_gap)
                with self._timing("shots"):
                    boundaries = detector.feed(frame.index, frame.frame, gap)
                if before is not None:
                    until = min(frame.at, before.at + before.duration) if gap else frame.at
                    for picture in self._pictures(sampler, before, until):
                        yield from cutter.push(picture)
                for boundary in boundaries:
                    yield from cutter.boundary(boundary)
                before = frame
        except Exception as error:  # what came before it can still be used
            failure = error
        if before is not None:
            for picture in self._pictures(sampler, before, before.at + before.duration):
                yield from cutter.push(picture)
        yield from cutter.end()
        if failure is not None:
            raise failure

    def _pictures(self, sampler: Sampler, frame: Decoded, until: float) -> Iterator[Sampled]:
        numbers = sampler.shown(frame.at, until)
        if not numbers:
            return
        with self._timing("resize"):
            if self._framing is None:
                self._framing = Framing.of(frame.frame, self._video.aspect, self._settings.clips.short_side)
            picture = self._framing.picture(frame.frame)
        self._frames += len(numbers)
        yield from (Sampled(number, frame.index, picture) for number in numbers)

    def _take(self, span: Span | ShortShot) -> None:
        """Keep a clip, or say why not."""
        fps = self._settings.clips.fps
        place = {"shot": span.shot, "t_start": span.first / fps, "t_end": span.last / fps}
        if isinstance(span, ShortShot):
            least = self._settings.clips.min_seconds
            self._reject("shots", "short shot", f"{span.length / fps:.2f} s of at least {least:g} s", **place)
            return
        clip_id = f"{self._job.source.source}#{span.shot}.{span.clip}"
        path = f"clips/{self._job.source.source}/{span.shot}-{span.clip}.mp4"
        there = self._repeats.get(clip_id) or self._whole(path, place)
        shown = not self._job.audit or clip_id in self._repeats or sheet_path(self._job.out, clip_id).exists()
        if there is not None and shown:
            self._clips.append(there)
            return
        frames = np.stack([one.picture for one in span.frames])
        own = slice(span.before, span.before + span.length)
        with self._timing("quality"):
            measures = measure(frames[own], fps)
            found = list(faults(measures, self._settings.quality))
        if found:
            words, details = (" and ".join(part) for part in zip(*found, strict=True))
            self._reject("quality", words, details, clip_id=clip_id, **place)
            return
        with self._timing("privacy"):
            still_alive(self._settings.limits.privacy_patience)
            filtered = self._filtered(frames)
            still_alive(self._settings.limits.patience)
        if self._job.audit and filtered.audit:
            page = filtered.audit
            write_atomic(sheet_path(self._job.out, clip_id), lambda temporary: temporary.write_bytes(page))
        if there is not None:
            self._clips.append(there)
            return
        if filtered.failures:
            self._reject("privacy", "failed checks", "; ".join(filtered.failures), clip_id=clip_id, **place)
            return
        kept = filtered.frames[own]
        with self._timing("quality"):
            film = signature(kept, fps)
        figures = {name: round(value, 5) for name, value in asdict(measures).items()}
        entry = {"clip_id": clip_id, "path": path, **place, "width": kept.shape[2], "height": kept.shape[1],
                 "measures": figures, "privacy": dict(sorted(filtered.counts.items())),
                 "signature": base64.b64encode(film).decode()}  # fmt: skip
        with self._timing("encode"):
            self._clips.append(self._write(kept, entry))

    def _filtered(self, frames: Frames) -> Filtered:
        """Fail-closed: a filter that raises, or hands back something else than it was given, excludes the clip."""
        try:
            filtered = self._privacy(frames, self._settings.clips.fps, audit=self._job.audit)
        except StorageError:
            raise
        except Exception as error:
            return Filtered(frames, (f"the filter failed ({type(error).__name__}: {error})",))
        if filtered.frames.shape != frames.shape or filtered.frames.dtype != np.uint8:
            return Filtered(frames, (f"the filter returned {filtered.frames.dtype} {filtered.frames.shape}",))
        return filtered

    def _write(self, frames: Frames, entry: dict[str, Any]) -> dict[str, Any]:
        """The video first, its notes last."""
        video = self._job.out / entry["path"]
        write_video(video, frames, self._settings.clips.fps)
        data = video.read_bytes()
        entry = {**entry, "size": len(data), "crc32": zlib.crc32(data)}
        source = self._job.source
        notes = {
            **source.attributes, "identity": self._job.identity, **entry, "city": source.city,
            "session": source.session, "source": source.source, "source_file": source.file,
            "source_sha256": source.sha256, "capture_mode": source.capture_mode, "transforms": self._transforms(),
        }  # fmt: skip
        write_text(self._job.out / sidecar_path(entry["path"], NOTES), json.dumps(notes, ensure_ascii=False))
        return entry

    def _whole(self, path: str, place: dict[str, Any]) -> dict[str, Any] | None:
        """The entry of a clip that an interrupted run has finished."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            notes = json.loads(held(self._job.out, sidecar_path(path, NOTES)) or b"")
            same = notes["identity"] == self._job.identity and all(notes[key] == value for key, value in place.items())
            if same and not damage_of(self._job.out, notes):
                return {key: notes[key] for key in _ENTRY}
        return None

    def _transforms(self) -> list[str]:
        framing, fps = self._framing, self._settings.clips.fps
        done = ["deinterlaced"] if self._video.deinterlaced else []
        return [*done, *(framing.transforms if framing else ()), f"resampled to {fps:g} fps"]

    def _reject(self, stage: str, reason: str, detail: str, **where: Any) -> None:
        self._rejected.append(Rejected(self._job.source.file, stage, reason, detail, self._job.source.source, **where))

    def _refuse_rest(self, reached: float, why: str) -> None:
        start = f"from {reached:.1f} s on: " if reached else ""
        self._reject("reading", "unreadable", start + why)

    @contextlib.contextmanager
    def _timing(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._made.spent[stage] = self._made.spent.get(stage, 0.0) + time.perf_counter() - began

    def _timed(self, stage: str, items: Iterator[Decoded]) -> Iterator[Decoded]:
        while True:
            with self._timing(stage):
                item = next(items, None)
            if item is None:
                return
            yield item


_ENTRY = (
    "clip_id", "path", "shot", "t_start", "t_end", "width", "height", "measures", "privacy", "signature", "size",
    "crc32",
)  # fmt: skip


def _filter_of(job: SourceJob) -> PrivacyFilter:
    key = json.dumps(job.statement, sort_keys=True)
    if key not in _builds:
        _builds[key] = job.build()
    return _builds[key]
