"""The privacy filter: detect, associate, follow, blur, check. Fail-closed: what goes wrong comes back black."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import DetectorError
from ...pixels import Frames
from .association import Association, Found, associate
from .audit import contact_sheet
from .blur import blur
from .checks import Again, is_hidden, judge_again, judge_followed, look_again
from .detection import Finder
from .interface import Filtered
from .regions import Followed, Region, follow
from .settings import DetectionSettings, PrivacySettings


@dataclass(frozen=True)
class Seen:
    """What is known of one kind of identifier in a span."""

    kind: str
    found: Found
    known: Association
    followed: Followed

    def left(self, covered: NDArray[np.bool_]) -> list[int]:
        """Numbers of the boxes that were not sure enough to be blurred and lie in no blurred region, best first."""
        tracked = {row for rows in self.known.tracks for row in rows}
        rows = [k for k in range(len(self.found)) if k not in tracked]
        alone = [k for k in rows if not is_hidden(self.found.box_N4[k], covered[self.found.frame_N[k]])]
        return sorted(alone, key=lambda k: -self.found.score_N[k])


class Redaction:
    """Finds, follows and blurs every kind of identifier that it has a finder for."""

    def __init__(self, finders: Mapping[str, Finder], settings: PrivacySettings, statement: dict[str, str]) -> None:
        self._finders, self._settings, self._statement = dict(finders), settings, statement

    @property
    def statement(self) -> dict[str, str]:
        return dict(self._statement)

    def __reduce__(self) -> tuple[object, ...]:
        """Workers get the settings and open the models themselves."""
        from . import build

        return build, (self._settings,)

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        try:
            return self._filtered(frames, fps, audit)
        except Exception as error:  # whatever it was, these frames were not filtered
            return _withheld(frames, (f"privacy failed: {type(error).__name__}: {error}",))

    def _filtered(self, frames: Frames, fps: float, audit: bool) -> Filtered:
        found = {}
        for kind, finder in self._finders.items():
            try:
                answers = finder(frames)
                if len(answers) != len(frames):
                    raise DetectorError(f"it answered for {len(answers)} of {len(frames)} frames")
                found[kind] = Found.of(answers)
            except Exception as error:  # a detector of any make, with errors of any kind
                return _withheld(frames, (f"the {kind} detector failed: {type(error).__name__}: {error}",))
        for _ in range(self._settings.checks.repairs + 1):
            seen = [self.follow(kind, one, frames.shape, fps) for kind, one in found.items()]
            regions = [region for one in seen for region in one.followed.regions]
            blurred, covered = redacted(frames, regions, self._settings)
            again = {one.kind: self._look_again(one, blurred, covered) for one in seen}
            if not any(one.uncovered for one in again.values()):
                break
            found = {kind: one.plus(again[kind].uncovered) for kind, one in found.items()}
        failures = self._judged(seen)
        for kind, one in again.items():
            failures += judge_again(kind, one, self._settings.checks)
        counts = self._counts(seen, covered)
        sheet = contact_sheet(blurred, covered, seen, failures, self._settings) if audit else b""
        if failures:
            return _withheld(frames, tuple(failures), counts, sheet)
        return Filtered(blurred, (), counts, sheet)

    def follow(self, kind: str, found: Found, shape: Sequence[int], fps: float) -> Seen:
        """Boxes of one kind in frames of this shape `[T, H, W, 3]`, associated and followed."""
        settings = self._settings.tracking
        gap = round(fps * settings.gap_seconds)
        known = associate(found, shape[0], self._detection(kind).threshold, gap, settings)
        return Seen(kind, found, known, follow(found, known, (shape[1], shape[2]), shape[0], fps, settings))

    def _judged(self, seen: Sequence[Seen]) -> list[str]:
        return [
            words
            for one in seen
            for words in judge_followed(
                one.kind,
                one.found,
                one.known,
                one.followed.truncated,
                self._detection(one.kind).threshold,
                self._settings.checks,
            )
        ]

    def _look_again(self, one: Seen, blurred: Frames, covered: NDArray[np.bool_]) -> Again:
        looked = range(0, len(blurred), self._settings.checks.recheck_every)
        found = self._finders[one.kind](blurred[:: looked.step])
        return look_again(found, looked, covered, one.followed.regions, self._detection(one.kind).threshold)

    def _detection(self, kind: str) -> DetectionSettings:
        return self._settings.face_detection if kind == "face" else self._settings.plate_detection

    def _counts(self, seen: Sequence[Seen], covered: NDArray[np.bool_]) -> dict[str, int]:
        counts = {}
        for one in seen:
            counts[f"{one.kind}_tracks"] = len(one.known.tracks)
            counts[f"{one.kind}_boxes"] = sum(map(len, one.known.tracks))
            counts[f"{one.kind}_candidates"] = len(one.left(covered))
        origins = [region.origin for one in seen for region in one.followed.regions]
        counts["filled_boxes"], counts["extended_boxes"] = origins.count("filled"), origins.count("extended")
        return counts | {"blurred_pixels": int(np.count_nonzero(covered))}


class Off:
    """No privacy, as asked for."""

    statement: dict[str, str] = {"privacy": "off: faces and registration plates were left as they are"}  # noqa: RUF012

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered:
        return Filtered(frames)


def redacted(frames: Frames, regions: Sequence[Region], settings: PrivacySettings) -> tuple[Frames, NDArray[np.bool_]]:
    """The frames with the regions blurred, and which pixels that are, `[T, H, W]`."""
    boxes: list[list[NDArray[np.float64]]] = [[] for _ in frames]
    for region in regions:
        boxes[region.frame].append(region.box)
    blurred = frames.copy()
    covered = [blur(frame, here, settings.blur) for frame, here in zip(blurred, boxes, strict=True)]
    return blurred, np.stack(covered)


def _withheld(
    frames: Frames, failures: tuple[str, ...], counts: dict[str, int] | None = None, sheet: bytes = b""
) -> Filtered:
    """Black frames: a caller that overlooks the failures still writes nobody's face."""
    return Filtered(np.zeros_like(frames), failures, counts or {}, sheet)
