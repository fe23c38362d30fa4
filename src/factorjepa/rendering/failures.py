"""Why a decoded future fails (appendix H, the operational taxonomy): observable symptoms, attributed by the oracle.

Panel B names what is wrong in P against X (`symptoms.py`, `picture_symptoms.py`). Panel A asks how much of it the
oracle decode O shows already. The answer is a diagnosis, not a cause: a predicted latent that no decoder has met may
make a decoder fail that is fine otherwise.

    for failure in find_failures(triplet):
        print(failure.symptom, failure.attribution, failure.evidence)

Legend: T frames, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from ..errors import RenderingError
from .counterparts import crop
from .failure_settings import Attribution, FailureSettings, Symptom
from .metrics.lpips import Lpips
from .metrics.motion import Mask
from .metrics.pixel import pixel_l1
from .picture_symptoms import Scenery, boxed, layout_drift, new_edges, pictures_of, under_dispersion
from .symptoms import (
    Decoded,
    Observed,
    Strength,
    Triplet,
    appearance,
    duplication,
    interaction,
    omission,
    stronger,
    unsupported_agents,
)

_CROP = 64  # px a side at which LPIPS sees an agent
_STATIC = (Symptom.LAYOUT_DRIFT, Symptom.UNSUPPORTED_CONTENT)


@dataclass(frozen=True)
class Failure:
    """One symptom of one clip. Strengths are in thresholds: from 1 on a symptom is there."""

    symptom: Symptom
    attribution: Attribution
    predicted: float
    oracle: float
    shared: float  # of the prediction's strength, what the oracle shows already
    evidence: Mapping[str, float]  # the numbers behind it; NaN: cannot be had


def find_failures(
    triplet: Triplet, settings: FailureSettings | None = None, lpips: Lpips | None = None
) -> list[Failure]:
    """The symptoms of one clip, in the taxonomy's order; none where P is as good as X.

    With `lpips`, substituted appearance is told in LPIPS as well. It decides nothing: tables with and without it agree.
    """
    settings = FailureSettings() if settings is None else settings
    _check(triplet)
    seen = Observed(pictures_of(triplet.observed_T3HW), triplet.agents_observed, settings)
    oracle = Decoded(pictures_of(triplet.oracle_T3HW), triplet.agents_oracle, seen)
    predicted = Decoded(pictures_of(triplet.predicted_T3HW), triplet.agents_predicted, seen)
    dynamic = _dynamic(triplet)
    scenery_o, scenery_p = (Scenery(seen, one, dynamic) for one in (oracle, predicted))
    videos = (triplet.context_3HW, triplet.observed_T3HW, triplet.oracle_T3HW, triplet.predicted_T3HW)
    strengths = {
        Symptom.LAYOUT_DRIFT: layout_drift(scenery_o, scenery_p, settings),
        Symptom.AGENT_OMISSION: omission(seen, oracle, predicted),
        Symptom.AGENT_DUPLICATION: duplication(seen, oracle, predicted),
        Symptom.INTERACTION_INCONSISTENCY: interaction(seen, oracle, predicted),
        Symptom.MOTION_UNDER_DISPERSION: under_dispersion(*videos, seen, oracle, predicted),
        Symptom.APPEARANCE_SUBSTITUTION: appearance(seen, oracle, predicted),
        Symptom.UNSUPPORTED_CONTENT: stronger(
            unsupported_agents(seen, oracle, predicted), new_edges(seen, scenery_o, scenery_p)
        ),
    }
    found = []
    for symptom, strength in strengths.items():
        attribution = attribute(strength, settings)
        if attribution is None:
            continue
        evidence = dict(strength.evidence) | _errors(triplet, ~dynamic if symptom in _STATIC else dynamic)
        if symptom is Symptom.APPEARANCE_SUBSTITUTION and lpips is not None:
            evidence |= {
                "agent-crop LPIPS, oracle": _crop_lpips(lpips, seen, oracle),
                "agent-crop LPIPS, predicted": _crop_lpips(lpips, seen, predicted),
            }
        found.append(Failure(symptom, attribution, strength.predicted, strength.oracle, strength.shared, evidence))
    return found


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


def _check(triplet: Triplet) -> None:
    shape = triplet.observed_T3HW.shape
    for name, frames in (("oracle", triplet.oracle_T3HW), ("predicted", triplet.predicted_T3HW)):
        if frames.shape != shape:
            raise RenderingError(f"{name} frames are {list(frames.shape)}, the observed ones {list(shape)}")
    for name in ("observed", "oracle", "predicted"):
        if (given := len(getattr(triplet, f"agents_{name}"))) != shape[0]:
            raise RenderingError(f"agents of {given} {name} frames, but there are {shape[0]} frames")


def _dynamic(triplet: Triplet) -> Mask:
    """`[T, H, W]` where X shows an agent."""
    if triplet.dynamic_THW is not None:
        return np.asarray(triplet.dynamic_THW.cpu().numpy(), bool)
    height, width = triplet.observed_T3HW.shape[-2:]
    return np.stack([boxed(one.boxes, height, width) for one in triplet.agents_observed])


def _errors(triplet: Triplet, where: Mask) -> dict[str, float]:
    """E_oracle, E_e2e and G_visible in pixel L1, where the symptom is looked for."""
    x, o, p = (one[None] for one in (triplet.observed_T3HW, triplet.oracle_T3HW, triplet.predicted_T3HW))
    region = torch.from_numpy(where)[None].to(x.device)
    pairs = {"E_oracle": (o, x), "E_e2e": (p, x), "G_visible": (p, o)}
    return {name: float(pixel_l1(a, b, region).nanmean()) for name, (a, b) in pairs.items()}


def _crop_lpips(lpips: Lpips, seen: Observed, decoded: Decoded) -> float:
    """Mean over agents in their place, each cut out by its own box."""
    first, second = [], []
    for t, (who, part) in enumerate(zip(seen.counted, decoded.parts, strict=True)):
        for row in np.flatnonzero(who & part.kept_N & (part.overlap_N >= seen.settings.same_place)):
            first.append(crop(seen.frames[t], seen.agents[t].boxes[row], _CROP))
            second.append(crop(decoded.frames[t], decoded.agents[t].boxes[part.partner_N[row]], _CROP))
    if not first:
        return float("nan")
    device = next(lpips.parameters()).device
    pictures = (torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2).to(device) for crops in (first, second))
    with torch.inference_mode():
        return float(lpips(*pictures).mean())
