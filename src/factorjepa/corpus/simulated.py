"""A simulated corpus on disk: clips as H.264 files with ground truth beside them, and a manifest.

The work is planned before it starts: sources get their split, then clips are made source by source in worker processes.
A clip's notes are written last and hold size and checksum of its other files, so a clip that agrees with its notes is
complete. Run the same command again after an interruption and it goes on where it stopped; the result is the same
bytes. Files that were damaged since are noticed and made again.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import multiprocessing
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from .. import __version__
from ..config import Settings, dump, flattened, resolve
from ..errors import CorpusError, StorageError
from ..seeding import stream
from ..storage import only_writer, remove_partials, write_atomic, write_text
from ..video import write_video
from ..workers import begin_worker, granted_cores, single_threaded
from ..world import WorldSettings, clips
from ..world.measures import measure, superclasses_seen
from ..world.simulator import CLIPS_PER_SOURCE, ClipSpec, SimulatedClip, clip_spec, source_spec
from .datacard import write_datacard
from .manifest import SEPARATOR, Clip, Manifest
from .shards import TRUTH, sidecar_path
from .splits import Source, Split, assign_splits

PLAN = "simulation.yaml"
_MOST_SOURCES = 100  # with so many, no split is empty for want of sources
NOTES = ".json"
_FILES = "files"  # the notes' record of the other files; everything else in them is an attribute of the clip


class SimulationPlan(Settings):
    """Everything that determines the corpus, kept beside it."""

    version: str = __version__
    seed: int = Field(default=0, ge=0)
    clips: int = Field(default=200, ge=1)
    clips_per_source: int = Field(default=CLIPS_PER_SOURCE, ge=1, le=CLIPS_PER_SOURCE)  # fewer: more streets
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)  # of the sources for train, validation and test
    audit_cities: tuple[str, ...] = ()
    dealt_as: int | None = Field(default=None, ge=1)  # splits are those of so many clips, of which these are the first
    world: WorldSettings = WorldSettings()

    @field_validator("dealt_as")
    @classmethod
    def _dealt_as_more(cls, dealt_as: int | None, info: ValidationInfo) -> int | None:
        clips = info.data.get("clips", 1)
        if dealt_as is not None and dealt_as < clips:
            raise ValueError(f"a pilot has fewer clips than the corpus whose splits it takes, and has {clips}")
        return dealt_as

    def specs(self, clips: int | None = None) -> list[ClipSpec]:
        """The clips, source by source; or so many."""
        places = (divmod(number, self.clips_per_source) for number in range(clips or self.clips))
        return [clip_spec(self.world, self.seed, source * CLIPS_PER_SOURCE + shot) for source, shot in places]


def choose_audit_cities(
    settings: WorldSettings, seed: int, clips: int, clips_per_source: int = CLIPS_PER_SOURCE
) -> tuple[str, ...]:
    """A fifth of the cities that `clips` clips come from; none of fewer than four. No other split sees them."""
    sources = min(-(-clips // clips_per_source), len(settings.cities))
    cities = sorted({source_spec(settings, seed, index).city for index in range(sources)})
    count = max(1, len(cities) // 5) if len(cities) >= 4 else 0
    order = stream(seed, "audit").permutation(len(cities))
    return tuple(sorted(cities[k] for k in order[:count]))


def planned(
    world: WorldSettings,
    seed: int,
    clips: int,
    clips_per_source: int,
    shares: tuple[float, float, float],
    dealt_as: int | None = None,
) -> SimulationPlan:
    """Of a corpus with the audit cities that are chosen for it, or for the one as which it is dealt."""
    cities = choose_audit_cities(world, seed, dealt_as or clips, clips_per_source)
    return resolve(
        SimulationPlan, seed=seed, clips=clips, clips_per_source=clips_per_source, shares=shares, world=world,
        audit_cities=cities, dealt_as=dealt_as,
    )  # fmt: skip


def enough_clips(plan: SimulationPlan, compared: Split | None = None) -> int | None:
    """So many clips, in whole streets, leave no split without any, all else as in `plan`; None where none do.

    The split that is `compared` gets two sources.
    """
    for sources in range(-(-plan.clips // plan.clips_per_source), _MOST_SOURCES):
        clips, own = sources * plan.clips_per_source, plan.clips_per_source
        if plan.dealt_as is not None and clips > plan.dealt_as:
            return None
        more = planned(plan.world, plan.seed, clips, own, plan.shares, plan.dealt_as)
        given = sources_of(more)
        if not without_clips(plan, given) and (compared is None or given[compared] > 1):
            return more.clips
    return None


def sources_of(plan: SimulationPlan) -> Counter[Split]:
    """How many each split gets."""
    return Counter(splits_of(plan, plan.specs()).values())


def without_clips(plan: SimulationPlan, given: Iterable[Split]) -> list[Split]:
    """Splits that nobody was given to, but should have been: those with a share, and audit."""
    filled = set(given)
    shared = dict(zip((Split.TRAIN, Split.VALIDATION, Split.TEST), plan.shares, strict=True))
    return [split for split in Split if split not in filled and shared.get(split, 1.0) > 0]


@dataclasses.dataclass(frozen=True)
class _Made:
    """The clips of one source."""

    attributes: list[dict[str, Any]]
    repaired: list[str]  # what was damaged, and how


def simulate_corpus(
    out: Path,
    plan: SimulationPlan,
    workers: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    repaired: Callable[[str], object] | None = None,
) -> Manifest:
    """Make the corpus of `plan` in `out`, or finish it.

    `progress(done, total)` counts clips; `repaired(what)` is told of each file that was damaged and has been replaced.
    """
    out = Path(out)
    _refuse_foreign(out)
    specs = plan.specs()
    splits = splits_of(plan, specs)  # refused plans leave nothing behind
    with only_writer(out, "simulating"):
        _claim(out, plan)
        remove_partials(out)
        jobs = [
            [spec.index for spec in specs[start : start + plan.clips_per_source]]
            for start in range(0, plan.clips, plan.clips_per_source)
        ]
        planned = {spec.index: spec for spec in specs}
        rows: list[Clip] = []
        make = functools.partial(_make_source, out, plan.world.model_dump(), plan.seed)
        for indices, made in zip(jobs, _run(make, jobs, workers), strict=True):
            for index, attributes in zip(indices, made.attributes, strict=True):
                spec = planned[index]
                rows.append(_row(spec, plan.world, splits[spec.source.source], attributes))
            if repaired is not None:
                for what in made.repaired:
                    repaired(what)
            if progress is not None:
                progress(len(rows), plan.clips)
        manifest = Manifest(rows)
        write_datacard(out, manifest, _processing(plan), {"privacy": "not needed: nobody was filmed"})
        manifest.write(out)
    return manifest


def _processing(plan: SimulationPlan) -> list[str]:
    """What the clips are, for the data card."""
    return [
        f"Rendered by the simulated DENSEWORLD of factorjepa {plan.version}, seed {plan.seed}: invented cities, "
        f"streets and crowds, with ground truth beside each clip. Everything that determines it: `{PLAN}`.",
        f"H.264 clips of {plan.world.size} pixels at {plan.world.fps:g} frames per second.",
        "Splits were dealt to whole sources by city and capture mode; audit cities are seen by no other split.",
    ]


def clip_path(spec: ClipSpec) -> str:
    """Where a clip lies in the corpus folder. The name has no dot: archives split names there."""
    return f"clips/{spec.source.source}/{spec.shot}-0.mp4"


def _claim(out: Path, plan: SimulationPlan) -> None:
    """Record the plan in an empty folder, or make sure that the folder holds a part of this very plan."""
    path = out / PLAN
    if path.exists():
        there = resolve(SimulationPlan, path)
        if there != plan:
            had, asked = (flattened(one.model_dump(exclude={"audit_cities"})) for one in (there, plan))
            differing = [f"{key} {had[key]} there, {asked[key]} here" for key in had if had[key] != asked.get(key)]
            raise CorpusError(
                f"{out}: holds a simulation with other settings ({'; '.join(differing)}); choose an empty folder, or "
                "repeat its settings to finish it"
            )
    else:
        write_text(path, dump(plan))


def _refuse_foreign(out: Path) -> None:
    """Before anything is written: the folder must be new, empty, or one of ours."""
    if out.exists() and not out.is_dir():
        raise CorpusError(f"{out}: is a file; name a folder")
    if out.is_dir() and not (out / PLAN).exists() and any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise CorpusError(f"{out}: is not empty and was not begun by simulate; choose an empty folder")


def splits_of(plan: SimulationPlan, specs: list[ClipSpec]) -> dict[str, Split]:
    """Of the sources of these clips. Dealt among all sources of the corpus, so that another number deals them anew."""
    among = specs if plan.dealt_as is None else plan.specs(plan.dealt_as)
    sources = {spec.source.source: spec.source for spec in among}
    named = [Source(s.source, s.city, s.capture_mode) for s in sources.values()]
    dealt = assign_splits(named, plan.seed, plan.audit_cities, plan.shares)
    return {source: dealt[source] for source in sorted({spec.source.source for spec in specs})}


def _run(make: Callable[[list[int]], _Made], jobs: list[list[int]], workers: int | None) -> Iterator[_Made]:
    count = min(len(jobs), workers if workers is not None else granted_cores())
    if count <= 1:
        yield from map(make, jobs)
        return
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=begin_worker)
    try:
        with single_threaded():
            made = pool.map(make, jobs)
        yield from made
    except BrokenProcessPool:
        raise StorageError(
            "a worker process was killed (out of memory?); finished clips are kept: run the same command again, "
            "with fewer --workers if it happens again"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _make_source(out: Path, world: dict[str, Any], seed: int, indices: list[int]) -> _Made:
    """Make the missing and the damaged clips of one source; return the attributes of all of them."""
    settings = WorldSettings.model_validate(world)
    paths = {index: clip_path(clip_spec(settings, seed, index)) for index in indices}
    missing, repaired = [], []
    for index, path in paths.items():
        if (notes := _notes(out, path)) is None:
            missing.append(index)
        elif damage := _damage(out, path, notes):
            missing.append(index)
            repaired.append(damage)
    if missing:
        for clip in clips(settings, seed, missing):
            _write_clip(out, paths[clip.spec.index], clip)
    attributes = []
    for path in paths.values():
        if (notes := _notes(out, path)) is None:
            raise StorageError(f"{out / path}: disappeared while the corpus was made; run the same command again")
        attributes.append({name: value for name, value in notes.items() if name != _FILES})
    return _Made(attributes, repaired)


def _notes(out: Path, path: str) -> dict[str, Any] | None:
    """What is noted of a clip when it is complete; None where that is missing or unreadable."""
    try:
        found = json.loads((out / sidecar_path(path, NOTES)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get(_FILES), dict) else None


def _damage(out: Path, path: str, notes: dict[str, Any]) -> str:
    """How a clip's files differ from its notes: nothing, or one that is missing, cut short or altered."""
    for name, (size, checksum) in notes[_FILES].items():
        file = (out / path).with_name(name)
        if not file.is_file():
            return f"{file}: was missing"
        if (found := file.stat().st_size) != size:
            return f"{file}: had {found} of {size} bytes"
        if zlib.crc32(file.read_bytes()) != checksum:
            return f"{file}: its bytes had changed"
    return ""


def _write_clip(out: Path, path: str, clip: SimulatedClip) -> None:
    video, truth, notes = out / path, out / sidecar_path(path, TRUTH), out / sidecar_path(path, NOTES)
    truths = []

    def frames() -> Iterator[NDArray[np.uint8]]:
        for frame, seen in clip.frames_with_truth():
            truths.append(seen)
            yield frame

    write_video(video, frames(), clip.settings.fps)
    annotated = clip.annotate(truths)
    write_atomic(truth, lambda temporary: temporary.write_bytes(annotated.to_bytes()))
    measures = {name: round(value, 5) for name, value in dataclasses.asdict(measure(annotated)).items()}
    files = {file.name: (file.stat().st_size, zlib.crc32(file.read_bytes())) for file in (video, truth)}
    tags = {"taxonomy": SEPARATOR.join(superclasses_seen(annotated))}
    write_text(notes, json.dumps(clip.attributes() | measures | tags | {_FILES: files}))


def _row(spec: ClipSpec, world: WorldSettings, split: Split, attributes: dict[str, Any]) -> Clip:
    source = spec.source
    return Clip(
        clip_id=spec.clip_id,
        city=source.city,
        session=source.session,
        source=source.source,
        shot=spec.shot,
        capture_mode=source.capture_mode,
        t_start=spec.t_start,
        t_end=spec.t_end,
        fps=world.fps,
        width=world.size,
        height=world.size,
        path=clip_path(spec),
        split=split,
        attributes=attributes,
    )
