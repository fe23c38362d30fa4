"""Clips per second of the loader, by store and number of workers, against a plain PyAV loop in the same run.

    python benchmarks/bench_loader.py [--clips 32] [--width 224] [--height 128] [--size 128] [--rounds 5]

The plain loop opens each file, seeks, decodes up to the end of the same window and converts the 16 wanted frames to
RGB; it neither resizes nor normalises nor batches, so 1.00x with 0 workers means that all of that is free. It runs
again right before each measurement and the median of the ratios counts: other work on the machine slows both alike.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import av
import cv2
import numpy as np

from factorjepa.corpus.access import Corpus, TrainingClips
from factorjepa.corpus.loader import Loader
from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.corpus.splits import Split
from factorjepa.corpus.store import pack
from factorjepa.corpus.windows import WindowSpec, window_times
from factorjepa.video import Frames, write_video

FPS, SECONDS = 12.0, 8.0


def street(seed: int, width: int, height: int) -> Iterator[Frames]:
    """A textured ground that moves under forty textured boxes: as hard to decode as small street footage."""
    rng = np.random.default_rng(seed)
    ground = cv2.GaussianBlur(rng.integers(0, 256, (height, width * 3, 3), dtype=np.uint8), (0, 0), 1.5)
    boxes = rng.uniform((0, 0, -4, -1), (width, height, 4, 1), (40, 4))
    colours = rng.integers(0, 256, (40, 3))
    for step in range(round(FPS * SECONDS)):
        frame = ground[:, 2 * step : 2 * step + width].copy()
        for (x, y, dx, dy), colour in zip(boxes, colours, strict=True):
            left, top = int(x + dx * step) % width, int(y + dy * step) % height
            frame[top : top + height // 8, left : left + width // 16] = colour
        yield np.asarray(frame, dtype=np.uint8)


def make_corpus(folder: Path, clips: int, width: int, height: int) -> None:
    rows = []
    for number in range(clips):
        source = f"benchpur/s00/v{number:03d}"
        path = f"clips/{source}/0-0.mp4"
        write_video(folder / path, street(number, width, height), FPS)
        rows.append(
            Clip(
                f"{source}#0.0",
                "benchpur",
                "s00",
                source,
                0,
                "walk",
                0.0,
                SECONDS,
                FPS,
                width,
                height,
                path,
                Split.TRAIN,
            )
        )
    Manifest(rows).write(folder)


def plain_pyav(folder: Path, clips: TrainingClips, spec: WindowSpec) -> int:
    frames = 0
    for clip in clips:
        wanted = {round(at * clip.fps) for at in window_times(clip, spec)}
        with av.open(str(folder / clip.path)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "NONE"
            base = float(stream.time_base or 1)
            container.seek(round(min(wanted) / clip.fps / base), stream=stream)
            for frame in container.decode(stream):
                index = round((frame.pts or 0) * base * clip.fps)
                if index in wanted:
                    frame.to_ndarray(format="rgb24")
                    frames += 1
                if index >= max(wanted):
                    break
    assert frames == spec.frames * len(clips)
    return len(clips)


def loaded(folder: Path, spec: WindowSpec, batch: int, workers: int) -> Callable[[], int]:
    clips = Corpus.open(folder).training()
    return lambda: sum(len(b.clips) for b in Loader(clips, spec, batch, seed=0, workers=workers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("clips", 32), ("width", 224), ("height", 128), ("size", 128), ("batch", 8), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    spec = WindowSpec(size=options.size)
    with tempfile.TemporaryDirectory() as temporary:
        plain, packed = Path(temporary) / "plain", Path(temporary) / "packed"
        make_corpus(plain, options.clips, options.width, options.height)
        pack(plain, packed, shard_bytes=4_000_000)
        clips = Corpus.open(plain).training()
        variants: dict[str, Callable[[], int]] = {}
        for workers in (0, 1, 2):
            for name, folder in (("folder", plain), ("tar", packed)):
                variants[f"loader, {name}, {workers} workers"] = loaded(folder, spec, options.batch, workers)
        plain_rates: list[float] = []
        rates: dict[str, list[float]] = {name: [] for name in variants}
        ratios: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(options.rounds):
            for name, variant in variants.items():
                plain_rates.append(rate(lambda: plain_pyav(plain, clips, spec)))
                rates[name].append(rate(variant))
                ratios[name].append(rates[name][-1] / plain_rates[-1])
    print(
        f"{options.clips} clips of {options.width}x{options.height}, windows of {spec.frames} frames at {spec.size} px"
    )
    print(f"{'plain PyAV loop':28s} {median(plain_rates):8.1f} clips/s    1.00x")
    for name in variants:
        print(f"{name:28s} {median(rates[name]):8.1f} clips/s   {median(ratios[name]):5.2f}x")


def rate(work: Callable[[], int]) -> float:
    start = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
