"""Panel B's motion under-dispersion: how far agents of a decoded future go, and how sharp they are.

Flow from the last context frame says how far agents have gone. Only agents that are found again are looked at: who is
missing is told by agent omission. A frame with fewer than `together` of them says nothing: how one agent is drawn is
not how a future moves.

Legend: T frames, H x W pixels, s pixels a side of flow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .failure_settings import FailureSettings
from .metrics.motion import MOVING, Floats, Mask, own_speed
from .outlines import boxed, gradient
from .symptoms import Decoded, Observed, Strength, stronger


class Pace:
    """How far agents of a decoded future go, of how far they went, and how sharp they are; of those still there."""

    def __init__(self, seen: Observed, decoded: Decoded, reference: OwnMotion, found: OwnMotion) -> None:
        where = _carried(reference.flow_Tss2, reference.speed_Tss >= MOVING, seen, decoded)
        self.ratio = _ratio(reference.speed_Tss, found.speed_Tss, where, seen.settings)
        self.sharpness = _sharpness_ratio(seen, decoded)


@dataclass(frozen=True)
class OwnMotion:
    """Flow from the last context frame, and how much of it is not the camera's."""

    flow_Tss2: Floats
    speed_Tss: NDArray[np.float64]

    @classmethod
    def of(cls, flow_Tss2: Floats) -> OwnMotion:
        return cls(flow_Tss2, own_speed(flow_Tss2[None])[0])


def under_dispersion(oracle: Pace, predicted: Pace, settings: FailureSettings) -> Strength:
    """Motion and sharpness that agents lose, of those that are still there."""
    by_name = {"oracle": oracle, "predicted": predicted}
    evidence = {f"flow-magnitude ratio of agents found again, {name}": one.ratio for name, one in by_name.items()}
    evidence |= {f"sharpness ratio of agents found again, {name}": one.sharpness for name, one in by_name.items()}
    slow, blunt = (
        Strength(_lost(p) / limit, _lost(o) / limit, min(_lost(p), _lost(o)) / limit)
        for p, o, limit in (
            (predicted.ratio, oracle.ratio, settings.slower),
            (predicted.sharpness, oracle.sharpness, settings.blunter),
        )
    )
    both = stronger(slow, blunt)
    return Strength(both.predicted, both.oracle, both.shared, evidence)


def _carried(reference_Tss2: Floats, moving_Tss: Mask, seen: Observed, decoded: Decoded) -> Mask:
    """Pixels of the context frame that move to a place where X shows an agent that the decode has, too: `[T, s, s]`.

    An agent with another look has no flow: it is left to appearance. None where too few agents move.
    """
    side = reference_Tss2.shape[-2]
    rows, columns = np.mgrid[0:side, 0:side]
    result = np.zeros_like(moving_Tss)
    for t, (agents, who, part) in enumerate(zip(seen.agents, seen.counted, decoded.parts, strict=True)):
        alike = np.nan_to_num(part.unlikeness_N, nan=np.inf) < seen.settings.alike
        x = np.clip(np.rint(columns + reference_Tss2[t, ..., 0] * side), 0, side - 1).astype(int)
        y = np.clip(np.rint(rows + reference_Tss2[t, ..., 1] * side), 0, side - 1).astype(int)
        each = [moving_Tss[t] & boxed(box[None], side, side)[y, x] for box in agents.boxes[who & alike]]
        if sum(bool(one.any()) for one in each) >= seen.settings.together:
            result[t] = np.any(each, axis=0)
    return result


def _ratio(
    there_Tss: NDArray[np.float64], here_Tss: NDArray[np.float64], region_Tss: Mask, settings: FailureSettings
) -> float:
    """Mean over the frames in which enough moves; NaN where there is none."""
    frames = [t for t, region in enumerate(region_Tss) if region.mean() >= settings.moving_area]
    values = [here_Tss[t][region_Tss[t]].mean() / there_Tss[t][region_Tss[t]].mean() for t in frames]
    return float(np.mean(values)) if values else float("nan")


def _sharpness_ratio(seen: Observed, decoded: Decoded) -> float:
    """Mean gradient inside the agents' boxes, each in its own place, decoded over observed; NaN where too few are."""
    there, here = [], []
    for t, (agents, who, part) in enumerate(zip(seen.agents, seen.counted, decoded.parts, strict=True)):
        rows = np.flatnonzero(who & part.kept_N)
        if len(rows) < seen.settings.together:
            continue
        edges_x, edges_y = seen.gradients[t], gradient(decoded.frames[t])
        there += [_inside(edges_x, box) for box in agents.boxes[rows]]
        here += [_inside(edges_y, box) for box in decoded.agents[t].boxes[part.partner_N[rows]]]
    return float(np.mean(here) / max(float(np.mean(there)), 1e-9)) if there else float("nan")


def _inside(values_HW: NDArray[np.float32], box: NDArray[np.float64]) -> float:
    return float(values_HW[boxed(box[None], *values_HW.shape)].mean())


def _lost(ratio: float) -> float:
    return 0.0 if np.isnan(ratio) else float(np.clip(1.0 - ratio, 0.0, 1.0))
