"""Windows with ground truth for `bench_teacher.py`: simulated audit clips and MOT17 sequences, 16 frames at 4 fps.

Windows follow one another without overlap and are measured separately, as the teacher sees them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from factorjepa.corpus.access import Corpus
from factorjepa.corpus.windows import WindowSpec, centre_square
from factorjepa.pixels import Frames, resize_to_cover
from factorjepa.storage import write_atomic
from factorjepa.teacher.annotations import MotBoxes, TrueFrame, mot_frames, simulated_frames, true_interactions
from factorjepa.teacher.camera import CameraMotion, camera_motion
from factorjepa.teacher.features import FrameFeatures
from factorjepa.teacher.proposals import mask_side
from factorjepa.teacher.regions import Floats
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.video import VideoSource, frame_index, probe, read_frames
from factorjepa.world import ClipTruth
from teacher_baseline import foreground

SPEC = WindowSpec()


@dataclass(frozen=True)
class Window:
    """One window to be judged, and the whole video around it for methods that learn a background."""

    name: str
    group: str  # simulated or real
    frames: Frames  # [T, S, S, 3]
    times: NDArray[np.float64]  # [T] seconds of the video
    true: list[TrueFrame]
    edges: set[frozenset[int]] | None  # interacting pairs; None where nobody knows
    truth: ClipTruth | None
    video: Video


class Video:
    """Every native frame's centre square at the mask grid's size, decoded when first asked for."""

    def __init__(self, source: VideoSource, name: str, side: int) -> None:
        self._source, self._name, self._side = source, name, side
        self.info = probe(source, name)

    @functools.cached_property
    def frames(self) -> Frames:
        times = np.arange(int(self.info.seconds * self.info.fps + 1e-6)) / self.info.fps
        parts = [read_frames(self._source, part, self._name) for part in np.array_split(times, -(-len(times) // 60))]
        return np.concatenate([resize_to_cover(part, self._side, self._side) for part in parts])

    @functools.cached_property
    def motion(self) -> CameraMotion:
        return camera_motion(self.frames)

    @functools.cached_property
    def foreground(self) -> NDArray[np.uint8]:
        return foreground(self.frames)

    def numbers(self, times: NDArray[np.float64]) -> NDArray[np.int64]:
        return frame_index(times, self.info.fps)

    def window(self, times: NDArray[np.float64], size: int) -> Frames:
        square = min(self.info.width, self.info.height, size)
        return resize_to_cover(read_frames(self._source, times, self._name), square, square)

    def starts(self) -> NDArray[np.float64]:
        return np.asarray(np.arange(int((self.info.seconds + 1e-6) / SPEC.seconds)) * SPEC.seconds, dtype=np.float64)


def _times(start: float) -> NDArray[np.float64]:
    return np.asarray(start + np.arange(SPEC.frames) / SPEC.fps)


def simulated_windows(folder: Path, settings: TeacherSettings, every: int) -> Iterator[Window]:
    """Windows of the audit clips of a simulated corpus: the only ones whose ground truth may be looked at."""
    audit = Corpus.open(folder).audit()
    chosen = [(clip, start) for clip in audit for start in range(int((clip.seconds + 1e-6) / SPEC.seconds))][::every]
    for clip, number in chosen:
        truth = ClipTruth.from_bytes(audit.truth(clip), clip.clip_id)
        side = mask_side(settings.regions, truth.size)
        times = _times(number * SPEC.seconds)
        video = Video(audit.video(clip), clip.clip_id, side)
        true = simulated_frames(truth, times, side, settings.regions.min_area)
        edges = true_interactions(truth, times[0], times[0] + SPEC.seconds)
        frames = video.window(times, settings.features.size)
        yield Window(f"{clip.clip_id}@{number}", "simulated", frames, times, true, edges, truth, video)


def mot_windows(folder: Path, settings: TeacherSettings, every: int) -> Iterator[Window]:
    """Windows of every `NAME.mp4` that has a `NAME_gt.txt` beside it."""
    videos = [path for path in sorted(folder.glob("*.mp4")) if path.with_name(f"{path.stem}_gt.txt").is_file()]
    if not videos:
        raise SystemExit(f"{folder}: has no NAME.mp4 with a NAME_gt.txt beside it")
    count = 0
    for path in videos:
        info = probe(path)
        side = mask_side(settings.regions, min(info.width, info.height))
        video = Video(path, path.stem, side)
        boxes = MotBoxes.read(path.with_name(f"{path.stem}_gt.txt"), info.width)
        square = centre_square(info.width, info.height)
        for start in video.starts():
            count += 1
            if (count - 1) % every:
                continue
            times = _times(start)
            true = mot_frames(boxes, times, info.fps, square, settings.regions.min_area)
            frames = video.window(times, settings.features.size)
            yield Window(f"{path.stem}@{start:g}", "real", frames, times, true, None, None, video)


class CachedFeatures:
    """Features kept in a folder by what made them and by the frames' bytes: tuning need not wait for a network."""

    def __init__(self, features: FrameFeatures, folder: Path | None) -> None:
        self._features, self._folder = features, folder
        self.name, self.width = features.name, features.width

    def __call__(self, frames: Frames) -> Floats:
        if self._folder is None:
            return self._features(frames)
        digest = hashlib.blake2b(self.name.encode() + np.ascontiguousarray(frames).tobytes(), digest_size=16)
        path = self._folder / f"{digest.hexdigest()}.npy"
        if not path.is_file():
            found = self._features(frames).astype(np.float16)

            def write(temporary: Path) -> None:
                with open(temporary, "wb") as file:
                    np.save(file, found)

            write_atomic(path, write)
        kept: Floats = np.load(path).astype(np.float32)  # half precision, whether it was here before or not
        return np.asarray(kept / np.maximum(np.linalg.norm(kept, axis=-1, keepdims=True), 1e-12))
