"""Q: the pretrained predictor's transformer, kept whole but for its output projections.

Shapes: B clips, c context tokens, t target tokens, W query width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from ..backbones.predictor import Predictor
from ..backbones.spec import BackboneSpec
from ..errors import TrainingError
from ..teacher.states import ObjectStates
from .geometry import Grid

HEADS = ("predictor_proj", "predictor_proj_context")


class Question(NamedTuple):
    """What a predictor is asked: the future at `target_index`, given the context's tokens and the object states."""

    context: Tensor  # [B, c, 4D]
    context_index: Tensor  # [B, c]
    target_index: Tensor  # [B, t]
    states: ObjectStates | None
    grid: Grid
    mask_token: int | None


class QueryTransformer(nn.Module):
    """`q_p = Q(h, pi_p, M_t)`: context tokens and positions to one query per target token."""

    def __init__(self, spec: BackboneSpec) -> None:
        super().__init__()
        self.trunk = Predictor(spec)
        for head in HEADS:
            if hasattr(self.trunk, head):
                delattr(self.trunk, head)

    def graft(self, predictor: Predictor) -> None:
        """Take over blocks, embeddings and mask tokens of a pretrained predictor, as copies."""
        self.trunk.load_state_dict(
            {key: value for key, value in predictor.state_dict().items() if key.split(".")[0] not in HEADS}
        )

    def forward(self, asked: Question, inject: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Queries `[B, t, W]`; `inject` says what to add to the target queries before the first block."""
        return self.trunk.transform(
            asked.context,
            asked.context_index,
            asked.target_index,
            grid=asked.grid,
            mask_token=asked.mask_token,
            inject=inject,
            targets_alone=True,
        )


def last_level_projection(predictor: Predictor) -> tuple[Tensor, Tensor]:
    """Weight `[D, W]` and bias `[D]` of the rows of the pretrained projection that predict the encoder's last tap."""
    spec = predictor.spec
    if spec.predictor_out is not None:
        raise TrainingError(
            f"this predictor was distilled: it predicts a {spec.predictor_out} wide teacher, not its own encoder's "
            f"{spec.dim} wide tokens: there is no last-level projection to keep (factorized: fold_projection: false)"
        )
    projection = predictor.predictor_proj
    return projection.weight.detach()[-spec.dim :], projection.bias.detach()[-spec.dim :]
