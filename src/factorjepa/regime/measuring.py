"""A corpus through the shared protocol: every clip under every variant of the thresholds, then under the controls."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ..corpus.access import ClipSet, Corpus, clips_of
from ..corpus.manifest import Clip, Manifest
from ..corpus.splits import Split
from ..corpus.store import TRUTH, open_store, sidecar_path
from ..engines import Processes, in_order
from ..errors import RegimeError
from ..teacher.cache import HEADER, PacketCache, Packets, corpus_identity
from ..teacher.teacher import teacher_window
from ..workers import granted_cores
from ..world import ClipTruth
from .axes import NAMES, OF_CLASSES, frame_measures
from .classes import ClassAssigner
from .controls import Control, Pool, motion_structure, pool_of, spatially_permuted, temporally_permuted
from .domain import DomainCounts, domain_counts
from .scene import Array, Ints, Scene
from .settings import Thresholds, grid
from .sources import scene_of_packet, scene_of_truth
from .table import COLUMNS, FILE, About, RegimeTable

Progress = Callable[[int, int], object]
_TOGETHER = 32  # clips of a job
_MANY = 256  # clips from which processes are worth their start


class Measurer(Protocol):
    """Where scenes come from. `kind` and `name` are the measuring system: they must agree between corpora."""

    kind: str
    name: str
    unavailable: tuple[str, ...]

    def scene(self, clip: Clip) -> Scene: ...


class TruthMeasurer:
    """Simulated ground truth, of every split: a description of the corpus, which no method is shown."""

    kind, name = "truth", "simulated ground truth"
    unavailable: tuple[str, ...] = ()

    def __init__(self, folder: Path, thresholds: Thresholds) -> None:
        self._store, self._fps = open_store(folder), thresholds.fps

    def scene(self, clip: Clip) -> Scene:
        path = sidecar_path(clip.path, TRUTH)
        if not self._store.exists(path):
            raise RegimeError(
                f"clip {clip.clip_id!r} has no ground truth ({path}): only simulated clips carry it. Make packets with "
                "factorjepa targets and measure with --by teacher"
            )
        return scene_of_truth(ClipTruth.from_bytes(self._store.read(path), f"clip {clip.clip_id!r}"), self._fps)


class TeacherMeasurer:
    """Packets of the frozen teacher. Superclasses come from a detector; without one heterogeneity is unavailable.

    The detector is the one that proposed the regions, if one did, or the one that is given.
    """

    kind = "teacher"

    def __init__(
        self,
        folder: Path,
        packets: Path,
        detector: Path | None = None,
        replication: int = 0,
        splits: Sequence[str] | None = None,
    ) -> None:
        cache, corpus = PacketCache.open(packets), Corpus.open(folder)
        self._settings, self._replication = cache.settings, replication
        present = {clip.split for clip in corpus.manifest if splits is None or clip.split in splits}
        self._clips = {split: clips_of(corpus, split) for split in Split if split in present}
        self._packets: dict[Split, Packets[ClipSet]] = {
            split: cache.packets(clips, replication) for split, clips in self._clips.items()
        }
        if detector is None and cache.settings.regions.kind == "detector" and cache.settings.regions.detector:
            detector = Path(cache.settings.regions.detector)
        self._assign = None if detector is None else ClassAssigner.open(detector)
        self._assigned: dict[str, Ints] = {}  # a corpus is looked at twice, and a detector is slow
        self.unavailable: tuple[str, ...] = OF_CLASSES if self._assign is None else ()
        classes = "" if self._assign is None else f"; classes: {self._assign.name}"
        self.name = f"{cache.teacher}; settings {cache.settings.digest()}{classes}"

    @property
    def detects(self) -> bool:
        """Whether a detector tells classes."""
        return self._assign is not None

    def scene(self, clip: Clip) -> Scene:
        found = scene_of_packet(self._packets[clip.split].of(clip))
        if self._assign is None:
            return found
        if clip.clip_id not in self._assigned:
            frames = teacher_window(self._clips[clip.split], clip, self._settings, self._replication)
            self._assigned[clip.clip_id] = self._assign(frames, found)
        return dataclasses.replace(found, superclass_O=self._assigned[clip.clip_id])


@dataclass(frozen=True)
class _Look:
    """A clip by itself: sums over frames and their terms [V, M], and its part of what the whole corpus must know."""

    totals_VM: Array
    terms_VM: Array
    pool: Pool
    domain: DomainCounts
    frames: int


def measure_corpus(
    manifest: Manifest,
    measurer: Measurer,
    thresholds: Thresholds,
    seed: int = 0,
    progress: Progress | None = None,
    opening: Callable[[], Measurer] | None = None,
) -> RegimeTable:
    """Two passes: the spatial control needs the places of the whole corpus first.

    With `opening` the cores share the first, which takes nearly all of the time: each process opens a measurer with it.
    """
    names = (*grid(thresholds), *Control)
    spatial = names.index(Control.SPATIAL)
    others = [v for v in range(len(names)) if v != spatial]
    totals_CVM, terms_CVM = (np.zeros((len(manifest), len(names), len(COLUMNS))) for _ in range(2))
    pools, domain, frames = [], [], []
    for row, look in enumerate(_looked_at(manifest, measurer, thresholds, seed, opening)):
        totals_CVM[row, others], terms_CVM[row, others] = look.totals_VM, look.terms_VM
        pools.append(look.pool)
        domain.append(look.domain)
        frames.append(look.frames)
        if progress is not None:
            progress(row + 1, 2 * len(manifest))
    pool = Pool.joined(pools)
    for row, clip in enumerate(manifest):
        found = spatially_permuted(measurer.scene(clip), thresholds, pool, seed, clip.clip_id)
        totals_CVM[row, spatial, : len(NAMES)], terms_CVM[row, spatial, : len(NAMES)] = _over_frames(found)
        if progress is not None:
            progress(len(manifest) + row + 1, 2 * len(manifest))
    about = About(measurer.kind, measurer.name, thresholds.model_dump(mode="json"), names, measurer.unavailable,
                  corpus_identity(manifest))  # fmt: skip
    return RegimeTable(
        tuple(clip.clip_id for clip in manifest),
        totals_CVM,
        terms_CVM,
        np.array(frames, np.int64),
        tuple(domain),
        about,
    )


def _looked_at(
    manifest: Manifest,
    measurer: Measurer,
    thresholds: Thresholds,
    seed: int,
    opening: Callable[[], Measurer] | None,
) -> Iterator[_Look]:
    """Every clip in its order, by this process or by several."""
    if opening is None or len(manifest) < _MANY:
        yield from (_look(measurer, thresholds, seed, clip) for clip in manifest)
        return
    jobs = [list(manifest[start : start + _TOGETHER]) for start in range(0, len(manifest), _TOGETHER)]
    work = functools.partial(_looks, opening, thresholds, seed)
    for looks in in_order(Processes(granted_cores()), work, jobs):
        yield from looks


def _looks(opening: Callable[[], Measurer], thresholds: Thresholds, seed: int, clips: list[Clip]) -> list[_Look]:
    measurer = _opened(opening)
    return [_look(measurer, thresholds, seed, clip) for clip in clips]


@functools.lru_cache(maxsize=1)
def _opened(opening: Callable[[], Measurer]) -> Measurer:
    """Of this process."""
    return opening()


def _look(measurer: Measurer, thresholds: Thresholds, seed: int, clip: Clip) -> _Look:
    scene = measurer.scene(clip)
    seen = [_summed(scene.every(chosen.stride), chosen) for chosen in grid(thresholds).values()]
    seen.append(_summed(temporally_permuted(scene, seed, clip.clip_id), thresholds))
    totals, terms = zip(*seen, strict=True)
    pool = pool_of(scene, thresholds, seed, clip.clip_id)
    return _Look(np.stack(totals), np.stack(terms), pool, domain_counts(scene, thresholds), scene.frames)


def _summed(scene: Scene, thresholds: Thresholds) -> tuple[Array, Array]:
    totals, terms = _over_frames(frame_measures(scene, thresholds))
    moving = motion_structure(scene, thresholds)
    extra = np.array([moving[name] for name in COLUMNS[len(NAMES) :]])
    return np.concatenate([totals, extra[:, 0]]), np.concatenate([terms, extra[:, 1]])


def _over_frames(found_TM: Array) -> tuple[Array, Array]:
    return np.nansum(found_TM, axis=0), np.isfinite(found_TM).sum(0).astype(np.float64)


@dataclass(frozen=True)
class Opening:
    """How a measurer is opened, here or in another process: by `teacher`, `truth`, or `auto`, which is the teacher
    where there are packets, else simulated ground truth."""

    folder: Path
    by: str
    packets: Path
    thresholds: Thresholds
    detector: Path | None = None
    splits: tuple[str, ...] | None = None

    def __call__(self) -> Measurer:
        by = self.by
        if by == "auto":
            by = "teacher" if (self.packets / HEADER).exists() else "truth"
        if by == "truth":
            return TruthMeasurer(self.folder, self.thresholds)
        if by == "teacher":
            return TeacherMeasurer(self.folder, self.packets, self.detector, splits=self.splits)
        raise RegimeError(f"cannot measure by {by!r}: choose teacher, truth or auto")


def measured(out: Path, opening: Opening, progress: Progress | None = None) -> RegimeTable:
    """What `out` holds if it was measured in this very way from these very clips; else it is measured now.

    Of all clips, or of those in the splits that are opened.
    """
    measurer, manifest, thresholds = opening(), Manifest.read(opening.folder), opening.thresholds
    if opening.splits is not None:
        manifest = Manifest([clip for clip in manifest if clip.split in opening.splits])
    if not len(manifest):
        raise RegimeError(f"{opening.folder}: has no clips to measure")
    if (out / FILE).exists():
        there = RegimeTable.read(out)
        asked = (measurer.kind, measurer.name, thresholds.model_dump(mode="json"), corpus_identity(manifest))
        if (there.about.source, there.about.measured_by, there.about.thresholds, there.about.corpus) == asked:
            return there
    # A detector has threads of its own, and what it has told is kept for the second pass.
    shared = None if isinstance(measurer, TeacherMeasurer) and measurer.detects else opening
    table = measure_corpus(manifest, measurer, thresholds, progress=progress, opening=shared)
    table.write(out)
    return table
