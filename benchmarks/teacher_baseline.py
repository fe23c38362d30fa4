"""The plain alternative to the teacher: background subtraction, connected components, IoU tracking.

OpenCV's MOG2 sees every native frame of the video from its start. The stabilised variant sees these frames moved into
the coordinates of each window's middle frame, two seconds of run-up included: with a moving camera there is no
background without that. Its thresholds were chosen for the best F1 on three MOT17 sequences out of 36 settings.
Tracks are the optimal assignment on box IoU between consecutive frames of the window, with the teacher's own gap and
length rules.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from factorjepa.detectors.boxes import box_iou
from factorjepa.pixels import Frames
from factorjepa.teacher.camera import CameraMotion
from factorjepa.teacher.proposals import corners
from factorjepa.teacher.regions import Region, Tracklet, region_of
from factorjepa.teacher.settings import TrackSettings

_MIN_IOU = 0.2
_RUN_UP = 2.0  # seconds before a window that the stabilised variant sees
_NO_DESCRIPTOR = np.ones(1, np.float32)


def foreground(video: Frames) -> NDArray[np.uint8]:
    """MOG2's foreground of every frame, `[F, side, side]`, each after it saw all before."""
    subtractor = cv2.createBackgroundSubtractorMOG2(history=500, varThreshold=36, detectShadows=False)
    return np.stack([(subtractor.apply(frame) == 255).astype(np.uint8) for frame in video])


def stabilised_foreground(
    video: Frames, motion: CameraMotion, wanted: NDArray[np.int64], fps: float
) -> NDArray[np.uint8]:
    """The same on frames moved into the coordinates of the window's middle frame, and moved back."""
    side = video.shape[1]
    start = max(0, int(wanted[0] - _RUN_UP * fps))
    middle, end = int(wanted[len(wanted) // 2]), int(wanted[-1]) + 1
    to_middle = _into(motion, start, middle, end, side)
    moved = np.stack([cv2.warpAffine(video[n], to_middle[n], (side, side)) for n in range(start, end)]).astype(np.uint8)
    seen = np.ones((side, side), np.uint8)
    result = []
    for number, mask in zip(wanted.tolist(), foreground(moved)[wanted - start], strict=True):
        inside = cv2.warpAffine(seen, to_middle[number], (side, side), flags=cv2.INTER_NEAREST)
        mask = cv2.erode(inside, np.ones((5, 5), np.uint8)) * mask
        back = cv2.invertAffineTransform(to_middle[number])
        result.append(cv2.warpAffine(mask, back, (side, side), flags=cv2.INTER_NEAREST))
    return np.stack(result)


def _into(motion: CameraMotion, start: int, middle: int, end: int, side: int) -> dict[int, NDArray[np.float64]]:
    """Affine maps `[2, 3]` in pixels from each frame in `start:end` into frame `middle`."""
    steps = {n: np.vstack([motion.affine[n], [0, 0, 1]]).astype(np.float64) for n in range(start, end)}
    whole = {middle: np.eye(3)}
    for n in range(middle, start, -1):
        whole[n - 1] = whole[n] @ steps[n]
    for n in range(middle + 1, end):
        whole[n] = whole[n - 1] @ np.linalg.inv(steps[n])
    pixels = np.diag([side, side, 1.0])
    return {n: (pixels @ m @ np.linalg.inv(pixels))[:2] for n, m in whole.items()}


def components(mask: NDArray[np.uint8], min_area: float) -> list[Region]:
    """Connected foreground, freckles removed and holes closed, of at least `min_area` of the picture."""
    cleaned = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((2, 2), np.uint8))
    cleaned = cv2.morphologyEx(cleaned, cv2.MORPH_CLOSE, np.ones((11, 5), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(cleaned)
    large = [k for k in range(1, count) if stats[k, cv2.CC_STAT_AREA] >= min_area * mask.size]
    return [region_of(labels == k, _NO_DESCRIPTOR, 1.0) for k in large]


def iou_tracks(regions: list[list[Region]], settings: TrackSettings) -> tuple[Tracklet, ...]:
    """Hungarian on box IoU with each track's last box."""
    tracks: list[tuple[list[int], list[Region]]] = []
    for t, here in enumerate(regions):
        alive = [track for track in tracks if t - track[0][-1] - 1 <= settings.max_gap]
        iou = box_iou(corners([track[1][-1] for track in alive]).astype(float), corners(here).astype(float))
        rows, columns = linear_sum_assignment(np.where(iou >= _MIN_IOU, iou, 0.0), maximize=True)
        new = set(range(len(here)))
        for i, j in zip(rows, columns, strict=True):
            if iou[i, j] >= _MIN_IOU:
                alive[i][0].append(t)
                alive[i][1].append(here[j])
                new.discard(int(j))
        tracks += [([t], [here[j]]) for j in sorted(new)]
    return tuple(Tracklet(tuple(f), tuple(r)) for f, r in tracks if len(f) >= settings.min_length)
