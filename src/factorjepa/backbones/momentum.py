"""The momentum encoder without a second copy of what never moves.

A block that does not train is equal in the online and the momentum encoder for ever, so the momentum encoder holds
the online encoder's own frozen parameters and copies only those that train. With K of 48 blocks training, that saves
nearly a whole encoder of memory.
"""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from ..errors import BackboneError
from .encoder import Encoder


class MomentumEncoder(nn.Module):
    """`target = momentum(video, keep, levels, tail)`, never with gradients; `update()` after every optimiser step."""

    def __init__(self, online: Encoder, momentum: float) -> None:
        super().__init__()
        if not 0.0 <= momentum <= 1.0:
            raise BackboneError(f"momentum must lie in [0, 1], got {momentum}")
        self.momentum = momentum
        # In a tuple so that it is not a submodule: its parameters are not this module's.
        self._online = (online,)
        shared = {id(parameter): parameter for parameter in online.parameters()}
        self.encoder = copy.deepcopy(online, memo=dict(shared))
        self._owned: set[str] = set()  # by name: what shards parameters replaces them, and no two are the same then
        self.own_trainable()

    def train(self, mode: bool = True) -> MomentumEncoder:
        """A target never trains, whatever the model around it does."""
        return super().train(False)

    @torch.no_grad()
    def forward(
        self, video: Tensor, keep: Tensor | None = None, levels: bool = False, tail: int | None = None
    ) -> Tensor:
        return cast(Tensor, self.encoder(video, keep, levels, tail))

    @torch.no_grad()
    def from_trunk(self, states_BSND: Tensor, grid: tuple[int, int, int], cut: int, tail: int | None = None) -> Tensor:
        """`momentum(video, tail=tail)` from what the shared blocks below the cut left of it (`Encoder.trunk`)."""
        return self.encoder.from_trunk(states_BSND, grid, cut, tail=tail)

    def lower(self, blocks: int, dtype: torch.dtype) -> None:
        """After the online encoder's: its lowered weights are this one's too."""
        self.encoder.lower(blocks, dtype)

    def own_trainable(self) -> int:
        """Copy every parameter that trains now and is still shared; return how many parameters are owned.

        Call it after the set of trainable blocks has grown. Until then such a parameter has not moved, so the copy
        starts where a full momentum encoder would be. What is frozen again stays owned: its average goes on settling.
        """
        for name, parameter in self._online[0].named_parameters():
            if not parameter.requires_grad or name in self._owned:
                continue
            if parameter.dtype != torch.float32:
                raise BackboneError(
                    f"momentum encoder: {name} trains in {parameter.dtype}, in which a step of "
                    f"{1 - self.momentum:.2g} rounds to nothing; keep trainable weights in float32 (use autocast)"
                )
            owner, _, last = name.rpartition(".")
            own = nn.Parameter(parameter.detach().clone(), requires_grad=False)
            setattr(self.encoder.get_submodule(owner), last, own)
            self._owned.add(name)
        return sum(own.numel() for own, _ in self._pairs())

    @torch.no_grad()
    def update(self, momentum: float | None = None) -> None:
        """target <- m * target + (1 - m) * online, for what is owned."""
        pairs = self._pairs()
        if pairs:
            own, online = zip(*pairs, strict=True)
            torch._foreach_lerp_(own, online, 1.0 - (self.momentum if momentum is None else momentum))

    def owned_state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold beside the online encoder: the owned parameters by encoder name."""
        return {name: own.detach() for name, own in self.encoder.named_parameters() if name in self._owned}

    @torch.no_grad()
    def load_owned_state(self, state: dict[str, Tensor]) -> None:
        """Continue from `owned_state()`; strict."""
        owned = self.owned_state()
        if owned.keys() != state.keys():
            missing, unexpected = sorted(owned.keys() - state.keys()), sorted(state.keys() - owned.keys())
            raise BackboneError(
                f"momentum state: {len(missing)} missing (first: {missing[:3]}), {len(unexpected)} unexpected (first: "
                f"{unexpected[:3]}); were other blocks training when it was saved?"
            )
        for name, own in owned.items():
            own.copy_(state[name])

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        mine, theirs = self.encoder.named_parameters(), self._online[0].parameters()
        return [(own, online.detach()) for (name, own), online in zip(mine, theirs, strict=True) if name in self._owned]
