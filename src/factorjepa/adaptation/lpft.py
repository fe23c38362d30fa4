"""LP-FT (Kumar et al. 2022): first the output head alone, then everything, so that features are not distorted first."""

from __future__ import annotations

from .method import Method, Stage

LPFT = Method(
    name="lpft",
    title="LP-FT",
    family="reference",
    why="whether full fine-tuning loses by distorting features before its head fits",
    encoder="all",
    stages=(Stage("head", 0.25, depth=0.0, predictor="head"), Stage("all", 0.75)),
)
