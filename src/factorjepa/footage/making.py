"""One source video to clips on disk: decoded once, cut, and each clip made where a core is free.

Shots are found in one pass, in order of time; the clips of a long source are then made by several processes, and what
is kept and why is the same, to the byte, as one process gives. Pictures go from one to the other through a pipe: no
frame that was not filtered reaches a disk.

A clip that kills the process that makes it, each time, is rejected, and the rest of its source is made. Where a source
has one core, its clips are made by the process that decodes it; if that dies in a clip, the next has another make them.

A source's record is written last and holds size and checksum of its clips: a source that agrees with its record is
complete. A source that was interrupted is decoded again, but clips that are whole are kept as they are. So it is where
contact sheets are asked for later: the filter looks again, and only the sheet is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..corpus.rejected import DAMAGED, REST, SHORTER, Rejected
from ..engines import Here, Lost, Processes, still_alive
from ..errors import FactorJEPAError, StorageError
from ..storage import write_text
from ..video import reason_of
from ..workers import granted_cores
from .ahead import ahead
from .cutting import ClipCutter, Sampled, Sampler, ShortShot, Span
from .decoding import Decoded, Framing, SourceVideo
from .job import SourceJob, record_path, sheet_path, timing
from .limits import limited
from .sharding import damage_of
from .shots import ShotDetector
from .underway import Underway
from .writing import ClipJob, Entry, Outcome, make_clip, whole


@dataclass
class Made:
    """How making a source went; what came of it is in its record."""

    clips: int = 0
    seconds: float = 0.0  # of footage that was decoded here; 0 if everything was there
    repaired: list[str] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)  # seconds by stage


def shares(seconds: Sequence[float], cores: int, clip: float) -> list[int]:
    """How many cores each source gets: by its length, rounded up, and no more than it has clips of this length."""
    total = sum(seconds)
    return [max(1, min(math.ceil(cores * one / total), cores, math.ceil(one / clip))) if one else 1 for one in seconds]


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
        maker = _Maker(job, made, repeats)
        record = maker.make()
        made.clips = len(record["clips"])
        write_text(record_path(job.out, job.source.source), json.dumps(record, ensure_ascii=False))
        maker.underway.done()
    return made


def _lacks_sheets(out: Path, kept: list[Entry], rejected: list[dict[str, Any]]) -> bool:
    """Whether a clip that the filter has looked at, kept or not, has no contact sheet."""
    seen = [*kept, *(one for one in rejected if one["stage"] == "privacy")]
    return any(not sheet_path(out, one["clip_id"]).exists() for one in seen)


def read_record(out: Path, source: str) -> dict[str, Any] | None:
    """What came of a source, if it is complete."""
    try:
        found = json.loads(record_path(out, source).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"identity", "clips", "rejected"} <= found.keys() else None


class _Maker:
    """The way of one source through the stages. `repeats` are clips of it that are known to repeat others."""

    def __init__(self, job: SourceJob, made: Made, repeats: dict[str, Entry]) -> None:
        self._job, self._made, self._settings, self._repeats = job, made, job.settings, repeats
        self._video = SourceVideo(job.path, job.source.file)
        self._outcomes: dict[int, Outcome] = {}  # by the number of the span
        self._lengths: dict[int, float] = {}  # seconds of spans that have no outcome yet
        self._settled = 0.0  # seconds of those that have one
        self._handed: list[Outcome] = []  # of clips that somebody makes: what is said of them if nobody survives it
        self._ending: list[Rejected] = []  # what concerns the source as a whole
        self._framing: Framing | None = None
        self._frames = 0
        self._deinterlaced = False
        self._cores = min(job.cores, granted_cores())
        self.underway = Underway(job.out, job.source.source)
        self._itself = self._cores == 1 and not self.underway.died_making_a_clip()  # whether clips are made here

    def make(self) -> dict[str, Any]:
        self.underway.tell()
        engine = Here() if self._itself else Processes(self._cores)
        for number, outcome in engine.run(make_clip, self._jobs()):
            if isinstance(outcome, Lost):
                outcome = self._lost(self._handed[number], outcome)
            self._settle(outcome)
            for stage, seconds in outcome.spent.items():
                self._made.spent[stage] = self._made.spent.get(stage, 0.0) + seconds
        seconds, stated = self._frames / self._settings.clips.fps, self._job.source.seconds
        self._made.seconds = seconds
        if faulty := str(self._video.faults):
            self._concerning_all(DAMAGED, faulty)
        if seconds and stated - seconds > max(1.0, 0.02 * stated):
            self._concerning_all(SHORTER, f"{seconds:.1f} s could be read of {stated:.1f} s")
        outcomes = [self._outcomes[number] for number in sorted(self._outcomes)]
        rejected = [*(one.rejected for one in outcomes if one.rejected), *self._ending]
        return {
            "identity": self._job.identity,
            "seconds": seconds,
            "transforms": self._transforms(),
            "clips": [one.entry for one in outcomes if one.entry],
            "rejected": [asdict(one) for one in rejected],
        }

    def _jobs(self) -> Iterator[ClipJob]:
        """Clips that are to be made, as the source is decoded; what needs no making is noted on the way.

        Nothing is raised but by a full disk: clips that others are busy with are still wanted.
        """
        reached = 0.0
        try:
            for number, span in enumerate(self._spans()):
                self._lengths[number] = span.length / self._settings.clips.fps
                job = self._job_of(number, span)
                if job is not None:
                    still_alive(0)  # those who make clips are watched themselves
                    self._handed.append(Outcome(number, rejected=job.rejected("writing", "not made", "")))
                    self.underway.tell(making=self._itself)
                    yield job
                    self.underway.tell()
                    still_alive(self._settings.limits.patience)
                del job  # its pictures
                reached = span.last / self._settings.clips.fps
        except StorageError:
            raise
        except FactorJEPAError as error:
            self._refuse_rest(reached, str(error))
        except Exception as error:  # whatever a decoder makes of a hostile file concerns that file
            self._refuse_rest(reached, f"{type(error).__name__}: {reason_of(error)}")
        finally:
            still_alive(0)

    def _spans(self) -> Iterator[Span | ShortShot]:
        """Decoded frames, resampled and gathered: clips to be, and shots too short for one."""
        settings = self._settings
        detector, cutter = ShotDetector(settings.shots), ClipCutter(settings.clips)
        sampler = Sampler(settings.clips.fps)
        before: Decoded | None = None
        failure: Exception | None = None
        try:
            for frame in ahead(self._decoded()) if self._cores > 1 else self._decoded():
                still_alive(settings.limits.patience)
                self._deinterlaced = frame.deinterlaced
                gap = frame.broken or (before is not None and frame.at - before.at > settings.shots.max_gap)
                with timing(self._made.spent, "shots"):
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
        with timing(self._made.spent, "resize"):
            if self._framing is None:
                self._framing = Framing.of(frame.frame, self._video.aspect, self._settings.clips.short_side)
            picture = self._framing.picture(frame.frame)
        self._frames += len(numbers)
        yield from (Sampled(number, frame.index, picture) for number in numbers)

    def _job_of(self, number: int, span: Span | ShortShot) -> ClipJob | None:
        """What there is to do about a span; nothing where its outcome is known already."""
        fps, source = self._settings.clips.fps, self._job.source
        place: dict[str, Any] = {"shot": span.shot, "t_start": span.first / fps, "t_end": span.last / fps}
        if isinstance(span, ShortShot):
            detail = f"{span.length / fps:.2f} s of at least {self._settings.clips.min_seconds:g} s"
            rejected = Rejected(source.file, "shots", "short shot", detail, source.source, **place)
            self._settle(Outcome(number, rejected=rejected))
            return None
        clip_id = f"{source.source}#{span.shot}.{span.clip}"
        path = f"clips/{source.source}/{span.shot}-{span.clip}.mp4"
        there = self._repeats.get(clip_id) or whole(self._job, path, place)
        shown = not self._job.audit or clip_id in self._repeats or sheet_path(self._job.out, clip_id).exists()
        if there is not None and shown:
            self._settle(Outcome(number, there))
            return None
        frames = np.stack([one.picture for one in span.frames])
        return ClipJob(
            self._job, number, clip_id, path, place, frames, span.before, span.length, self._transforms(), there
        )

    def _settle(self, outcome: Outcome) -> None:
        """The line of progress counts this: decoding runs ahead of what comes after it, often most of the work."""
        self._outcomes[outcome.number] = outcome
        self._settled += self._lengths.pop(outcome.number)
        self.underway.reached(self._settled)

    def _lost(self, clip: Outcome, lost: Lost) -> Outcome:
        assert clip.rejected is not None
        again = record_path(Path(), self._job.source.source)
        detail = f"the process that made it {lost.why}, each time; remove {again} to try once more"
        return replace(clip, rejected=replace(clip.rejected, detail=detail))

    def _transforms(self) -> list[str]:
        framing, fps = self._framing, self._settings.clips.fps
        done = ["deinterlaced"] if self._deinterlaced else []
        return [*done, *(framing.transforms if framing else ()), f"resampled to {fps:g} fps"]

    def _concerning_all(self, reason: str, detail: str) -> None:
        self._ending.append(Rejected(self._job.source.file, "reading", reason, detail, self._job.source.source))

    def _refuse_rest(self, reached: float, why: str) -> None:
        if reached:
            self._concerning_all(REST, f"from {reached:.1f} s on: {why}")
        else:
            self._concerning_all("unreadable", why)

    def _decoded(self) -> Iterator[Decoded]:
        frames = self._video.frames()
        while True:
            with timing(self._made.spent, "decode"):
                frame = next(frames, None)
            if frame is None:
                return
            yield frame
