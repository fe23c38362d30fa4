"""Panel B's symptoms that show in the whole picture: layout drift, motion under-dispersion, content from nowhere.

Flow from X to a decoded frame says how far the static scene has been moved; flow from the last context frame to each
says how far agents have gone.

Legend: T frames, H x W pixels, s pixels a side of flow.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..diagnostics.flow import flows
from ..pixels import Frames
from .counterparts import Picture
from .failure_settings import FailureSettings
from .metrics.motion import FLOW_SIDE, MOVING, Floats, Mask, future_flow, own_speed
from .symptoms import Decoded, Observed, Strength, stronger

_SMOOTH = 9  # px of the flow's grid: what does not move as a piece is texture
_AROUND = 0.03  # sides around agents that are not static, and around an edge of X that supports one of P
_VISIBLE = 0.01  # mean difference of the static scene: below, there is nothing to explain


class Scenery:
    """The static part of X, frame by frame, and how a decoded future has moved it."""

    def __init__(self, seen: Observed, decoded: Decoded, dynamic_THW: Mask) -> None:
        self.static_THW = np.stack(
            [
                ~_grown(mask | boxed(found.boxes, *mask.shape))
                for mask, found in zip(dynamic_THW, decoded.agents, strict=True)
            ]
        )
        pairs = zip(seen.frames, decoded.frames, strict=True)
        self.moved_THW2 = [_displacement(x, y) for x, y in pairs]
        self.undone = [_undone(y, moved) for y, moved in zip(decoded.frames, self.moved_THW2, strict=True)]
        self.error = _mean_difference(seen.frames, decoded.frames, self.static_THW)
        self.error_undone = _mean_difference(seen.frames, self.undone, self.static_THW)

    @property
    def explained(self) -> float:
        """Share of the static error that goes when the displacement is undone."""
        return 1.0 - self.error_undone / self.error if self.error >= _VISIBLE else 0.0


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


def under_dispersion(
    context_3HW: Tensor, observed_T3HW: Tensor, oracle_T3HW: Tensor, predicted_T3HW: Tensor,
    seen: Observed, oracle: Decoded, predicted: Decoded,
) -> Strength:  # fmt: skip
    """Motion and sharpness that agents lose, of those that are still there."""
    settings = seen.settings
    reference = future_flow(context_3HW[None], observed_T3HW[None])
    speed = own_speed(reference)
    ratios = {}
    for name, frames, decoded in (("oracle", oracle_T3HW, oracle), ("predicted", predicted_T3HW, predicted)):
        found = own_speed(future_flow(context_3HW[None], frames[None]))
        ratios[name] = _ratio(speed[0], found[0], _carried(reference[0], speed[0] >= MOVING, seen, decoded), settings)
    sharp = {"oracle": _sharpness_ratio(seen, oracle), "predicted": _sharpness_ratio(seen, predicted)}
    evidence = {f"flow-magnitude ratio, {name}": value for name, value in ratios.items()}
    evidence |= {f"agents' sharpness ratio, {name}": value for name, value in sharp.items()}
    slow, blunt = (
        Strength(p / limit, o / limit, min(p, o) / limit)
        for values, limit in ((ratios, settings.slower), (sharp, settings.blunter))
        for p, o in [(_lost(values["predicted"]), _lost(values["oracle"]))]
    )
    both = stronger(slow, blunt)
    return Strength(both.predicted, both.oracle, both.shared, evidence)


def new_edges(seen: Observed, oracle: Scenery, predicted: Scenery) -> Strength:
    """Edges in the static scene that X does not show nearby, after displacement has been undone."""
    limit = seen.settings.edges
    maps_p, maps_o = (_edges(seen, one) for one in (predicted, oracle))
    in_p, in_o = (_mean([m[s] for m, s in zip(maps, one.static_THW, strict=True)]) for maps, one in (
        (maps_p, predicted), (maps_o, oracle)))  # fmt: skip
    both = _mean([(p & _grown(o))[s] for p, o, s in zip(maps_p, maps_o, predicted.static_THW, strict=True)])
    evidence = {"new edges in the static scene, predicted": in_p, "new edges in the static scene, oracle": in_o}
    return Strength(in_p / limit, in_o / limit, both / limit, evidence)


def boxed(boxes_N4: NDArray[np.float64], height: int, width: int) -> Mask:
    """`[H, W]` inside any of the boxes, at least a pixel of each."""
    mask = np.zeros((height, width), bool)
    for left, top, right, bottom in boxes_N4.clip(0, 1) * np.array([width, height, width, height]):
        first_row, first_column = min(int(top), height - 1), min(int(left), width - 1)
        rows = slice(first_row, max(first_row + 1, int(np.ceil(bottom))))
        mask[rows, first_column : max(first_column + 1, int(np.ceil(right)))] = True
    return mask


def pictures_of(frames_T3HW: Tensor) -> list[Picture]:
    return list(frames_T3HW.detach().clamp(0, 1).float().movedim(-3, -1).cpu().contiguous().numpy())


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
        edges_x, edges_y = _gradient(seen.frames[t]), _gradient(decoded.frames[t])
        there += [_inside(edges_x, box) for box in agents.boxes[rows]]
        here += [_inside(edges_y, box) for box in decoded.agents[t].boxes[part.partner_N[rows]]]
    return float(np.mean(here) / max(float(np.mean(there)), 1e-9)) if there else float("nan")


def _inside(values_HW: NDArray[np.float32], box: NDArray[np.float64]) -> float:
    return float(values_HW[boxed(box[None], *values_HW.shape)].mean())


def _edges(seen: Observed, scenery: Scenery) -> list[Mask]:
    maps = []
    for x, y in zip(seen.frames, scenery.undone, strict=True):
        around = cv2.dilate(_gradient(x), _disc(x.shape[0]))
        maps.append(np.asarray(_gradient(y) > around + seen.settings.edge))
    return maps


def _gradient(picture: Picture) -> NDArray[np.float32]:
    """Length of the grey picture's gradient per pixel, central differences."""
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    across, down = (cv2.Sobel(grey, cv2.CV_32F, *axis, ksize=3, scale=1 / 8) for axis in ((1, 0), (0, 1)))
    return np.asarray(np.hypot(across, down), np.float32)


def _grown(mask: Mask) -> Mask:
    return np.asarray(cv2.dilate(mask.astype(np.uint8), _disc(mask.shape[0])) > 0)


def _disc(side: int) -> NDArray[np.uint8]:
    radius = max(2, round(_AROUND * side))
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1)), np.uint8)


def _mean_difference(first: Sequence[Picture], second: Sequence[Picture], where: Mask) -> float:
    return _mean([np.abs(a - b).mean(-1)[w] for a, b, w in zip(first, second, where, strict=True)])


def _mean(parts: Sequence[NDArray[np.generic]]) -> float:
    joined = np.concatenate([np.zeros(0), *parts])
    return float(joined.mean()) if len(joined) else 0.0


def _lost(ratio: float) -> float:
    return 0.0 if np.isnan(ratio) else float(np.clip(1.0 - ratio, 0.0, 1.0))
