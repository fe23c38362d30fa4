"""Privacy measured: how many faces and plates are hidden, before and after association; what is found again; how fast.

Real video has no truth here. For each face detector, the boxes that the *other* detectors given are sure of stand in
for it: a face that all of them miss is in nobody's count, and one that they imagine is in everybody's. An identifier is
hidden if 80 % of its box is blurred. With three detectors and more, each two of them are judged together as well, by
those that are left; all are also judged by what all of them together are sure of. Simulated heads and plates have known
places (privacy_scenes.py). Some real plates were marked by eye (plates_by_eye.json).

    python benchmarks/bench_privacy.py --faces scrfd.onnx yunet.onnx centerface.onnx --video street.mp4
    python benchmarks/bench_privacy.py --plates plates.onnx
    python benchmarks/bench_privacy.py --plates plates.onnx --marked intel_car-detection.mp4 --seeds 0
    python benchmarks/bench_privacy.py                       # known answers only, no model needed
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from factorjepa.config import resolve
from factorjepa.detectors.boxes import Detections, box_iou, suppressed
from factorjepa.footage.privacy.association import Found
from factorjepa.footage.privacy.detection import Boxes, Finder, OnnxFinder, Together
from factorjepa.footage.privacy.filter import Redaction, redacted
from factorjepa.footage.privacy.regions import Region
from factorjepa.footage.privacy.settings import PrivacySettings
from factorjepa.pixels import Frames
from factorjepa.video import probe, read_frames
from privacy_scenes import Forgetful, Scene, heads, plates

Answer = TypeVar("Answer")

HIDDEN = 0.8  # of a box that must be blurred
SURE = 0.6  # score of the other detectors' boxes that stand in for truth
SMALLEST = 12  # px: lower boxes are no truth, nobody can be known by them
FPS = 12.0  # as ingest cuts clips


def hidden(true: Sequence[NDArray[np.float64]], covered: NDArray[np.bool_]) -> tuple[int, int]:
    """How many boxes are hidden, of how many."""
    hits = total = 0
    for boxes, mask in zip(true, covered, strict=True):
        for box in boxes:
            left, top = np.floor(box[:2]).clip(0).astype(int)
            right, bottom = np.ceil(box[2:]).astype(int)
            part = mask[top:bottom, left:right]
            total += part.size > 0
            hits += part.size > 0 and part.mean() >= HIDDEN
    return hits, total


def alone(found: Found, threshold: float) -> list[Region]:
    """Every sure box in its own frame, as if nothing were known of time."""
    rows = np.flatnonzero(found.score_N >= threshold)
    return [Region(int(found.frame_N[k]), found.box_N4[k], 0, "seen") for k in rows]


def sure_boxes(answers: Iterable[list[Boxes]], frames: int) -> list[NDArray[np.float64]]:
    """Union of several detectors' sure boxes, each face once."""
    true = []
    for t in range(frames):
        here = [one[t] for one in answers]
        boxes = np.concatenate([boxes[scores >= SURE] for boxes, scores in here])
        scores = np.concatenate([scores[scores >= SURE] for _, scores in here])
        boxes = suppressed(Detections(boxes, scores, np.zeros(len(scores), np.int64)), same=0.4).boxes
        true.append(boxes[boxes[:, 3] - boxes[:, 1] >= SMALLEST])
    return true


def confirmed(own: list[Boxes], others: Sequence[list[Boxes]], threshold: float) -> tuple[int, int]:
    """How many sure boxes another detector sees as well, if only faintly, of how many."""
    hits = total = 0
    for t, (boxes, scores) in enumerate(own):
        sure = boxes[(scores >= threshold) & (boxes[:, 3] - boxes[:, 1] >= SMALLEST)]
        theirs = np.concatenate([one[t][0] for one in others])
        total += len(sure)
        hits += int((box_iou(sure, theirs) >= 0.3).any(axis=1).sum()) if len(theirs) else 0
    return hits, total


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def real(video: Path, models: Sequence[Path], settings: PrivacySettings, start: float, frames: int) -> None:
    seconds = min(frames / FPS, probe(video).seconds - start - 0.1)
    shown = read_frames(video, start + np.arange(int(seconds * FPS)) / FPS)
    single = {path: OnnxFinder(path, "face", settings.face_detection) for path in models}
    answers = {path: finder(shown) for path, finder in single.items()}
    chosen: dict[tuple[Path, ...], Finder] = {(path,): finder for path, finder in single.items()}
    if len(models) > 2:
        chosen |= {pair: Together([single[one] for one in pair]) for pair in itertools.combinations(models, 2)}
    print(f"\n{video.name}, {shown.shape[2]}x{shown.shape[1]}, {len(shown)} frames at {FPS:g} per second\n")
    columns = (
        "detector", "faces of all", "hidden, followed %", "faces of the others", "hidden, frame by frame %",
        "hidden, followed %", "blurred boxes",
        "confirmed by another %", "found after blurring, per 100 of them: by itself", "by the others",
        "blurred % of pixels", "checks",
    )  # fmt: skip
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for paths, finder in chosen.items():
        threshold = settings.face_detection.threshold
        others = [path for path in models if path not in paths]
        own = Together([Once(answers[one], single[one]) for one in paths])(shown)
        true = sure_boxes([answers[other] for other in others], len(shown))
        privacy = Redaction({}, settings, {})
        seen = privacy.follow("face", Found.of(own), shown.shape, FPS)
        _, before = redacted(shown, alone(seen.found, threshold), settings)
        blurred, after = redacted(shown, seen.followed.regions, settings)
        every = settings.checks.recheck_every
        again = {path: one(blurred[::every]) for path, one in single.items()}
        regions = sum(region.frame % every == 0 for region in seen.followed.regions)
        still = sum(int((scores >= threshold).sum()) for path in paths for _, scores in again[path])
        by_others = sum(map(len, sure_boxes([again[other] for other in others], len(again[paths[0]]))))
        failures = Redaction({"face": Once(own, finder)}, settings, {})(shown, FPS).failures
        was, total = hidden(true, before)
        now, _ = hidden(true, after)
        of_all, everybody = hidden(sure_boxes(list(answers.values()), len(shown)), after)
        both = confirmed(own, [answers[other] for other in others], threshold)
        print(
            f"| {' + '.join(single[path].layout for path in paths)} | {everybody} | {percent(of_all, everybody)} | "
            f"{total} | {percent(was, total)} | "
            f"{percent(now, total)} | {len(seen.followed.regions)} | "
            f"{percent(*both)} | {percent(still, regions)} | "
            f"{percent(by_others, regions)} | {100 * after.mean():.1f} | {'; '.join(failures) or 'passed'} |"
        )


class Once:
    """Recorded answers for the raw frames, the detector itself for the blurred ones."""

    def __init__(self, answers: list[Boxes], finder: Finder) -> None:
        self._answers: list[Boxes] | None = answers
        self._finder = finder

    def __call__(self, frames: Frames) -> list[Boxes]:
        answers, self._answers = self._answers, None
        return self._finder(frames) if answers is None else answers


def marked(video: Path, model: Path, settings: PrivacySettings) -> None:
    """Real plates, in the frames in which they were marked by eye; the detector sees all, a second around included."""
    marks = json.loads(Path(__file__).with_name("plates_by_eye.json").read_text(encoding="utf-8"))
    if video.name != marks["video"]:
        raise SystemExit(f"{video}: plates were marked in {marks['video']} ({marks['source']})")
    finder, fps = OnnxFinder(model, "plate", settings.plate_detection), marks["fps"]
    print("\n| real plates, marked by eye | width px | boxes | hidden, frame by frame % | hidden, followed % |")
    print("|---|---|---|---|---|")
    sums = np.zeros(3, np.int64)
    for plate in marks["plates"]:
        rows = {int(row[0]): np.array(row[1:], np.float64) for row in plate["boxes"]}
        first = max(0, min(rows) - round(fps))
        numbers = np.arange(first, max(rows) + round(fps))
        shown = read_frames(video, (numbers + 0.1) / fps)
        true = [rows[n][None] if n in rows else np.empty((0, 4)) for n in numbers.tolist()]
        seen = Redaction({}, settings, {}).follow("plate", Found.of(finder(shown)), shown.shape, fps)
        sure = alone(seen.found, settings.plate_detection.threshold)
        (was, total), (now, _) = (
            hidden(true, redacted(shown, regions, settings)[1]) for regions in (sure, seen.followed.regions)
        )
        width = np.mean([box[2] - box[0] for box in rows.values()])
        sums += (was, now, total)
        print(f"| {plate['vehicle']} | {width:.0f} | {total} | {percent(was, total)} | {percent(now, total)} |")
    print(f"| all | | {sums[2]} | {percent(sums[0], sums[2])} | {percent(sums[1], sums[2])} |")


def known(name: str, scenes: Sequence[tuple[Scene, list[Boxes]]], kind: str, settings: PrivacySettings) -> None:
    """One row: simulated identifiers hidden before and after association."""
    was = now = total = 0
    detection = settings.face_detection if kind == "face" else settings.plate_detection
    for scene, answers in scenes:
        seen = Redaction({}, settings, {}).follow(kind, Found.of(answers), scene.frames.shape, scene.fps)
        for regions, after in ((alone(seen.found, detection.threshold), False), (seen.followed.regions, True)):
            hits, here = hidden(scene.true, redacted(scene.frames, regions, settings)[1])
            was, now, total = (was, now + hits, total) if after else (was + hits, now, total + here)
    print(f"| {name} | {total} | {percent(was, total)} | {percent(now, total)} |")


def simulated(plate_model: Path | None, seeds: int, settings: PrivacySettings) -> None:
    """Heads with a finder that knows the answer, and drawn plates with a real one."""
    print("\n| simulated, places known | boxes | hidden, frame by frame % | hidden, followed % |\n|---|---|---|---|")
    crowd = [heads(seed) for seed in range(seeds)]
    for missed in (0.1, 0.25, 0.5):
        told = [(scene, Forgetful(scene.true, 7, missed=missed)(scene.frames)) for scene in crowd]
        known(f"heads in a crowd, finder that misses {missed:.0%} and lapses for 0.5 s", told, "face", settings)
        told = [
            (scene, Together([Forgetful(scene.true, seed, missed=missed) for seed in (7, 8)])(scene.frames))
            for scene in crowd
        ]
        known(f"the same, two such finders together, {missed:.0%} each", told, "face", settings)
    if plate_model is None:
        return
    finder = OnnxFinder(plate_model, "plate", settings.plate_detection)
    for chinese in (True, False):
        for width in (30, 60, 100):
            passing = [plates(seed, width, chinese) for seed in range(seeds)]
            told = [(scene, finder(scene.frames)) for scene in passing]
            look = "Chinese" if chinese else "Indian"
            known(f"drawn {look} plates about {width} px wide, {finder.layout}", told, "plate", settings)


def speed(video: Path, faces: Path, plates_model: Path, settings: PrivacySettings, start: float, frames: int) -> None:
    """Core seconds of each part for one span."""
    shown = read_frames(video, start + np.arange(frames) / FPS)
    finders = {"face": OnnxFinder(faces, "face", settings.face_detection)}
    finders["plate"] = OnnxFinder(plates_model, "plate", settings.plate_detection)
    spent: dict[str, float] = {}
    answers = {}
    for kind, finder in finders.items():
        spent[f"detect {kind}s"], answers[kind] = timed(lambda finder=finder: finder(shown))  # type: ignore[misc]
    privacy = Redaction({}, settings, {})
    spent["track"], seen = timed(
        lambda: [privacy.follow(kind, Found.of(one), shown.shape, FPS) for kind, one in answers.items()]
    )
    regions = [region for one in seen for region in one.followed.regions]
    spent["blur"], (blurred, _) = timed(lambda: redacted(shown, regions, settings))
    every = settings.checks.recheck_every
    spent["check"], _ = timed(lambda: [finder(blurred[::every]) for finder in finders.values()])
    total = sum(spent.values())
    shares = ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in spent.items())
    print(f"\n{video.name}: {len(shown) / total:.1f} frames/s per core ({shares})")


def timed(work: Callable[[], Answer]) -> tuple[float, Answer]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=Path, nargs="*", default=[], help="ONNX face detectors, two or more")
    parser.add_argument("--plates", type=Path, help="ONNX plate detector")
    parser.add_argument("--marked", type=Path, help="the video of plates_by_eye.json")
    parser.add_argument("--video", type=Path, nargs="*", default=[], help="real footage")
    parser.add_argument("--start", type=float, default=1.0, help="seconds into a video")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2, help="simulated scenes of each kind; 0: none")
    parser.add_argument("--set", nargs="*", default=[], help="privacy settings, e.g. face_detection.tiles=2")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    settings = resolve(PrivacySettings, None, options.set)
    for video in options.video:
        if len(options.faces) > 1:
            real(video, options.faces, settings, options.start, options.frames)
        if options.faces and options.plates:
            speed(video, options.faces[0], options.plates, settings, options.start, options.frames)
    if options.marked and options.plates:
        marked(options.marked, options.plates, settings)
    if options.seeds:
        simulated(options.plates, options.seeds, settings)


if __name__ == "__main__":
    main()
