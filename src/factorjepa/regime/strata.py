"""Density and occlusion strata of single clips, for stratified evaluation. Cut on training clips alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from ..corpus.manifest import Manifest
from ..corpus.splits import Split
from ..errors import RegimeError
from .axes import NAMES
from .settings import PRIMARY
from .table import RegimeTable

LEVELS = ("low", "medium", "high")
DENSITY = "density_stratum"
STRATA = {DENSITY: "count", "occlusion_stratum": "visibility"}  # attribute -> axis


@dataclass(frozen=True)
class Cuts:
    """Where an attribute's levels end: the thirds of the training clips."""

    attribute: str
    axis: str
    lower: float
    upper: float
    training_clips: int

    def level(self, value: float) -> str:
        return LEVELS[int(np.searchsorted([self.lower, self.upper], value, side="left"))]


def cuts_of(manifest: Manifest, table: RegimeTable) -> list[Cuts]:
    """From the clips of the training split, whatever the others are like."""
    means = dict(zip(table.clip_ids, table.means(PRIMARY), strict=True))
    found = []
    for attribute, axis in STRATA.items():
        training = [clip.clip_id for clip in manifest if clip.split == Split.TRAIN and clip.clip_id in means]
        values = [means[clip_id][NAMES.index(axis)] for clip_id in training]
        known = np.array([value for value in values if np.isfinite(value)])
        if not len(known):
            raise RegimeError(
                "no training clip has an agent, so there is nothing to cut strata on: measure with --no-strata"
            )
        lower, upper = np.quantile(known, [1 / 3, 2 / 3])
        found.append(Cuts(attribute, axis, float(lower), float(upper), len(known)))
    return found


def with_strata(manifest: Manifest, table: RegimeTable, cuts: list[Cuts]) -> Manifest:
    """Every measured clip with its strata as attributes; a clip without agents has no occlusion stratum."""
    means = dict(zip(table.clip_ids, table.means(PRIMARY), strict=True))
    clips = []
    for clip in manifest:
        attributes = {name: value for name, value in clip.attributes.items() if name not in STRATA}
        for cut in cuts:
            value = float(means[clip.clip_id][NAMES.index(cut.axis)]) if clip.clip_id in means else np.nan
            if np.isfinite(value):
                attributes[cut.attribute] = cut.level(value)
        clips.append(dataclasses.replace(clip, attributes=attributes))
    return Manifest(clips)
