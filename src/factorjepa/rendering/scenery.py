"""Panel B's symptoms of the static scene: layout drift, content from nowhere, and two of ours.

Flow from X to a decoded frame says how far the static scene has been moved. With that undone, the rest can be told
apart: edges that X has not (unsupported content), edges of X that are gone (lost detail, ours), and another thing in a
place, which may be too blurred to have an edge (scenery substitution, ours).

Legend: T frames, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from ..diagnostics.flow import flows
from ..pixels import Frames
from .counterparts import Picture, as_soft_as
from .failure_settings import FailureSettings
from .metrics.motion import FLOW_SIDE, Floats, Mask
from .outlines import boxed, gradient, grown, slopes
from .symptoms import Decoded, Observed, Strength

_SMOOTH = 9  # px of the flow's grid: what does not move as a piece is texture
_PATCH = 1 / 16  # sides: colours are compared over so much of the picture
_PLAIN = 0.005  # mean gradient of a static scene without detail
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
        self.kept = _kept_detail(seen.frames, undone, self.static_THW)
        self.other_THW = [_other_look(x, y) >= seen.settings.alike for x, y in zip(seen.frames, undone, strict=True)]

    @property
    def nbytes(self) -> int:
        held = (*self.moved_THW2, *self.edges_THW, *self.other_THW)
        return self.static_THW.nbytes + sum(one.nbytes for one in held)


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


def new_edges(oracle: Scenery, predicted: Scenery, settings: FailureSettings) -> Strength:
    """Edges in the static scene that X does not show nearby, after displacement has been undone."""
    return _of_places(
        [(one.edges_THW, one.static_THW) for one in (predicted, oracle)],
        settings.edges,
        "new edges in the static scene",
    )


def lost_detail(oracle: Scenery, predicted: Scenery, settings: FailureSettings) -> Strength:
    """Ours: edges of X's static scene that are gone or flattened, as an average of many futures flattens them."""
    lost_p, lost_o = (1.0 - one.kept for one in (predicted, oracle))
    evidence = {
        "static scene's edges kept, predicted": predicted.kept,
        "static scene's edges kept, oracle": oracle.kept,
    }
    least = settings.flattened
    return Strength(lost_p / least, lost_o / least, min(lost_p, lost_o) / least, evidence)


def scenery_substitution(oracle: Scenery, predicted: Scenery, settings: FailureSettings) -> Strength:
    """Ours: places of the static scene that show another colour than X, once X is as soft and P back in its place."""
    return _of_places(
        [(one.other_THW, one.static_THW) for one in (predicted, oracle)],
        settings.substituted,
        "static scene with another look",
    )


def _of_places(two: Sequence[tuple[Sequence[Mask], Mask]], least: float, name: str) -> Strength:
    """The share of the static scene that is marked, in P and in O; what O marks nearby is shared."""
    (marks_p, static_p), (marks_o, _) = two
    in_p, in_o = (_mean([m[s] for m, s in zip(*one, strict=True)]) for one in two)
    both = _mean([(p & grown(o))[s] for p, o, s in zip(marks_p, marks_o, static_p, strict=True)])
    evidence = {f"{name}, predicted": in_p, f"{name}, oracle": in_o}
    return Strength(in_p / least, in_o / least, both / least, evidence)


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


def _kept_detail(first: Sequence[Picture], second: Sequence[Picture], where: Mask) -> float:
    """Of X's gradient, how much a decoded future has in the same place and direction: 1 all, 0 none.

    A projection: gradient of something else, such as a decoder's own pattern, keeps nothing.
    """
    both = whole = 0.0
    for x, y, static in zip(first, second, where, strict=True):
        there, here = (slopes(one)[:, static] for one in (x, y))
        both, whole = both + float((there * here).sum()), whole + float((there**2).sum())
    plain = whole <= _PLAIN**2 * max(int(where.sum()), 1)
    return 1.0 if plain else float(np.clip(both / whole, 0.0, 1.0))


def _other_look(x: Picture, y: Picture) -> NDArray[np.float32]:
    """`[H, W]` difference of the mean colours around each pixel, X made as soft as the decoded frame."""
    side = max(1, round(_PATCH * x.shape[0]))
    here, there = (cv2.blur(one, (side, side)) for one in (y, as_soft_as(y, x)))
    return np.asarray(np.abs(here - there).mean(-1), np.float32)


def _far(scenery: Scenery, settings: FailureSettings) -> float:
    return _mean_length(scenery) if scenery.explained >= settings.explained else 0.0


def _mean_length(scenery: Scenery) -> float:
    lengths = (np.linalg.norm(one, axis=-1) for one in scenery.moved_THW2)
    return _mean([length[static] for length, static in zip(lengths, scenery.static_THW, strict=True)])


def _mean_difference(first: Sequence[Picture], second: Sequence[Picture], where: Mask) -> float:
    return _mean([np.abs(a - b).mean(-1)[w] for a, b, w in zip(first, second, where, strict=True)])


def _mean(parts: Sequence[NDArray[np.generic]]) -> float:
    joined = np.concatenate([np.zeros(0), *parts])
    return float(joined.mean()) if len(joined) else 0.0
