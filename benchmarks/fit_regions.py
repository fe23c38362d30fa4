"""Fits what `teacher/foreground.py` and `teacher/unsupervised.py` weigh regions by, to simulated ground truth alone.

    python benchmarks/fit_regions.py --workers 2

Windows come straight from the simulator with the truth of their frames. Six cities teach, two choose the offset, two
are left for the figures printed last. Most windows are dense, some sparse; half are rendered at 256 pixels and half at
128; two thirds are zoomed, blurred, brightened or darkened and made noisy, since footage is all of that; every other
window is described by the nano network, if this installation has it, and else by classical features.

Candidates and their measures are those of the library. In order, each step with the constants of the one before:

1. Cue weights: logistic regression of "this pixel is an agent's" on the four cues.
2. The weight of what the features retell: of a few, the best average precision over pixels.
3. What likeness is made of: of a few, the one whose trees hold most agents (a part with IoU 0.5).
4. Measures' usual values, spreads and weights: logistic regression of "this part is an agent" (IoU 0.5).
5. The offset: confidence 0.55, the teacher's threshold, is where kept parts have the best F1 on the choosing cities.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.pool import Pool

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from factorjepa.backbones.packaged import packaged_weights
from factorjepa.config import resolve
from factorjepa.pixels import Frames
from factorjepa.seeding import stream
from factorjepa.teacher.annotations import MIN_VISIBLE
from factorjepa.teacher.camera import camera_motion
from factorjepa.teacher.features import FrameFeatures, open_features
from factorjepa.teacher.foreground import CUES, Foreground, combined, foreground
from factorjepa.teacher.quality import SAME, Rates
from factorjepa.teacher.regions import Floats
from factorjepa.teacher.settings import FeatureSettings, TeacherSettings
from factorjepa.teacher.unsupervised import EXTREME, MEASURES, PRODUCTS, Likeness, Parts, measured, select
from factorjepa.world import WorldSettings, clips
from factorjepa.world.simulator import CLIPS_PER_SOURCE

TEACHING = ("navapur", "kesaripet", "samudranagar", "dholaghat", "mehrabad", "vanapalli")
CHOOSING = ("tapimarg", "lohapur")
UNTOUCHED = ("gulmohar", "pahargaon")

SETTINGS = TeacherSettings()
LOOKED_AT = (1, 5, 9, 13)  # frames of a window whose parts are measured
RETOLD = (0.0, 0.25, 0.5, 1.0)
COLOURS, PLACES = (15.0, 25.0, 40.0), ((8.0, 8.0), (14.0, 4.0), (20.0, 6.0))
PIXELS = 4000  # of a window that teach the cue weights
RIDGE = 1e-3  # of the mean log loss, on weights of standardised inputs
SURE = 1e3  # log-odds that let every part through `select`

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Job:
    """The address of one window."""

    cities: tuple[str, ...]
    preset: str
    seed: int
    source: int
    size: int
    nano: bool
    varied: bool


@dataclass(frozen=True)
class Sample:
    """One window with its truth on the mask grid. Agents of a frame are numbered from 1."""

    seen: Foreground
    features: Floats
    agents: NDArray[np.int64]  # [T, S, S] 0: nobody
    asked: list[NDArray[np.bool_]]  # [T][N + 1] large and visible enough to be asked for; nobody is not


def jobs(cities: tuple[str, ...], seeds: int, nano: bool) -> list[Job]:
    """One window of every city and seed, most of them dense; every city comes in every kind."""
    return [
        Job(
            cities,
            preset="sparse" if seed % 4 == 3 else "dense",
            seed=1000 + seed,
            source=source,
            size=256 if (seed + source) % 2 else 128,
            nano=nano and (seed // 2 + source) % 2 == 1,
            varied=(2 * seed + source) % 3 > 0,
        )
        for seed, source in itertools.product(range(seeds), range(len(cities)))
    ]


@functools.lru_cache(maxsize=2)
def described_by(nano: bool) -> FrameFeatures:
    return open_features(FeatureSettings(kind="nano" if nano else "classical"), device="cpu")


def sampled(job: Job) -> Sample:
    """Simulate a window, vary it, and look at it as the teacher does."""
    times = np.arange(SETTINGS.frames) / SETTINGS.fps
    world = resolve(WorldSettings, job.preset, [f"size={job.size}", "seconds=[4, 4]", f"cities={list(job.cities)}"])
    clip = clips(world, job.seed, [job.source * CLIPS_PER_SOURCE], seconds=[4.0])[0]
    rng = stream(job.seed, "varied", job.source)
    left, top, side = zoom(job.size, rng) if job.varied else (0, 0, job.size)
    shown, agents, asked = [], [], []
    for frame, truth in clip.renderer.render(clip.trajectory, clip.camera, times, truth=True):
        assert truth is not None
        part = np.s_[top : top + side, left : left + side]
        shown.append(frame[part])
        agents.append(truth.instances[part].astype(np.int64))
        pixels = np.bincount(agents[-1].ravel(), minlength=len(truth.seen) + 1)
        whole = np.array([1, *(np.count_nonzero(one.amodal) for one in truth.seen)])
        asked.append((pixels >= MIN_VISIBLE * whole) & (pixels >= SETTINGS.regions.min_area * side * side))
        asked[-1][0] = False
    frames = weathered(np.stack(shown), rng) if job.varied else np.stack(shown)
    features = described_by(job.nano)(frames)
    seen = foreground(frames, features, camera_motion(frames).affine, side, SETTINGS.context)
    return Sample(seen, features, np.stack(agents), asked)


def zoom(size: int, rng: np.random.Generator) -> tuple[int, int, int]:
    """Left, top and side of a part of the picture."""
    side = round(size * rng.uniform(0.6, 1.0))
    left, top = rng.integers(size - side + 1, size=2).tolist()
    return left, top, side


def weathered(frames: Frames, rng: np.random.Generator) -> Frames:
    """Out of focus, under another light and with the noise of a sensor."""
    focus = rng.uniform(0.3, 1.5) * frames.shape[1] / 256
    gamma, gain, noise = np.exp(rng.uniform(-0.4, 0.4)), rng.uniform(0.7, 1.2), rng.uniform(0, 6)
    blurred = np.stack([cv2.GaussianBlur(frame, (0, 0), focus) for frame in frames]).astype(np.float32)
    lit = 255 * gain * (blurred / 255) ** gamma
    return np.asarray((lit + noise * rng.normal(size=lit.shape)).clip(0, 255), dtype=np.uint8)


def logistic(inputs: Doubles, labels: NDArray[np.bool_]) -> tuple[Doubles, float]:
    """Weights `[K]` and offset of inputs `[N, K]` with the least ridged log loss."""
    usual, spread = inputs.mean(axis=0), inputs.std(axis=0)
    table, sign = (inputs - usual) / spread, np.where(labels, 1.0, -1.0)

    def loss(at: Doubles) -> tuple[float, Doubles]:
        margin = sign * (table @ at[:-1] + at[-1])
        slope = -sign / (1 + np.exp(margin.clip(-500, 500))) / len(sign)
        value = np.logaddexp(0, -margin).mean() + RIDGE / 2 * (at[:-1] ** 2).sum()
        return float(value), np.append(table.T @ slope + RIDGE * at[:-1], slope.sum())

    found = minimize(loss, np.zeros(inputs.shape[1] + 1), jac=True, method="L-BFGS-B").x
    weights = found[:-1] / spread
    return weights, float(found[-1] - weights @ usual)


def cue_weights(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Of length 1: only their ratios matter."""
    inputs, labels = [], []
    for k, sample in enumerate(samples):
        picked = stream("cue pixels", k).integers(sample.agents.size, size=PIXELS)
        inputs.append(sample.seen.cues.reshape(-1, len(CUES))[picked].astype(np.float64))
        labels.append(sample.agents.ravel()[picked] > 0)
    weights, _ = logistic(np.concatenate(inputs), np.concatenate(labels))
    return tuple((weights / np.linalg.norm(weights)).round(2).tolist())


def pixel_precision(sample: Sample, weights: tuple[float, ...]) -> list[float]:
    """Average precision of the evidence as a sign of agents, for each weight of what is retold."""
    evidence = functools.partial(combined, sample.seen.cues, sample.features, SETTINGS.context, weights)
    return [average_precision(evidence(retold), sample.agents > 0) for retold in RETOLD]


def average_precision(score: Floats, true: NDArray[np.bool_]) -> float:
    hits = true.ravel()[np.argsort(-score, axis=None)]
    return float((np.cumsum(hits) / np.arange(1, hits.size + 1))[hits].mean()) if hits.any() else float("nan")


def judged(sample: Sample, t: int, parts: Parts) -> tuple[Doubles, NDArray[np.int64], NDArray[np.bool_]]:
    """Of each part: the IoU with the asked-for agent nearest to it, which that is, and whether it lies on another."""
    tree, asked = parts.tree, sample.asked[t]
    leaves, count = tree.leaves.max() + 1, len(asked)
    shared = np.zeros((len(tree.parent), count))
    pairs = (tree.leaves * count + sample.agents[t]).ravel()
    shared[:leaves] = np.bincount(pairs, minlength=leaves * count).reshape(leaves, count)
    for node, parent in enumerate(tree.parent[:-1].tolist()):  # a node comes after its children
        shared[parent] += shared[node]
    pixels, shared = shared[-1], shared[parts.nodes]
    area = tree.area[parts.nodes, None]
    iou = shared / np.maximum(area + pixels - shared, 1)
    excused = ~asked
    excused[0] = False
    on_other = ((iou >= SAME) | (shared / area >= SAME))[:, excused].any(axis=1)
    iou[:, ~asked] = 0
    return iou.max(axis=1), iou.argmax(axis=1), on_other


def held(sample: Sample) -> list[tuple[int, int]]:
    """Agents that some part is, and all asked for, for each likeness."""
    t, result = LOOKED_AT[2], []
    for likeness in likenesses():
        iou, agent, _ = judged(sample, t, measured(sample.seen, t, SETTINGS.regions.min_area, likeness))
        result.append((len(set(agent[iou >= SAME].tolist())), int(sample.asked[t].sum())))
    return result


def likenesses() -> list[Likeness]:
    return [Likeness(colour, *place) for colour, place in itertools.product(COLOURS, PLACES)]


@dataclass(frozen=True)
class Judged:
    """The parts of one frame, measured and compared with the truth."""

    parts: Parts
    iou: Doubles
    agent: NDArray[np.int64]
    on_other: NDArray[np.bool_]
    asked: int


def judged_parts(sample: Sample, likeness: Likeness) -> list[Judged]:
    result = []
    for t in LOOKED_AT:
        parts = measured(sample.seen, t, SETTINGS.regions.min_area, likeness)
        slim = dataclasses.replace(parts.tree, leaves=np.empty((0, 0), np.int64), sums=np.empty((0, 0)))
        parts_kept = dataclasses.replace(parts, tree=slim)  # selecting needs who contains whom, not the pixels
        result.append(Judged(parts_kept, *judged(sample, t, parts), int(sample.asked[t].sum())))
    return result


@dataclass(frozen=True)
class Scoring:
    """Usual value and spread of every measure, weights of measures and products, and the offset."""

    usual: Doubles
    spread: Doubles
    weights: Doubles
    offset: float

    def inputs(self, parts: Parts) -> Doubles:
        values = np.stack([parts.measures[name] for name in MEASURES], axis=1)
        standard = ((values - self.usual) / self.spread).clip(-EXTREME, EXTREME)
        names = list(MEASURES)
        products = [standard[:, names.index(one)] * standard[:, names.index(other)] for one, other in PRODUCTS]
        return np.concatenate([standard, np.stack(products, axis=1)], axis=1)

    def log_odds(self, parts: Parts) -> Doubles:
        return np.asarray(self.inputs(parts) @ self.weights + self.offset)


def fitted(frames: Sequence[Judged]) -> Scoring:
    values = np.concatenate([np.stack([f.parts.measures[name] for name in MEASURES], axis=1) for f in frames])
    scoring = Scoring(values.mean(axis=0).round(2), values.std(axis=0).round(2), np.zeros(0), 0.0)
    inputs = np.concatenate([scoring.inputs(f.parts)[~f.on_other] for f in frames])
    weights, offset = logistic(inputs, np.concatenate([f.iou[~f.on_other] >= SAME for f in frames]))
    return dataclasses.replace(scoring, weights=weights.round(2), offset=offset)


def rates(frames: Sequence[Judged], scoring: Scoring, thresholds: Doubles) -> list[Rates]:
    """Of the parts kept at each threshold of log-odds."""
    total = [Rates() for _ in thresholds]
    for one in frames:
        odds = scoring.log_odds(one.parts)
        chosen = select(dataclasses.replace(one.parts, log_odds=odds + SURE))  # the order decides, not the height
        for k, threshold in enumerate(thresholds):
            kept = chosen[odds[chosen] >= threshold]
            hits = len(set(one.agent[kept[one.iou[kept] >= SAME]].tolist()))
            right_or_wrong = int(((one.iou[kept] >= SAME) | ~one.on_other[kept]).sum())
            total[k] += Rates(hits, right_or_wrong - hits, one.asked - hits)
    return total


def with_best_offset(scoring: Scoring, frames: Sequence[Judged]) -> Scoring:
    """The threshold of the teacher becomes the best one."""
    thresholds = scoring.offset + np.arange(-3, 6, 0.1)
    best = thresholds[int(np.nanargmax([one.f1 for one in rates(frames, scoring, thresholds)]))]
    sure = SETTINGS.regions.min_confidence
    return dataclasses.replace(scoring, offset=round(float(scoring.offset - best + np.log(sure / (1 - sure))), 2))


def report(scoring: Scoring, groups: dict[str, list[Judged]]) -> None:
    sure = SETTINGS.regions.min_confidence
    for name, frames in groups.items():
        (one,) = rates(frames, scoring, np.array([np.log(sure / (1 - sure))]))
        print(f"{name}: precision {one.precision:.3f}, recall {one.recall:.3f}, F1 {one.f1:.3f}")


def printed(scoring: Scoring) -> Iterator[str]:
    yield "MEASURES = {"
    for k, name in enumerate(MEASURES):
        yield f'    "{name}": ({scoring.usual[k]:.2f}, {scoring.spread[k]:.2f}, {scoring.weights[k]:.2f}),'
    yield "}\nPRODUCTS = {"
    for pair, weight in zip(PRODUCTS, scoring.weights[len(MEASURES) :], strict=True):
        yield f'    ("{pair[0]}", "{pair[1]}"): {weight:.2f},'
    yield f"}}\nOFFSET = {scoring.offset:.2f}"


def begin() -> None:
    cv2.setNumThreads(1)
    torch.set_num_threads(1)


def windows(pool: Pool, cities: tuple[str, ...], seeds: int, nano: bool) -> list[Sample]:
    made = pool.map(sampled, jobs(cities, seeds, nano), chunksize=1)
    print(f"{len(made)} windows of {', '.join(cities)}", file=sys.stderr)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=6, help="windows of each city, twice as many of the choosing ones")
    options = parser.parse_args()
    nano = packaged_weights("nano") is not None
    with multiprocessing.get_context("spawn").Pool(options.workers, initializer=begin) as pool:
        teaching = windows(pool, TEACHING, options.seeds, nano)
        weights = cue_weights(teaching)
        precision = np.nanmean(pool.map(functools.partial(pixel_precision, weights=weights), teaching), axis=0)
        retold = RETOLD[int(precision.argmax())]
        print(f"WEIGHTS = {weights}  # {', '.join(CUES)}\nRETOLD = {retold}")
        print("  average precision:", dict(zip(RETOLD, precision.round(4).tolist(), strict=True)), flush=True)

        def seen_anew(samples: list[Sample]) -> list[Sample]:
            return [
                dataclasses.replace(one, seen=dataclasses.replace(one.seen, evidence=evidence))
                for one in samples
                for evidence in [combined(one.seen.cues, one.features, SETTINGS.context, weights, retold)]
            ]

        teaching = seen_anew(teaching)
        found, asked = np.array(pool.map(held, teaching)).sum(axis=0).T
        likeness = likenesses()[int(found.argmax())]
        print(f"LIKENESS = {likeness}\n  agents held:")
        for one, share in zip(likenesses(), found / asked, strict=True):
            print(f"    colour {one.colour:g}, across {one.across:g}, down {one.down:g}: {share:.3f}")
        groups = {"teaching": teaching}
        groups["choosing"] = seen_anew(windows(pool, CHOOSING, 2 * options.seeds, nano))
        groups["untouched"] = seen_anew(windows(pool, UNTOUCHED, options.seeds, nano))
        job = functools.partial(judged_parts, likeness=likeness)
        frames = {name: list(itertools.chain(*pool.map(job, samples))) for name, samples in groups.items()}
    scoring = with_best_offset(fitted(frames["teaching"]), frames["choosing"])
    print("\n".join(printed(scoring)))
    report(scoring, frames)


if __name__ == "__main__":
    main()
