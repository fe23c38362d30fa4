"""Fits what `teacher/foreground.py`, `parts.py`, `scoring.py` and `choosing.py` weigh regions by.

    python benchmarks/fit_regions.py --footage DIR --detector FILE.onnx --weights FILE.pth --layer 8 --cache DIR

Taught by simulated windows with their truth and by windows of street footage with a detector's boxes in place of truth
(`region_samples.py`). MOT17, on which the teacher is measured, must not be in the footage. Of the simulated cities six
teach, two choose, two are left for measurement. Simulated windows are described by classical features, footage by these
and, where it is not zoomed into, also by DINOv2's if its weights are given. Simulation and footage weigh the same.

Candidates and their measures are those of the library. In order, each step with the constants of the one before:

1. Cue weights: logistic regression of "this pixel is an agent's" on the five cues (simulated windows: masks are true).
2. What likeness is made of: of a few, the one whose trees hold most agents (a part with IoU 0.5).
3. Measures' usual values, spreads and weights: logistic regression of "this part is an agent" (IoU 0.5).
4. The chance at which a part is worth keeping: best sum of the F1 of simulated choosing cities and of the footage.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from factorjepa.pixels import Frames
from factorjepa.seeding import stream
from factorjepa.teacher.camera import camera_motion
from factorjepa.teacher.choosing import worth
from factorjepa.teacher.features import FrameFeatures, open_features
from factorjepa.teacher.foreground import CUES, Foreground, combined, foreground
from factorjepa.teacher.parts import Likeness, Parts, measured
from factorjepa.teacher.quality import SAME, Rates
from factorjepa.teacher.scoring import Scoring, Weighed
from factorjepa.teacher.settings import FeatureSettings
from region_samples import SETTINGS, Boxes, Masks, Verdict, excerpts, footage, jobs, shares, simulated, working_side
from teacher_windows import CachedFeatures

TEACHING = ("navapur", "kesaripet", "samudranagar", "dholaghat", "mehrabad", "vanapalli")
CHOOSING = ("tapimarg", "lohapur")  # gulmohar and pahargaon are left for measurement

LOOKED_AT = (1, 5, 9)  # frames of a window whose parts are measured
LIKENESSES = (
    Likeness(colour=15, evidence=1, look=0, own_motion=0.5),
    Likeness(colour=20, evidence=2, look=3),
    Likeness(colour=20, evidence=3, look=3),
)
PRODUCTS = (("size", "bottom"), ("size", "upright"))  # the first is perspective: what stands lower is nearer and larger
WORTHS = np.array([0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25])
PIXELS = 4000  # of a window that teach the cue weights
RIDGE = 6e-4  # of the mean log loss, on weights of standardised inputs

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """One window as the teacher sees it, with what is known of the truth."""

    group: str  # teaching, choosing or footage
    seen: Foreground
    truth: Masks | Boxes


@dataclass(frozen=True)
class Judged:
    """The parts of one frame, measured and compared with the truth."""

    group: str
    parts: Parts
    verdict: Verdict

    def taught(self) -> NDArray[np.bool_]:
        return ~self.verdict.on_other

    def right(self) -> NDArray[np.bool_]:
        return self.verdict.iou >= SAME


def sample(group: str, frames: Frames, features: FrameFeatures, truth: Masks | Boxes) -> Sample:
    described = features(frames)
    side = working_side(frames)
    seen = foreground(frames, described, camera_motion(frames).affine, side, SETTINGS.context)
    return Sample(group, seen, truth)


def samples(options: argparse.Namespace) -> Iterator[Sample]:
    classical = open_features(FeatureSettings(kind="classical"))
    network = None
    if options.weights is not None:
        settings = FeatureSettings(kind="dinov2", arch=options.arch, weights=options.weights, layer=options.layer)
        network = CachedFeatures(open_features(settings), options.cache)
    for group, cities in (("teaching", TEACHING), ("choosing", CHOOSING)):
        for job in jobs(cities, options.seeds if group == "teaching" else 2 * options.seeds):
            yield sample(group, *_described(simulated(job), classical))
    for one in excerpts(options.footage):
        if (found := footage(one, options.detector)) is None:
            continue
        yield sample("footage", *_described(found, classical))
        if network is not None and not one.zoomed:
            yield sample("footage", *_described(found, network))


def _described(
    window: tuple[Frames, Masks | Boxes], features: FrameFeatures
) -> tuple[Frames, FrameFeatures, Masks | Boxes]:
    return window[0], features, window[1]


def logistic(inputs: Doubles, labels: NDArray[np.bool_], trust: Doubles) -> tuple[Doubles, float]:
    """Weights `[K]` and offset of inputs `[N, K]` with the least ridged log loss, each row weighed by `trust` `[N]`."""
    usual, spread = inputs.mean(axis=0), inputs.std(axis=0)
    table, sign = (inputs - usual) / spread, np.where(labels, 1.0, -1.0)
    share = trust / trust.sum()

    def loss(at: Doubles) -> tuple[float, Doubles]:
        margin = sign * (table @ at[:-1] + at[-1])
        slope = -sign * share / (1 + np.exp(margin.clip(-500, 500)))
        value = (share * np.logaddexp(0, -margin)).sum() + RIDGE / 2 * (at[:-1] ** 2).sum()
        return float(value), np.append(table.T @ slope + RIDGE * at[:-1], slope.sum())

    found = minimize(loss, np.zeros(inputs.shape[1] + 1), jac=True, method="L-BFGS-B").x
    weights = found[:-1] / spread
    return weights, float(found[-1] - weights @ usual)


def cue_weights(windows: Sequence[Sample]) -> tuple[float, ...]:
    """Of length 1: only their ratios matter."""
    inputs, labels = [], []
    for k, (one, truth) in enumerate(_with_masks(windows)):
        picked = stream("cue pixels", k).integers(truth.agents.size, size=PIXELS)
        inputs.append(one.seen.cues.reshape(-1, len(CUES))[picked].astype(np.float64))
        labels.append(truth.agents.ravel()[picked] > 0)
    weights, _ = logistic(np.concatenate(inputs), np.concatenate(labels), np.ones(PIXELS * len(labels)))
    return tuple((weights / np.linalg.norm(weights)).round(2).tolist())


def _with_masks(windows: Sequence[Sample]) -> Iterator[tuple[Sample, Masks]]:
    return ((one, one.truth) for one in windows if one.group == "teaching" and isinstance(one.truth, Masks))


def weighed_anew(one: Sample, weights: tuple[float, ...]) -> Sample:
    evidence = combined(one.seen.cues, SETTINGS.context, weights)
    return dataclasses.replace(one, seen=dataclasses.replace(one.seen, evidence=evidence))


def held(windows: Sequence[Sample], likeness: Likeness) -> float:
    """The share of agents that some part is, in one frame of each window; simulation and footage count the same."""
    found: dict[str, list[int]] = {"teaching": [0, 0], "footage": [0, 0]}
    for one in windows:
        if one.group in found:
            [parts] = measured(one.seen, LOOKED_AT[1:2], SETTINGS.regions.min_area, likeness)
            verdict = one.truth.verdict(LOOKED_AT[1], parts)
            found[one.group][0] += len(set(verdict.agent[verdict.iou >= SAME].tolist()))
            found[one.group][1] += verdict.asked
    return float(np.mean([hits / max(asked, 1) for hits, asked in found.values()]))


def judged(one: Sample, likeness: Likeness) -> Iterator[Judged]:
    for t, parts in zip(LOOKED_AT, measured(one.seen, LOOKED_AT, SETTINGS.regions.min_area, likeness), strict=True):
        yield Judged(one.group, parts, one.truth.verdict(t, parts))


def fitted(frames: Sequence[Judged]) -> Scoring:
    names = list(frames[0].parts.measures)
    values = np.concatenate([np.stack([f.parts.measures[name] for name in names], axis=1)[f.taught()] for f in frames])
    labels = np.concatenate([f.right()[f.taught()] for f in frames])
    weights = shares([f.group for f in frames], [int(f.right()[f.taught()].sum()) for f in frames])
    trust = np.repeat(weights, [int(f.taught().sum()) for f in frames])
    usual, spread = values.mean(axis=0).round(3), values.std(axis=0).round(3)
    plain = {name: Weighed(*pair, 0.0, 0.0) for name, pair in zip(names, zip(usual, spread, strict=True), strict=True)}
    standard = Scoring(plain, {}, 0.0).standard(dict(zip(names, values.T, strict=True)))
    squares = [standard[name] ** 2 for name in names]
    products = [standard[one] * standard[other] for one, other in PRODUCTS]
    found, offset = logistic(np.stack([*standard.values(), *squares, *products], axis=1), labels, trust)
    found, count = found.round(3), len(names)
    measures = {
        name: Weighed(float(usual[k]), float(spread[k]), float(found[k]), float(found[count + k]))
        for k, name in enumerate(names)
    }
    return Scoring(measures, dict(zip(PRODUCTS, found[2 * count :].tolist(), strict=True)), round(offset, 3))


def rates(frames: Sequence[Judged], scoring: Scoring, worth_keeping: float) -> Rates:
    """Of the parts that are kept, each frame by itself."""
    total = Rates()
    for one in frames:
        level = np.log(worth_keeping / (1 - worth_keeping))
        values = worth(one.parts, scoring.log_odds(one.parts.measures) - level)
        kept, verdict = np.searchsorted(one.parts.nodes, one.parts.tree.best_apart(values)), one.verdict
        right = verdict.iou[kept] >= SAME
        hits = len(set(verdict.agent[kept[right]].tolist()))
        total += Rates(hits, int((right | ~verdict.on_other[kept]).sum()) - hits, verdict.asked - hits)
    return total


def printed(scoring: Scoring) -> Iterator[str]:
    yield "SCORING = Scoring(\n    {"
    for name, one in scoring.measures.items():
        numbers = f"{one.usual:.3f}, {one.spread:.3f}, {one.weight:.3f}, {one.square:.3f}"
        yield f'        "{name}": Weighed({numbers}),'
    yield "    },\n    {"
    for pair, weight in scoring.products.items():
        yield f'        ("{pair[0]}", "{pair[1]}"): {weight:.3f},'
    yield f"    }},\n    offset={scoring.offset:.3f},\n)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--footage", type=Path, required=True, help="folder of street videos that are not measured on")
    parser.add_argument("--detector", type=Path, required=True, help="ONNX file")
    parser.add_argument("--weights", help="DINOv2's .pth")
    parser.add_argument("--arch", default="dinov2_vits14")
    parser.add_argument("--layer", type=int)
    parser.add_argument("--cache", type=Path, help="folder that keeps features between runs")
    parser.add_argument("--seeds", type=int, default=3, help="windows of each city, twice as many of the choosing ones")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    windows = list(samples(options))
    counts = {group: sum(one.group == group for one in windows) for group in ("teaching", "choosing", "footage")}
    print(f"windows: {counts}", file=sys.stderr, flush=True)
    weights = cue_weights(windows)
    print(f"WEIGHTS = {weights}  # {', '.join(CUES)}", flush=True)
    seen_anew = [weighed_anew(one, weights) for one in windows]
    shares_held = [held(seen_anew, likeness) for likeness in LIKENESSES]
    for likeness, share in zip(LIKENESSES, shares_held, strict=True):
        print(f"  {likeness}: holds {share:.3f}")
    likeness = LIKENESSES[int(np.argmax(shares_held))]
    print(f"LIKENESS = {likeness}", flush=True)
    frames = list(itertools.chain.from_iterable(judged(one, likeness) for one in seen_anew))
    scoring = fitted([one for one in frames if one.group != "choosing"])
    print("\n".join(printed(scoring)))
    groups = {name: [one for one in frames if one.group == name] for name in ("choosing", "footage")}
    scores = {name: [rates(some, scoring, price) for price in WORTHS] for name, some in groups.items()}
    best = int(np.argmax([sum(scores[name][k].f1 for name in scores) for k in range(len(WORTHS))]))
    print(f"WORTH_KEEPING = {WORTHS[best]}")
    for name, found in scores.items():
        print(
            f"  {name}: precision {found[best].precision:.3f}, recall {found[best].recall:.3f}, "
            f"F1 {', '.join(f'{one.f1:.3f}' for one in found)}"
        )


if __name__ == "__main__":
    main()
