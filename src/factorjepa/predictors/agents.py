"""Agents as the branches read them: embedded states, and geometry relative to every target token.

Shapes: B clips, N agents, P pairs, t target tokens, n cells of a tubelet's grid, W query width, R and F fields of
RELATIVE and RELATION.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones.spec import BackboneSpec
from ..errors import TrainingError
from ..teacher.states import GEOMETRY, ObjectStates
from .geometry import RELATION, RELATIVE, pair_relations, relative_geometry, scaled_geometry
from .memory import last_seen, origins
from .options import AgentOptions
from .precision import full
from .query import Question
from .slots import SlotAgents


@dataclass(frozen=True)
class AgentView:
    """Everything a branch may know about agents and pairs, besides the query itself."""

    states: ObjectStates
    embedded_BNW: Tensor  # E(o)
    relative_BNtR: Tensor | None  # None: tokens are not told where they lie relative to the agents
    relative_WR: Tensor  # the map R of u = q + E(o) + R(geometry)
    seen_BnW: Tensor | None  # K(tokens that were last seen); None: agents bring none along
    origin_BNtn: Tensor | None  # from which of their cells what lies at a token came, had it moved with an agent
    closeness_BNt: Tensor
    relation_BPF: Tensor
    relation_VF: Tensor  # the same for pairs, V = 2W
    select_i_BPN: Tensor  # one-hot rows that pick the pair's agents; zero for padded pairs
    select_j_BPN: Tensor

    def without_relative_geometry(self) -> AgentView:
        return dataclasses.replace(self, relative_BNtR=None, seen_BnW=None, origin_BNtn=None)

    def of_clips(self, order_B: Tensor) -> AgentView:
        """The same clips in another order."""

        def ordered(held: AgentView | ObjectStates) -> dict[str, Any]:
            rows = {name: value for name, value in vars(held).items() if isinstance(value, Tensor) and "_B" in name}
            return {name: value.index_select(0, order_B) for name, value in rows.items()}

        states = dataclasses.replace(self.states, **ordered(self.states), pair_counts=None)
        return dataclasses.replace(self, **ordered(self), states=states)


def no_agents(batch: int, descriptor_width: int, context: int, device: torch.device | None = None) -> ObjectStates:
    """Object states of clips in which nothing moves."""
    empty = torch.zeros(batch, 0, device=device)
    return ObjectStates(
        descriptor_BNE=torch.zeros(batch, 0, descriptor_width, device=device),
        geometry_BNG=torch.zeros(batch, 0, len(GEOMETRY), device=device),
        valid_BN=empty.bool(),
        slot_BN=empty.long(),
        pairs_BP2=torch.zeros(batch, 0, 2, dtype=torch.long, device=device),
        pair_valid_BP=empty.bool(),
        context=context,
    )


class StateEmbedding(nn.Module):
    """E: `o_i` (descriptor and geometry) to the query's width."""

    def __init__(self, width: int, options: AgentOptions) -> None:
        super().__init__()
        self.first = nn.Linear(options.descriptor_width + len(GEOMETRY), width)
        self.last = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width) if options.normalise_states else nn.Identity()

    def forward(self, states: ObjectStates) -> Tensor:
        read = torch.cat((states.descriptor_BNE, scaled_geometry(states.geometry_BNG)), dim=-1)
        return cast(Tensor, self.norm(self.last(F.gelu(self.first(read)))))


class AgentMotion(nn.Module):
    """How agents go on: `E(o_i)` and `i`'s velocity take up what its partners say, before g_A reads them.

    An interaction moves an agent, while the channel Y_I only adds to tokens. With `own` an agent moves by what its own
    state says too: it may be about to turn or stop, and has no partner. Both outputs start at zero.
    """

    _VELOCITY = 0.02  # sides of the picture per frame: the unit of the velocity change

    def __init__(self, width: int, hidden: int, own: bool) -> None:
        super().__init__()
        self.own = nn.Linear(width, hidden) if own else None
        self.left = nn.Linear(width, hidden)
        self.right = nn.Linear(width, hidden, bias=False)
        self.relation = nn.Linear(len(RELATION), hidden, bias=False)
        self.strength = nn.Linear(hidden, 1)
        self.state = nn.Linear(hidden, width, bias=False)
        self.velocity = nn.Linear(hidden, 2, bias=False)
        for layer in (self.state, self.velocity):
            nn.init.zeros_(layer.weight)

    def forward(
        self, states: ObjectStates, embedded_BNW: Tensor, relation_BPF: Tensor, i_BPN: Tensor, j_BPN: Tensor
    ) -> tuple[ObjectStates, Tensor]:
        left_BNH, right_BNH = self.left(embedded_BNW), self.right(embedded_BNW)
        i_BPN, j_BPN = i_BPN.to(left_BNH.dtype), j_BPN.to(left_BNH.dtype)
        said_BPH = F.gelu(i_BPN @ left_BNH + j_BPN @ right_BNH + self.relation(relation_BPF))
        heard_BNH = i_BPN.transpose(1, 2) @ (torch.sigmoid(self.strength(said_BPH)) * said_BPH)
        if self.own is not None:
            heard_BNH = heard_BNH + F.gelu(self.own(embedded_BNW))
        change_BN2 = self._VELOCITY * full(self.velocity(heard_BNH))
        at = GEOMETRY.index("velocity_x")
        geometry_BNG = states.geometry_BNG + F.pad(change_BN2, (at, len(GEOMETRY) - at - 2))
        moved = dataclasses.replace(states, geometry_BNG=geometry_BNG)
        return moved, embedded_BNW + self.state(heard_BNH)


class AgentReader(nn.Module):
    """Object states, or slots found in the context, to an `AgentView` of the target tokens."""

    def __init__(self, spec: BackboneSpec, options: AgentOptions) -> None:
        super().__init__()
        self.spec = spec
        self.options = options
        width = spec.predictor_dim
        self.slots = SlotAgents(spec, options) if options.agents == "slots" else None
        self.embedding = StateEmbedding(width, options)
        self.relative = nn.Linear(len(RELATIVE), width, bias=False)
        self.relation = nn.Linear(len(RELATION), 2 * width, bias=False)
        self.carried = nn.Linear(spec.dim + 1, width, bias=False) if options.carried else None
        self.motion = (
            AgentMotion(width, options.hidden, options.own_motion) if options.interactions == "motion" else None
        )

    def forward(self, asked: Question) -> AgentView:
        states, target_index, grid = asked.states, asked.target_index, asked.grid
        if self.slots is not None:
            states = self.slots(asked.context, asked.context_index, grid)
        elif states is None:
            raise TrainingError("this predictor reads agents: pass object states (no_agents() makes empty ones)")
        assert states is not None
        if states.descriptor_BNE.shape[-1] != self.options.descriptor_width:
            raise TrainingError(
                f"object states have descriptors {states.descriptor_BNE.shape[-1]} wide, the predictor was built for "
                f"{self.options.descriptor_width} (set descriptor_width)"
            )
        embedded_BNW = self.embedding(states)
        with torch.autocast(target_index.device.type, enabled=False):
            select_i, select_j = (self._select(states, side) for side in (0, 1))
            relation_BPF = pair_relations(states, select_i, select_j, grid, self.spec.tubelet)
        if self.motion is not None:
            states, embedded_BNW = self.motion(states, embedded_BNW, relation_BPF, select_i, select_j)
        with torch.autocast(target_index.device.type, enabled=False):
            relative_BNtR, closeness_BNt = relative_geometry(states, target_index, grid, self.spec.tubelet)
        seen_BnW = origin_BNtn = None
        if self.carried is not None:
            seen_BnW = self.carried(last_seen(asked, self.spec.dim))
            origin_BNtn = origins(states.geometry_BNG[..., 4:6], asked, self.spec.tubelet)
        return AgentView(
            states=states,
            embedded_BNW=embedded_BNW,
            relative_BNtR=relative_BNtR if self.options.relative_geometry else None,
            relative_WR=self.relative.weight,
            seen_BnW=seen_BnW,
            origin_BNtn=origin_BNtn,
            closeness_BNt=closeness_BNt,
            relation_BPF=relation_BPF,
            relation_VF=self.relation.weight,
            select_i_BPN=select_i,
            select_j_BPN=select_j,
        )

    @staticmethod
    def _select(states: ObjectStates, side: int) -> Tensor:
        """One-hot rows `[B, P, N]`. A product with them gathers, and its gradient is deterministic on every device."""
        agents = torch.arange(states.valid_BN.shape[1], device=states.pairs_BP2.device)
        chosen = states.pairs_BP2[..., side, None] == agents
        return (chosen & states.pair_valid_BP[..., None]).to(states.geometry_BNG.dtype)
