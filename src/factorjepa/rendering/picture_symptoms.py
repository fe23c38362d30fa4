"""Panel B's symptoms that show in the whole picture: layout drift, motion under-dispersion, content from nowhere.

Flow from X to a decoded frame says how far the static scene has been moved; flow from the last context frame to each
says how far agents have gone.

Legend: T frames, H x W pixels, s pixels a side of flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ..diagnostics.flow import flows
from ..pixels import Frames
from .counterparts import Picture
from .failure_settings import FailureSettings
from .metrics.motion import FLOW_SIDE, MOVING, Floats, Mask, own_speed
from .outlines import boxed, gradient, grown
from .symptoms import Decoded, Observed, Strength, stronger

_SMOOTH = 9  # px of the flow's grid: what does not move as a piece is texture
_VISIBLE = 0.01  # mean difference of the static scene: below, there is nothing to explain


class Scenery:
    """The static part of X, frame by frame, and how a decoded future has moved it."""

    def __init__(self, seen: Observed, decoded: Decoded, dynamic_THW: Mask) -> None:
        self.static_THW = np.stack(
            [
                ~grown(mask | boxed(found.boxes, *mask.shape))
                for mask, found in zip(dynamic_THW, decoded.agents, strict=True)
            ]
        )
        pairs = zip(seen.frames, decoded.frames, strict=True)
        self.moved_THW2 = [_displacement(x, y) for x, y in pairs]
        undone = [_undone(y, moved) for y, moved in zip(decoded.frames, self.moved_THW2, strict=True)]
        self.error = _mean_difference(seen.frames, decoded.frames, self.static_THW)
        left = _mean_difference(seen.frames, undone, self.static_THW)
        # share of the static error that goes when the displacement is undone
        self.explained = 1.0 - left / self.error if self.error >= _VISIBLE else 0.0
        self.edges_THW = [gradient(y) > limit for y, limit in zip(undone, seen.edge_limits, strict=True)]

    @property
    def nbytes(self) -> int:
        return self.static_THW.nbytes + sum(one.nbytes for one in (*self.moved_THW2, *self.edges_THW))


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


def layout_drift(oracle: Scenery, predicted: Scenery, settings: FailureSettings) -> Strength:
    """Mean displacement of the static scene, where undoing it explains the error: a shift, not another texture."""
    far_p, far_o = (_far(one, settings) for one in (predicted, oracle))
    shared = 0.0
    if far_p and far_o:
        along = []
        for here, there, static in zip(predicted.moved_THW2, oracle.moved_THW2, predicted.static_THW, strict=True):
            length = np.maximum(np.linalg.norm(here, axis=-1), 1e-9)
            along.append(((here * there).sum(-1) / length).clip(0, length)[static])
        shared = min(_mean(along), far_p)
    evidence = {
        "background flow, predicted": _mean_length(predicted),
        "background flow, oracle": _mean_length(oracle),
        "static-region error, predicted": predicted.error,
        "static-region error, oracle": oracle.error,
        "static error explained by displacement, predicted": predicted.explained,
    }
    return Strength(far_p / settings.drift, far_o / settings.drift, shared / settings.drift, evidence)


def under_dispersion(oracle: Pace, predicted: Pace, settings: FailureSettings) -> Strength:
    """Motion and sharpness that agents lose, of those that are still there."""
    by_name = {"oracle": oracle, "predicted": predicted}
    evidence = {f"flow-magnitude ratio, {name}": one.ratio for name, one in by_name.items()}
    evidence |= {f"agents' sharpness ratio, {name}": one.sharpness for name, one in by_name.items()}
    slow, blunt = (
        Strength(_lost(p) / limit, _lost(o) / limit, min(_lost(p), _lost(o)) / limit)
        for p, o, limit in (
            (predicted.ratio, oracle.ratio, settings.slower),
            (predicted.sharpness, oracle.sharpness, settings.blunter),
        )
    )
    both = stronger(slow, blunt)
    return Strength(both.predicted, both.oracle, both.shared, evidence)


def new_edges(oracle: Scenery, predicted: Scenery, settings: FailureSettings) -> Strength:
    """Edges in the static scene that X does not show nearby, after displacement has been undone."""
    in_p, in_o = (
        _mean([m[s] for m, s in zip(one.edges_THW, one.static_THW, strict=True)]) for one in (predicted, oracle)
    )
    shown = zip(predicted.edges_THW, oracle.edges_THW, predicted.static_THW, strict=True)
    both = _mean([(p & grown(o))[s] for p, o, s in shown])
    evidence = {"new edges in the static scene, predicted": in_p, "new edges in the static scene, oracle": in_o}
    return Strength(in_p / settings.edges, in_o / settings.edges, both / settings.edges, evidence)


def _displacement(x: Picture, y: Picture) -> Floats:
    """Smoothed flow from X to a decoded frame, `[H, W, 2]` in sides."""
    pair: Frames = np.stack([(np.clip(one, 0, 1) * 255).round().astype(np.uint8) for one in (x, y)])
    flow = cv2.blur(flows(pair, FLOW_SIDE)[0], (_SMOOTH, _SMOOTH))
    return np.asarray(cv2.resize(flow, x.shape[1::-1], interpolation=cv2.INTER_LINEAR), np.float32)


def _undone(y: Picture, moved_HW2: Floats) -> Picture:
    """The decoded frame with its content brought back to where X has it."""
    height, width = y.shape[:2]
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    where = columns + moved_HW2[..., 0] * width, rows + moved_HW2[..., 1] * height
    return np.asarray(cv2.remap(y, *where, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), np.float32)


def _far(scenery: Scenery, settings: FailureSettings) -> float:
    return _mean_length(scenery) if scenery.explained >= settings.explained else 0.0


def _mean_length(scenery: Scenery) -> float:
    lengths = (np.linalg.norm(one, axis=-1) for one in scenery.moved_THW2)
    return _mean([length[static] for length, static in zip(lengths, scenery.static_THW, strict=True)])


def _carried(reference_Tss2: Floats, moving_Tss: Mask, seen: Observed, decoded: Decoded) -> Mask:
    """Pixels of the context frame that move to a place where X shows an agent that the decode has, too: `[T, s, s]`.

    An agent with another look has no flow: it is left to appearance.
    """
    side = reference_Tss2.shape[-2]
    rows, columns = np.mgrid[0:side, 0:side]
    result = moving_Tss.copy()
    for t, (agents, who, part) in enumerate(zip(seen.agents, seen.counted, decoded.parts, strict=True)):
        alike = np.nan_to_num(part.unlikeness_N, nan=np.inf) < seen.settings.alike
        here = boxed(agents.boxes[who & alike], side, side)
        x = np.clip(np.rint(columns + reference_Tss2[t, ..., 0] * side), 0, side - 1).astype(int)
        y = np.clip(np.rint(rows + reference_Tss2[t, ..., 1] * side), 0, side - 1).astype(int)
        result[t] &= here[y, x]
    return result


def _ratio(
    there_Tss: NDArray[np.float64], here_Tss: NDArray[np.float64], region_Tss: Mask, settings: FailureSettings
) -> float:
    """Mean over the frames in which enough moves; NaN where there is none."""
    frames = [t for t, region in enumerate(region_Tss) if region.mean() >= settings.moving_area]
    values = [here_Tss[t][region_Tss[t]].mean() / there_Tss[t][region_Tss[t]].mean() for t in frames]
    return float(np.mean(values)) if values else float("nan")


def _sharpness_ratio(seen: Observed, decoded: Decoded) -> float:
    """Mean gradient inside the agents' boxes, each in its own place, decoded over observed."""
    there, here = [], []
    for t, (agents, who, part) in enumerate(zip(seen.agents, seen.counted, decoded.parts, strict=True)):
        rows = np.flatnonzero(who & part.kept_N)
        edges_x, edges_y = seen.gradients[t], gradient(decoded.frames[t])
        there += [_inside(edges_x, box) for box in agents.boxes[rows]]
        here += [_inside(edges_y, box) for box in decoded.agents[t].boxes[part.partner_N[rows]]]
    return float(np.mean(here) / max(float(np.mean(there)), 1e-9)) if there else float("nan")


def _inside(values_HW: NDArray[np.float32], box: NDArray[np.float64]) -> float:
    return float(values_HW[boxed(box[None], *values_HW.shape)].mean())


def _mean_difference(first: Sequence[Picture], second: Sequence[Picture], where: Mask) -> float:
    return _mean([np.abs(a - b).mean(-1)[w] for a, b, w in zip(first, second, where, strict=True)])


def _mean(parts: Sequence[NDArray[np.generic]]) -> float:
    joined = np.concatenate([np.zeros(0), *parts])
    return float(joined.mean()) if len(joined) else 0.0


def _lost(ratio: float) -> float:
    return 0.0 if np.isnan(ratio) else float(np.clip(1.0 - ratio, 0.0, 1.0))
