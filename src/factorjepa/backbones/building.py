"""Modules with random weights that depend on their seed alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from ..seeding import seed_of

Model = TypeVar("Model", bound=nn.Module)


def with_random_weights(
    make: Callable[[str], Model], kind: str, seed: int, device: torch.device | str | None = None
) -> Model:
    """What `make(origin)` makes, the same for the same kind and seed; on the meta device nothing is allocated."""
    place = torch.device("cpu" if device is None else device)
    if place.type == "meta":
        with place:
            return make("no weights (meta device)")
    with torch.random.fork_rng(devices=[]):  # the caller's generators are left alone
        torch.manual_seed(seed_of(kind, seed) % 2**63)
        return make(f"RANDOM weights (seed {seed})").to(place)
