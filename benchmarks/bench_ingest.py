"""Hours of footage per core-hour of ingest, and what bounds it, beside plain decoding in the same run.

    python benchmarks/bench_ingest.py [FOOTAGE ...] [--rounds 3] [--workers 2]
    python benchmarks/bench_ingest.py --long 60 [--faces F.onnx --plates P.onnx]

Plain decoding opens each file with PyAV and decodes every frame in one thread; it converts, looks at and writes
nothing. Where there is a program `ffmpeg`, it decodes the same files to nowhere, in one thread as well. Ingest runs the
same files in one process with privacy off (what privacy costs depends on the detectors) and says how its time is
shared; then once more with worker processes for the time on the wall. Rates of one process are in its own CPU time, so
that other work on the machine does not count. Without FOOTAGE two streets are rendered: 1280x720 at 30 fps.

With `--long SECONDS`, one file of that length is ingested by one worker and by several, in turn, and the ratio of their
times on the wall is printed; with detectors, privacy is on.
"""

from __future__ import annotations

import argparse
import functools
import resource
import shutil
import subprocess
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


def ffmpeg_decode(files: Sequence[Path]) -> float | None:
    """CPU seconds that the program takes to decode the files; None where there is no such program."""
    program = shutil.which("ffmpeg")
    if program is None:
        return None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for file in files:
        words = [program, "-v", "error", "-nostdin", "-threads", "1", "-i", f"file:{file}", "-map", "0:v:0"]
        subprocess.run([*words, "-f", "null", "-"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


OFF = PrivacySettings(mode="off")


def timed_ingest(found: Sequence[Listed], engine: Engine, privacy: PrivacySettings = OFF) -> tuple[float, Ingested]:
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        result = ingest(Path(out), found, IngestSettings(), functools.partial(build, privacy), engine)
        return time.perf_counter() - began, result


def one_long_file(folder: Path, seconds: float, workers: int, rounds: int, privacy: PrivacySettings) -> None:
    write_video(folder / "Benchpur" / "long.mp4", street(0, seconds), 30)
    found = list_sources([folder / "Benchpur"], "walk")
    alone, together = [], []
    for _ in range(rounds):
        alone.append(timed_ingest(found, Processes(1), privacy)[0])
        together.append(timed_ingest(found, Processes(workers), privacy)[0])
    ratio = median(one / other for one, other in zip(alone, together, strict=True))
    print(f"one file of {seconds:g} s, privacy {privacy.mode}; seconds on the wall (median of {rounds})")
    print(f"{'1 worker':28s} {median(alone):8.1f}    1.00x")
    print(f"{f'{workers} workers':28s} {median(together):8.1f}   {ratio:5.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("footage", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--long", type=float, metavar="SECONDS", help="one rendered file instead, with 1 and N workers")
    parser.add_argument("--faces", nargs="*", default=[], help="with --long: face detectors, ONNX")
    parser.add_argument("--plates", nargs="*", default=[], help="with --long: registration-plate detectors, ONNX")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if options.long:
            on = PrivacySettings(faces=options.faces, plates=options.plates, device="cpu")
            privacy = on if options.faces or options.plates else OFF
            one_long_file(Path(temporary), options.long, options.workers, options.rounds, privacy)
            return
        footage = options.footage
        if not footage:
            footage = [Path(temporary) / "Benchpur"]
            for seed in range(2):
                write_video(footage[0] / f"{seed}.mp4", street(seed, 20), 30)
        found = [one for one in list_sources(footage, "walk") if not one.refused]
        cv2.setNumThreads(1)
        plain, program, ours, shares = [], [], [], []
        for _ in range(options.rounds):
            began = time.process_time()
            seconds = plain_decode([one.path for one in found])
            plain.append(seconds / (time.process_time() - began))
            if (spent := ffmpeg_decode([one.path for one in found])) is not None:
                program.append(seconds / spent)
            began = time.process_time()
            took, result = timed_ingest(found, Here())
            ours.append(result.seconds / (time.process_time() - began))
            shares.append({stage: result.spent.get(stage, 0.0) / took for stage in STAGES})
        took, result = timed_ingest(found, Processes(options.workers))
    print(f"{len(found)} files, {seconds / 60:.1f} minutes of footage; hours of footage per core-hour (median)")
    print(f"{'plain PyAV decoding':28s} {median(plain):8.1f}    1.00x")
    if program:
        faster = median(one / other for one, other in zip(program, plain, strict=True))
        print(f"{'ffmpeg -f null':28s} {median(program):8.1f}   {faster:5.2f}x")
    else:
        print("ffmpeg -f null: there is no program ffmpeg here")
    ratio = median(one / other for one, other in zip(ours, plain, strict=True))
    print(f"{'ingest, one process':28s} {median(ours):8.1f}   {ratio:5.2f}x")
    print("  of which " + ", ".join(f"{stage} {median(one[stage] for one in shares):.0%}" for stage in STAGES))
    print(f"{f'ingest, {options.workers} processes':28s} {result.seconds / took:8.1f} per hour on the wall")


if __name__ == "__main__":
    main()
