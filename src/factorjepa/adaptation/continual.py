"""Continual self-supervised pretraining: V-JEPA's own masks and dense objective go on, on the new footage."""

from __future__ import annotations

from .method import Method

CONTINUAL = Method(
    name="continual",
    title="Continual SSL",
    family="reference",
    why="whether more of V-JEPA's own pretraining on this footage is enough, with no word about the future",
    encoder="all",
    objective="released",
)
