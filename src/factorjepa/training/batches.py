"""Batches with their targets: what the loader shows, what the teacher said about it, and in which view.

Falsification controls live here, because they are about which targets a clip is given: those of another moment of the
same clip (`misaligned`), or those of another clip (`shuffled`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..adaptation import Method, Stage
from ..corpus.access import TrainingClips, ValidationClips
from ..corpus.loader import Batch, EvaluationLoader, Loader
from ..objective import FactorTargets
from ..pixels import to_video
from ..predictors import PerFactor
from ..seeding import stream
from ..teacher.batch import TargetBatch
from ..teacher.cache import Packets
from ..teacher.packet import Packet
from ..teacher.scales import TargetScale
from ..teacher.views import agents_view, interactions_view, layout_view
from ..transfer import sent
from .trunk import TrunkStates

_VIEWS: dict[str, Callable[..., Tensor]] = {
    "layout": layout_view, "agents": agents_view, "interactions": interactions_view,
}  # fmt: skip
_PER_FACTOR = ("layout_BW", "agents_BW", "interactions_BW")


Scales = dict[str, TargetScale]


def factor_targets(batch: TargetBatch, scales: Scales, reliability: bool, emphasis: PerFactor[float]) -> FactorTargets:
    """What the objective reads: standardised targets; without `reliability` every retained one weighs 1."""
    targets = [scales[name.removesuffix("_BW")].standardised(getattr(batch, name)) for name in _PER_FACTOR]
    weights = batch.retained_B3 * (batch.reliability_B3 if reliability else 1.0)
    seen = batch.visibility_retained_BN * (batch.visibility_reliability_BN if reliability else 1.0)
    return FactorTargets(
        PerFactor(*targets), PerFactor(*weights.unbind(1)), batch.visibility_BN, seen,
        batch.places_BNT2, batch.places_known_BNT, emphasis,
    )  # fmt: skip


@dataclass(frozen=True)
class TrainingBatch:
    """One pass's clips."""

    video: Tensor  # float32 [B, 3, T, H, W]; a loader's bytes [B, T, H, W, 3] before `to`
    clip_ids: tuple[str, ...]
    targets: TargetBatch | None
    epoch: int
    together: tuple[str, ...]  # the clips of all processes in this pass; those of this one are a stretch of it
    edited: Tensor | None = None  # the same clips with one agent each taken out of the picture
    removed_B: Tensor | None = None  # int64, its slot; -1: the clip has no agent
    viewed: tuple[int, ...] = ()  # rows that show a factor view; the others are the clips' own pixels
    trunk: TrunkStates | None = None  # what the frozen blocks make of `video`, where they need not run

    def to(self, device: torch.device) -> TrainingBatch:
        """On `device`, without waiting for it."""

        def moved(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else sent(tensor, device)

        video = sent(self.video, device)
        return dataclasses.replace(
            self,
            video=to_video(video) if video.dtype == torch.uint8 else video,
            targets=None if self.targets is None else self.targets.to(device),
            edited=moved(self.edited),
            removed_B=moved(self.removed_B),
        )


class TrainingBatches:
    """Training batches of a loader, epoch after epoch, with targets and views as the method asks for them.

    `packets` show the loader's own windows; `elsewhere` are those of another replication, for misaligned targets.
    """

    def __init__(
        self,
        loader: Loader,
        packets: Packets[TrainingClips] | None,
        elsewhere: Packets[TrainingClips] | None,
        method: Method,
        seed: int,
    ) -> None:
        self.loader, self.packets, self.elsewhere, self.method, self.seed = loader, packets, elsewhere, method, seed

    def __iter__(self) -> Iterator[tuple[Batch, int]]:
        """Batches with their epoch, for ever; the loader's state says where this stands."""
        while True:
            epoch = self.loader.epoch
            for batch in self.loader:
                yield batch, epoch

    def complete(self, batch: Batch, stage: Stage, step: int, epoch: int, device: torch.device) -> TrainingBatch:
        """A loader's batch on the device, in the stage's views, with the method's targets."""
        video, targets = batch.video(device), None
        viewed: tuple[int, ...] = ()
        if self.packets is not None:
            targets = self._targets(batch, self.packets, step).to(device)
            video, viewed = shown(
                video, [self.packets.of(clip) for clip in batch.clips], stage, self._streams(batch, "view", step)
            )
        made = dataclasses.replace(training_batch(batch, video, targets, epoch), viewed=viewed)
        if self.method.edits and self.packets is not None:
            packets = [self.packets.of(clip) for clip in batch.clips]
            edited, removed = edit(video, packets, self._streams(batch, "edit", step))
            made = dataclasses.replace(made, edited=edited, removed_B=removed)
        return made

    def _streams(self, batch: Batch, what: str, step: int) -> list[np.random.Generator]:
        """One for each clip: what is drawn for it depends neither on its neighbours nor on who holds it."""
        return [stream(self.seed, what, step, clip.clip_id) for clip in batch.clips]

    def _targets(self, batch: Batch, packets: Packets[TrainingClips], step: int) -> TargetBatch:
        aligned = packets.for_batch(batch)
        if self.method.targets == "shuffled":
            order = stream(self.seed, "shuffled", step).permutation(len(batch.step))
            following = np.empty_like(order)
            following[order] = np.roll(order, 1)  # one cycle through all: no clip keeps its own unless it is alone
            others = {clip.clip_id: batch.step[k] for clip, k in zip(batch.step, following, strict=True)}
            return _with_targets(aligned, packets.collate([others[clip.clip_id] for clip in batch.clips]))
        if self.elsewhere is not None:
            return _with_targets(aligned, self.elsewhere.collate(batch.clips))
        return aligned


def training_batch(batch: Batch, video: Tensor, targets: TargetBatch | None, epoch: int) -> TrainingBatch:
    together = tuple(clip.clip_id for clip in batch.step)
    return TrainingBatch(video, tuple(clip.clip_id for clip in batch.clips), targets, epoch, together)


def _with_targets(batch: TargetBatch, other: TargetBatch) -> TargetBatch:
    """The evidence of `batch` with the factor targets of `other`."""
    names = (*_PER_FACTOR, "reliability_B3", "retained_B3")
    return dataclasses.replace(batch, **{name: getattr(other, name) for name in names})


def shown(
    video: Tensor, packets: Sequence[Packet], stage: Stage, randoms: Sequence[np.random.Generator]
) -> tuple[Tensor, tuple[int, ...]]:
    """Each clip raw or in a factor view, drawn with the stage's probabilities from its own stream; rows in a view."""
    names, shares = zip(*stage.views, strict=True)
    drawn = [random.choice(len(names), p=np.array(shares) / sum(shares)) for random in randoms]
    viewed = tuple(row for row, k in enumerate(drawn) if names[k] != "raw")
    for kind, view in _VIEWS.items():
        rows = [row for row in viewed if names[drawn[row]] == kind]
        video = _with_rows(video, rows, view, packets)
    return video, viewed


def edit(video: Tensor, packets: Sequence[Packet], randoms: Sequence[np.random.Generator]) -> tuple[Tensor, Tensor]:
    """Each clip with one of its agents filled in from the surroundings, and which slot that was (-1: none there)."""
    pairs = zip(packets, randoms, strict=True)
    removed = [int(random.integers(int(packet.slots))) if packet.slots else -1 for packet, random in pairs]
    rows = [row for row, slot in enumerate(removed) if slot >= 0]
    view = functools.partial(layout_view, tracks=[removed[row] for row in rows])
    return _with_rows(video, rows, view, packets), sent(torch.tensor(removed), video.device)


def _with_rows(video: Tensor, rows: Sequence[int], view: Callable[..., Tensor], packets: Sequence[Packet]) -> Tensor:
    """Normalised clips `[B, 3, T, H, W]`, those of these rows in the view; all of them at once."""
    if not rows:
        return video
    at = sent(torch.tensor(rows), video.device)
    clips = video.index_select(0, at).transpose(1, 2)
    seen = torch.unflatten(view(clips.flatten(0, 1), *(packets[row] for row in rows)), 0, clips.shape[:2])
    return video.index_copy(0, at, seen.transpose(1, 2))


def validation_batches(
    loader: EvaluationLoader, packets: Packets[ValidationClips] | None
) -> Iterator[tuple[Batch, TargetBatch | None, bool]]:
    """Every validation clip once, with its evidence, and whether it counts on this rank."""
    for number, batch in enumerate(loader):
        yield batch, None if packets is None else packets.for_batch(batch), number < len(loader)
