"""The monolithic controls: one dense head on the same transformer, with as much of the rest as a comparison asks for.

Shapes: B clips, c context tokens, t target tokens, D target width, W query width.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones.predictor import Predictor
from ..backbones.spec import BackboneSpec
from ..seeding import seed_of
from .agents import AgentReader
from .branches import Recall, zero
from .injection import Injected, Injection, noting
from .interface import FactorHeads, LatentPredictor
from .options import MonolithicOptions
from .precision import full
from .prediction import PerFactor, Prediction
from .query import QueryTransformer, Question, last_level_projection


class MonolithicPredictor(LatentPredictor):
    """`Y_hat = head(q)`, where `head` is the pretrained projection of the last level.

    Options make the controls: `factor_heads` (the supervision of the factorized predictor, read from pooled hidden
    states) and `injection` (its object states, geometry and pairs, at its injection points, through the dense head).
    With no options it is V-JEPA's predictor, cut to the last level.
    """

    def __init__(self, spec: BackboneSpec, options: MonolithicOptions | None = None) -> None:
        super().__init__(spec)
        self.options = options = options or MonolithicOptions()
        width = spec.predictor_dim
        self.query = QueryTransformer(spec)
        self.reader = AgentReader(spec, options) if options.injection != "none" else None
        self.early = Injection(width, options) if options.injection in ("early", "both") else None
        late = options.injection in ("late", "both")
        self.late = Injection(width, options, spec.dim if options.direct else width) if late else None
        self.extra = ResidualMlp(width, options.extra_hidden) if options.extra_hidden else None
        self.head = nn.Linear(width, spec.dim)
        self.recall = Recall(spec.dim, width, options, spec.dim) if options.recalled else None
        self.heads = FactorHeads(PerFactor(width, width, width), options.target_width) if options.factor_heads else None

    @classmethod
    def graft(
        cls, predictor: Predictor, options: MonolithicOptions | None = None, seed: int = 0
    ) -> MonolithicPredictor:
        """The control of a pretrained predictor, which is left as it is. At first it predicts what that one does."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("monolithic predictor", seed) % 2**63)
            grafted = cls(predictor.spec, options)
        here = predictor.predictor_proj.weight
        grafted.to(here.device, here.dtype)
        grafted.query.graft(predictor)
        weight_DW, bias_D = last_level_projection(predictor)
        grafted.head.weight.data.copy_(weight_DW)
        grafted.head.bias.data.copy_(bias_D)
        return grafted

    def answer(self, asked: Question) -> Prediction:
        view = None
        if self.reader is not None:
            view = self.reader(asked)
        said: list[Injected] = []
        query_BtW = self.query(asked, noting(self.early, view, said))
        if self.late is not None:
            said.append(self.late(query_BtW, view))
            if not self.options.direct:
                query_BtW = query_BtW + said[-1].added_BtW
        if self.extra is not None:
            query_BtW = query_BtW + self.extra(query_BtW)
        tokens_BtD = full(cast(Tensor, self.head(query_BtW)))
        if self.late is not None and self.options.direct:
            tokens_BtD = tokens_BtD + said[-1].added_BtW
        if self.recall is not None:
            tokens_BtD = tokens_BtD + self.recall(query_BtW, self.recall.shown(query_BtW, asked))
        return Prediction(
            tokens_BtD=tokens_BtD,
            factor_targets=None if self.heads is None else self.heads(PerFactor(query_BtW, query_BtW, query_BtW)),
            gate_logits_BtN=said[-1].gate_logits_BtN if said else None,
            strengths_BtP=said[-1].strengths_BtP if said else None,
            early=said[0].opened if len(said) > 1 else None,
            states=None if view is None else view.states,
        )


class ResidualMlp(nn.Module):
    """Parameters for their own sake, where a control would otherwise have fewer; starts at zero."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, hidden)
        self.last = nn.Linear(hidden, width)
        zero(self.last)

    def forward(self, query_BtW: Tensor) -> Tensor:
        return cast(Tensor, self.last(F.gelu(self.first(query_BtW))))
