"""What every predictor answers, so that training and diagnostics treat all alike.

Shapes: B clips, t target tokens, D target width, N agents, P pairs, r_k ranks, T width of the factor targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..peers import ALONE, Peers
from ..teacher.states import ObjectStates

T = TypeVar("T")


class PerFactor(NamedTuple, Generic[T]):
    """One value for each of the factors L, A, I."""

    layout: T
    agents: T
    interactions: T


class Opened(NamedTuple):
    """How far gates and edges of a place where agents are injected open."""

    gate_logits_BtN: Tensor | None
    strengths_BtP: Tensor | None


@dataclass(frozen=True)
class Prediction:
    """Predicted tokens and, where the predictor has them, the ways that led there. A path that is absent is None."""

    tokens_BtD: Tensor  # Y_hat, of affine-free LayerNormed last-tap tokens; fp32
    coordinates: PerFactor[Tensor] | None = None  # C_k [B, t, r_k]
    channels: PerFactor[Tensor] | None = None  # Y_k = C_k A_k^T [B, t, D]
    factor_targets: PerFactor[Tensor] | None = None  # T_hat_k [B, T]
    gate_logits_BtN: Tensor | None = None  # of v, before padding is masked
    strengths_BtP: Tensor | None = None  # w; zero for padded pairs
    early: Opened | None = None  # the same of early injection, where the predictor has both
    states: ObjectStates | None = None  # the agents and pairs that were used
    residual_BtD: Tensor | None = None  # the dense path, where that ablation is on

    @property
    def gates_BtN(self) -> Tensor | None:
        """v; zero for padded agents."""
        return self._gates(self.gate_logits_BtN)

    def _gates(self, logits_BtN: Tensor | None) -> Tensor | None:
        if logits_BtN is None or self.states is None:
            return None
        return torch.sigmoid(logits_BtN) * self.states.valid_BN[:, None]

    @torch.no_grad()
    def vitals(self, peers: Peers = ALONE) -> dict[str, Tensor]:
        """Scalars to watch: gates and edges die silently, and then the model is its own control.

        `agents`, `pairs`: mean number per clip; `gate_sum`: mean over tokens of the sum of v; `gate_max`: mean over
        agents of their largest v; `edge_max`: mean over tokens of the largest w; `edge_mean`: mean w of real pairs;
        `early_*_max`: those of early injection; `share_*`: a channel's part of the channels' summed variance over
        tokens. All over the clips of all peers.
        """
        seen: dict[str, Tensor] = {}
        gates_BtN, strengths_BtP, states = self.gates_BtN, self.strengths_BtP, self.states
        if gates_BtN is not None and states is not None:
            parts = (states.valid_BN.sum(), gates_BtN.mean(1).sum(), _largest(gates_BtN, 1).sum())
            agents, opened, largest = _per_clip(peers, len(gates_BtN), *parts)
            seen |= {"agents": agents, "gate_sum": opened, "gate_max": largest / agents.clamp(min=1e-9)}
        if strengths_BtP is not None and states is not None:
            parts = (states.pair_valid_BP.sum(), _largest(strengths_BtP, -1).mean(1).sum(), strengths_BtP.mean(1).sum())
            pairs, largest, total = _per_clip(peers, len(strengths_BtP), *parts)
            seen |= {"pairs": pairs, "edge_max": largest, "edge_mean": total / pairs.clamp(min=1e-9)}
        if self.early is not None and states is not None:
            gates_BtN, strengths_BtP = self._gates(self.early.gate_logits_BtN), self.early.strengths_BtP
            if gates_BtN is not None:
                opened = _largest(gates_BtN, 1).sum()
                agents, largest = _per_clip(peers, len(gates_BtN), states.valid_BN.sum(), opened)
                seen["early_gate_max"] = largest / agents.clamp(min=1e-9)
            if strengths_BtP is not None:
                (largest,) = _per_clip(peers, len(strengths_BtP), _largest(strengths_BtP, -1).mean(1).sum())
                seen["early_edge_max"] = largest
        if self.channels is not None:
            rows_3nD = torch.stack([channel.flatten(0, 1) for channel in self.channels]).double()
            count = rows_3nD.shape[1] * peers.world
            mean_3D, square_3D = peers.sum(torch.stack((rows_3nD.sum(1), rows_3nD.square().sum(1)))) / count
            variance_3 = (square_3D - mean_3D.square()).sum(1).clamp(min=0)
            share_3 = variance_3 / variance_3.sum().clamp(min=torch.finfo(torch.float32).tiny)
            seen |= {f"share_{name}": share for name, share in zip(PerFactor._fields, share_3, strict=True)}
        return seen


def _largest(x: Tensor, dim: int) -> Tensor:
    """The maximum along `dim`, nothing where there is nothing."""
    return x.amax(dim) if x.shape[dim] else x.sum(dim)


def _per_clip(peers: Peers, clips: int, *sums: Tensor) -> tuple[Tensor, ...]:
    return (peers.sum(torch.stack([one.double() for one in sums])) / (clips * peers.world)).unbind()
