"""The branches g_A, g_V, g_I, g_W and how their answers are summed into coordinates.

Shapes: B clips, N agents, P pairs, t target tokens, W query width, V = 2W, H hidden width, r rank.

A branch is a two-layer MLP on the fused state `u = q + E(o) + R(geometry)` (pairs: two of them side by side, plus a map
of their relation). Its first layer is linear, so it is applied to the parts: once per query, once per agent or pair,
and through the composed `W1 R` to the few geometry fields. The fused states themselves, tokens x pairs x 768 numbers,
never exist; the hidden states of pairs exist for `pair_chunk` pairs at a time.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .agents import AgentView
from .options import AgentOptions
from .precision import full

# Priors on logits: a gate is nearly shut far from an agent's box and open (0.88) inside it. An edge also opens with the
# pair's meeting; both keep a slope that training can move.
_GATE_FAR, _GATE_CLOSE = -5.0, 7.0
_EDGE_FAR, _EDGE_CLOSE, _EDGE_MEETING = -4.0, 5.0, 2.0


class AgentHead(nn.Module):
    """Two layers on `u = q + E(o) + R(geometry)`, of g_A and g_V."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, hidden)
        self.last = nn.Linear(hidden, out)

    def hidden(self, query_BtW: Tensor, view: AgentView) -> Tensor:
        """`GELU(first(u))`, `[B, N, t, H]`."""
        return F.gelu(_by_parts(self.first.weight, query_BtW, view) + self.first.bias)


class PairHead(nn.Module):
    """Two layers on `(u_i, u_j) + S(relation)`, of g_I and g_W."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.first = nn.Linear(2 * width, hidden)
        self.last = nn.Linear(hidden, out)

    def parts(self, query_BtW: Tensor, view: AgentView) -> tuple[Tensor, Tensor, Tensor]:
        """What the first layer makes of `u_i` and `u_j`, each `[B, N, t, H]`, and of the relation, `[B, P, 1, H]`."""
        left, right = self.first.weight.chunk(2, dim=1)
        relation = F.linear(view.relation_BPF, self.first.weight @ view.relation_VF, self.first.bias)
        return _by_parts(left, query_BtW, view), _by_parts(right, query_BtW, view), relation[:, :, None]


class PairSum(NamedTuple):
    summed_Btr: Tensor  # sum over pairs of w times the pair's state
    strengths_BtP: Tensor  # w, zero for padded pairs


def _by_parts(weight_HW: Tensor, query_BtW: Tensor, view: AgentView) -> Tensor:
    """`u W1^T` without u: `[B, N, t, H]`."""
    mixed = F.linear(query_BtW, weight_HW)[:, None] + F.linear(view.embedded_BNW, weight_HW)[:, :, None]
    if view.relative_BNtR is None:
        return mixed
    return mixed + F.linear(view.relative_BNtR, weight_HW @ view.relative_WR)


class GatedAgents(nn.Module):
    """Visibility-gated agents: `v_i = sigma(g_V(q, o_i))`, `c_A = sum_i v_i g_A(q, o_i) / (eps + sum_i v_i)`.

    g_A's last layer is linear, so it is applied to the gated sum of hidden states instead of to every agent's.
    """

    def __init__(self, width: int, out: int, options: AgentOptions) -> None:
        super().__init__()
        self.options = options
        self.g_A = AgentHead(width, options.hidden, out)
        self.g_V = AgentHead(width, options.hidden, 1) if options.visibility == "learned" else None
        if self.g_V is not None and options.gate_prior:
            zero(self.g_V.last)

    def forward(self, query_BtW: Tensor, view: AgentView) -> tuple[Tensor, Tensor | None]:
        """`c_A [B, t, r]` and the gates' logits `[B, t, N]` (None where the visibility pathway is off)."""
        valid_BN1 = view.states.valid_BN[..., None]
        if self.g_V is None:
            logits_BNt = None
            gates_BNt = valid_BN1.expand_as(view.closeness_BNt).to(view.closeness_BNt.dtype)
        else:
            logits_BNt = full(self.g_V.last(self.g_V.hidden(query_BtW, view)).squeeze(-1))
            if self.options.gate_prior:
                logits_BNt = logits_BNt + (_GATE_FAR + _GATE_CLOSE * view.closeness_BNt)
            gates_BNt = torch.sigmoid(logits_BNt) * valid_BN1
        hidden_BNtH = self.g_A.hidden(query_BtW, view)
        total_Bt1 = gates_BNt.sum(1)[..., None]
        summed_BtH = full(torch.einsum("bnt,bnth->bth", gates_BNt.to(hidden_BNtH.dtype), hidden_BNtH))
        # The shares are formed before the last layer, in fp32; its bias is weighed by the same shares.
        mean_BtH = summed_BtH / (self.options.agent_epsilon + total_Bt1)
        weighed_Bt1 = total_Bt1 / (self.options.agent_epsilon + total_Bt1)
        last = self.g_A.last
        coordinates_Btr = full(F.linear(mean_BtH.to(hidden_BNtH.dtype), last.weight)) + weighed_Bt1 * last.bias
        return coordinates_Btr, None if logits_BNt is None else logits_BNt.transpose(1, 2)


class Pairs(nn.Module):
    """Pairs of agents: strengths `w_ij = sigma(g_W(q, o_i, o_j))` and the sum of `w_ij` times the state of the pair.

    `normalise` is the epsilon of `e / (eps + |e|)`; None leaves states as they are, and then the linear last layer is
    applied to the sum.
    """

    def __init__(self, width: int, out: int, options: AgentOptions, normalise: float | None) -> None:
        super().__init__()
        self.options = options
        self.normalise = normalise
        self.recompute = False  # forget the hidden states of each chunk until the backward pass
        self.g_I = PairHead(width, options.hidden, out)
        self.g_W = PairHead(width, options.hidden, 1)
        if options.edge_prior:
            zero(self.g_W.last)

    def forward(self, query_BtW: Tensor, view: AgentView) -> PairSum:
        batch, tokens = query_BtW.shape[:2]
        summed_Btr = full(query_BtW).new_zeros(batch, tokens, self.g_I.last.out_features)
        state_parts, strength_parts = self.g_I.parts(query_BtW, view), self.g_W.parts(query_BtW, view)
        strengths: list[Tensor] = []
        pairs = view.select_i_BPN.shape[1]
        # Once even without pairs: peers that share a batch must agree on which parameters have a gradient.
        for first in range(0, max(1, pairs), self.options.pair_chunk):
            here = slice(first, min(first + self.options.pair_chunk, pairs))
            if self.recompute and torch.is_grad_enabled():
                part, strength = checkpoint(self._chunk, state_parts, strength_parts, view, here, use_reentrant=False)
            else:
                part, strength = self._chunk(state_parts, strength_parts, view, here)
            summed_Btr = summed_Btr + part
            strengths.append(strength)
        return PairSum(summed_Btr, torch.cat(strengths, dim=1).transpose(1, 2))

    def _chunk(
        self,
        state_parts: tuple[Tensor, Tensor, Tensor],
        strength_parts: tuple[Tensor, Tensor, Tensor],
        view: AgentView,
        here: slice,
    ) -> tuple[Tensor, Tensor]:
        """The chunk's part of the sum `[B, t, r]` and its strengths `[B, p, t]`."""
        i_BpN, j_BpN = view.select_i_BPN[:, here], view.select_j_BPN[:, here]
        logits_Bpt = full(self.g_W.last(_hidden(strength_parts, i_BpN, j_BpN, here)).squeeze(-1))
        if self.options.edge_prior:
            with torch.autocast(logits_Bpt.device.type, enabled=False):
                closeness_Bpt = i_BpN @ view.closeness_BNt
            meeting_Bp1 = view.relation_BPF[:, here, -1:]
            logits_Bpt = logits_Bpt + (_EDGE_FAR + _EDGE_CLOSE * closeness_Bpt + _EDGE_MEETING * meeting_Bp1)
        strength_Bpt = torch.sigmoid(logits_Bpt) * view.states.pair_valid_BP[:, here, None]
        hidden_BptH = _hidden(state_parts, i_BpN, j_BpN, here)
        last = self.g_I.last
        if self.normalise is None:
            summed_BtH = torch.einsum("bpt,bpth->bth", strength_Bpt.to(hidden_BptH.dtype), hidden_BptH)
            return full(F.linear(summed_BtH, last.weight)) + strength_Bpt.sum(1)[..., None] * last.bias, strength_Bpt
        state_Bptr = full(last(hidden_BptH))
        length_Bpt = torch.linalg.vector_norm(state_Bptr, dim=-1)  # its gradient at 0 is 0
        share_Bpt = strength_Bpt / (self.normalise + length_Bpt)
        with torch.autocast(state_Bptr.device.type, enabled=False):
            return torch.einsum("bpt,bptr->btr", share_Bpt, state_Bptr), strength_Bpt


class SparseInteractions(nn.Module):
    """`c_I = 1/M sum_ij w_ij e_ij / (eps + |e_ij|)` with `M = max(1, |E|)`; exactly 0 for an empty graph."""

    def __init__(self, width: int, rank: int, options: AgentOptions, epsilon: float) -> None:
        super().__init__()
        self.pairs = Pairs(width, rank, options, normalise=epsilon)

    def forward(self, query_BtW: Tensor, view: AgentView) -> tuple[Tensor, Tensor]:
        """`c_I [B, t, r]` and `w [B, t, P]`."""
        summed_Btr, strengths_BtP = self.pairs(query_BtW, view)
        count_B11 = view.states.pair_valid_BP.sum(1).clamp(min=1)[:, None, None]
        return summed_Btr / count_B11, strengths_BtP


def _hidden(parts: tuple[Tensor, Tensor, Tensor], i_BpN: Tensor, j_BpN: Tensor, here: slice) -> Tensor:
    """`GELU(first((u_i, u_j) + S(relation)))` of a chunk of pairs, `[B, p, t, H]`."""
    left_BNtH, right_BNtH, relation_BP1H = parts
    shape = left_BNtH.shape[2:]
    picked = i_BpN.to(left_BNtH.dtype) @ left_BNtH.flatten(2) + j_BpN.to(right_BNtH.dtype) @ right_BNtH.flatten(2)
    return F.gelu(torch.unflatten(picked, -1, shape) + relation_BP1H[:, here])


def zero(layer: nn.Linear) -> None:
    """A fresh output layer that at first says nothing."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(cast(Tensor, layer.bias))
