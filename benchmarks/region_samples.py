"""Windows that teach `fit_regions.py`: simulated ones with their truth, and street footage with a detector's boxes.

Simulated windows come straight from the simulator. Most are dense, some sparse; half are rendered at 256 pixels and
half at 128; two thirds are zoomed, blurred, brightened or darkened and made noisy, since footage is all of that.

Footage has no truth. What a detector is sure of stands in for it, boxes instead of masks; what it is unsure of counts
neither for nor against a part. Of every video the first window and the middle one are taken, the first also zoomed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from factorjepa.config import resolve
from factorjepa.corpus.windows import centre_square
from factorjepa.detectors.boxes import Detections, box_iou
from factorjepa.detectors.detector import Detector
from factorjepa.detectors.tiles import detect_tiled
from factorjepa.pixels import Frames, resize_to_cover
from factorjepa.seeding import stream
from factorjepa.teacher.annotations import MIN_VISIBLE
from factorjepa.teacher.parts import Parts
from factorjepa.teacher.proposals import mask_side
from factorjepa.teacher.quality import SAME
from factorjepa.teacher.settings import STREET_AGENTS, TeacherSettings
from factorjepa.teacher.unsupervised import WORKING_SIDE
from factorjepa.video import probe, read_frames
from factorjepa.world import WorldSettings, clips
from factorjepa.world.simulator import CLIPS_PER_SOURCE

SETTINGS = TeacherSettings()
SURE, UNSURE = 0.5, 0.2  # detector's scores of an agent to be found, and of one that may be
FEWEST = 0.5  # agents per frame below which a window of footage teaches nothing

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """The N parts of one frame against its truth."""

    iou: Doubles  # [N] with the asked-for agent nearest to it
    agent: NDArray[np.int64]  # [N] which that is
    on_other: NDArray[np.bool_]  # [N] on somebody who is not asked for: neither right nor wrong
    asked: int


@dataclass(frozen=True)
class Masks:
    """Agents of a simulated window are numbered from 1."""

    agents: NDArray[np.int64]  # [T, S, S] 0: nobody
    asked: list[NDArray[np.bool_]]  # [T][N + 1] large and visible enough to be asked for; nobody is not

    def verdict(self, t: int, parts: Parts) -> Verdict:
        asked, area = self.asked[t], parts.tree.area[parts.nodes, None]
        shared = parts.tree.shared(self.agents[t], len(asked))
        pixels, shared = shared[-1], shared[parts.nodes]
        iou = shared / np.maximum(area + pixels - shared, 1)
        excused = ~asked
        excused[0] = False
        on_other = ((iou >= SAME) | (shared / area >= SAME))[:, excused].any(axis=1)
        iou[:, ~asked] = 0
        return Verdict(iou.max(axis=1), iou.argmax(axis=1), on_other, int(asked.sum()))


@dataclass(frozen=True)
class Boxes:
    """What a detector says about every frame."""

    found: list[Detections]  # [T]

    def verdict(self, t: int, parts: Parts) -> Verdict:
        found, side = self.found[t], len(parts.tree.leaves)
        size = (found.boxes[:, 2:] - found.boxes[:, :2]).prod(axis=1)
        asked = (found.scores >= SURE) & (size >= SETTINGS.regions.min_area)
        maybe = (found.scores >= UNSURE) & ~asked
        boxes = parts.tree.box[parts.nodes] / side
        iou = box_iou(boxes, found.boxes)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)[:, None]
        share = iou * (area + size) / (1 + iou) / np.maximum(area, 1e-12)
        on_other = ((iou >= SAME) | (share >= SAME))[:, maybe].any(axis=1)
        right = np.concatenate([np.zeros((len(boxes), 1)), iou[:, asked]], axis=1)
        return Verdict(right.max(axis=1), right.argmax(axis=1), np.asarray(on_other), int(asked.sum()))


@dataclass(frozen=True)
class Job:
    """The address of one simulated window."""

    cities: tuple[str, ...]
    preset: str
    seed: int
    source: int
    size: int
    varied: bool


def jobs(cities: tuple[str, ...], seeds: int) -> list[Job]:
    """One window of every city and seed, most of them dense; every city comes in every kind."""
    return [
        Job(
            cities,
            preset="sparse" if seed % 4 == 3 else "dense",
            seed=1000 + seed,
            source=source,
            size=256 if (seed + source) % 2 else 128,
            varied=(2 * seed + source) % 3 > 0,
        )
        for seed, source in itertools.product(range(seeds), range(len(cities)))
    ]


def simulated(job: Job) -> tuple[Frames, Masks]:
    """Simulate a window and vary it."""
    times = np.arange(SETTINGS.frames) / SETTINGS.fps
    world = resolve(WorldSettings, job.preset, [f"size={job.size}", "seconds=[4, 4]", f"cities={list(job.cities)}"])
    clip = clips(world, job.seed, [job.source * CLIPS_PER_SOURCE], seconds=[4.0])[0]
    rng = stream(job.seed, "varied", job.source)
    left, top, side = zoom((job.size, job.size), 0.6, 1.0, rng) if job.varied else (0, 0, job.size)
    shown, agents, asked = [], [], []
    for frame, truth in clip.renderer.render(clip.trajectory, clip.camera, times, truth=True):
        assert truth is not None
        part = np.s_[top : top + side, left : left + side]
        shown.append(frame[part])
        instances = truth.instances[part].astype(np.int32)
        pixels = np.bincount(instances.ravel(), minlength=len(truth.seen) + 1)
        whole = np.array([1, *(np.count_nonzero(one.amodal) for one in truth.seen)])
        asked.append((pixels >= MIN_VISIBLE * whole) & (pixels >= SETTINGS.regions.min_area * side * side))
        asked[-1][0] = False
        grid = (working_side(shown[-1][None]),) * 2
        agents.append(cv2.resize(instances, grid, interpolation=cv2.INTER_NEAREST).astype(np.int64))
    frames = weathered(np.stack(shown), rng) if job.varied else np.stack(shown)
    return frames, Masks(np.stack(agents), asked)


def working_side(frames: Frames) -> int:
    """Pixels of the grid on which parts of these frames are made."""
    return min(mask_side(SETTINGS.regions, frames.shape[1]), WORKING_SIDE)


def zoom(size: tuple[int, int], least: float, most: float, rng: np.random.Generator) -> tuple[int, int, int]:
    """Left, top and side of a square part of a picture of width and height `size`."""
    side = round(min(size) * rng.uniform(least, most))
    left, top = (int(rng.integers(length - side + 1)) for length in size)
    return left, top, side


def weathered(frames: Frames, rng: np.random.Generator) -> Frames:
    """Out of focus, under another light and with the noise of a sensor."""
    focus = rng.uniform(0.3, 1.5) * frames.shape[1] / 256
    gamma, gain, noise = np.exp(rng.uniform(-0.4, 0.4)), rng.uniform(0.7, 1.2), rng.uniform(0, 6)
    blurred = np.stack([cv2.GaussianBlur(frame, (0, 0), focus) for frame in frames]).astype(np.float32)
    lit = 255 * gain * (blurred / 255) ** gamma
    return np.asarray((lit + noise * rng.normal(size=lit.shape)).clip(0, 255), dtype=np.uint8)


@dataclass(frozen=True)
class Excerpt:
    """The address of one window of footage."""

    path: Path
    start: float  # seconds
    zoomed: bool


def excerpts(folder: Path) -> list[Excerpt]:
    found = []
    for path in sorted(folder.iterdir()):
        last = probe(path).seconds - SETTINGS.frames / SETTINGS.fps - 0.05
        for start in (0.0, round(last / 2, 2)) if last > 0 else ():
            found += [Excerpt(path, start, zoomed) for zoomed in ((False,) if start else (False, True))]
    return found


def footage(one: Excerpt, detector: Path) -> tuple[Frames, Boxes] | None:
    """The frames of an excerpt and what the detector finds in them; None where that is next to nobody."""
    times = one.start + np.arange(SETTINGS.frames) / SETTINGS.fps
    frames = read_frames(one.path, times, one.path.stem)
    width, height = frames.shape[2], frames.shape[1]
    rng = stream("footage", one.path.name, str(one.start))
    left, top, side = zoom((width, height), 0.5, 0.8, rng) if one.zoomed else centre_square(width, height)
    size = min(side, SETTINGS.size)
    shown = resize_to_cover(np.ascontiguousarray(frames[:, top : top + side, left : left + side]), size, size)
    found = [detect_tiled(opened(detector), frame) for frame in shown]
    if np.mean([np.count_nonzero(here.scores >= SURE) for here in found]) < FEWEST:
        return None
    return shown, Boxes(found)


@functools.lru_cache(maxsize=1)
def opened(detector: Path) -> Detector:
    return Detector(detector, STREET_AGENTS)


def shares(groups: Sequence[str], right: Sequence[int]) -> Doubles:
    """Weights of windows such that every group's right parts weigh as much as any other's."""
    total = {group: sum(n for g, n in zip(groups, right, strict=True) if g == group) for group in set(groups)}
    return np.array([1 / max(total[group], 1) for group in groups])
