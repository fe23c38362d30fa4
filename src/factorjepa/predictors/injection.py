"""Agents and pairs added to a stream of tokens: the geometry-matched controls' only way, and early injection.

Shapes: B clips, t target tokens, N agents, P pairs, W query width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from .agents import AgentView
from .branches import GatedAgents, Pairs, zero
from .options import AgentOptions
from .prediction import Opened


class Injected(NamedTuple):
    added_BtW: Tensor
    gate_logits_BtN: Tensor | None
    strengths_BtP: Tensor | None

    @property
    def opened(self) -> Opened:
        return Opened(self.gate_logits_BtN, self.strengths_BtP)


class Injection(nn.Module):
    """Gated mean over agents plus strength-weighted mean over pairs, through the same branches as the channels.

    No channels, no dictionaries and no normalised pair states: it says the same things about the agents, densely. Both
    last layers start at zero, so a grafted predictor starts as it was.
    """

    def __init__(self, width: int, options: AgentOptions, out: int | None = None) -> None:
        super().__init__()
        out = out or width
        self.epsilon = options.agent_epsilon
        self.agents = GatedAgents(width, out, options)
        self.pairs = Pairs(width, out, options, normalise=None) if options.interactions != "off" else None
        zero(self.agents.g_A.last)
        if self.pairs is not None:
            zero(self.pairs.g_I.last)

    def forward(self, query_BtW: Tensor, view: AgentView) -> Injected:
        added_BtW, logits_BtN = self.agents(query_BtW, view)
        if self.pairs is None:
            return Injected(added_BtW.to(query_BtW.dtype), logits_BtN, None)
        summed_BtW, strengths_BtP = self.pairs(query_BtW, view)
        added_BtW = added_BtW + summed_BtW / (self.epsilon + strengths_BtP.sum(-1, keepdim=True))
        return Injected(added_BtW.to(query_BtW.dtype), logits_BtN, strengths_BtP)


def noting(
    injection: Injection | None, view: AgentView | None, said: list[Injected]
) -> Callable[[Tensor], Tensor] | None:
    """What to add to the target queries, for the query transformer; what was injected is noted in `said`."""
    if injection is None:
        return None

    def inject(query_BtW: Tensor) -> Tensor:
        said.append(injection(query_BtW, view))
        return said[-1].added_BtW

    return inject
