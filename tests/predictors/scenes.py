"""Small predictors and made-up agents for the predictor tests."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from factorjepa.backbones import BackboneSpec, build
from factorjepa.backbones.predictor import Predictor
from factorjepa.predictors import (
    FactorizedOptions,
    FactorizedPredictor,
    LatentPredictor,
    MonolithicPredictor,
    StartTokens,
)
from factorjepa.predictors.options import MonolithicOptions
from factorjepa.teacher.states import GEOMETRY, ObjectStates

TINY = BackboneSpec(
    dim=32, depth=2, heads=2, mlp_hidden=64, taps=(0, 1), patch=8, tubelet=2, grid=(4, 4), frames=16,
    predictor_dim=24, predictor_depth=2, predictor_heads=2, mask_tokens=2,
)  # fmt: skip
CONTEXT = torch.arange(96)
TARGET = torch.arange(96, 128)
SMALL: dict[str, Any] = {"descriptor_width": 6, "hidden": 16, "target_width": 10, "pair_chunk": 4}


def pretrained(spec: BackboneSpec = TINY) -> Predictor:
    """A predictor whose attention is far from uniform and whose projection says something."""
    predictor = build(spec).predictor
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in predictor.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return predictor.eval()


def context(batch: int = 2, seed: int = 0, spec: BackboneSpec = TINY) -> tuple[Tensor, Tensor, Tensor]:
    tokens = torch.randn(batch, 96, spec.levels_width, generator=torch.Generator().manual_seed(seed))
    return tokens, CONTEXT.expand(batch, -1), TARGET.expand(batch, -1)


def target_tokens(spec: BackboneSpec = TINY) -> Tensor:
    generator = torch.Generator().manual_seed(8)
    return torch.randn(500, spec.dim, generator=generator) * torch.linspace(2, 0.1, spec.dim) + 0.3


def start_tokens(spec: BackboneSpec = TINY) -> StartTokens:
    targets = target_tokens(spec)
    noise = torch.randn(targets.shape, generator=torch.Generator().manual_seed(9))
    return StartTokens(targets, 0.8 * targets + 0.2 * noise)


def agents(batch: int = 2, count: int = 5, pairs: int = 7, seed: int = 0, width: int = 6) -> ObjectStates:
    """Agents of plausible boxes and speeds, pairs of distinct ones; nothing is padding."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    geometry = torch.cat(
        (uniform(batch, count, 2), 0.1 + 0.2 * uniform(batch, count, 2), 0.06 * (uniform(batch, count, 4) - 0.5),
         uniform(batch, count, len(GEOMETRY) - 8)), dim=-1,
    )  # fmt: skip
    first = torch.randint(count, (batch, pairs), generator=generator)
    second = (first + 1 + torch.randint(max(1, count - 1), (batch, pairs), generator=generator)) % count
    return ObjectStates(
        F.normalize(torch.randn(batch, count, width, generator=generator), dim=-1),
        geometry,
        torch.ones(batch, count, dtype=torch.bool),
        torch.arange(count).expand(batch, -1),
        torch.stack((first, second), dim=-1),
        torch.ones(batch, pairs, dtype=torch.bool),
        12,
    )


def awake(predictor: LatentPredictor, seed: int = 5) -> LatentPredictor:
    """As after some training: what started at zero says something."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in predictor.named_parameters():
            if not name.startswith("query."):
                parameter += (
                    0.3 * torch.randn(parameter.shape, generator=generator) / parameter.shape[-1:].numel() ** 0.5
                )
    return predictor.eval()


def factorized(**options: Any) -> FactorizedPredictor:
    options = {"ranks": (5, 7, 4), **SMALL, **options}
    return FactorizedPredictor.graft(pretrained(), FactorizedOptions(**options), start_tokens()).eval()


def monolithic(**options: Any) -> MonolithicPredictor:
    return MonolithicPredictor.graft(pretrained(), MonolithicOptions(**{**SMALL, **options})).eval()
