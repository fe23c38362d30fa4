"""The frozen side of an evaluation: which clips, in which windows, with which labels. It knows no method."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from .. import __version__
from ..corpus.access import AuditClips, ClipSet, Corpus
from ..corpus.loader import Batch
from ..corpus.manifest import MANIFEST
from ..corpus.windows import WindowSpec
from ..errors import CorpusError, TeacherError
from ..scores import ENCODER
from ..teacher.cache import PacketCache, Packets
from ..training.origin import open_backbone
from ..training.settings import TrainSettings
from ..words import listed
from ..world import ClipTruth
from .diagnostic import ROLES, Part, Role
from .parts import batches, clip_sets, digest_of, labels_of, text_of
from .reference import Precision, Reference
from .resimulation import Worlds
from .scene import Known, Scene
from .settings import EvaluateSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Conditions:
    """What a run was trained under and must be evaluated under. Runs that share them share an evaluator."""

    data: str
    targets: str
    arch: str
    weights: str | None
    window: WindowSpec
    context: int

    @classmethod
    def of(cls, settings: TrainSettings, data: Path | None, targets: Path | None) -> Conditions:
        """Of a run; another corpus or other packets may stand in for its own."""
        corpus = str(data or settings.data)
        if data is None and not (Path(corpus) / MANIFEST).is_file():
            raise CorpusError(
                f"{corpus}: the corpus that it was trained on is not there, as its path reads from here; name it with "
                "--data, or give the command where the run was trained"
            )
        own = settings.targets if data is None else None
        return cls(
            corpus, str(targets or own or Path(corpus) / "targets"), settings.arch, settings.weights, settings.window,
            settings.context,
        )  # fmt: skip

    @property
    def backbone(self) -> str:
        return Path(str(self.weights)).stem if self.arch == "file" else self.arch


class Scenes:
    """The batches of one part, in a fixed order; kept while there is room, made again where there is not."""

    def __init__(
        self, part: Part, clips: ClipSet, load: Callable[[], Iterator[Batch]], know: Callable[[Batch], Known],
        reference: Reference, settings: EvaluateSettings,
    ) -> None:  # fmt: skip
        self.part, self.clips = part, clips
        self._load, self._know, self._reference, self._settings = load, know, reference, settings
        self._kept: list[Scene] = []
        self._whole = False

    def __len__(self) -> int:
        return len(self.clips)

    def __iter__(self) -> Iterator[Scene]:
        if self._whole:
            yield from self._kept
            return
        self._kept, room = [], self._settings.memory_gb * 1e9
        for batch in self._load():
            scene = Scene(batch, self._know(batch), self._reference, self._settings)
            yield scene
            room -= scene.nbytes()
            if room > 0:
                self._kept.append(scene)
        self._whole = room > 0
        if not self._whole:
            self._kept = []


class Evaluator:
    """Parts `fit`, `choose` and `measure`, or those that are needed, and who it is: `identity` goes with the scores."""

    def __init__(
        self,
        conditions: Conditions,
        settings: EvaluateSettings,
        device: torch.device,
        roles: tuple[Role, ...] = ROLES,
    ) -> None:
        self.conditions, self.settings = conditions, settings
        use = device.type == "cuda" if settings.precision == "auto" else settings.precision == "bf16"
        self.precision = Precision(device, use)
        backbone = open_backbone(conditions.arch, conditions.weights, device)
        self.reference = Reference(backbone, conditions.context, self.precision)
        corpus = Corpus.open(Path(conditions.data))
        sets = {role: clips for role, clips in clip_sets(corpus, settings).items() if role in roles}
        self._no_packets = ""  # why there are none
        self._cache, packets = self._packets(sets)
        self.parts = [self._scenes(role, clips, packets.get(role)) for role, clips in sets.items()]

    def __len__(self) -> int:
        """Clips that one run is shown."""
        return sum(len(scenes) for scenes in self.parts)

    def identity(self) -> dict[str, str]:
        """Every choice that a value depends on and a method must not. Tables of different identities do not join."""
        settings, conditions = self.settings, self.conditions
        sections = {"masks": settings.masks, "interventions": settings.interventions, "motion": settings.motion,
                    "probes": settings.probes, "actions": settings.actions, "rollout": settings.rollout,
                    "pace": settings.pace}  # fmt: skip
        clips = {f"{scenes.part.role} clips": digest_of(scenes.clips) for scenes in self.parts}
        return {
            "version": __version__,
            f"{ENCODER}{conditions.backbone}": self.reference.digest(),
            "window": text_of({**conditions.window.model_dump(), "context": conditions.context,
                             "replication": settings.replication}),
            "split": settings.split,
            **clips,
            **{name: text_of(section) for name, section in sections.items()},
            "labels": labels_of([scenes.clips for scenes in self.parts]),
            "packets": f"{self._cache.header['digest']} ({self._cache.teacher})" if self._cache else "none",
            "truth": str(any(scenes.part.truth for scenes in self.parts)),
            "precision": "bf16" if self.precision.bf16 else "fp32",
        }  # fmt: skip

    def refuse_without_packets(self) -> None:
        """An error where there are none: for runs that read object states."""
        if self._cache is None:
            split = self.settings.split
            splits = {"fit": "training", "choose": "validation", "measure": split}
            shown = listed([splits[scenes.part.role] for scenes in self.parts])
            raise TeacherError(
                f"{self._no_packets}\nThe run reads object states, which come from packets of {shown} clips. Of the "
                f"{split} clips only the evidence in the context is shown to it, never a target"
            )

    def _packets(self, sets: dict[Role, ClipSet]) -> tuple[PacketCache | None, dict[Role, Packets[ClipSet]]]:
        """Packets of all parts or of none: a folder that lacks some is passed over."""
        conditions = self.conditions
        try:
            cache = PacketCache.open(Path(conditions.targets))
            cache.refuse_other_window(conditions.window.frames, conditions.window.fps, conditions.context)
            return cache, {
                role: cache.packets(clips, self.settings.replication).verify() for role, clips in sets.items()
            }
        except TeacherError as error:
            self._no_packets = str(error)
            log.warning("no teacher-relative scores: %s", error)
            return None, {}

    def _scenes(self, role: Role, clips: ClipSet, packets: Packets[ClipSet] | None) -> Scenes:
        truthful = clips if isinstance(clips, AuditClips) and _has_truth(clips) else None
        worlds = Worlds.beside(Path(self.conditions.data)) if truthful is not None else None

        def know(batch: Batch) -> Known:
            teacher = packets.for_batch(batch) if packets is not None else None
            own = [packets.of(clip) for clip in batch.clips] if packets is not None else None
            truths = None
            if truthful is not None:
                truths = [ClipTruth.from_bytes(truthful.truth(c), f"clip {c.clip_id!r}") for c in batch.clips]
            return Known(teacher, own, truths, [worlds.of(clip) for clip in batch.clips] if worlds else None)

        part = Part(role, packets is not None, truthful is not None, worlds is not None)
        return Scenes(
            part,
            clips,
            lambda: batches(clips, self.conditions.window, self.settings),
            know,
            self.reference,
            self.settings,
        )


def _has_truth(clips: AuditClips) -> bool:
    try:
        clips.truth(clips[0])
    except CorpusError:
        return False
    return True
