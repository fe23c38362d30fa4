"""How fast a method trains, and in how much memory: whole updates of the training loop on synthetic clips."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..training.batches import TrainingBatch
from ..training.settings import TrainSettings
from ..training.trunk import Trunk, lowest_trained
from ..training.update import Outcome, Update, precision
from .flops import ClipFlops, nominal_peak
from .subject import Subject
from .synthetic import Scenery, training_batches
from .timing import Times, forget_peak, paced, peak_gib, wait

CLIPS = 128  # of an update in the canonical run (Panel C)
UPDATES = 20_000
WARMUP = 5  # updates (Panel E: peak memory is read after them)
_POOL = 4  # different passes, shown in turn


@dataclass(frozen=True)
class TrainingCase:
    """What is timed. `cached`: with the frozen-trunk cache, filled; `viewed`: share of clips in a factor view."""

    scenery: Scenery
    cached: bool = False
    viewed: float = 0.0
    compiled: bool = True  # False: the same model uncompiled
    updates: int = 10


@dataclass(frozen=True)
class TrainingCost:
    """The answer. Rates are of one device; `record` is what the last update logged."""

    clips: int  # of an update
    update: Times
    peak: float | None  # GiB, after WARMUP updates
    flops: ClipFlops | None
    mfu: float | None
    record: dict[str, float]

    @property
    def clips_per_s(self) -> float:
        return self.clips / self.update.median

    @property
    def hours(self) -> float:
        """GPU-hours of the canonical run at this rate."""
        return UPDATES * CLIPS / self.clips_per_s / 3600

    def as_json(self) -> dict[str, Any]:
        return {
            "clips_per_s": self.clips_per_s, "clips_of_an_update": self.clips, "update_s_median": self.update.median,
            "update_s_mean": self.update.mean, "update_s_p95": self.update.p95, "peak_gib": self.peak, "mfu": self.mfu,
            "gpu_hours": self.hours,
            "tflop_per_clip": self.flops and {k: value / 1e12 for k, value in dataclasses.asdict(self.flops).items()},
            "agents_seen": self.record.get("agents"), "pairs_seen": self.record.get("pairs"),
            "loss": self.record["loss"],
        }  # fmt: skip


def training_cost(subject: Subject, case: TrainingCase, **changes: Any) -> TrainingCost:
    """Time whole updates; `changes` are settings that differ from the subject's (batch, size, frames, ...)."""
    settings = subject.settings.model_copy(update=changes)
    grid = subject.grid(settings)[1]
    passes = training_batches(settings, grid, case.scenery, max(_POOL, settings.accumulate), case.viewed)
    with contextlib.ExitStack() as stack:
        if subject.compiled and not case.compiled:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        trunk = stack.enter_context(filled_trunk(subject, settings, passes)) if case.cached else None
        return _timed_updates(subject, subject.update(settings, trunk), case, passes)


@contextlib.contextmanager
def filled_trunk(subject: Subject, settings: TrainSettings, passes: Sequence[TrainingBatch]) -> Iterator[Trunk]:
    """The frozen-trunk cache of these clips, as it is after the first epoch."""
    clips = [clip_id for one in passes for clip_id in one.clip_ids]
    with (
        tempfile.TemporaryDirectory(prefix="trunk-") as folder,
        _trunk(subject, settings, Path(folder), clips) as trunk,
    ):
        with precision(settings, subject.device):
            for one in passes:
                trunk.of(one.to(subject.device).video, one.clip_ids, one.viewed)
        yield trunk


def _timed_updates(subject: Subject, update: Update, case: TrainingCase, passes: list[TrainingBatch]) -> TrainingCost:
    settings, device = update.settings, subject.device
    turn = itertools.cycle(passes)
    steps = itertools.count(settings.updates)  # after the last one: all that ever trains does
    made: list[Outcome] = []

    def one() -> None:
        step = next(steps)
        update.begin(step)
        made.append(update(step, itertools.islice(turn, settings.accumulate), settings.accumulate))

    forget_peak(device)
    for _ in range(WARMUP):
        one()
    wait(device)
    peak = peak_gib(device)
    times = paced(one, device, case.updates)
    clips = settings.batch * settings.accumulate
    seen = sum(len(one.viewed) for one in passes) / sum(len(one.clip_ids) for one in passes)
    flops = subject.update_flops(settings, case.scenery, 1.0 - seen if case.cached else 0.0)
    most = nominal_peak(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    mfu = None if most is None or flops is None else flops.total * clips / times.median / most
    return TrainingCost(clips, times, peak, flops, mfu, made[-1].record())


def _trunk(subject: Subject, settings: TrainSettings, folder: Path, clip_ids: list[str]) -> Trunk:
    return Trunk(
        folder, subject.learner.encoder, lowest_trained(subject.learner.weights(), subject.learner.spec.depth),
        clip_ids, frames=settings.frames, context=settings.context, size=settings.size, dtype=settings.trunk_dtype,
        whole_context=settings.trunk_has_context,
    )  # fmt: skip
