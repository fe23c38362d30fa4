"""A corpus through the shared protocol: every clip under every variant of the thresholds, then under the controls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ..corpus.access import ClipSet, Corpus, clips_of
from ..corpus.manifest import Clip, Manifest
from ..corpus.splits import Split
from ..corpus.store import TRUTH, open_store, sidecar_path
from ..errors import RegimeError
from ..teacher.cache import HEADER, PacketCache, Packets, corpus_identity
from ..teacher.teacher import teacher_window
from ..world import ClipTruth
from .axes import NAMES, OF_CLASSES, frame_measures
from .classes import ClassAssigner
from .controls import Control, Pool, motion_structure, pool_of, spatially_permuted, temporally_permuted
from .domain import domain_counts
from .scene import Array, Ints, Scene
from .settings import Thresholds, grid
from .sources import scene_of_packet, scene_of_truth
from .table import COLUMNS, FILE, About, RegimeTable

Progress = Callable[[int, int], object]


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

    def scene(self, clip: Clip) -> Scene:
        found = scene_of_packet(self._packets[clip.split].of(clip))
        if self._assign is None:
            return found
        if clip.clip_id not in self._assigned:
            frames = teacher_window(self._clips[clip.split], clip, self._settings, self._replication)
            self._assigned[clip.clip_id] = self._assign(frames, found)
        return dataclasses.replace(found, superclass_O=self._assigned[clip.clip_id])


def measure_corpus(
    manifest: Manifest, measurer: Measurer, thresholds: Thresholds, seed: int = 0, progress: Progress | None = None
) -> RegimeTable:
    """Two passes: the spatial control needs the places of the whole corpus first."""
    variants = grid(thresholds)
    names = (*variants, *Control)
    shape = len(manifest), len(names), len(COLUMNS)
    totals_CVM, terms_CVM = np.zeros(shape), np.zeros(shape)
    pools, domain, frames = [], [], []
    for row, scene in _scenes(manifest, measurer, progress, 0):
        clip_id = manifest[row].clip_id
        for v, chosen in enumerate(variants.values()):
            totals_CVM[row, v], terms_CVM[row, v] = _summed(scene.every(chosen.stride), chosen)
        reordered = temporally_permuted(scene, seed, clip_id)
        v = names.index(Control.TEMPORAL)
        totals_CVM[row, v], terms_CVM[row, v] = _summed(reordered, thresholds)
        pools.append(pool_of(scene, thresholds, seed, clip_id))
        domain.append(domain_counts(scene, thresholds))
        frames.append(scene.frames)
    pool, v = Pool.joined(pools), names.index(Control.SPATIAL)
    for row, scene in _scenes(manifest, measurer, progress, len(manifest)):
        found = spatially_permuted(scene, thresholds, pool, seed, manifest[row].clip_id)
        totals_CVM[row, v, : len(NAMES)], terms_CVM[row, v, : len(NAMES)] = _over_frames(found)
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


def _scenes(
    manifest: Manifest, measurer: Measurer, progress: Progress | None, before: int
) -> Iterator[tuple[int, Scene]]:
    for row, clip in enumerate(manifest):
        yield row, measurer.scene(clip)
        if progress is not None:
            progress(before + row + 1, 2 * len(manifest))


def _summed(scene: Scene, thresholds: Thresholds) -> tuple[Array, Array]:
    totals, terms = _over_frames(frame_measures(scene, thresholds))
    moving = motion_structure(scene, thresholds)
    extra = np.array([moving[name] for name in COLUMNS[len(NAMES) :]])
    return np.concatenate([totals, extra[:, 0]]), np.concatenate([terms, extra[:, 1]])


def _over_frames(found_TM: Array) -> tuple[Array, Array]:
    return np.nansum(found_TM, axis=0), np.isfinite(found_TM).sum(0).astype(np.float64)


def open_measurer(
    folder: Path,
    by: str,
    packets: Path,
    thresholds: Thresholds,
    detector: Path | None = None,
    splits: Sequence[str] | None = None,
) -> Measurer:
    """`teacher`, `truth`, or `auto`: the teacher where there are packets, else simulated ground truth."""
    if by == "auto":
        by = "teacher" if (packets / HEADER).exists() else "truth"
    if by == "truth":
        return TruthMeasurer(folder, thresholds)
    if by == "teacher":
        return TeacherMeasurer(folder, packets, detector, splits=splits)
    raise RegimeError(f"cannot measure by {by!r}: choose teacher, truth or auto")


def measured(
    folder: Path,
    out: Path,
    measurer: Measurer,
    thresholds: Thresholds,
    progress: Progress | None = None,
    splits: Sequence[str] | None = None,
) -> RegimeTable:
    """What `out` holds if it was measured in this very way from these very clips; else it is measured now.

    Of all clips, or of those in some splits.
    """
    manifest = Manifest.read(folder)
    if splits is not None:
        manifest = Manifest([clip for clip in manifest if clip.split in splits])
    if (out / FILE).exists():
        there = RegimeTable.read(out)
        asked = (measurer.kind, measurer.name, thresholds.model_dump(mode="json"), corpus_identity(manifest))
        if (there.about.source, there.about.measured_by, there.about.thresholds, there.about.corpus) == asked:
            return there
    table = measure_corpus(manifest, measurer, thresholds, progress=progress)
    table.write(out)
    return table
