"""Hours of footage per core-hour of ingest, and what bounds it, beside plain decoding in the same run.

    python benchmarks/bench_ingest.py [FOOTAGE ...] [--rounds 3] [--workers 2]

Plain decoding opens each file with PyAV and decodes every frame in one thread; it converts, looks at and writes
nothing. Ingest runs the same files in one process with privacy off (what privacy costs depends on the detectors) and
says how its time is shared; then once more with worker processes for the time on the wall. Rates of one process are in
its own CPU time, so that other work on the machine does not count. Without FOOTAGE two streets are rendered: 1280x720
at 30 fps.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import av
import cv2
import numpy as np

from factorjepa.engines import Engine, Here, Processes
from factorjepa.footage.ingest import Ingested, ingest
from factorjepa.footage.listing import Listed, list_sources
from factorjepa.footage.privacy import PrivacySettings, build
from factorjepa.footage.settings import IngestSettings
from factorjepa.video import Frames, write_video

STAGES = ("decode", "shots", "resize", "quality", "privacy", "encode")


def street(seed: int, seconds: float, fps: float = 30.0, width: int = 1280, height: int = 720) -> Iterator[Frames]:
    """A textured ground that moves under forty textured boxes."""
    rng = np.random.default_rng(seed)
    ground = cv2.GaussianBlur(rng.integers(0, 256, (height, 4 * width, 3), dtype=np.uint8), (0, 0), 2)
    boxes = rng.uniform((0, 0, -6, -1), (width, height, 6, 1), (40, 4))
    colours = rng.integers(0, 256, (40, 3))
    for step in range(round(seconds * fps)):
        frame = ground[:, 2 * step % (3 * width) :][:, :width].copy()
        for (x, y, dx, dy), colour in zip(boxes, colours, strict=True):
            left, top = int(x + dx * step) % width, int(y + dy * step) % height
            frame[top : top + height // 8, left : left + width // 16] = colour
        yield np.asarray(frame, dtype=np.uint8)


def plain_decode(files: Sequence[Path]) -> float:
    """Seconds of footage decoded."""
    seconds = 0.0
    for file in files:
        with av.open(str(file)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "NONE"
            frames = sum(1 for _ in container.decode(stream))
            seconds += frames / float(stream.average_rate or 25)
    return seconds


def timed_ingest(found: Sequence[Listed], engine: Engine) -> tuple[float, Ingested]:
    off = functools.partial(build, PrivacySettings(mode="off"))
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        result = ingest(Path(out), found, IngestSettings(), off, engine)
        return time.perf_counter() - began, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("footage", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        footage = options.footage
        if not footage:
            footage = [Path(temporary) / "Benchpur"]
            for seed in range(2):
                write_video(footage[0] / f"{seed}.mp4", street(seed, 20), 30)
        found = [one for one in list_sources(footage, "walk") if not one.refused]
        cv2.setNumThreads(1)
        plain, ours, shares = [], [], []
        for _ in range(options.rounds):
            began = time.process_time()
            seconds = plain_decode([one.path for one in found])
            plain.append(seconds / (time.process_time() - began))
            began = time.process_time()
            took, result = timed_ingest(found, Here())
            ours.append(result.seconds / (time.process_time() - began))
            shares.append({stage: result.spent.get(stage, 0.0) / took for stage in STAGES})
        took, result = timed_ingest(found, Processes(options.workers))
    print(f"{len(found)} files, {seconds / 60:.1f} minutes of footage; hours of footage per core-hour (median)")
    print(f"{'plain PyAV decoding':28s} {median(plain):8.1f}    1.00x")
    ratio = median(one / other for one, other in zip(ours, plain, strict=True))
    print(f"{'ingest, one process':28s} {median(ours):8.1f}   {ratio:5.2f}x")
    print("  of which " + ", ".join(f"{stage} {median(one[stage] for one in shares):.0%}" for stage in STAGES))
    print(f"{f'ingest, {options.workers} processes':28s} {result.seconds / took:8.1f} per hour on the wall")


if __name__ == "__main__":
    main()
