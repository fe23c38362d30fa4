"""Continual self-supervised pretraining: V-JEPA's own masks and dense objective go on, on the new footage."""

from __future__ import annotations

from typing import Unpack, cast

from torch import Tensor

from ..backbones.predictor import Asked, Predictor
from ..backbones.spec import BackboneSpec
from ..predictors import LatentPredictor, Prediction
from ..predictors.query import Question
from .method import Method

CONTINUAL = Method(
    name="continual",
    title="Continual SSL",
    family="reference",
    why="whether more of V-JEPA's own pretraining on this footage is enough, with no word about the future",
    encoder="all",
    objective="released",
)


class ReleasedPredictor(LatentPredictor):
    """V-JEPA's predictor of all levels, behind the common interface: the last level is the prediction."""

    def __init__(self, spec: BackboneSpec) -> None:
        super().__init__(spec)
        self.query = Predictor(spec)

    @classmethod
    def graft(cls, predictor: Predictor) -> ReleasedPredictor:
        grafted = cls(predictor.spec).to(predictor.predictor_proj.weight.device, predictor.predictor_proj.weight.dtype)
        grafted.query.load_state_dict(predictor.state_dict())
        return grafted

    def answer(self, asked: Question) -> Prediction:
        levels, _ = self.levels(
            asked.context, asked.context_index, asked.target_index, grid=asked.grid, mask_token=asked.mask_token
        )
        return Prediction(tokens_BtD=levels[..., -self.spec.dim :].float())

    def levels(
        self, context: Tensor, context_index: Tensor, target_index: Tensor, **asked: Unpack[Asked]
    ) -> tuple[Tensor, Tensor]:
        """All levels of target and context tokens: what V-JEPA's own objective compares."""
        return cast(tuple[Tensor, Tensor], self.query(context, context_index, target_index, **asked))
