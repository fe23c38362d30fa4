"""Evidence for the tests: by hand, at random, and from the simulator's ground truth."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from factorjepa.teacher.regions import Evidence, Region, Tracklet, region_of
from factorjepa.world import ClipTruth

IDENTITY = np.eye(2, 3, dtype=np.float32)


def still_camera(frames: int) -> NDArray[np.float32]:
    return np.tile(IDENTITY, (frames, 1, 1))


def plain_features(frames: int, grid: int = 8, width: int = 12, seed: int = 0) -> NDArray[np.float32]:
    """The same random features in every frame: a static scene."""
    one = np.random.default_rng(seed).standard_normal((grid, grid, width))
    one /= np.linalg.norm(one, axis=-1, keepdims=True)
    return np.tile(one.astype(np.float32), (frames, 1, 1, 1))


def rectangle(
    left: int, top: int, width: int, height: int, side: int, kind: int = 0, confidence: float = 0.9
) -> Region:
    """A rectangle cut to the picture; `kind` decides its descriptor."""
    whole = np.zeros((side, side), bool)
    whole[max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)] = True
    descriptor = np.random.default_rng(kind).standard_normal(12).astype(np.float32)
    return region_of(whole, descriptor / np.linalg.norm(descriptor), confidence)


def evidence_of(
    tracklets: Sequence[Tracklet], frames: int = 16, side: int = 64, context: int = 12, **changes: object
) -> Evidence:
    regions = tuple(
        tuple(region for one in tracklets for at, region in zip(one.frames, one.regions, strict=True) if at == frame)
        for frame in range(frames)
    )
    values = {"features": plain_features(frames), "camera": still_camera(frames)} | changes
    return Evidence(regions=regions, tracklets=tuple(tracklets), side=side, context=context, **values)  # type: ignore[arg-type]


def random_evidence(
    seed: int, agents: int = 5, frames: int = 16, side: int = 64, context: int = 12, moving_camera: bool = True
) -> Evidence:
    """Ragged blobs that come, go, hide and touch the border; features without order; a camera that sways."""
    random = np.random.default_rng(seed)
    tracklets = []
    for _ in range(agents):
        start = int(random.integers(0, max(1, frames - 3)))
        seen = [t for t in range(start, frames) if random.random() < 0.8] or [start]
        x, y = random.uniform(0, side - 6, 2)
        dx, dy = random.uniform(-3, 3, 2)
        width, height = random.integers(3, side // 3, 2)
        regions = []
        for t in seen:
            left = int(np.clip(x + dx * (t - start), 1 - width, side - 1))
            top = int(np.clip(y + dy * (t - start), 1 - height, side - 1))
            whole = rectangle(left, top, int(width), int(height), side).full_mask(side)
            ragged = whole & (random.random((side, side)) < 0.7)
            descriptor = random.standard_normal(12).astype(np.float32)
            mask = ragged if ragged.any() else whole
            regions.append(region_of(mask, descriptor / np.linalg.norm(descriptor), float(random.uniform(0.5, 1))))
        tracklets.append(Tracklet(tuple(seen), tuple(regions)))
    tracklets.sort(key=lambda one: one.frames[0])
    features = random.standard_normal((frames, 8, 8, 12)).astype(np.float32)
    features /= np.linalg.norm(features, axis=-1, keepdims=True)
    camera = still_camera(frames)
    if moving_camera:
        camera[1:] += random.normal(0, 0.01, (frames - 1, 2, 3)).astype(np.float32)
    return evidence_of(tracklets, frames, side, context, features=features, camera=camera)


def true_evidence(
    truth: ClipTruth, numbers: Sequence[int], frames: NDArray[np.uint8], context: int = 12, grid: int = 16
) -> tuple[Evidence, list[list[float]]]:
    """What a flawless teacher would see in the frames `numbers` (shown in `frames`), and the true visible share of
    each region of each tracklet. Features are mean colours."""
    side = truth.size
    kept: dict[int, list[tuple[int, Region, float]]] = {}
    colours = [
        cv2.resize(frame, (grid, grid), interpolation=cv2.INTER_AREA).astype(np.float32) - 110 for frame in frames
    ]
    features = np.stack(colours)
    features /= np.maximum(np.linalg.norm(features, axis=-1, keepdims=True), 1e-6)
    for t, number in enumerate(numbers):
        instances = truth.instances(number)
        for row in truth.observations(number):
            if truth.visible_pixels[row] < 0.001 * side**2:
                continue
            mask = instances == truth.agent[row] + 1
            colour = frames[t][mask].mean(0).astype(np.float32) - 110
            region = region_of(mask, colour / max(float(np.linalg.norm(colour)), 1e-6), 1.0)
            kept.setdefault(int(truth.agent[row]), []).append((t, region, float(truth.visible_fraction[row])))
    chosen = sorted((rows for rows in kept.values() if len(rows) >= 3), key=lambda rows: rows[0][0])
    tracklets = [Tracklet(tuple(t for t, _, _ in rows), tuple(r for _, r, _ in rows)) for rows in chosen]
    found = evidence_of(tracklets, len(numbers), side, context, features=features)
    return found, [[share for _, _, share in rows] for rows in chosen]
