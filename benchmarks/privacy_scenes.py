"""Simulated faces and plates with known places, for bench_privacy.py.

Heads: where pedestrians of the simulated world have theirs, in a crowd with occlusion and a moving camera. No face
detector responds to the simulator's pedestrians, so heads go with a finder that knows the answer and forgets some of
it: they measure what association, filling and extension make of a detector's gaps.

Plates: drawn on drawn vehicles that pass by. Plate detectors respond to them, so they measure a real detector.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from factorjepa.config import resolve
from factorjepa.footage.privacy.detection import Boxes
from factorjepa.pixels import Frames
from factorjepa.world import WorldSettings, clip

_HEAD = (0.28, 0.0, 0.72, 0.16)  # of a standing person's box
_SEEN = 0.5  # of a head that must be visible to count
_SMALLEST = 6  # px
_INDIA = ((245, 245, 245), (240, 205, 40))  # private and commercial plates
_CHINA = ((0, 60, 200), (0, 150, 90))  # blue, and green of electric cars
_LENGTH, _HEIGHT = 3.4, 0.7  # of a vehicle: in widths of its plate, and of its own
_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"


@dataclass(frozen=True)
class Scene:
    """Frames `[T, H, W, 3]` and the true boxes of each."""

    frames: Frames
    fps: float
    true: list[NDArray[np.float64]]  # [T] of [M, 4], pixels


def heads(seed: int, size: int = 512) -> Scene:
    """Visible heads of pedestrians in one simulated clip."""
    made = clip(resolve(WorldSettings, "dense", [f"size={size}", "capture_modes={walk: 1}"]), seed, index=0)
    frames, truths = zip(*made.frames_with_truth(), strict=True)
    truth = made.annotate(list(truths))
    true = []
    for t in range(truth.frames):
        seen, here = truth.instances(t), []
        for row in truth.observations(t):
            if truth.agent_kinds[truth.agent[row]] != "pedestrian" or truth.truncated[row]:
                continue
            corner, sides = truth.box[row, :2], truth.box[row, 2:] - truth.box[row, :2]
            box = np.tile(corner, 2) + np.array(_HEAD) * np.tile(sides, 2)
            left, top, right, bottom = np.rint(box).astype(int)
            part = seen[top:bottom, left:right] == truth.agent[row] + 1
            if bottom - top >= _SMALLEST and part.size and part.mean() >= _SEEN:
                here.append(box)
        true.append(np.array(here, dtype=np.float64).reshape(-1, 4))
    return Scene(np.stack(frames), truth.fps, true)


@dataclass
class Forgetful:
    """A finder that knows the true boxes: it misses some at random, others for a while, and is off by a little."""

    true: list[NDArray[np.float64]]
    seed: int
    missed: float = 0.25  # of all boxes, at random
    lapses: float = 0.02  # chance per box and frame that its neighbourhood is not seen for a while
    lapse: int = 6  # frames
    faint: float = 0.25  # of the boxes found that score too low to stand alone
    jitter: float = 0.06  # of a box's side

    def __call__(self, frames: Frames) -> list[Boxes]:
        random = np.random.default_rng(self.seed)
        blind: list[tuple[int, NDArray[np.float64]]] = []  # until when, where
        found = []
        for t, boxes in enumerate(self.true):
            blind += [(t + self.lapse, box) for box in boxes[random.random(len(boxes)) < self.lapses]]
            blind = [(until, box) for until, box in blind if until > t]
            keep = random.random(len(boxes)) >= self.missed
            for _, box in blind:
                away = np.abs(boxes - box).reshape(-1, 2, 2).mean(axis=1)
                keep &= (away > (box[2:] - box[:2]) * 2).any(axis=1)
            here = boxes[keep]
            sides = np.tile(here[:, 2:] - here[:, :2], 2)
            scores = np.where(random.random(len(here)) < self.faint, 0.3, 0.8)
            found.append((here + random.normal(0, self.jitter, here.shape) * sides, scores))
        return found


def plates(seed: int, width: int, chinese: bool = True, seconds: float = 4.0, fps: float = 12.0) -> Scene:
    """Vehicles with plates of about `width` pixels that cross a street at their own speeds."""
    random = np.random.default_rng(seed)
    height, across, count = 540, 960, round(seconds * fps)
    street = cv2.GaussianBlur(random.integers(60, 180, (height, across, 3)).astype(np.uint8), (0, 0), 4)
    lanes = max(1, height // round(width * 1.15 * _LENGTH * _HEIGHT + 10))
    fleet = [_Vehicle.drawn(random, width, chinese, height * lane // lanes, across) for lane in range(min(lanes, 4))]
    frames, true = np.empty((count, height, across, 3), np.uint8), []
    for t in range(count):
        frames[t] = street
        boxes = [vehicle.put(frames[t], t / fps) for vehicle in fleet]
        frames[t] = np.clip(frames[t] + random.normal(0, 3, frames[t].shape), 0, 255)
        true.append(np.array([box for box in boxes if box is not None]).reshape(-1, 4))
    return Scene(frames, fps, true)


@dataclass(frozen=True)
class _Vehicle:
    picture: Frames
    plate: tuple[int, int, int, int]  # in the picture
    start: float
    speed: float  # px/s
    top: int

    @classmethod
    def drawn(cls, random: np.random.Generator, plate_width: int, chinese: bool, top: int, across: int) -> _Vehicle:
        plate_width = round(plate_width * random.uniform(0.85, 1.15))
        wide = round(plate_width * _LENGTH)
        high = round(wide * _HEIGHT)
        body = tuple(int(v) for v in random.integers(20, 220, 3))
        picture = np.full((high, wide, 3), body, np.uint8)
        cv2.rectangle(picture, (wide // 8, high // 12), (wide - wide // 8, high * 2 // 5), (35, 40, 50), -1)
        for x in (wide // 10, wide - wide // 10):
            cv2.circle(picture, (x, high // 2), max(2, wide // 18), (235, 230, 200), -1)
        plate_height = round(plate_width * 0.32)
        left, low = (wide - plate_width) // 2, round(high * 0.66)
        ground = (_CHINA if chinese else _INDIA)[int(random.integers(2))]
        ink = (255, 255, 255) if chinese else (15, 15, 15)
        cv2.rectangle(picture, (left, low), (left + plate_width, low + plate_height), ground, -1)
        cv2.rectangle(picture, (left, low), (left + plate_width, low + plate_height), ink, max(1, plate_width // 70))
        text = "".join(random.choice(list(_LETTERS), 2)) + "".join(str(d) for d in random.integers(0, 10, 5))
        scale = plate_width / (len(text) * 20)
        place = (left + round(plate_width * 0.06), low + round(plate_height * 0.75))
        cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, scale, ink, max(1, plate_width // 45), cv2.LINE_AA)
        box = (left, low, left + plate_width, low + plate_height)
        return cls(picture, box, random.uniform(-0.2, 0.6) * across, random.uniform(30, 160), top)

    def put(self, frame: Frames, when: float) -> NDArray[np.float64] | None:
        """Draw it where it is; the plate's box if half of it is in the picture."""
        x, y = round(self.start + self.speed * when), self.top
        high, wide = self.picture.shape[:2]
        left, right = max(0, x), min(frame.shape[1], x + wide)
        bottom = min(frame.shape[0], y + high)
        if left >= right:
            return None
        frame[y:bottom, left:right] = self.picture[: bottom - y, left - x : right - x]
        box = np.array(self.plate) + np.array([x, y, x, y], dtype=np.float64)
        inside = box.clip(0, [frame.shape[1], frame.shape[0]] * 2)
        visible = np.prod(inside[2:] - inside[:2]) / np.prod(box[2:] - box[:2])
        return inside if visible >= 0.5 else None
