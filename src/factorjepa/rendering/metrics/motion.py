"""Flow EPE (appendix H): the motion from the last context frame to each future frame, observed and decoded.

The frozen estimator Phi_flow is the diagnostics' dense inverse-search flow (OpenCV's DIS), which never learns. Flow
lives on the pixels of the context frame and is told in sides of the picture, so that resolutions can be compared.

Legend: B clips, T future frames, H x W pixels, s pixels a side at which flow is computed.
"""

from __future__ import annotations

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...diagnostics.flow import camera_affine, flows
from ...diagnostics.settings import MotionSettings
from ...pixels import Frames
from ...teacher.scene_flow import scene_flow

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

FLOW_SIDE = MotionSettings().side
ESTIMATOR = f"DIS flow (OpenCV, preset medium) at {FLOW_SIDE} px"
MOVING = 0.01  # sides: less is within the estimator's noise


def to_bytes(frames_T3HW: Tensor) -> Frames:
    """`uint8 [T, H, W, 3]` of pictures in [0, 1]: what flow estimators, detectors and files take."""
    values = (frames_T3HW.detach().clamp(0, 1) * 255.0).round().to(torch.uint8)
    return values.movedim(-3, -1).cpu().contiguous().numpy()


def future_flow(context_B3HW: Tensor, future_BT3HW: Tensor, side: int = FLOW_SIDE) -> Floats:
    """eq. F* (of observed frames) and F-hat (of decoded ones): `[B, T, s, s, 2]`, x first.

    F* is the same for every method: keep it.
    """
    last_B, frames_B = to_bytes(context_B3HW), [to_bytes(one) for one in future_BT3HW]
    return np.stack(
        [
            np.stack([flows(np.stack([last, frame]), side)[0] for frame in frames])
            for last, frames in zip(last_B, frames_B, strict=True)
        ]
    )


def flow_epe(reference_BTss2: Floats, found_BTss2: Floats, region_BTHW: Mask | None = None) -> NDArray[np.float64]:
    """eq. EPE of every frame, `[B, T]` in sides; over a region of the context frame where one is given."""
    apart = np.linalg.norm(found_BTss2.astype(np.float64) - reference_BTss2, axis=-1)
    if region_BTHW is None:
        return np.asarray(apart.mean((-2, -1)))
    return _mean_inside(apart, flow_region(region_BTHW, apart.shape[-1]))


def departing(reference_BTss2: Floats) -> Mask:
    """`[B, T, s, s]` of the context frame's pixels, those that move on their own in the first step; alike for all T.

    One step: over a second, parallax and lost pixels look like motion of most of the picture.
    """
    first_B1ss = own_speed(reference_BTss2[:, :1]) >= MOVING
    return np.broadcast_to(first_B1ss, reference_BTss2.shape[:-1])


def moving(context_B3HW: Tensor, future_BT3HW: Tensor, side: int = FLOW_SIDE) -> Mask:
    """`[B, T, s, s]` of each future frame's pixels, those that have moved on their own since the frame before."""
    shown_B = (
        to_bytes(torch.cat([last[None], future])) for last, future in zip(context_B3HW, future_BT3HW, strict=True)
    )
    back_BTss2 = np.stack([flows(frames[::-1], side)[::-1] for frames in shown_B])
    return np.asarray(own_speed(back_BTss2) >= MOVING)


def own_speed(flow_BTss2: Floats) -> NDArray[np.float64]:
    """`[B, T, s, s]`, sides: how far each pixel goes beyond what the camera makes the scene do."""
    flat = flow_BTss2.reshape(-1, *flow_BTss2.shape[-3:])
    side = flat.shape[1]
    own = np.stack([one - scene_flow(one * side, camera_affine(one)) / side for one in flat])
    return np.asarray(np.linalg.norm(own.astype(np.float64), axis=-1).reshape(flow_BTss2.shape[:-1]))


def magnitude_ratio(
    reference_BTss2: Floats, found_BTss2: Floats, region_BTss: Mask | None = None
) -> NDArray[np.float64]:
    """Predicted-to-reference motion of `region_BTss`, else of what departs in the observed future, `[B, T]`.

    1: as far as observed; 0: stands still; NaN: nothing moves.
    """
    region = departing(reference_BTss2) if region_BTss is None else region_BTss
    there, here = (_mean_inside(own_speed(one), region) for one in (reference_BTss2, found_BTss2))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(there > 0, here / there, np.nan))


def flow_region(region_BTHW: Mask, side: int) -> Mask:
    """A region of the picture on the flow's grid, `[B, T, s, s]`: cells that it covers by half."""
    flat = region_BTHW.reshape(-1, *region_BTHW.shape[-2:]).astype(np.float32)
    how = cv2.INTER_AREA if flat.shape[1] > side else cv2.INTER_LINEAR
    resized = np.stack([cv2.resize(one, (side, side), interpolation=how) for one in flat]) >= 0.5
    return np.asarray(resized.reshape(*region_BTHW.shape[:2], side, side))


def _mean_inside(values: NDArray[np.float64], region: Mask) -> NDArray[np.float64]:
    """Over the last two axes; NaN where the region is empty."""
    pixels = region.sum((-2, -1))
    total = np.where(region, values, 0.0).sum((-2, -1))
    return np.asarray(np.where(pixels > 0, total / np.maximum(pixels, 1), np.nan))
