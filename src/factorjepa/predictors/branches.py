"""The branches g_A, g_V, g_I, g_W and how their answers are summed into coordinates.

Shapes: B clips, N agents, M = 2N, P pairs, p pairs of a chunk, t target tokens, n cells of a tubelet's grid, W query
width, V = 2W, H hidden width, r rank, X fields of what was last seen.

A branch is a two-layer MLP on the fused state `u = q + E(o) + R(geometry)` (pairs: two of them side by side, plus a map
of their relation; where agents bring tokens along, plus K of those). Its first layer is linear, so it is applied to the
parts: once per query, once per agent or pair, and through the composed `W1 R` to the few geometry fields. The fused
states themselves, tokens x pairs x 768 numbers, never exist; the hidden states of pairs exist for `pair_chunk` pairs at
a time, and only for clips that have so many.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..transfer import sent
from .agents import AgentView
from .memory import at_own_place, where_it_lay
from .options import AgentOptions
from .precision import full
from .query import Question

# Priors on logits: a gate is nearly shut far from an agent's box and open (0.88) inside it. An edge also opens with the
# pair's meeting; both keep a slope that training can move.
_GATE_FAR, _GATE_CLOSE = -5.0, 7.0
_EDGE_FAR, _EDGE_CLOSE, _EDGE_MEETING = -4.0, 5.0, 2.0

_FILLED, _NARROWEST = 0.6, 8  # of a chunk's places, and pairs: chunks that are filled worse are halved down to so many


class Head(nn.Module):
    """Two layers: on `u = q + E(o) + R(geometry)`, or for pairs on `(u_i, u_j) + S(relation)`."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, hidden)
        self.last = nn.Linear(hidden, out)


def _by_parts(weight_klHW: Tensor, query_BtW: Tensor, view: AgentView, bias_kH: Tensor | None = None) -> Tensor:
    """`u W1^T + b1` without u, of k first layers, for the l places that an agent has in each: `[k, B, lN, t, H]`.

    Nothing as large as the answer is cast, and the bias goes to a part that is small.
    """
    query_kBl1tH = _mapped(query_BtW, weight_klHW).unsqueeze(3)
    agents_kBlN1H = _mapped(view.embedded_BNW, weight_klHW, bias_kH).unsqueeze(4)
    parts = [query_kBl1tH, agents_kBlN1H]
    if view.relative_BNtR is not None:
        # Clip by clip, so that it lies in memory as the answer does; there are few fields to be copied for each layer.
        fields_1B1mR = view.relative_BNtR.flatten(1, 2)[None, :, None]
        relative_kBlmH = fields_1B1mR @ (weight_klHW @ view.relative_WR).transpose(2, 3)[:, None]
        parts.insert(0, torch.unflatten(relative_kBlmH, 3, view.relative_BNtR.shape[1:3]))
    if view.seen_BnW is not None and view.origin_BNtn is not None:
        seen_kBlnH = _mapped(view.seen_BnW, weight_klHW)
        origin_1B1mn = view.origin_BNtn.to(seen_kBlnH.dtype).flatten(1, 2)[None, :, None]
        parts.insert(0, torch.unflatten(origin_1B1mn @ seen_kBlnH, 3, view.origin_BNtn.shape[1:3]))
    return functools.reduce(torch.add, parts).flatten(2, 3)


def _mapped(x_BnW: Tensor, weight_klHW: Tensor, bias_kH: Tensor | None = None) -> Tensor:
    """Through k times l layers, in one product: `[k, B, l, n, H]`."""
    rows = x_BnW.flatten(0, 1) @ weight_klHW.flatten(0, 1).transpose(1, 2)
    mapped_kBlnH = rows.view(*weight_klHW.shape[:2], *x_BnW.shape[:2], weight_klHW.shape[2]).transpose(1, 2)
    return mapped_kBlnH if bias_kH is None else mapped_kBlnH + bias_kH.to(rows.dtype)[:, None, None, None]


def _weighted_sum(weight_Bnt: Tensor, x_BntH: Tensor) -> Tensor:
    """Over n. As a product of matrices it would be one for every token, and its gradient as many outer products."""
    return (weight_Bnt.to(x_BntH.dtype).unsqueeze(-1) * x_BntH).sum(1)


class PairParts(NamedTuple):
    """What the first layers of g_I and g_W make of every agent as `u_i` and then as `u_j`, and of the relations."""

    agents_2BMtH: Tensor
    relation_2BP1H: Tensor

    def of(self, clips: slice, pairs: slice) -> PairParts:
        return PairParts(self.agents_2BMtH[:, clips], self.relation_2BP1H[:, clips, pairs])

    def hidden(self, select_BpM: Tensor) -> Tensor:
        """`GELU(first((u_i, u_j) + S(relation)))` of a chunk of pairs, `[2, B, p, t, H]`."""
        agents = self.agents_2BMtH
        picked = select_BpM.to(agents.dtype) @ agents.flatten(3)
        return F.gelu(torch.unflatten(picked, -1, agents.shape[3:]) + self.relation_2BP1H)


class _Some(NamedTuple):
    """A chunk of pairs."""

    select_BpM: Tensor  # two ones in each row: the pair's agents, as i and as j; zero for padded pairs
    closeness_BNt: Tensor
    meeting_Bp1: Tensor
    valid_Bp1: Tensor
    parts: PairParts


class PairSum(NamedTuple):
    summed_Btr: Tensor  # sum over pairs of w times the pair's state
    strengths_BtP: Tensor  # w, zero for padded pairs


class GatedAgents(nn.Module):
    """Visibility-gated agents: `v_i = sigma(g_V(q, o_i))`, `c_A = sum_i v_i g_A(q, o_i) / (eps + sum_i v_i)`.

    g_A's last layer is linear, so it is applied to the gated sum of hidden states instead of to every agent's.
    """

    def __init__(self, width: int, out: int, options: AgentOptions) -> None:
        super().__init__()
        self.options = options
        self.g_A = Head(width, options.hidden, out)
        self.g_V = Head(width, options.hidden, 1) if options.visibility == "learned" else None
        if self.g_V is not None and options.gate_prior:
            zero(self.g_V.last)

    def forward(self, query_BtW: Tensor, view: AgentView) -> tuple[Tensor, Tensor | None]:
        """`c_A [B, t, r]` and the gates' logits `[B, t, N]` (None where the visibility pathway is off)."""
        valid_BN1 = view.states.valid_BN[..., None]
        heads = [self.g_A] if self.g_V is None else [self.g_A, self.g_V]
        weight_k1HW = torch.stack([head.first.weight for head in heads]).unsqueeze(1)
        bias_kH = torch.stack([head.first.bias for head in heads])
        hidden_BNtH, *gating = F.gelu(_by_parts(weight_k1HW, query_BtW, view, bias_kH)).unbind()
        if self.g_V is None:
            logits_BNt = None
            gates_BNt = valid_BN1.expand_as(view.closeness_BNt).to(view.closeness_BNt.dtype)
        else:
            logits_BNt = full(self.g_V.last(gating[0]).squeeze(-1))
            if self.options.gate_prior:
                logits_BNt = logits_BNt + (_GATE_FAR + _GATE_CLOSE * view.closeness_BNt)
            gates_BNt = torch.sigmoid(logits_BNt) * valid_BN1
        total_Bt1 = gates_BNt.sum(1)[..., None]
        summed_BtH = full(_weighted_sum(gates_BNt, hidden_BNtH))
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
        self._compiled: Callable[[_Some], tuple[Tensor, Tensor]] | None = None
        self.g_I = Head(2 * width, options.hidden, out)
        self.g_W = Head(2 * width, options.hidden, 1)
        if options.edge_prior:
            zero(self.g_W.last)

    def compile_chunks(self, backend: str) -> None:
        self._compiled = torch.compile(self._chunk, backend=backend)

    def forward(self, query_BtW: Tensor, view: AgentView) -> PairSum:
        batch, pairs = view.states.pair_valid_BP.shape
        counts = view.states.pair_counts or (pairs,) * batch
        order = sorted(range(batch), key=lambda b: -counts[b])  # those with most pairs first
        if order == list(range(batch)):
            return self._sum(query_BtW, view, counts)
        order_B = sent(torch.tensor(order), query_BtW.device)
        most_first = self._sum(query_BtW.index_select(0, order_B), view.of_clips(order_B), sorted(counts, reverse=True))
        back_B = sent(torch.tensor(order).argsort(), query_BtW.device)
        return PairSum(*(part.index_select(0, back_B) for part in most_first))

    def _sum(self, query_BtW: Tensor, view: AgentView, counts: Sequence[int]) -> PairSum:
        """Of clips that come in the order of their `counts` of pairs, largest first."""
        batch, tokens = query_BtW.shape[:2]
        pairs = view.states.pair_valid_BP.shape[1]
        summed_Btr = full(query_BtW).new_zeros(batch, tokens, self.g_I.last.out_features)
        strengths_BPt = summed_Btr.new_zeros(batch, pairs, tokens)
        parts = self._parts(query_BtW, view)
        select_BPM = torch.cat((view.select_i_BPN, view.select_j_BPN), dim=-1)
        chunk = self._compiled or self._chunk
        for first, last, clips in _stretches(counts, pairs, self.options.pair_chunk):
            n, here = slice(clips), slice(first, last)
            some = _Some(
                select_BPM[n, here], view.closeness_BNt[n], view.relation_BPF[n, here, -1:],
                view.states.pair_valid_BP[n, here, None], parts.of(n, here),
            )  # fmt: skip
            if self.recompute and torch.is_grad_enabled():
                part, strength = checkpoint(chunk, some, use_reentrant=False)
            else:
                part, strength = chunk(some)
            fewer = batch - clips  # have no pairs here
            summed_Btr = summed_Btr + F.pad(part, (0, 0, 0, 0, 0, fewer))
            strengths_BPt = strengths_BPt + F.pad(strength, (0, 0, first, pairs - last, 0, fewer))
        return PairSum(summed_Btr, strengths_BPt.transpose(1, 2))

    def _parts(self, query_BtW: Tensor, view: AgentView) -> PairParts:
        firsts = (self.g_I.first, self.g_W.first)
        weight_2HV = torch.stack([first.weight for first in firsts])
        bias_2H = torch.stack([first.bias for first in firsts])
        weight_22HW = torch.stack(weight_2HV.chunk(2, dim=2), dim=1)
        relation_2B1PH = _mapped(view.relation_BPF, (weight_2HV @ view.relation_VF).unsqueeze(1), bias_2H)
        return PairParts(_by_parts(weight_22HW, query_BtW, view), relation_2B1PH.squeeze(2).unsqueeze(3))

    def _chunk(self, some: _Some) -> tuple[Tensor, Tensor]:
        """The chunk's part of the sum `[B, t, r]` and its strengths `[B, p, t]`."""
        hidden_BptH, strength_hidden_BptH = some.parts.hidden(some.select_BpM).unbind()
        logits_Bpt = full(self.g_W.last(strength_hidden_BptH).squeeze(-1))
        if self.options.edge_prior:
            with torch.autocast(logits_Bpt.device.type, enabled=False):
                closeness_Bpt = some.select_BpM[..., : some.closeness_BNt.shape[1]] @ some.closeness_BNt
            logits_Bpt = logits_Bpt + (_EDGE_FAR + _EDGE_CLOSE * closeness_Bpt + _EDGE_MEETING * some.meeting_Bp1)
        strength_Bpt = torch.sigmoid(logits_Bpt) * some.valid_Bp1
        last = self.g_I.last
        if self.normalise is None:
            summed_BtH = _weighted_sum(strength_Bpt, hidden_BptH)
            return full(F.linear(summed_BtH, last.weight)) + strength_Bpt.sum(1)[..., None] * last.bias, strength_Bpt
        state_Bptr = full(last(hidden_BptH))
        length_Bpt = torch.linalg.vector_norm(state_Bptr, dim=-1)  # its gradient at 0 is 0
        share_Bpt = strength_Bpt / (self.normalise + length_Bpt)
        return _weighted_sum(share_Bpt, state_Bptr), strength_Bpt


class Recall(nn.Module):
    """g_M: what a token's own place last showed, read beside its query, and K_M, which hands it on as it is.

    Nothing on the way is narrower than the tokens: queries are, and how much a token may be told is what counts. Both
    start by saying nothing. Where it follows, g_P says by the query where that place lay, at first where it lies now,
    and what that place showed is read besides.
    """

    def __init__(self, dim: int, width: int, options: AgentOptions, out: int) -> None:
        super().__init__()
        self.dim, self.blind = dim, options.recall_blind
        fields = (dim + 1) * (2 if options.recall_follows else 1)
        self.g_M = Head(width, options.recall_hidden, out)
        self.seen = nn.Linear(fields, options.recall_hidden, bias=False)
        self.K_M = nn.Linear(fields, out, bias=False)
        self.g_P = Head(width, options.hidden, 2) if options.recall_follows else None
        if self.g_P is not None:
            zero(self.g_P.last)
        zero(self.g_M.last)
        nn.init.zeros_(self.K_M.weight)

    def shown(self, query_BtW: Tensor, asked: Question) -> Tensor:
        own_BtX = at_own_place(asked, self.dim)
        if self.g_P is None:
            return own_BtX
        moved_Bt2 = self.g_P.last(F.gelu(self.g_P.first(query_BtW)))
        return torch.cat((own_BtX, where_it_lay(moved_Bt2, asked, self.dim)), -1)

    def forward(self, query_BtW: Tensor, seen_BtX: Tensor) -> Tensor:
        if self.blind:
            seen_BtX = torch.zeros_like(seen_BtX)
        hidden_BtH = F.gelu(self.g_M.first(query_BtW) + self.seen(seen_BtX))
        return full(cast(Tensor, self.g_M.last(hidden_BtH))) + full(cast(Tensor, self.K_M(seen_BtX)))


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


def _stretches(counts: Sequence[int], pairs: int, chunk: int) -> Iterator[tuple[int, int, int]]:
    """Chunks of pairs: their first and last place, and how many clips have pairs there.

    `counts` fall. A chunk is halved until most of its places hold a pair, for the sake of clips that have few. There is
    one chunk even without pairs: peers that share a batch must agree on which parameters have a gradient.
    """
    if not counts or not counts[0]:
        yield 0, min(chunk, pairs), len(counts)
        return
    first = 0
    while first < counts[0]:
        clips = sum(count > first for count in counts)
        width = min(chunk, counts[0] - first)
        while width > _NARROWEST:
            held = sum(min(count - first, width) for count in counts[:clips])
            if held >= _FILLED * clips * width:
                break
            width = (width + 1) // 2
        yield first, first + width, clips
        first += width


def zero(layer: nn.Linear) -> None:
    """A fresh output layer that at first says nothing."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(cast(Tensor, layer.bias))
