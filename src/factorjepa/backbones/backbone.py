"""An encoder with its predictor, built from a spec."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..errors import BackboneError
from .building import with_random_weights
from .encoder import Encoder
from .predictor import Predictor
from .spec import BackboneSpec, resolve


class AbsentPartError(BackboneError, AttributeError):
    """A part that was not loaded was asked for; an AttributeError too, so that `hasattr` can ask."""


class Backbone(nn.Module):
    """`encoder` and `predictor` of one `spec`; `origin` says where the weights come from, for logs and reports.

    What was loaded with `parts="encoder"` has no predictor, and says so when it is asked for.
    """

    encoder: Encoder
    predictor: Predictor

    def __init__(
        self, encoder: Encoder, predictor: Predictor | None, spec: BackboneSpec, origin: str = "unknown"
    ) -> None:
        super().__init__()
        self.encoder = encoder
        if predictor is not None:
            self.predictor = predictor
        self.spec = spec
        self.origin = origin

    def __getattr__(self, name: str) -> Any:
        if name == "predictor" and name not in self.__dict__.get("_modules", {}):
            raise AbsentPartError(
                f"this backbone ({self.origin}) is an encoder alone: it has no predictor. Load a file that holds one, "
                'without parts="encoder"'
            )
        return super().__getattr__(name)


def build(
    arch: str | BackboneSpec, *, seed: int = 0, device: torch.device | str | None = None, **overrides: Any
) -> Backbone:
    """A backbone with random weights: the same weights for the same spec and seed, whatever ran before.

    `arch` is a registered name or a spec; `overrides` are fields of the spec. `device="meta"` allocates nothing.

    >>> build("nano", grid=(8, 8)).spec.pixels
    (64, 64)
    """
    spec = resolve(arch, **overrides)
    return with_random_weights(
        lambda origin: Backbone(Encoder(spec), Predictor(spec), spec, origin), "backbone", seed, device
    )
