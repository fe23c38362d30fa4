"""AdamW as the configuration table has it (Panel C): groups, warm-up, cosine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

BETAS = (0.9, 0.95)


def parameter_groups(
    named: Iterable[tuple[str, nn.Parameter]], lr: float, weight_decay: float, undecayed: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Trainable parameters in two groups: matrices decay; biases, norms, tokens and `undecayed` names do not."""
    decayed: list[Tensor] = []
    plain: list[Tensor] = []
    for name, parameter in named:
        if parameter.requires_grad:
            small = parameter.squeeze().ndim < 2
            (plain if small or any(part in name for part in undecayed) else decayed).append(parameter)
    groups = [(decayed, weight_decay), (plain, 0.0)]
    return [{"params": params, "lr": lr, "weight_decay": decay} for params, decay in groups if params]


def adamw(groups: list[dict[str, Any]]) -> torch.optim.AdamW:
    """The optimiser; `base_lr` of each group is what the schedule scales."""
    for group in groups:
        group["base_lr"] = group["lr"]
    on_gpu = any(parameter.is_cuda for group in groups for parameter in group["params"])
    return torch.optim.AdamW(groups, betas=BETAS, eps=1e-8, fused=on_gpu)


def rate(step: int, steps: int, warmup: int, floor: float) -> float:
    """Share of the base rate for update `step` of `steps`: linear warm-up, then cosine down to `floor`."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


def set_rate(optimiser: torch.optim.Optimizer, share: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = group["base_lr"] * share
