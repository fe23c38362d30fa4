"""The corpus by split, with the split in the type: training code cannot ask for test or audit clips.

`Corpus.open(folder)` hands out `TrainingClips`, `ValidationClips`, `TestClips` and `AuditClips`. What takes gradients
declares `TrainingClips`, what selects models `ValidationClips`, what measures any `EvaluationClips`; mypy refuses the
rest, and so does each class at run time. Each gives the videos of its own clips only, and ground truth, which a
simulated corpus may hold for all of them, comes out of `AuditClips` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, ClassVar, Literal, Self, overload

from ..errors import CorpusError
from ..words import counted
from .manifest import Clip, Manifest
from .shards import TRUTH, sidecar_path
from .splits import Split
from .store import ClipStore, open_store


class ClipSet(Sequence[Clip]):
    """The clips of one split, in manifest order, and their videos."""

    split: ClassVar[Split]

    def __init__(self, manifest: Manifest, store: ClipStore) -> None:
        if strangers := [clip for clip in manifest if clip.split != self.split]:
            raise CorpusError(
                f"clip {strangers[0].clip_id!r} is {strangers[0].split} and not {self.split} "
                f"({len(strangers)} of {counted(len(manifest), 'clip')}): "
                f"{type(self).__name__} holds {self.split} clips only"
            )
        if not len(manifest):
            raise CorpusError(
                f"{store.folder}: has no {self.split} clips that match: see what it holds with inspect. "
                "Whole source videos go to one split: a small corpus may lack some. Add sources, or say in a table's "
                "column `split` where each goes and ingest it into a new folder: splits stay as they were dealt"
            )
        self._manifest = manifest
        self._store = store
        self._own = {clip.clip_id: clip for clip in manifest}

    def video(self, clip: Clip) -> Path | BinaryIO:
        """The clip's video, as `video.read_frames` takes it."""
        return self._store.open(self._checked(clip).path)

    def stamp(self, clip: Clip) -> str:
        """Of the clip's video: changes when the file does."""
        return self._store.stamp(self._checked(clip).path)

    def select(self, city: str | Collection[str] | None = None, capture_mode: str | None = None) -> Self:
        return type(self)(self._manifest.select(city=city, capture_mode=capture_mode), self._store)

    def subset(self, n: int, seed: int) -> Self:
        """`n` clips, stratified by city and capture mode; see `Manifest.subset`."""
        return type(self)(self._manifest.subset(n, seed), self._store)

    def _checked(self, clip: Clip) -> Clip:
        """The clip of that id as the manifest has it, so that a made-up path leads nowhere."""
        try:
            return self._own[clip.clip_id]
        except KeyError:
            raise CorpusError(f"clip {clip.clip_id!r} is not among these {len(self)} {self.split} clips") from None

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Clip | Self:
        chosen = self._manifest[index]
        return type(self)(chosen, self._store) if isinstance(chosen, Manifest) else chosen

    def __len__(self) -> int:
        return len(self._manifest)

    def __iter__(self) -> Iterator[Clip]:
        return iter(self._manifest)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({counted(len(self), 'clip')} of {self._store.folder})"


class TrainingClips(ClipSet):
    """Clips that gradients may come from."""

    split = Split.TRAIN


class EvaluationClips(ClipSet):
    """Clips that are only looked at; obtained as `ValidationClips`, `TestClips` or `AuditClips`."""


class ValidationClips(EvaluationClips):
    """Clips for choosing models and thresholds."""

    split = Split.VALIDATION


class TestClips(EvaluationClips):
    """Clips for headline figures, after every choice is made."""

    __test__ = False  # the name is the paper's; pytest must not collect it
    split = Split.TEST


class AuditClips(EvaluationClips):
    """Clips of cities that no other split has seen, with ground truth."""

    split = Split.AUDIT

    def truth(self, clip: Clip) -> bytes:
        """The clip's ground truth, an `.npz` archive as bytes."""
        path = sidecar_path(self._checked(clip).path, TRUTH)
        if not self._store.exists(path):
            raise CorpusError(f"clip {clip.clip_id!r} has no ground truth ({path}); only simulated clips carry it")
        return self._store.read(path)


class Corpus:
    """A corpus folder: its manifest, and its clips by split."""

    def __init__(self, manifest: Manifest, store: ClipStore) -> None:
        self.manifest = manifest
        self._store = store

    @classmethod
    def open(cls, folder: Path) -> Corpus:
        """Open a folder of clips or of tar shards; a broken manifest or shard is refused here."""
        return cls(Manifest.read(Path(folder)), open_store(Path(folder)))

    def training(self) -> TrainingClips:
        return TrainingClips(self.manifest.select(split=Split.TRAIN), self._store)

    def validation(self) -> ValidationClips:
        return ValidationClips(self.manifest.select(split=Split.VALIDATION), self._store)

    def learnable(self) -> list[Clip]:
        """What a run learns from, and what chooses its checkpoint."""
        return [*self.manifest.select(split=Split.TRAIN), *self.manifest.select(split=Split.VALIDATION)]

    def audit(self) -> AuditClips:
        return AuditClips(self.manifest.select(split=Split.AUDIT), self._store)

    def evaluation(self, split: Literal["validation", "test", "audit"] = "test") -> EvaluationClips:
        """The clips of any split but the training one; the test clips come out of here only."""
        kinds: dict[str, type[EvaluationClips]] = {
            "validation": ValidationClips,
            "test": TestClips,
            "audit": AuditClips,
        }
        if split not in kinds:
            raise CorpusError(f"{split!r} is no evaluation split: choose {', '.join(kinds)}")
        return kinds[split](self.manifest.select(split=split), self._store)

    def missing(self) -> list[Clip]:
        """The clips of the manifest whose video is not there."""
        return [clip for clip in self.manifest if not self._store.exists(clip.path)]

    def __repr__(self) -> str:
        return f"Corpus({counted(len(self.manifest), 'clip')} in {self._store.folder})"


def clips_of(corpus: Corpus, split: Split) -> ClipSet:
    """The clips of a split, with the split in their type."""
    if split == Split.TRAIN:
        return corpus.training()
    if split == Split.AUDIT:
        return corpus.audit()
    return corpus.validation() if split == Split.VALIDATION else corpus.evaluation("test")
