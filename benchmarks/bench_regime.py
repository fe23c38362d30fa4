"""Pairs by a spatial index against all pairs, up to 1,000 agents a frame; and time by the number of frames.

    python benchmarks/bench_regime.py [--frames 8] [--plot regime.png]

Agents stand anywhere in the picture, with speeds and sizes of street agents. Both ways give the same edges and
overlaps, which is checked before they are timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from factorjepa.regime import pairs
from factorjepa.regime.axes import edges, frame_measures, overlaps
from factorjepa.regime.scene import BoxMasks, Scene
from factorjepa.regime.settings import Thresholds

T = Thresholds(min_area=0.0)


def crowd(agents: int, frames: int, seed: int = 0) -> Scene:
    """Bodies shrink as the crowd grows, so that it fits."""
    random = np.random.default_rng(seed)
    frame = np.repeat(np.arange(frames), agents)
    start, velocity = random.random((agents, 2)), random.normal(0, 0.04, (agents, 2))
    centre = (start[None] + velocity[None] * np.arange(frames)[:, None, None] / 4).reshape(-1, 2)
    half = np.tile(0.3 / np.sqrt(agents) * random.lognormal(0, 0.4, (agents, 1)), (frames, 1)) / 2
    box = np.concatenate([centre - half, centre + half], axis=1).clip(0, 1) * 1000
    return Scene(
        np.arange(frames) / 4, 1000.0, 1000.0, frame, np.tile(np.arange(agents), frames),
        random.integers(0, 7, len(frame)), np.ones(len(frame)), box, (box[:, 2:] - box[:, :2]).prod(1),
        np.zeros((len(frame), 2)), BoxMasks(frame, box, frames),
    )  # fmt: skip


def timed(work: Callable[[], object], least: float = 0.3) -> float:
    """Best of several."""
    best, spent = np.inf, 0.0
    while spent < least:
        begun = time.perf_counter()
        work()
        took = time.perf_counter() - begun
        best, spent = min(best, took), spent + took
    return float(best)


def pair_work(scene: Scene, few: int) -> tuple[np.ndarray, np.ndarray]:
    """The two pairwise measures, with the index for frames of more than `few` agents."""
    before, pairs.FEW = pairs.FEW, few
    try:
        velocity = np.gradient(scene.centre_O2.reshape(scene.frames, -1, 2), 0.25, axis=0).reshape(-1, 2)
        met = np.bincount(edges(scene.frame_O, scene.centre_O2, velocity, T), minlength=scene.frames)
        return met, overlaps(scene, T.overlap)
    finally:
        pairs.FEW = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--plot", help="draw time per frame into this file")
    asked = parser.parse_args()
    rows = []
    print("agents/frame  all pairs ms/frame  index ms/frame  ratio")
    for agents in (10, 30, 100, 200, 300, 500, 1000):
        scene = crowd(agents, asked.frames)
        for one, other in zip(pair_work(scene, 10**9), pair_work(scene, 0), strict=True):
            np.testing.assert_array_equal(one, other)
        plain, indexed = (1e3 * timed(partial(pair_work, scene, few)) / asked.frames for few in (10**9, 0))
        rows.append((agents, plain, indexed))
        print(f"{agents:12d}  {plain:18.2f}  {indexed:14.2f}  {plain / indexed:5.1f}x")
    print("\nframes  all measures, 40 agents a frame, ms/frame")
    for frames in (10, 40, 160, 640):
        scene = crowd(40, frames)
        print(f"{frames:6d}  {1e3 * timed(partial(frame_measures, scene, T)) / frames:.3f}")
    if asked.plot:
        _plot(rows, asked.plot)


def _plot(rows: list[tuple[int, float, float]], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.subplots()
    agents, plain, indexed = zip(*rows, strict=True)
    for values, label in ((plain, "all pairs"), (indexed, "spatial index")):
        axes.loglog(agents, values, "o-", label=label, markersize=4)
    axes.set(xlabel="agents per frame", ylabel="ms per frame (edges and overlaps)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=160)


if __name__ == "__main__":
    main()
