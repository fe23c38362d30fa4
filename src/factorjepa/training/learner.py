"""A backbone under adaptation: online encoder, predictor, momentum target, and a frozen reference to measure against.

Shapes: B clips, T frames, c context tokens, t target tokens, D width, L levels.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..adaptation import Method, Stage
from ..adaptation.prepare import Scope, add_adapters, parameter_roles, set_trainable, surgery, trainable
from ..backbones import Backbone
from ..backbones.eightbit import in_eight_bits
from ..backbones.masks import FutureSplit, Grid, future_split
from ..backbones.momentum import MomentumEncoder
from ..errors import TrainingError
from ..objective import normalised_targets
from ..predictors import Prediction, StartTokens
from ..predictors.interface import Role
from ..teacher.states import ObjectStates
from .optimiser import adamw
from .trunk import TrunkStates, lowest_trained

log = logging.getLogger(__name__)


class Learner(nn.Module):
    """`predict(video, visible, states)` from the context alone; `future(video)` is what it is compared with."""

    def __init__(
        self,
        backbone: Backbone,
        method: Method,
        scope: Scope,
        momentum: float,
        context: int,
        seed: int,
        tokens: StartTokens | None = None,
    ) -> None:
        super().__init__()
        spec = backbone.spec
        if context % spec.tubelet:
            raise TrainingError(f"a context of {context} frames is not whole tubelets of {spec.tubelet}")
        self.method, self.scope, self.spec, self.context = method, scope, spec, context
        self.encoder = backbone.encoder
        self.predictor = surgery(backbone, method, tokens, seed)
        add_adapters(self.encoder, self.predictor, method, scope)
        self._stage: int | None = None
        self._eight_bits = False
        self._splits: dict[tuple[Grid, torch.device], FutureSplit] = {}
        self.encoder.requires_grad_(False)  # so that both copies below begin as the encoder itself
        self.target = MomentumEncoder(self.encoder, momentum)
        self.reference = MomentumEncoder(self.encoder, 1.0)  # the pretrained encoder, for ever

    def enter(self, number: int) -> bool:
        """Stage `number` of the method begins; returns whether what trains has changed."""
        if number == self._stage:
            return False
        if self._stage is None:  # all that ever trains is owned at once: what a checkpoint holds knows no stage
            for stage in self.method.stages:
                set_trainable(self.encoder, self.predictor, self.method, stage, self.scope)
                self.target.own_trainable()
                self.reference.own_trainable()
        self._stage = number
        set_trainable(self.encoder, self.predictor, self.method, self.stage, self.scope)
        return True

    @property
    def stage(self) -> Stage:
        return self.method.stages[self._stage or 0]

    def trainable(self) -> int:
        return trainable(self.encoder, self.predictor)

    def lower_frozen(self, dtype: torch.dtype, bits: int = 16) -> None:
        """Put the encoder's blocks below the lowest one that trains at some stage into `dtype` (Panel C: bf16).

        With 8 `bits`, what is multiplied there is lowered further (`eightbit`), but for the reference, which measures.
        """
        cut = lowest_trained(self.weights(), self.spec.depth)
        if bits == 8 and not cut:
            log.warning("frozen_bits=8 changes nothing: training reaches down to the encoder's first block")
        if not cut or self.encoder.lowered:
            return
        for encoder in (self.encoder, self.target, self.reference):
            encoder.lower(cut, dtype)
        if bits == 8:
            in_eight_bits((self.encoder, self.target.encoder), cut)
            self._eight_bits = True

    def grid(self, video: Tensor) -> tuple[int, int, int]:
        return self.encoder.grid_of(video)

    def context_grid(self, video: Tensor) -> tuple[int, int, int]:
        _, rows, columns = self.grid(video)
        return self.context // self.spec.tubelet, rows, columns

    def predict(
        self,
        video: Tensor,
        visible: Tensor | None,
        states: ObjectStates | None = None,
        trunk: TrunkStates | None = None,
    ) -> Prediction:
        """The future's tokens from the first `context` frames; later frames are not looked at.

        `trunk` spares the frozen blocks where the whole context is shown. Under a mask visible tokens attend to each
        other alone, in every block: there is no stored state to begin from.
        """
        grid = self.grid(video)
        split = self._split(video)
        batch = len(video)
        shown = split.context.expand(batch, -1) if visible is None else visible
        if trunk is not None and trunk.context_BSnD is not None and shown.shape[1] == len(split.context):
            levels = self.encoder.from_trunk(trunk.context_BSnD, self.context_grid(video), trunk.cut, levels=True)
        else:
            levels = self.encoder(video[:, :, : self.context], shown, levels=True)
        target = split.target.expand(batch, -1)
        prediction: Prediction = self.predictor(levels, shown, target, states, grid=grid)
        return prediction

    @torch.no_grad()
    def tokens(
        self, video: Tensor, encoder: MomentumEncoder, trunk: TrunkStates | None = None, tail: int | None = None
    ) -> Tensor:
        """All tokens of the whole clip, or its last ones, `[B, N, D]`; from `trunk` on, where there is one."""
        if trunk is None:
            return cast(Tensor, encoder(video, tail=tail))
        return encoder.from_trunk(trunk.clip_B1ND, self.grid(video), trunk.cut, tail)

    @torch.no_grad()
    def future(self, video: Tensor, encoder: MomentumEncoder | None = None, trunk: TrunkStates | None = None) -> Tensor:
        """`Y*`: tokens of the future tubelets of the whole clip, by the momentum encoder or another, `[B, t, D]`."""
        future = len(self._split(video).target)  # tubelets come in the order of time: these are the last tokens
        return normalised_targets(self.tokens(video, encoder or self.target, trunk, future))

    def yardstick(self, video: Tensor, trunk: TrunkStates | None = None) -> Tensor:
        """The future's tokens by the reference, which measures everybody: never from records in eight bits."""
        return self.future(video, self.reference, None if self._eight_bits else trunk)

    def _split(self, video: Tensor) -> FutureSplit:
        """Context and future tokens, where the video is; kept, so that nothing is copied there in every step."""
        key = (self.grid(video), video.device)
        if key not in self._splits:
            split = future_split(key[0], self.context // self.spec.tubelet)
            self._splits[key] = FutureSplit(*(index.to(video.device) for index in split))
        return self._splits[key]

    def optimiser(self, lr: float, weight_decay: float, rates: Mapping[Role, float] | None = None) -> torch.optim.AdamW:
        """AdamW over everything that trains at some stage, so that its state survives from stage to stage.

        `rates` are those of roles, over `lr`.
        """
        groups: dict[tuple[float, bool], list[Tensor]] = {}
        for _, parameter, role in self._ever_trainable(rates or {}):
            decays = role["decays"] and sum(size > 1 for size in parameter.shape) >= 2
            groups.setdefault((role["rate"], decays), []).append(parameter)
        return adamw(
            [
                {"params": params, "lr": lr * share, "weight_decay": weight_decay if decays else 0.0}
                for (share, decays), params in groups.items()
            ]
        )

    def weights(self) -> dict[str, Tensor]:
        """What training changes, by name: a checkpoint beside the pretrained file."""
        return {name: parameter.detach() for name, parameter, _ in self._ever_trainable()}

    @torch.no_grad()
    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Strict: exactly the names of `weights()`."""
        own = self.weights()
        if own.keys() != weights.keys():
            strange = sorted(own.keys() ^ weights.keys())
            raise TrainingError(
                f"{len(strange)} weights of the checkpoint do not fit the method {self.method.name!r}, for example "
                f"{strange[0]}; was it trained with other settings?"
            )
        for name, tensor in own.items():
            tensor.copy_(weights[name])

    def state(self) -> dict[str, Any]:
        return {"target": self.target.owned_state(), "chosen": list(self.scope.chosen)}

    def load_state(self, state: dict[str, Any]) -> None:
        self.target.load_owned_state(state["target"])

    def _ever_trainable(
        self, rates: Mapping[Role, float] = MappingProxyType({})
    ) -> list[tuple[str, nn.Parameter, dict[str, Any]]]:
        """Union over the stages, in a fixed order."""
        current = self._stage
        seen: dict[str, tuple[str, nn.Parameter, dict[str, Any]]] = {}
        for stage in self.method.stages:
            set_trainable(self.encoder, self.predictor, self.method, stage, self.scope)
            seen |= {row[0]: row for row in parameter_roles(self.encoder, self.predictor, rates)}
        set_trainable(self.encoder, self.predictor, self.method, self.method.stages[current or 0], self.scope)
        return [seen[name] for name in sorted(seen)]
