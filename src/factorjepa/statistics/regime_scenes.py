"""The paper's table of scenes: both corpora, scene stratum by scene stratum, and the unweighted mean over them.

Legend: S scene strata; 2 corpora (first, reference).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .measures import Array
from .regime_drawing import SCENE_MEASURES, Found, Pairing, RegimeSettings, contrasted
from .regime_rows import SceneRow

SCENE = "scene_type"
EQUAL_STRATUM = "equal-stratum mean"


def scene_rows(pairing: Pairing, found: Found, settings: RegimeSettings) -> list[SceneRow]:
    """The paper's table: scene strata, then the unweighted mean over them (a ratio of means, no mean of ratios).

    Only where scenes were matched: else the clips of a scene are not pairs, and their numbers differ between corpora.
    """
    if SCENE not in pairing.made.fields:
        return []
    first, reference = pairing.both
    its = first.scenes(pairing.scenes)[pairing.whole[0].row_A]
    shared = [s for s in range(len(pairing.scenes)) if np.isfinite(found.scenes_2S2[:, s]).all()]
    rows = []
    for column, measure in enumerate(SCENE_MEASURES):
        whole, drawn = found.scenes_2S2[:, :, column], found.scenes_B2S2[:, :, :, column]
        jacks = [one[:, :, :, column] for one in found.jack_scenes]
        for s in shared:
            cells = contrasted(whole[:, s], drawn[:, :, s], [one[:, :, s] for one in jacks], settings.confidence)
            rows.append(SceneRow(reference.name, pairing.scenes[s], measure, int((its == s).sum()), **cells))
        if shared:
            cells = contrasted(
                _over_scenes(whole, shared), _over_scenes(drawn, shared), [_over_scenes(one, shared) for one in jacks],
                settings.confidence,
            )  # fmt: skip
            rows.append(SceneRow(reference.name, EQUAL_STRATUM, measure, len(its), **cells))
    return rows


def why_no_scenes(pairing: Pairing) -> list[str]:
    made = pairing.made
    if SCENE in made.fields:
        return []
    why = (
        "was given up for want of matches" if SCENE in made.given_up
        else "is not known of every clip" if SCENE in made.absent
        else "is not among the fields asked for"
    )  # fmt: skip
    return [f"no scene-matched table against {pairing.both[1].name}: pairs were not matched on {SCENE}, which {why}"]


def _over_scenes(values: Array, shared: Sequence[int]) -> Array:
    """[..., 2, S] -> [..., 2]: the mean over the strata that both corpora have in this replicate."""
    chosen = values[..., list(shared)]
    both = np.isfinite(chosen).all(-2, keepdims=True) & np.ones_like(chosen, bool)
    count = both.sum(-1)
    return np.where(count > 0, np.where(both, chosen, 0.0).sum(-1) / np.maximum(count, 1), np.nan)
