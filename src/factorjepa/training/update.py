"""One update: passes accumulated, gradients clipped, weights moved, the momentum encoder after them.

`Engine` makes updates of a run with it, `profiling` times them: it is the same code.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import TrainingError
from ..seeding import seed_of
from ..transfer import Later, marked
from ..words import listed
from .batches import Scales, TrainingBatch
from .learner import Learner
from .optimiser import rate, set_rate
from .parallel import Model, Processes, clip_gradients
from .settings import TrainSettings
from .step import loss_of
from .trunk import Trunk

log = logging.getLogger(__name__)


class Outcome:
    """What an update has logged. A GPU knows it long after the host has gone on; `record` waits for it."""

    def __init__(self, step: int, names: Sequence[str], values: Later, known: dict[str, float]) -> None:
        self.step = step  # updates made, with this one
        self._names, self._values, self._known = names, values, known

    def record(self) -> dict[str, float]:
        """All of it, by name; an error where something is not finite."""
        record = dict(zip(self._names, self._values.read(), strict=True))
        if broken := [name for name, value in record.items() if not math.isfinite(value)]:
            culprits = [name for name in broken if name not in ("loss", "gradient")] or broken
            raise TrainingError(
                f"step {self.step}: {listed(culprits)} {'is' if len(culprits) == 1 else 'are'} not finite; nothing was "
                "saved after it, and the last checkpoint is sound. Lower lr, or the coefficients of the terms, and "
                "start a new run from it"
            )
        return record | self._known

    def seconds(self) -> float | None:
        """That a GPU took for it; None where the host's clock tells."""
        return self._values.seconds()


@dataclass(frozen=True)
class Update:
    """Everything that an update reads and changes. `update(step, passes, count)` gives its outcome."""

    settings: TrainSettings
    learner: Learner
    model: Model  # the learner as the processes hold it
    optimiser: torch.optim.Optimizer
    device: torch.device
    processes: Processes
    scales: Scales | None = None
    trunk: Trunk | None = None

    def begin(self, step: int) -> None:
        """Stage, rate and random numbers of update `step`; what its passes show may depend on the stage."""
        settings, learner = self.settings, self.learner
        number, stage = learner.method.stage_at(step, settings.updates)
        if learner.enter(number):
            log.info("step %d: stage %s, %d parameters train", step, stage.name, learner.trainable())
        set_rate(self.optimiser, self._share(step))
        learner.train()
        torch.manual_seed(seed_of("dropout", settings.seed, step, self.processes.rank) % 2**63)

    def __call__(self, step: int, passes: Iterable[TrainingBatch], count: int) -> Outcome:
        """One optimiser step over `count` passes (Algorithm, "Restricted optimization and momentum update").

        The host does not wait for a GPU: whoever calls asks the outcome, before anything of it is saved. On a CPU it is
        known at once, and asked before any weight moves.
        """
        began = marked(self.device)
        self.optimiser.zero_grad(set_to_none=True)
        rows: list[Tensor] = []
        names: list[str] = []
        for number, batch in enumerate(passes, start=1):
            call = functools.partial(self.loss, self.learner, batch.to(self.device), self.scales, step)
            loss, parts = self.model.descend(call, 1 / count, last=number == count)
            names = ["loss", *parts]
            rows.append(torch.stack([loss, *parts.values()]).float())
        trained = (p for group in self.optimiser.param_groups for p in group["params"])
        gradient = clip_gradients(trained, self.settings.clip)
        logged = torch.cat((torch.stack(rows).sum(0) / count, gradient.reshape(1)))
        stage = self.learner.method.stage_at(step, self.settings.updates)[0]
        known = {"lr": self.settings.lr * self._share(step), "stage": float(stage)}
        outcome = Outcome(step + 1, [*names, "gradient"], Later(logged, began), known)
        if self.device.type != "cuda":
            outcome.record()
        self.optimiser.step()
        self.learner.target.update()
        return outcome

    def loss(
        self, learner: Learner, batch: TrainingBatch, scales: Scales | None, step: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        with precision(self.settings, self.device):
            if self.trunk is not None:
                batch = dataclasses.replace(batch, trunk=self.trunk.of(batch.video, batch.clip_ids, batch.viewed))
            return loss_of(learner, batch, scales, self.settings, step, self.processes)

    def _share(self, step: int) -> float:
        settings = self.settings
        return rate(step, settings.updates, settings.warmup, settings.final_lr / settings.lr)


def in_bf16(settings: TrainSettings, device: torch.device) -> bool:
    return device.type == "cuda" if settings.precision == "auto" else settings.precision == "bf16"


def precision(settings: TrainSettings, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=in_bf16(settings, device))
