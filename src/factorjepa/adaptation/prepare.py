"""From a pretrained backbone and a method to what trains: predictor surgery, adapters, and the encoder's scope."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import nn

from ..backbones import Backbone
from ..backbones.building import without_weights
from ..backbones.encoder import Encoder
from ..backbones.spec import BackboneSpec, resolve
from ..errors import TrainingError
from ..predictors import (
    FactorizedOptions,
    FactorizedPredictor,
    LatentPredictor,
    MonolithicOptions,
    MonolithicPredictor,
    StartTokens,
)
from ..predictors.interface import Role
from .adapters import inject
from .continual import ReleasedPredictor
from .method import Encoder as EncoderScope
from .method import Method, PredictorScope, Stage

ADAPTERS = ("lora", "dora")


@dataclass(frozen=True)
class Scope:
    """How much trains, where the method leaves it open (Panels B and D)."""

    blocks: int = 2  # K: encoder blocks of `top` and `chosen`
    chosen: tuple[int, ...] = ()  # which blocks, for `chosen`
    rank: int = 64
    alpha: float = 128.0
    dropout: float = 0.05


def surgery(backbone: Backbone, method: Method, tokens: StartTokens | None, seed: int) -> LatentPredictor:
    """The method's predictor, grafted from the backbone's pretrained one, which is left as it is."""
    if method.objective == "released":
        return ReleasedPredictor.graft(backbone.predictor)
    if isinstance(method.predictor, FactorizedOptions):
        return FactorizedPredictor.graft(backbone.predictor, method.predictor, tokens, seed)
    return MonolithicPredictor.graft(backbone.predictor, method.predictor, seed)


def outline(spec: BackboneSpec, method: Method) -> LatentPredictor:
    """The same structure with whatever weights, for counting."""
    return _outlined(spec, method.predictor, method.objective)


def _outlined(spec: BackboneSpec, options: FactorizedOptions | MonolithicOptions, objective: str) -> LatentPredictor:
    if objective == "released":
        return ReleasedPredictor(spec)
    if isinstance(options, FactorizedOptions):
        return FactorizedPredictor(spec, options)
    return MonolithicPredictor(spec, options)


def add_adapters(encoder: Encoder, predictor: LatentPredictor, method: Method, scope: Scope) -> None:
    """LoRA or DoRA, where the method asks for them."""
    _adapt(encoder, method.encoder, scope)
    _adapt(predictor, method.predictor_scope, scope)


def _adapt(module: nn.Module, kind: str, scope: Scope) -> None:
    if kind in ADAPTERS:
        inject(module, kind, scope.rank, scope.alpha, scope.dropout)  # type: ignore[arg-type]


def set_trainable(encoder: Encoder, predictor: LatentPredictor, method: Method, stage: Stage, scope: Scope) -> None:
    """Let exactly that train which `stage` of `method` says; frozen blocks run without autograd."""
    _encoder_scope(encoder, method.encoder, stage.depth, scope)
    _predictor_scope(predictor, stage.predictor or method.predictor_scope)


def _encoder_scope(encoder: Encoder, kind: EncoderScope, share: float, scope: Scope) -> None:
    depth = len(encoder.blocks)
    if kind in ADAPTERS:
        for name, parameter in encoder.named_parameters():
            parameter.requires_grad_("lora_" in name)
        return
    blocks = {"frozen": [], "all": list(range(depth)), "top": list(range(depth - scope.blocks, depth))}.get(
        kind, list(scope.chosen)
    )
    if kind in ("top", "chosen") and not 0 < len(blocks) <= depth:
        raise TrainingError(f"{len(blocks)} trainable blocks of an encoder with {depth}: set trainable_blocks")
    blocks = blocks[len(blocks) - math.ceil(len(blocks) * share) :]
    encoder.freeze(0 if len(blocks) == depth else min(blocks, default=depth))
    for number, block in enumerate(encoder.blocks):
        block.requires_grad_(number in blocks)
    if not blocks:
        encoder.requires_grad_(False)


def _predictor_scope(predictor: LatentPredictor, kind: PredictorScope) -> None:
    roles = predictor.roles()
    for name, parameter in predictor.named_parameters():
        if kind in ADAPTERS:
            parameter.requires_grad_("lora_" in name)
        elif kind == "head":
            parameter.requires_grad_(roles[name] != "query")
        else:
            parameter.requires_grad_(kind == "all")


def trainable(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters() if p.requires_grad)


def parameter_roles(
    encoder: Encoder, predictor: LatentPredictor, rates: Mapping[Role, float] = MappingProxyType({})
) -> list[tuple[str, nn.Parameter, dict[str, Any]]]:
    """Every parameter that trains now, with its name in a checkpoint and its rate and decay (Panel C).

    The encoder learns at a tenth of the rate, dictionaries at 0.3 of it (they turn every channel at once), other roles
    at as much of it as `rates` say; dictionaries and scales do not decay.
    """
    rows = [(f"encoder.{name}", p, {"rate": 0.1, "decays": True}) for name, p in encoder.named_parameters()]
    roles, rates = predictor.roles(), {"dictionary": 0.3, **rates}
    for name, p in predictor.named_parameters():
        rate = rates.get(roles[name], 1.0)
        rows.append((f"predictor.{name}", p, {"rate": rate, "decays": roles[name] not in ("dictionary", "scale")}))
    return [row for row in rows if row[1].requires_grad]


def count_trainable(arch: str | BackboneSpec, method: Method, scope: Scope) -> int:
    """Parameters that train at the method's widest stage, counted on the meta device. Any K blocks weigh the same."""
    if not method.trains:
        return 0
    spec, depths = resolve(arch), tuple(stage.depth for stage in method.stages)
    kinds = tuple(stage.predictor or method.predictor_scope for stage in method.stages)
    of_predictor = _counted_predictor(spec, method.predictor, method.objective, method.predictor_scope, kinds, scope)
    return max(map(sum, zip(_counted_encoder(spec, method.encoder, depths, scope), of_predictor, strict=True)))


# Every run and every measurement of one asks for the same few counts, and many methods differ in neither of the two.


@functools.cache
def _counted_predictor(
    spec: BackboneSpec,
    options: FactorizedOptions | MonolithicOptions,
    objective: str,
    adapters: PredictorScope,
    kinds: tuple[PredictorScope, ...],
    scope: Scope,
) -> tuple[int, ...]:
    """What trains of the predictor at one stage after the other."""
    with without_weights():
        predictor = _outlined(spec, options, objective)
        _adapt(predictor, adapters, scope)
    counts = []
    for kind in kinds:
        _predictor_scope(predictor, kind)
        counts.append(trainable(predictor))
    return tuple(counts)


@functools.cache
def _counted_encoder(
    spec: BackboneSpec, kind: EncoderScope, depths: tuple[float, ...], scope: Scope
) -> tuple[int, ...]:
    """What trains of the encoder at one stage after the other."""
    scope = dataclasses.replace(scope, chosen=tuple(range(spec.depth - scope.blocks, spec.depth)))
    with without_weights():
        encoder = Encoder(spec)
        _adapt(encoder, kind, scope)
    counts = []
    for depth in depths:
        _encoder_scope(encoder, kind, depth, scope)
        counts.append(trainable(encoder))
    return tuple(counts)
