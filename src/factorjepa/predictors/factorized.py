"""The factorized predictor: layout, visibility-gated agents and sparse interactions, each through its own dictionary.

Shapes: B clips, c context tokens, t target tokens, D target width, W query width, r_k ranks.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from ..backbones.predictor import Predictor
from ..backbones.spec import BackboneSpec
from ..errors import TrainingError
from ..seeding import seed_of
from .agents import AgentReader
from .branches import GatedAgents, Recall, SparseInteractions, zero
from .dictionaries import Dictionary, StartTokens, dictionaries_from, folded
from .injection import Injected, Injection, noting
from .interface import FactorHeads, LatentPredictor
from .options import FactorizedOptions
from .precision import full
from .prediction import PerFactor, Prediction
from .query import QueryTransformer, Question, last_level_projection


class FactorizedPredictor(LatentPredictor):
    """`Y_hat = C_L A_L^T + C_A A_A^T + C_I A_I^T`.

    The constructor makes the structure, with fresh weights: what loads a checkpoint needs no more. `graft` makes one
    from a pretrained monolithic predictor.
    """

    def __init__(self, spec: BackboneSpec, options: FactorizedOptions | None = None) -> None:
        super().__init__(spec)
        self.options = options = options or FactorizedOptions()
        width, ranks = spec.predictor_dim, options.scaled_ranks
        self.query = QueryTransformer(spec)
        self.reader = AgentReader(spec, options)
        self.early = Injection(width, options) if options.injection != "late" else None
        self.g_L = nn.Linear(width, ranks.layout)
        self.recall = Recall(spec.dim, width, options, ranks.layout) if options.recalled else None
        self.agents = GatedAgents(width, ranks.agents, options)
        self.interactions = (
            SparseInteractions(width, ranks.interactions, options, options.pair_epsilon)
            if options.interactions != "off"
            else None
        )
        if options.zero_outputs:
            zero(self.agents.g_A.last)
            if self.interactions is not None:
                zero(self.interactions.pairs.g_I.last)
        self.A_L, self.A_A, self.A_I = (
            Dictionary(spec.dim, rank, scale) for rank, scale in zip(ranks, options.dictionary_scale, strict=True)
        )
        self.heads = FactorHeads(ranks, options.target_width)
        self.residual = nn.Linear(width, spec.dim) if options.residual else None

    @classmethod
    def graft(
        cls,
        predictor: Predictor,
        options: FactorizedOptions | None = None,
        tokens: StartTokens | None = None,
        seed: int = 0,
    ) -> FactorizedPredictor:
        """Predictor surgery: Q from `predictor`, dictionaries from `tokens`, a few thousand, the rest fresh.

        The pretrained predictor is left as it is.
        """
        options = options or FactorizedOptions()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("factorized predictor", seed) % 2**63)
            grafted = cls(predictor.spec, options)
        here = predictor.predictor_proj.weight
        grafted.to(here.device, here.dtype)
        grafted.query.graft(predictor)
        if options.dictionaries != "random":
            if tokens is None:
                raise TrainingError(
                    f"dictionaries: {options.dictionaries} needs tokens to start from (pass some, or set "
                    "dictionaries: random)"
                )
            directions = dictionaries_from(tokens, options.scaled_ranks, options.dictionaries)
            for dictionary, columns in zip((grafted.A_L, grafted.A_A, grafted.A_I), directions, strict=True):
                dictionary.directions.data.copy_(columns)
        if options.fold_projection:
            grafted._fold(*last_level_projection(predictor))
        return grafted

    @torch.no_grad()
    def _fold(self, weight_DW: Tensor, bias_D: Tensor) -> None:
        """g_L becomes the pretrained projection seen through A_L; the residual path, where there is one, the rest."""
        matrix_Dr = self.A_L.matrix()
        weight_rW, bias_r = folded(weight_DW, bias_D, matrix_Dr)
        self.g_L.weight.copy_(weight_rW)
        self.g_L.bias.copy_(bias_r)
        if self.residual is not None:
            self.residual.weight.copy_(full(weight_DW) - matrix_Dr @ full(weight_rW))
            self.residual.bias.copy_(full(bias_D) - matrix_Dr @ full(bias_r))

    def answer(self, asked: Question) -> Prediction:
        view = self.reader(asked)
        said: list[Injected] = []
        query_BtW = self.query(asked, noting(self.early, view, said))
        if self.options.injection == "early":
            view = view.without_relative_geometry()
        c_L = full(self.g_L(query_BtW))
        if self.recall is not None:
            c_L = c_L + self.recall(query_BtW, self.recall.shown(query_BtW, asked))
        c_A, gate_logits_BtN = self.agents(query_BtW, view)
        if self.interactions is None:
            c_I, strengths_BtP = c_A.new_zeros(*c_A.shape[:2], self.options.scaled_ranks.interactions), None
        else:
            c_I, strengths_BtP = self.interactions(query_BtW, view)
        coordinates = PerFactor(c_L, c_A, c_I)
        channels = PerFactor(self.A_L(c_L), self.A_A(c_A), self.A_I(c_I))
        tokens_BtD = channels.layout + channels.agents + channels.interactions
        residual_BtD = None
        if self.residual is not None:
            residual_BtD = full(cast(Tensor, self.residual(query_BtW)))
            tokens_BtD = tokens_BtD + residual_BtD
        return Prediction(
            tokens_BtD=tokens_BtD,
            coordinates=coordinates,
            channels=channels,
            factor_targets=self.heads(coordinates),
            gate_logits_BtN=gate_logits_BtN,
            strengths_BtP=strengths_BtP,
            early=said[0].opened if said else None,
            states=view.states,
            residual_BtD=residual_BtD,
        )
