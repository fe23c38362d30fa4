"""The model under the clock: a method on an architecture, as training has it, with random weights."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ..adaptation.budget import levelled
from ..backbones import Backbone, build
from ..backbones.masks import future_split
from ..predictors import StartTokens
from ..seeding import seed_of
from ..training.acceleration import accelerated, refuse_bits
from ..training.learner import Learner
from ..training.masking import training_masks
from ..training.parallel import Model, Processes
from ..training.settings import TrainSettings
from ..training.trunk import Trunk
from ..training.update import Update
from .flops import ClipFlops, Trained, block_weights, prediction_flops, update_flops
from .synthetic import Scenery, scales

_DICTIONARY_TOKENS = 2048


def random_backbone(arch: str, device: torch.device) -> Backbone:
    """Built on the device itself: to initialise two billion parameters on a CPU takes longer than to profile them."""
    backbone = build(arch, device="meta").to_empty(device=device)
    with torch.no_grad():
        for module in backbone.modules():
            for parameter in module.parameters(recurse=False):
                parameter.normal_(std=0.02)
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
                module.bias.zero_()
    return backbone


@dataclass(frozen=True)
class Subject:
    """A learner with its optimiser, if it has anything to train, run as `Engine` runs it."""

    settings: TrainSettings
    device: torch.device
    learner: Learner
    optimiser: torch.optim.Optimizer | None
    compiled: bool

    @classmethod
    @contextlib.contextmanager
    def made(cls, settings: TrainSettings, device: torch.device) -> Iterator[Subject]:
        """Built, and within the context accelerated as a run on this device is."""
        refuse_bits(settings, device)
        torch.manual_seed(seed_of("profile", settings.seed) % 2**63)
        backbone = random_backbone(settings.arch, device)
        spec = backbone.spec
        method = levelled(spec, settings.resolved_method(), settings.scope, settings.budget(spec))
        # Where gradients choose the blocks, there are none to ask here. The first one was among them in every run that
        # we looked at, and it decides the cost: the backward pass goes through the whole encoder, no trunk is frozen.
        above = range(spec.depth - settings.scope.blocks + 1, spec.depth)
        scope = dataclasses.replace(settings.scope, chosen=(0, *above))
        tokens = StartTokens(*(torch.randn(_DICTIONARY_TOKENS, spec.dim, device=device) for _ in range(2)))
        backbone.encoder.recompute = settings.recompute
        learner = Learner(backbone, method, scope, settings.momentum, settings.context, settings.seed, tokens)
        learner.predictor.set_recompute(settings.recompute)
        learner.to(device)
        learner.enter(len(method.stages) - 1)  # where most trains
        with accelerated(learner, settings, device) as compiled:
            rates = (settings.lr, settings.weight_decay, settings.rates)
            yield cls(settings, device, learner, learner.optimiser(*rates) if method.trains else None, compiled)

    def update(self, settings: TrainSettings, trunk: Trunk | None = None) -> Update:
        assert self.optimiser is not None
        return Update(
            settings, self.learner, Model(self.learner), self.optimiser, self.device, Processes(self.device),
            scales(self.device), trunk,
        )  # fmt: skip

    def grid(self, settings: TrainSettings) -> tuple[int, int, int]:
        video = torch.empty(1, 3, settings.frames, settings.size, settings.size, device="meta")
        return self.learner.grid(video)

    def trained(self) -> Trained:
        """In the stage it is in."""
        spec, encoder = self.learner.spec, self.learner.encoder
        linear = [weight for weight in encoder.blocks.parameters() if weight.ndim > 1]
        added = sum(weight.numel() for weight in linear) - spec.depth * block_weights(spec)
        weights = sum(weight.numel() for weight in linear if weight.requires_grad) - added
        of_predictor = list(self.learner.predictor.parameters())
        trains = sum(weight.numel() for weight in of_predictor if weight.requires_grad)
        share = trains / sum(weight.numel() for weight in of_predictor)
        return Trained(spec.depth - encoder.frozen_blocks, weights, added, share)

    def update_flops(self, settings: TrainSettings, scenery: Scenery, cached: float = 0.0) -> ClipFlops | None:
        """Of one clip in an update. Agents and pairs count as before masking. V-JEPA's own objective is not counted."""
        if self.learner.method.objective == "released":
            return None
        tubelets, rows, columns = self.grid(settings)
        split = future_split((tubelets, rows, columns), settings.context // self.learner.spec.tubelet)
        context_grid = (settings.context // self.learner.spec.tubelet, rows, columns)
        masks = training_masks(settings.masks, 0, 0, ["any"], context_grid, 0)
        return update_flops(
            self.learner.spec, self.learner.method.predictor, self.trained(), clip=tubelets * rows * columns,
            target=len(split.target), visible=tuple(mask.shape[1] for mask in masks), agents=scenery.agents,
            pairs=scenery.pairs, cached=cached,
            cached_context=len(split.context) if settings.trunk_has_context else None,
        )  # fmt: skip

    def prediction_flops(self, settings: TrainSettings, scenery: Scenery) -> ClipFlops:
        split = future_split(self.grid(settings), settings.context // self.learner.spec.tubelet)
        return prediction_flops(
            self.learner.spec, self.learner.method.predictor, len(split.context), len(split.target), scenery.agents,
            scenery.pairs,
        )  # fmt: skip
