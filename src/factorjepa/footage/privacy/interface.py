"""What ingest asks of privacy: frames of one shot go in, the same frames with every found identifier blurred come out.

Or a reason to leave the shot out.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Frames = NDArray[np.uint8]  # T x H x W x 3, RGB


@dataclass(frozen=True)
class Filtered:
    """A span of one shot after privacy: what may be kept, and what was done."""

    frames: Frames  # blurred; same shape as what went in
    failures: tuple[str, ...] = ()  # failed automated checks, in words; any one excludes the span
    counts: dict[str, int] = field(default_factory=dict)  # face_tracks, face_boxes, plate_tracks, blurred_pixels, ...
    audit: bytes = b""  # PNG contact sheet of what was and was not blurred, when asked for


class PrivacyFilter(Protocol):
    @property
    def statement(self) -> dict[str, str]:
        """For the data card and the corpus: detectors with their file hashes and licences, thresholds, or 'off'.

        Its hash is part of a clip's identity.
        """

    def __call__(self, frames: Frames, fps: float, *, audit: bool = False) -> Filtered: ...
