"""What every predictor answers, so that training and diagnostics treat all alike.

Shapes: B clips, t target tokens, D target width, N agents, P pairs, r_k ranks, T width of the factor targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..teacher.states import ObjectStates

T = TypeVar("T")


class PerFactor(NamedTuple, Generic[T]):
    """One value for each of the factors L, A, I."""

    layout: T
    agents: T
    interactions: T


@dataclass(frozen=True)
class Prediction:
    """Predicted tokens and, where the predictor has them, the ways that led there. A path that is absent is None."""

    tokens_BtD: Tensor  # Y_hat, of affine-free LayerNormed last-tap tokens; fp32
    coordinates: PerFactor[Tensor] | None = None  # C_k [B, t, r_k]
    channels: PerFactor[Tensor] | None = None  # Y_k = C_k A_k^T [B, t, D]
    factor_targets: PerFactor[Tensor] | None = None  # T_hat_k [B, T]
    gate_logits_BtN: Tensor | None = None  # of v, before padding is masked
    strengths_BtP: Tensor | None = None  # w; zero for padded pairs
    states: ObjectStates | None = None  # the agents and pairs that were used
    residual_BtD: Tensor | None = None  # the dense path, where that ablation is on

    @property
    def gates_BtN(self) -> Tensor | None:
        """v; zero for padded agents."""
        if self.gate_logits_BtN is None or self.states is None:
            return None
        return torch.sigmoid(self.gate_logits_BtN) * self.states.valid_BN[:, None]

    @torch.no_grad()
    def vitals(self) -> dict[str, Tensor]:
        """Scalars to watch: gates and edges die silently, and then the model is its own control.

        `gate_sum`: mean over tokens of the sum of v; `gate_max`: mean over agents of their largest v; `edge_max`: mean
        over tokens of the largest w; `edge_mean`: mean w of real pairs; `share_*`: a channel's part of the channels'
        summed variance over tokens.
        """
        seen: dict[str, Tensor] = {}
        gates_BtN = self.gates_BtN
        if gates_BtN is not None and self.states is not None and gates_BtN.shape[-1]:
            seen["gate_sum"] = gates_BtN.sum(-1).mean()
            seen["gate_max"] = gates_BtN.amax(1).sum() / self.states.valid_BN.sum().clamp(min=1)
        if self.strengths_BtP is not None and self.states is not None and self.strengths_BtP.shape[-1]:
            seen["edge_max"] = self.strengths_BtP.amax(-1).mean()
            real = self.states.pair_valid_BP.sum() * self.strengths_BtP.shape[1]
            seen["edge_mean"] = self.strengths_BtP.sum() / real.clamp(min=1)
        if self.channels is not None:
            variances = [channel.flatten(0, 1).var(0, correction=0).sum() for channel in self.channels]
            total = torch.stack(variances).sum().clamp(min=torch.finfo(torch.float32).tiny)
            seen |= {f"share_{name}": part / total for name, part in zip(PerFactor._fields, variances, strict=True)}
        return seen
