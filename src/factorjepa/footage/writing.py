"""One clip to be: judged, filtered for privacy, encoded. Clips are independent: any process can make any of them.

The video is written first and its notes last, so that a clip whose notes agree with it is whole.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..corpus.rejected import Rejected
from ..corpus.shards import sidecar_path
from ..engines import still_alive
from ..errors import StorageError
from ..storage import write_atomic, write_text
from ..video import Frames, reason_of, write_video
from .duplicates import signature
from .job import SourceJob, sheet_path, timing
from .limits import limited
from .measuring import faults, measure
from .privacy.interface import Filtered, PrivacyFilter
from .sharding import NOTES, damage_of, held

Entry = dict[str, Any]  # of a clip in the record of its source
_ENTRY = (
    "clip_id", "path", "shot", "t_start", "t_end", "width", "height", "measures", "privacy", "signature", "size",
    "crc32",
)  # fmt: skip
_builds: dict[str, PrivacyFilter] = {}  # of this process: a filter holds networks


@dataclass(frozen=True)
class ClipJob:
    """A clip to be, with what the shot shows around it."""

    source: SourceJob
    number: int  # among the spans of the source
    clip_id: str
    path: str
    place: dict[str, Any]  # shot, t_start, t_end
    frames: Frames  # T x H x W x 3
    before: int  # how many of them come before the clip
    length: int  # how many of them are the clip
    transforms: list[str]
    there: Entry | None = None  # the clip is written already, and only its contact sheet is asked for

    def rejected(self, stage: str, reason: str, detail: str) -> Rejected:
        source = self.source.source
        return Rejected(source.file, stage, reason, detail, source.source, clip_id=self.clip_id, **self.place)


@dataclass
class Outcome:
    """What came of a span: a clip, or the reason why there is none."""

    number: int
    entry: Entry | None = None
    rejected: Rejected | None = None
    spent: dict[str, float] = field(default_factory=dict)  # seconds by stage


def make_clip(job: ClipJob) -> Outcome:
    """Keep a clip, or say why not. What goes wrong costs this clip, and only a full disk ends the run."""
    made = Outcome(job.number)
    with limited(job.source.settings.limits):
        try:
            _make(job, made)
        except StorageError:
            raise
        except Exception as error:  # whatever an encoder makes of strange pictures concerns these
            made.rejected = job.rejected("writing", "not made", f"{type(error).__name__}: {reason_of(error)}")
    return made


def whole(job: SourceJob, path: str, place: dict[str, Any]) -> Entry | None:
    """The entry of a clip that an interrupted run has finished."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        notes = json.loads(held(job.out, sidecar_path(path, NOTES)) or b"")
        same = notes["identity"] == job.identity and all(notes[key] == value for key, value in place.items())
        if same and not damage_of(job.out, notes):
            return {key: notes[key] for key in _ENTRY}
    return None


def _make(job: ClipJob, made: Outcome) -> None:
    settings = job.source.settings
    fps, own = settings.clips.fps, slice(job.before, job.before + job.length)
    with timing(made.spent, "quality"):
        measures = measure(job.frames[own], fps)
        found = list(faults(measures, settings.quality))
    if found:
        words, details = (" and ".join(part) for part in zip(*found, strict=True))
        made.rejected = job.rejected("quality", words, details)
        return
    with timing(made.spent, "privacy"):
        still_alive(settings.limits.privacy_patience)
        filtered = _filtered(job)
        still_alive(settings.limits.patience)
    if job.source.audit and filtered.audit:
        page = filtered.audit
        write_atomic(sheet_path(job.source.out, job.clip_id), lambda temporary: temporary.write_bytes(page))
    if job.there is not None:
        made.entry = job.there
        return
    if filtered.failures:
        made.rejected = job.rejected("privacy", "failed checks", "; ".join(filtered.failures))
        return
    kept = filtered.frames[own]
    with timing(made.spent, "quality"):
        film = signature(kept, fps)
    figures = {name: round(value, 5) for name, value in asdict(measures).items()}
    entry = {"clip_id": job.clip_id, "path": job.path, **job.place, "width": kept.shape[2], "height": kept.shape[1],
             "measures": figures, "privacy": dict(sorted(filtered.counts.items())),
             "signature": base64.b64encode(film).decode()}  # fmt: skip
    with timing(made.spent, "encode"):
        made.entry = _write(job, kept, entry)


def _filtered(job: ClipJob) -> Filtered:
    """Fail-closed: a filter that raises, or hands back something else than it was given, excludes the clip."""
    frames, privacy = job.frames, _filter_of(job.source)
    try:
        filtered = privacy(frames, job.source.settings.clips.fps, audit=job.source.audit)
    except StorageError:
        raise
    except Exception as error:
        return Filtered(frames, (f"the filter failed ({type(error).__name__}: {error})",))
    if filtered.frames.shape != frames.shape or filtered.frames.dtype != np.uint8:
        return Filtered(frames, (f"the filter returned {filtered.frames.dtype} {filtered.frames.shape}",))
    return filtered


def _filter_of(job: SourceJob) -> PrivacyFilter:
    """Of this process. One that cannot be made says nothing about a clip: it ends the run, and nothing is recorded."""
    key = json.dumps(job.statement, sort_keys=True)
    if key not in _builds:
        try:
            _builds[key] = job.build()
        except Exception as error:
            raise StorageError(
                f"the privacy filter cannot be made ({type(error).__name__}: {error}); what is finished is kept: run "
                "the same command again, with fewer --workers if memory is short"
            ) from error
    return _builds[key]


def _write(job: ClipJob, frames: Frames, entry: Entry) -> Entry:
    out, source = job.source.out, job.source.source
    video = out / entry["path"]
    write_video(video, frames, job.source.settings.clips.fps)
    data = video.read_bytes()
    entry = {**entry, "size": len(data), "crc32": zlib.crc32(data)}
    notes = {
        **source.attributes, "identity": job.source.identity, **entry, "city": source.city,
        "session": source.session, "source": source.source, "source_file": source.file,
        "source_sha256": source.sha256, "capture_mode": source.capture_mode, "transforms": job.transforms,
    }  # fmt: skip
    write_text(out / sidecar_path(entry["path"], NOTES), json.dumps(notes, ensure_ascii=False))
    return entry
