"""Automated checks of a span: whether what was found was followed, and whether what was blurred stays hidden.

Thresholds are declared in `CheckSettings`. A failed check is a sentence; one is enough to leave the span out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...words import counted
from .association import Association, Found
from .detection import Boxes
from .regions import Region
from .settings import CheckSettings

_HIDDEN = 0.5  # of a box that must be blurred for it to count as found again rather than as missed


@dataclass(frozen=True)
class Again:
    """What a detector finds in frames that were blurred."""

    blurred: int  # regions in the frames that were looked at
    redetected: int  # boxes found again where they were blurred
    uncovered: list[tuple[int, NDArray[np.float64], float]]  # frame, box and score where nothing was blurred


def judge_followed(
    kind: str,
    found: Found,
    known: Association,
    truncated: Sequence[int],
    threshold: float,
    settings: CheckSettings,
) -> Iterator[str]:
    """Track discontinuities, unmatched detections and truncation at the border, in words."""
    broken = sum(_is_broken(found, a, b, settings) for a, b in known.links)
    if _too_many(broken, len(known.links), settings.max_broken, settings.few):
        yield (
            f"{kind} tracks are discontinuous: {broken} of {counted(len(known.links), 'step')} "
            f"move by more than {settings.max_jump:g} sides a frame or grow by more than {settings.max_growth:g} times "
            f"(checks.max_broken {settings.max_broken:g})"
        )
    sure = int((found.score_N >= threshold).sum())
    alone = sum(len(rows) == 1 for rows in known.tracks)
    if _too_many(alone, sure, settings.max_unmatched, settings.few):
        yield (
            f"{kind} detections are unmatched: {alone} of {sure} belong to no track "
            f"(checks.max_unmatched {settings.max_unmatched:g})"
        )
    if len(truncated) > settings.max_truncated * len(known.tracks):
        yield (
            f"{kind} tracks are truncated: {len(truncated)} of {counted(len(known.tracks), 'track')} lost at the "
            f"picture's border and not seen to leave it (checks.max_truncated {settings.max_truncated:g})"
        )


def judge_again(kind: str, again: Again, settings: CheckSettings) -> Iterator[str]:
    """What is found after blurring, in words."""
    if again.redetected > settings.max_redetected * again.blurred:
        yield (
            f"{kind}s are still found after blurring: {again.redetected} in {counted(again.blurred, 'region')} "
            f"(checks.max_redetected {settings.max_redetected:g})"
        )
    if len(again.uncovered) > settings.max_uncovered:
        yield (
            f"{kind}s are found after blurring where nothing was blurred: "
            f"{counted(len(again.uncovered), 'box', 'boxes')} (checks.max_uncovered {settings.max_uncovered})"
        )


def look_again(
    found: Sequence[Boxes],
    frames: Sequence[int],
    covered: NDArray[np.bool_],
    regions: Sequence[Region],
    threshold: float,
) -> Again:
    """Compare boxes found in blurred `frames` with the pixels `[T, H, W]` that were blurred there."""
    looked: dict[int, list[Region]] = {t: [] for t in frames}
    for region in regions:
        if region.frame in looked:
            looked[region.frame].append(region)
    redetected = 0
    uncovered = []
    for t, (boxes, scores) in zip(frames, found, strict=True):
        for box, score in zip(boxes[scores >= threshold], scores[scores >= threshold], strict=True):
            # Several blurred faces together may look like one large face: a box around a blurred one is about the blur.
            about_blur = any(_has_centre(region.box, box) or _has_centre(box, region.box) for region in looked[t])
            redetected += about_blur
            # And a blurred face may look like a plate to a detector of plates: nobody's plate is seen there.
            if not (about_blur or is_hidden(box, covered[t])):
                uncovered.append((t, box, float(score)))
    return Again(sum(map(len, looked.values())), redetected, uncovered)


def is_hidden(box: NDArray[np.float64], mask: NDArray[np.bool_]) -> bool:
    """Whether most of a box lies in the pixels that were blurred."""
    left, top = np.floor(box[:2]).clip(0).astype(int)
    right, bottom = np.ceil(box[2:]).astype(int)
    return bool(mask[top:bottom, left:right].mean() >= _HIDDEN)


def _has_centre(outer: NDArray[np.float64], box: NDArray[np.float64]) -> bool:
    centre = (box[:2] + box[2:]) / 2
    return bool((outer[:2] <= centre).all() and (centre <= outer[2:]).all())


def _is_broken(found: Found, a: int, b: int, settings: CheckSettings) -> bool:
    first, second = found.box_N4[a], found.box_N4[b]
    sides = np.array([first[2:] - first[:2], second[2:] - second[:2]])
    way = np.linalg.norm(first[:2] + first[2:] - second[:2] - second[2:]) / 2
    jump = way / (sides.mean() * (found.frame_N[b] - found.frame_N[a]))
    growth = sides.max() / max(float(sides.max(axis=1).min()), 1e-9)
    return bool(jump > settings.max_jump or growth > settings.max_growth)


def _too_many(part: int, whole: int, share: float, few: int) -> bool:
    return whole >= few and part > share * whole
