"""A finished run as a model again: its best checkpoint in a learner, without the corpus it was trained on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from ..adaptation.budget import levelled
from ..config import defaults, resolve
from ..errors import TrainingError
from ..predictors import FactorizedOptions
from .learner import Learner
from .origin import open_backbone
from .run import BEST, CONFIG, RunDirectory, Weights
from .settings import LAYOUT, TrainSettings


@dataclass(frozen=True)
class Restored:
    """A run's model as it was at `step`."""

    learner: Learner
    settings: TrainSettings
    step: int


def settings_of(run: RunDirectory) -> TrainSettings:
    """What the run was trained with."""
    settings = resolve(TrainSettings, run.folder / CONFIG)
    run.refuse_altered(LAYOUT, defaults(TrainSettings))
    return settings


def best_step(run: RunDirectory) -> int:
    """The step that validation chose; the last one where nothing was chosen yet."""
    steps = run.steps()
    if not steps:
        raise TrainingError(f"{run.folder}: has no checkpoint yet; train it first")
    if run.best is None:
        if (run.folder / BEST).is_symlink():
            raise TrainingError(
                f"{run.folder}: the checkpoint that validation chose was deleted. Train it again; or delete "
                f"{run.folder / BEST}, and the last one, step {steps[-1]}, is taken"
            )
        return steps[-1]
    return run.best


def restore(run: RunDirectory, device: torch.device) -> Restored:
    """The run's best checkpoint. Weights that are not finite are refused by name."""
    settings, step = settings_of(run), best_step(run)
    weights, state = run.load(step, device)
    broken = [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise TrainingError(
            f"{run.folder}: step {step} has weights that are not finite ({len(broken)} tensors, first {broken[0]}); "
            "it cannot be measured: train it again"
        )
    backbone = open_backbone(settings.arch, settings.weights, device)
    method = levelled(backbone.spec, settings.resolved_method(), settings.scope, settings.budget(backbone.spec))
    if isinstance(method.predictor, FactorizedOptions):  # the checkpoint has the dictionaries
        method = dataclasses.replace(method, predictor=method.predictor.replace(dictionaries="random"))
    scope = dataclasses.replace(settings.scope, chosen=tuple(state["learner"]["chosen"]))
    learner = Learner(backbone, method, scope, settings.momentum, settings.context, settings.seed).to(device)
    if method.interpolation is not None:
        learner.enter(0)  # the momentum encoder and the reference keep the pretrained weights
    put_back(learner, step, settings.updates, weights, state["learner"])
    return Restored(learner.eval(), settings, step)


def put_back(learner: Learner, step: int, updates: int, weights: Weights, state: dict[str, Any]) -> None:
    """Weights and momentum encoder of `step`. What has ever trained by then is owned by the momentum encoder."""
    if step:
        for number in range(learner.method.stage_at(step - 1, updates)[0] + 1):
            learner.enter(number)
    learner.load_weights(weights)
    learner.load_state(state)
