"""Why a decoded future fails (appendix H, the operational taxonomy): observable symptoms, attributed by the oracle.

Panel B names what is wrong in P against X (`symptoms.py`, `pace.py`, `scenery.py`). Panel A asks how much of it the
oracle decode O shows already. The answer is a diagnosis, not a cause: a predicted latent that no decoder has met may
make a decoder fail that is fine otherwise.

    pair = Pair(context, Future(observed, agents), Future(oracle, agents))
    for failure in find_failures(pair, pair.read(Future(predicted, agents))):
        print(failure.symptom, failure.attribution, failure.evidence)

Legend: T frames, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .counterparts import Picture, crop
from .failure_settings import Attribution, FailureSettings, Symptom
from .metrics.lpips import Lpips
from .metrics.motion import Mask
from .pace import under_dispersion
from .pair import Pair, Reading
from .scenery import layout_drift, lost_detail, new_edges, scenery_substitution
from .symptoms import (
    Decoded,
    Observed,
    Strength,
    appearance,
    duplication,
    interaction,
    omission,
    stronger,
    unsupported_agents,
)

_CROP = 64  # px a side at which LPIPS sees an agent
_STATIC = (
    Symptom.LAYOUT_DRIFT, Symptom.UNSUPPORTED_CONTENT, Symptom.LOST_DETAIL, Symptom.SCENERY_SUBSTITUTION,
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """One symptom of one clip. Strengths are in thresholds: from 1 on a symptom is there."""

    symptom: Symptom
    attribution: Attribution
    predicted: float
    oracle: float
    shared: float  # of the prediction's strength, what the oracle shows already
    evidence: Mapping[str, float]  # the numbers behind it; NaN: cannot be had


def find_failures(pair: Pair, predicted: Reading, lpips: Lpips | None = None) -> list[Failure]:
    """The symptoms of one clip, in the taxonomy's order; none where P is as good as X.

    With `lpips`, substituted appearance is told in LPIPS as well. It decides nothing: tables with and without it agree.
    """
    three = pair.seen, pair.oracle.decoded, predicted.decoded
    found = []
    for symptom, strength in strengths_of(pair, predicted).items():
        attribution = attribute(strength, pair.settings)
        if attribution is None:
            continue
        where = ~pair.dynamic_THW if symptom in _STATIC else pair.dynamic_THW
        evidence = dict(strength.evidence) | _errors(*three, where)
        if symptom is Symptom.APPEARANCE_SUBSTITUTION and lpips is not None:
            evidence |= {
                "agent-crop LPIPS, oracle": _crop_lpips(lpips, pair.seen, pair.oracle.decoded),
                "agent-crop LPIPS, predicted": _crop_lpips(lpips, pair.seen, predicted.decoded),
            }
        found.append(Failure(symptom, attribution, strength.predicted, strength.oracle, strength.shared, evidence))
    return found


def strengths_of(pair: Pair, predicted: Reading) -> dict[Symptom, Strength]:
    """How strongly P shows each symptom, in thresholds."""
    settings, oracle = pair.settings, pair.oracle
    three = pair.seen, oracle.decoded, predicted.decoded
    return {
        Symptom.LAYOUT_DRIFT: layout_drift(oracle.scenery, predicted.scenery, settings),
        Symptom.AGENT_OMISSION: omission(*three),
        Symptom.AGENT_DUPLICATION: duplication(*three),
        Symptom.INTERACTION_INCONSISTENCY: interaction(*three),
        Symptom.MOTION_UNDER_DISPERSION: under_dispersion(oracle.pace, predicted.pace, settings),
        Symptom.APPEARANCE_SUBSTITUTION: appearance(*three),
        Symptom.UNSUPPORTED_CONTENT: stronger(
            unsupported_agents(*three), new_edges(oracle.scenery, predicted.scenery, settings)
        ),
        Symptom.LOST_DETAIL: lost_detail(oracle.scenery, predicted.scenery, settings),
        Symptom.SCENERY_SUBSTITUTION: scenery_substitution(oracle.scenery, predicted.scenery, settings),
    }


def attribute(strength: Strength, settings: FailureSettings) -> Attribution | None:
    """Panel A; None where P does not show the symptom.

    The prediction's strength is the part that O shares and the part that is new. Where the new part is not material,
    O shows as much. Else O must show the symptom itself, and share a material part of it, to share the blame.
    """
    if strength.predicted < 1.0:
        return None
    if strength.predicted - strength.shared < settings.material:
        return Attribution.ORACLE_PRESENT
    if strength.oracle < 1.0 or strength.shared < settings.material:
        return Attribution.PREDICTION_CONDITIONED
    return Attribution.MIXED


def _errors(seen: Observed, oracle: Decoded, predicted: Decoded, where_THW: Mask) -> dict[str, float]:
    """E_oracle, E_e2e and G_visible in pixel L1, where the symptom is looked for; NaN where that is nowhere."""

    def apart(first: Sequence[Picture], second: Sequence[Picture]) -> float:
        frames = zip(first, second, where_THW, strict=True)
        means = [float(np.abs(a - b).mean(-1)[where].mean()) for a, b, where in frames if where.any()]
        return float(np.mean(means)) if means else float("nan")

    x, o, p = seen.frames, oracle.frames, predicted.frames
    return {"E_oracle": apart(o, x), "E_e2e": apart(p, x), "G_visible": apart(p, o)}


def _crop_lpips(lpips: Lpips, seen: Observed, decoded: Decoded) -> float:
    """Mean over agents in their place, each cut out by its own box."""
    first, second = [], []
    for t, (who, part) in enumerate(zip(seen.counted, decoded.parts, strict=True)):
        for row in np.flatnonzero(who & part.kept_N & (part.overlap_N >= seen.settings.same_place)):
            first.append(crop(seen.frames[t], seen.agents[t].boxes[row], _CROP))
            second.append(crop(decoded.frames[t], decoded.agents[t].boxes[part.partner_N[row]], _CROP))
    if not first:
        return float("nan")
    pictures = (torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2) for crops in (first, second))
    with torch.inference_mode():
        return float(lpips(*pictures).mean())
