"""Batches with provenance, in an order that can be resumed to the batch.

What a batch holds depends on (seed, epoch, position) and on (replication, clip) only: not on how many workers decode
it, on what they had read ahead, or on which windows are still in memory (`memory_gb`) or were decoded before
(`decoded`, a folder). Over `world` processes the
batches of one step together are a stretch of the epoch's order, cut evenly: the same clips meet in a step for every
`world` with the same `world * batch_size`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..errors import CorpusError, FactorJEPAError, VideoError
from ..pixels import to_video
from ..seeding import stream
from ..transfer import sent
from ..words import counted
from .access import ClipSet, EvaluationClips, TrainingClips
from .decoded_windows import DecodedWindows, read_window
from .manifest import Clip
from .windows import WindowSpec, refuse_unfit, window_times

_log = logging.getLogger(__name__)
OnError = Literal["raise", "skip"]


@dataclass(frozen=True)
class Batch:
    """Windows and where they come from: `frames[i]` shows `clips[i]` at `times[i]`."""

    frames: Tensor  # uint8 [B, T, H, W, 3]: a quarter of the bytes to hand from process to process and to a GPU
    clips: tuple[Clip, ...]
    times: Tensor  # float64 [B, T], seconds from the clip's first frame
    step: tuple[Clip, ...] = ()  # of a training batch: the clips of all ranks that meet in this step, in order

    def video(self, device: torch.device | None = None) -> Tensor:
        """`float32 [B, 3, T, H, W]`, ImageNet-normalised, on the device."""
        return to_video(self.frames if device is None else sent(self.frames, device))


@dataclass(frozen=True)
class _Decoded:
    """What a worker sends back; failures travel as values, because torch rewrites the message of what is raised."""

    frames: Tensor
    indices: list[int]
    times: Tensor
    failures: dict[int, str]

    def pin_memory(self) -> _Decoded:
        """Called by torch, in a thread of its own: from there frames go to a GPU without anybody waiting."""
        return dataclasses.replace(self, frames=self.frames.pin_memory())


class _Memory:
    """Decoded windows of one replication, up to so many bytes: what was decoded once is not decoded again.

    It lives in the process that trains; workers decode what is not in it.
    """

    def __init__(self, gigabytes: float) -> None:
        self.room = int(gigabytes * 1e9)
        self._known: dict[int, tuple[Tensor, Tensor]] = {}  # position of the clip -> frames, times

    def missing(self, indices: Sequence[int]) -> list[int]:
        return [index for index in indices if index not in self._known]

    def completed(self, indices: Sequence[int], decoded: _Decoded | None) -> _Decoded:
        """The whole batch, of what is known and what has just been decoded, in the order of `indices`."""
        if decoded is None:
            decoded = _Decoded(torch.empty(0), [], torch.empty(0), {})
        new = dict(zip(decoded.indices, zip(decoded.frames, decoded.times, strict=True), strict=True))
        rows = {index: new.get(index) or self._known.get(index) for index in indices}
        there = {index: row for index, row in rows.items() if row is not None}
        for index, (frames, times) in new.items():
            if frames.nbytes <= self.room:
                self.room -= frames.nbytes
                self._known[index] = (frames.clone(), times.clone())
        if list(there) == decoded.indices:  # all of it is new: as it came, in pinned memory perhaps
            return decoded
        frames, times = zip(*there.values(), strict=True)
        return _Decoded(torch.stack(frames), list(there), torch.stack(times), decoded.failures)


class _Windows(Dataset[_Decoded]):
    """Decodes one batch, given by the positions of its clips; what was decoded before is copied."""

    def __init__(self, clips: ClipSet, spec: WindowSpec, replication: int, decoded: DecodedWindows | None) -> None:
        self.clips, self.spec, self.replication, self.decoded = clips, spec, replication, decoded

    def __getitem__(self, indices: Sequence[int]) -> _Decoded:
        spec = self.spec
        frames = np.empty((len(indices), spec.frames, spec.size, spec.size, 3), np.uint8)
        times = np.empty((len(indices), spec.frames), np.float64)
        decoded: list[int] = []
        failures: dict[int, str] = {}
        for index in indices:
            clip = self.clips[index]
            row = len(decoded)
            known = None if self.decoded is None else self.decoded.of(clip)
            if known is not None:
                frames[row], times[row] = known, window_times(clip, spec, self.replication)
                decoded.append(index)
                continue
            try:
                frames[row], times[row] = read_window(self.clips, clip, spec, self.replication)
            except FactorJEPAError as error:
                text = str(error)
                failures[index] = text if text.startswith("clip ") else f"clip {clip.clip_id!r}: {text}"
            else:
                decoded.append(index)
        kept = len(decoded)
        return _Decoded(torch.from_numpy(frames[:kept]), decoded, torch.from_numpy(times[:kept]), failures)


class _Batches:
    """What both loaders share: cut an order of clips into batches, have workers decode them, report failures."""

    def __init__(
        self,
        clips: ClipSet,
        spec: WindowSpec,
        batch_size: int,
        workers: int,
        replication: int,
        rank: int,
        world: int,
        on_error: OnError,
        start_method: str | None,
        memory_gb: float,
        decoded: Path | None,
    ) -> None:
        if batch_size < 1 or workers < 0 or not 0 <= rank < world:
            raise CorpusError(
                f"a loader needs batch_size >= 1, workers >= 0 and 0 <= rank < world, "
                f"got batch_size={batch_size}, workers={workers}, rank={rank}, world={world}"
            )
        if on_error not in ("raise", "skip"):
            raise CorpusError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        if on_error == "raise":
            refuse_unfit(clips, spec)  # now, rather than hours into an epoch
        self.clips, self.spec, self.batch_size, self.workers = clips, spec, batch_size, workers
        self.replication, self.rank, self.world, self.on_error = replication, rank, world, on_error
        self._start_method = start_method
        self._memory = _Memory(memory_gb)
        self._decoded = None if decoded is None else DecodedWindows(decoded, clips, spec, replication)
        self.skipped: dict[str, str] = {}  # clip_id -> why, of everything skipped so far

    def _decode(self, batches: Sequence[Sequence[int]]) -> Iterator[Batch | None]:
        """The batches in order; None for one of which no clip could be read."""
        plan = [self._memory.missing(batch) for batch in batches]
        reader: DataLoader[_Decoded] = DataLoader(
            _Windows(self.clips, self.spec, self.replication, self._decoded),
            batch_size=None,
            sampler=[part for part in plan if part],  # an item of `_Windows` is what a batch lacks
            num_workers=self.workers,
            collate_fn=_as_is,
            worker_init_fn=_single_thread if self.workers else None,
            multiprocessing_context=self._start_method if self.workers else None,
            pin_memory=torch.cuda.is_available() and self.workers > 0,
            generator=torch.Generator(),  # else starting an epoch would advance the random state of training
        )
        new = iter(reader) if any(plan) else iter(())  # workers start only where there is something to decode
        for batch, part in zip(batches, plan, strict=True):
            decoded = self._memory.completed(batch, next(new) if part else None)
            for index, message in decoded.failures.items():
                self._failed(self.clips[index], message)
            clips = tuple(self.clips[index] for index in decoded.indices)
            yield Batch(decoded.frames, clips, decoded.times) if clips else None

    def _failed(self, clip: Clip, message: str) -> None:
        if self.on_error == "raise":
            raise VideoError(
                f"{message}. If simulate or ingest made the corpus, the same command makes the clip again; a packed "
                "shard is deleted and packed anew (in Python, on_error='skip' goes on without such clips)"
            )
        if clip.clip_id not in self.skipped:
            self.skipped[clip.clip_id] = message
            _log.warning("skipped %s (%d skipped so far)", message, len(self.skipped))


class Loader(_Batches):
    """Training batches, epoch after epoch, in an order drawn from (seed, epoch).

    `for batch in loader` gives the rest of the current epoch and then stands at the start of the next one. A loop that
    is left early, or a loader given another's `state_dict()`, goes on with the batch after the last one handed out.
    Clips that do not fill a whole step (`world * batch_size`) are left out of that epoch, so that all ranks take
    equally many steps. With `on_error="skip"` a batch is smaller by its unreadable clips, which `skipped` lists.
    """

    def __init__(
        self,
        clips: TrainingClips,
        spec: WindowSpec,
        batch_size: int,
        seed: int,
        workers: int = 0,
        *,
        replication: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world: int = 1,
        on_error: OnError = "raise",
        start_method: str | None = None,
        memory_gb: float = 0.0,
        decoded: Path | None = None,
    ) -> None:
        if not isinstance(clips, TrainingClips):
            raise CorpusError(
                f"a training Loader takes TrainingClips, from Corpus.training(), not {type(clips).__name__}: "
                "validation, test and audit clips must not reach training (measure with an EvaluationLoader)"
            )
        super().__init__(
            clips, spec, batch_size, workers, replication, rank, world, on_error, start_method, memory_gb, decoded
        )
        self.seed, self.shuffle = seed, shuffle
        if not len(self):
            raise CorpusError(
                f"{len(clips)} training clips do not fill one step of {world} x {batch_size}; lower batch_size"
            )
        self.epoch = 0
        self.position = 0  # batches of this epoch that were handed out

    def __len__(self) -> int:
        """Batches per epoch, on each rank."""
        return len(self.clips) // (self.batch_size * self.world)

    def __iter__(self) -> Iterator[Batch]:
        order = self._order()
        steps = range(self.position, len(self))
        batches = [_share(order, step, self.batch_size, self.rank, self.world) for step in steps]
        together = self.batch_size * self.world
        for step, batch in zip(steps, self._decode(batches), strict=True):
            self.position = step + 1
            if batch is not None:
                meeting = order[step * together : (step + 1) * together]
                yield dataclasses.replace(batch, step=tuple(self.clips[int(index)] for index in meeting))
            elif self.world > 1:
                raise VideoError(
                    f"no clip of batch {step} on rank {self.rank} can be read; leaving it out would set the ranks "
                    f"apart. Skipped so far: {', '.join(self.skipped)}"
                )
        self.start_epoch(self.epoch + 1)

    def start_epoch(self, epoch: int) -> None:
        """Go to the first batch of `epoch`."""
        self.epoch, self.position = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands; what workers have read ahead does not count."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "order": self._identity(),
            "skipped": dict(self.skipped),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where `state` was taken; the clips, the seed and the clips of a step must be the same.

        How many ranks share a step does not matter.
        """
        mine = self._identity()
        changed = [key for key, value in mine.items() if state["order"].get(key) != value]
        if changed:
            differences = ", ".join(f"{key} was {state['order'].get(key)} and is {mine[key]}" for key in changed)
            advice = ""
            if changed == ["clips of a step"]:
                was = state["order"].get("clips of a step")
                advice = f". Set batch so that {counted(self.world, 'process', 'processes')} times batch is {was} again"
            raise CorpusError(f"this loader cannot continue that one, its batches differ: {differences}{advice}")
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self.skipped = dict(state["skipped"])

    def _order(self) -> NDArray[np.int64]:
        count = len(self.clips)
        return stream(self.seed, "epoch", self.epoch).permutation(count) if self.shuffle else np.arange(count)

    def _identity(self) -> dict[str, Any]:
        """All that the content of the remaining batches depends on, besides epoch and position."""
        ids = hashlib.blake2b("\n".join(clip.clip_id for clip in self.clips).encode(), digest_size=8)
        return {
            "clips": ids.hexdigest(),
            "window": self.spec.model_dump(),
            "clips of a step": self.batch_size * self.world,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "replication": self.replication,
        }


class EvaluationLoader(_Batches):
    """Every validation, test or audit clip once, in manifest order; each loop starts anew.

    Over `world` processes each clip is read by exactly one rank; the last batches may be smaller or missing. With
    `even` a rank that has run out reads the first clip again, so that all ranks give equally many batches: only the
    first `len(loader)` of them count.
    """

    def __init__(
        self,
        clips: EvaluationClips,
        spec: WindowSpec,
        batch_size: int,
        workers: int = 0,
        *,
        replication: int = 0,
        rank: int = 0,
        world: int = 1,
        even: bool = False,
        on_error: OnError = "raise",
        start_method: str | None = None,
        memory_gb: float = 0.0,
        decoded: Path | None = None,
    ) -> None:
        if not isinstance(clips, EvaluationClips):
            raise CorpusError(
                f"an EvaluationLoader takes EvaluationClips (validation, test or audit), not {type(clips).__name__}"
            )
        super().__init__(
            clips, spec, batch_size, workers, replication, rank, world, on_error, start_method, memory_gb, decoded
        )
        self.even = even

    def __len__(self) -> int:
        """Batches of this rank."""
        return sum(bool(share) for share in self._shares())

    def __iter__(self) -> Iterator[Batch]:
        plan = [share or [0] for share in self._shares() if share or self.even]
        return (batch for batch in self._decode(plan) if batch is not None)

    def _shares(self) -> list[list[int]]:
        """The clips of this rank in every step; in the last one there may be none."""
        order = np.arange(len(self.clips))
        steps = range(-(-len(order) // (self.batch_size * self.world)))
        return [_share(order, step, self.batch_size, self.rank, self.world) for step in steps]


def _share(order: NDArray[np.int64], step: int, batch_size: int, rank: int, world: int) -> list[int]:
    """The positions in the manifest of the clips that `rank` reads in `step`."""
    start = (step * world + rank) * batch_size
    return [int(index) for index in order[start : start + batch_size]]


def _as_is(decoded: Any) -> Any:
    return decoded


def _single_thread(_: int) -> None:
    """One process per core is enough; and OpenCV's thread pool does not survive a fork."""
    cv2.setNumThreads(0)
