"""The intervention generator `G_int`: which region of a clip is edited, and how. It never sees the teacher.

Regions are boxes around what moves by itself in the context, by optical flow alone; a box keeps its place through the
whole clip. Where ground truth is known, a region can also be an agent's true support, frame by frame. Edits:

- occlude: the region becomes the clip's mean colour;
- freeze: it shows the clip's first frame for ever;
- fill: it shows its own temporal median, in which what moves is gone;
- shift: its content stands beside its place, which is filled.

An edit of frame t reads frame t and the context, so that the context is edited the same whatever comes after it.

Shapes: T frames, H x W pixels.
"""

from __future__ import annotations

from typing import Literal, TypeVar, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from ..pixels import Frames
from .settings import InterventionSettings

EditKind = Literal["occlude", "freeze", "fill", "shift"]
EDITS: tuple[EditKind, ...] = get_args(EditKind)
Box = tuple[float, float, float, float]  # left, top, right, bottom in [0, 1]
Masks = NDArray[np.bool_]  # [T, H, W]
Pixels = TypeVar("Pixels", Frames, Masks)

_BLUR = 0.05  # sides: what moves is looked for at this scale


def salient_boxes(motion_Kss2: NDArray[np.float32], settings: InterventionSettings) -> list[Box]:
    """Boxes around what moves most, the strongest first, at most `regions`; none where nothing moves.

    `motion` is flow without the camera's, in sides per frame, of the context.
    """
    speed = np.hypot(motion_Kss2[..., 0], motion_Kss2[..., 1]).mean(0)
    side = len(speed)
    speed = cv2.GaussianBlur(speed, (0, 0), _BLUR * side, borderType=cv2.BORDER_REFLECT)
    boxes: list[Box] = []
    while len(boxes) < settings.regions and (peak := float(speed.max())) >= settings.least_motion:
        top, left = np.unravel_index(int(speed.argmax()), speed.shape)
        _, labels = cv2.connectedComponents((speed >= 0.5 * peak).astype(np.uint8))
        rows, columns = np.nonzero(labels == labels[top, left])
        box = _sized(columns, rows, side, settings)
        boxes.append(box)
        x0, y0, x1, y1 = (round(edge * side) for edge in box)
        speed[y0:y1, x0:x1] = 0.0
    return boxes


def box_masks(box: Box, frames: int, height: int, width: int) -> Masks:
    """A box as a tube through all frames."""
    masks = np.zeros((frames, height, width), bool)
    left, right = (round(edge * width) for edge in (box[0], box[2]))
    top, bottom = (round(edge * height) for edge in (box[1], box[3]))
    masks[:, top:bottom, left:right] = True
    return masks


def edit(frames: Frames, masks: Masks, kind: EditKind, context: int, shift: float) -> tuple[Frames, Masks]:
    """The edited clip, and which pixels the edit is about."""
    if kind == "occlude":
        colour = frames[:context].reshape(-1, 3).mean(0)
        return np.where(masks[..., None], np.rint(colour).astype(np.uint8), frames), masks
    if kind == "freeze":
        return np.where(masks[..., None], frames[:1], frames), masks
    background = _background(frames[:context], masks)
    filled = np.where(masks[..., None], background, frames)
    if kind == "fill":
        return filled, masks
    by = _room(masks[:context], max(1, round(shift * frames.shape[2])))
    moved, content = _shifted(masks, by), _shifted(frames, by)
    return np.where(moved[..., None], content, filled), masks | moved


def _sized(columns: NDArray[np.intp], rows: NDArray[np.intp], side: int, settings: InterventionSettings) -> Box:
    """The bounding box of these pixels, no smaller and no larger than allowed, inside the picture."""
    edges = []
    for places in (columns, rows):
        low, high = places.min() / side, (places.max() + 1) / side
        length = float(np.clip(high - low, settings.least_side, settings.largest_side))
        start = float(np.clip((low + high - length) / 2, 0.0, 1.0 - length))
        edges.append((start, start + length))
    (left, right), (top, bottom) = edges
    return left, top, right, bottom


def _background(frames: Frames, masks: Masks) -> Frames:
    """`[H, W, 3]` temporal median of the context frames that show a pixel outside the region, or of all if none does.

    Of the picture where the region ever lies (`masks` of the whole clip); the rest is the first frame.
    """
    touched = masks.any(0)
    background: Frames = frames[0].copy()
    pixels = frames[:, touched].astype(np.float32)  # [T, n, 3]
    inside = masks[: len(frames), touched]
    seen = np.where((inside & ~inside.all(0))[..., None], np.nan, pixels)
    background[touched] = np.rint(np.nanmedian(seen, axis=0)).astype(np.uint8)
    return background


def _room(masks: Masks, by: int) -> int:
    """The shift to the side where more of the picture is left."""
    columns = np.flatnonzero(masks.any((0, 1)))
    return by if columns.size and columns.min() + columns.max() < masks.shape[2] else -by


def _shifted(frames: Pixels, by: int) -> Pixels:
    """`[T, H, W, ...]` moved sideways; what would come in from outside is empty."""
    moved = np.zeros_like(frames)
    if by > 0:
        moved[:, :, by:] = frames[:, :, :-by]
    else:
        moved[:, :, :by] = frames[:, :, -by:]
    return moved
