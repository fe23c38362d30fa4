"""Modules with random weights that depend on their seed alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ..seeding import seed_of

Model = TypeVar("Model", bound=nn.Module)


def with_random_weights(
    make: Callable[[str], Model], kind: str, seed: int, device: torch.device | str | None = None
) -> Model:
    """What `make(origin)` makes, the same for the same kind and seed; on the meta device nothing is allocated."""
    place = torch.device("cpu" if device is None else device)
    if place.type == "meta":
        with without_weights():
            return make("no weights (meta device)")
    with torch.random.fork_rng(devices=[]):  # the caller's generators are left alone
        torch.manual_seed(seed_of(kind, seed) % 2**63)
        return make(f"RANDOM weights (seed {seed})").to(place)


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """Modules that are made inside have shapes and no weights: nothing is allocated, and nothing is drawn."""
    with torch.device("meta"), _Unfilled():
        yield


class _Unfilled(TorchFunctionMode):
    """Leaves out PyTorch's initialisers: on the meta device they change nothing, and take most of the time."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == nn.init.__name__:
            return kwargs.get("tensor", args[0] if args else None)
        return func(*args, **kwargs)
