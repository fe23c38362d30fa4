"""Frozen V-JEPA and full fine-tuning: the two ends between which everything else lies."""

from __future__ import annotations

from .method import Method

FROZEN = Method(
    name="frozen",
    title="Frozen V-JEPA",
    family="reference",
    why="no adaptation: what the pretrained model already knows of this world",
    encoder="frozen",
    predictor_scope="frozen",
)
FULL = Method(
    name="full",
    title="Full fine-tuning",
    family="reference",
    why="capacity reference, not matched in parameters: every weight of encoder and monolithic predictor trains",
    encoder="all",
)
