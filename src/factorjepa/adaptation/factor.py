"""FactorJEPA: the package without its targets (RAW), the whole, and its two variants DI+ and INT."""

from __future__ import annotations

import dataclasses

from ..objective import LossWeights
from ..predictors import FactorizedOptions, PerFactor
from .method import Method, Stage

CURRICULUM = (
    Stage("head", 0.10, depth=0.0),
    Stage("layout", 0.30, depth=0.5, emphasis=PerFactor(2.0, 0.5, 0.5), views=(("raw", 0.7), ("layout", 0.3))),
    Stage("agents", 0.30, emphasis=PerFactor(0.5, 2.0, 0.5), views=(("raw", 0.7), ("agents", 0.3))),
    Stage("interactions", 0.30, emphasis=PerFactor(0.5, 0.5, 2.0), views=(("raw", 0.7), ("interactions", 0.3))),
)

RAW = Method(
    name="factorjepa_raw",
    title="FactorJEPA-RAW",
    family="factorized",
    why="the factorized architecture alone: no target of the teacher is consumed",
    predictor=FactorizedOptions(),
    losses=LossWeights(factor=0.0, visibility=0.0),
    matched=True,
)
FACTORJEPA = Method(
    name="factorjepa",
    title="FactorJEPA",
    family="factorized",
    why="architecture and factor targets, taught layout first, then agents, then interactions",
    predictor=FactorizedOptions(),
    losses=LossWeights(),
    stages=CURRICULUM,
    matched=True,
)


def _doubled() -> tuple[Stage, ...]:
    """The interaction stage twice as long, and its view drawn twice as often; the others give way evenly."""
    *earlier, last = CURRICULUM
    rest = (1.0 - 2 * last.share) / (1.0 - last.share)
    return (
        *(dataclasses.replace(stage, share=stage.share * rest) for stage in earlier),
        dataclasses.replace(last, share=2 * last.share, views=(("raw", 0.4), ("interactions", 0.6))),
    )


DI_PLUS = dataclasses.replace(
    FACTORJEPA,
    name="factorjepa_di",
    title="FactorJEPA-DI+",
    why="whether more time on interactions helps: their stage and their views doubled",
    stages=_doubled(),
)
INT = dataclasses.replace(
    FACTORJEPA,
    name="factorjepa_int",
    title="FactorJEPA-INT",
    why="whether being shown interventions helps: region edits in training, and an L1 on the predicted change",
    edits=0.5,
)
