"""Which boxes of a span are the same face or plate: ByteTrack, forwards and backwards in time.

A box in [low, threshold) counts only if ByteTrack's second matching joins it to a track: so a face that turns away
stays blurred, and a lamp that looks a little like one does not become a track. A pass in one direction finds a face
late where it is faint at first; the pass in the other direction comes to that moment with a track in hand. What two
passes found is kept as links between boxes, so that neither has to be right about identities everywhere.

N: boxes of a span, in the order of their frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from .settings import TrackingSettings

Link = tuple[int, int]  # numbers of two boxes of one track, the earlier first, with none of the track between them

_NOMINAL_RATE = 30.0  # frames/s that ByteTrack's buffer is stated for: at this rate it counts frames


@dataclass(frozen=True)
class Found:
    """Boxes of one kind in a span, those too faint to stand alone included."""

    frame_N: NDArray[np.int64]
    box_N4: NDArray[np.float64]  # left, top, right, bottom in pixels
    score_N: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.frame_N)

    @classmethod
    def of(cls, frames: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Found:
        """From boxes `[M, 4]` and scores `[M]` of each frame."""
        counts = [len(scores) for _, scores in frames]
        return cls(
            np.repeat(np.arange(len(frames)), counts),
            np.concatenate([np.zeros((0, 4)), *(boxes for boxes, _ in frames)]),
            np.concatenate([np.zeros(0), *(scores for _, scores in frames)]),
        )

    def plus(self, more: Sequence[tuple[int, NDArray[np.float64], float]]) -> Found:
        """With further boxes: frame, box and score of each."""
        frames = np.concatenate([self.frame_N, np.array([t for t, _, _ in more], dtype=np.int64)])
        order = np.argsort(frames, kind="stable")
        boxes = np.concatenate([self.box_N4, *(box[None] for _, box, _ in more)])
        scores = np.concatenate([self.score_N, [score for _, _, score in more]])
        return Found(frames[order], boxes[order], scores[order])


@dataclass(frozen=True)
class Association:
    """Links of both directions, and the tracks that they make."""

    links: set[Link]  # for filling gaps: all that either direction found
    tracks: list[list[int]]  # boxes in the order of time, at most one a frame; every sure box is in one of them


def associate(found: Found, frames: int, threshold: float, gap: int, settings: TrackingSettings) -> Association:
    """Which boxes belong together; between two linked ones at most `gap` frames have none."""
    rows = [np.flatnonzero(found.frame_N == t) for t in range(frames)]
    forwards = _one_way(found, rows, threshold, gap, settings)
    backwards = {(a, b) for b, a in _one_way(found, rows[::-1], threshold, gap, settings)}
    # Where the directions disagree about who went where, both ways are filled in, and the forward one names the track.
    after = dict(sorted(forwards))
    taken = set(after.values())
    for a, b in sorted(backwards - forwards):
        if a not in after and b not in taken:
            after[a] = b
            taken.add(b)
    links = forwards | backwards
    kept = {row for link in links for row in link} | set(np.flatnonzero(found.score_N >= threshold).tolist())
    return Association(links, _chains(after, kept))


def _chains(after: dict[int, int], kept: set[int]) -> list[list[int]]:
    """Boxes one after the other, from each that follows none."""
    chains = []
    for first in sorted(kept - set(after.values())):
        chain = [first]
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        chains.append(chain)
    return chains


def _one_way(
    found: Found, rows: Sequence[NDArray[np.int64]], threshold: float, gap: int, settings: TrackingSettings
) -> set[Link]:
    """Pairs of successive boxes of each track, frames taken in the order of `rows`."""
    supervision, tracker_class = _packages()
    tracker = tracker_class(
        lost_track_buffer=gap + 1,
        frame_rate=_NOMINAL_RATE,
        track_activation_threshold=threshold,
        high_conf_det_threshold=threshold,
        minimum_consecutive_frames=1,
        minimum_iou_threshold=settings.min_iou,
    )
    sides_N4 = np.tile(found.box_N4[:, 2:] - found.box_N4[:, :2], 2)
    shown_N4 = (found.box_N4 + settings.reach * sides_N4 * (-1, -1, 1, 1)).astype(np.float32)
    links: set[Link] = set()
    last: dict[int, int] = {}
    born = 0
    for here in rows:
        given = supervision.Detections(xyxy=shown_N4[here], confidence=found.score_N[here], data={"row": here})
        told = tracker.update(given) if len(here) or tracker.tracks else given
        # Without tracks the tracker hands back what it was given, unnamed; without boxes, no rows to name.
        ids = {} if told.tracker_id is None else dict(zip(told.data.get("row", ()), told.tracker_id, strict=True))
        # ByteTrack names a track at its second box. The first is found by its place, and named at once.
        for track in tracker.tracks:
            if track.tracker_id == -1:
                born += 1
                track.tracker_id = born
                nameless = [row for row, number in ids.items() if number == -1]
                away = np.abs(shown_N4[nameless] - track.get_state_bbox()).sum(axis=1)
                ids[nameless[int(away.argmin())]] = born
        for row, number in ids.items():
            if number != -1:
                if number in last:
                    links.add((last[number], int(row)))
                last[number] = int(row)
    return links


def require_bytetrack() -> None:
    """An error that says what to install, before any footage is read."""
    _packages()


def _packages() -> tuple[Any, Any]:
    try:
        import supervision
        from trackers import ByteTrackTracker
    except ImportError:
        raise ConfigError(
            "privacy follows faces and plates with ByteTrack (trackers); install it with "
            "pip install 'factorjepa[privacy]'"
        ) from None
    return supervision, ByteTrackTracker
