"""Shot boundaries: PySceneDetect's AdaptiveDetector, fed with the frames that we decode anyway.

The detector sees every frame of the source, made small exactly as in PySceneDetect's own loop: near-grey pixels have a
hue of their own accord, so a smoother way to make them small changes the scores, and the thresholds would not be the
paper's any more. It answers late: a boundary is known `window_width` frames after it.
"""

from __future__ import annotations

from typing import Any

import av
import cv2
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray
from scenedetect import AdaptiveDetector, FrameTimecode

from .settings import ShotSettings

_SIDE = 256  # pixels of the longer side, PySceneDetect's default; smaller frames stay as they are
_RATE = 25.0  # only numbers of frames are compared; a timecode cannot do without a rate


class ShotDetector:
    """Feed frames in order; get the numbers of the frames with which a shot begins."""

    def __init__(self, settings: ShotSettings) -> None:
        self._settings = settings
        self._converter = VideoReformatter()
        self._begin_anew()

    def feed(self, index: int, frame: av.VideoFrame, broken: bool = False) -> list[int]:
        """Boundaries found with this frame: at it where frames are missing before it, else some frames ago."""
        begun = []
        if broken:
            self._begin_anew()  # what lies on either side of a gap is not to be compared
            begun.append(index)
        small: NDArray[Any] = self._converter.reformat(frame, format="bgr24", threads=1).to_ndarray()
        factor = max(frame.width, frame.height) / _SIDE
        if factor > 1:
            size = max(1, round(frame.width / factor)), max(1, round(frame.height / factor))
            small = cv2.resize(small, size, interpolation=cv2.INTER_LINEAR)
        found = self._detector.process_frame(FrameTimecode(index, _RATE), small)
        return begun + [cut.frame_num for cut in found]

    def _begin_anew(self) -> None:
        self._detector = AdaptiveDetector(
            adaptive_threshold=self._settings.adaptive_threshold,
            min_scene_len=self._settings.min_scene_len,
            window_width=self._settings.window_width,
            min_content_val=self._settings.min_content_val,
        )
