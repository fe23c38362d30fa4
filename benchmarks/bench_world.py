"""Speed of the simulated world: windows per second without a file, and clips to disk against real time.

    python benchmarks/bench_world.py                  # one core, then two worker processes
    python benchmarks/bench_world.py --workers 8 --json world.json

Per core: windows of 16 frames straight from the simulator, beside the same windows read back from H.264 files; seconds
of video per second of work for rendering and encoding, and for everything (ground truth and counterfactuals included);
and a profile that says where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import platform
import pstats
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from factorjepa.config import resolve
from factorjepa.corpus.simulated import SimulationPlan, simulate_corpus
from factorjepa.video import read_frames, write_video
from factorjepa.world import WorldSettings, clips
from factorjepa.world.windows import source_windows, stream_windows

STAGES = {  # what the profile adds up, by function
    "dynamics": ("motion.py", "simulate_together"),
    "street and textures": ("simulator.py", "_scene"),
    "empty street (rays)": ("backdrop.py", "view"),
    "bodies": ("renderer.py", "_blend"),
    "where bodies are, and their pictures": ("renderer.py", "_in_view"),
    "pictures of bodies": ("sprites.py", "pictures_of"),
    "faces of close bodies": ("closeups.py", "close_ups"),
    "shadows": ("renderer.py", "_shadows"),
    "encoding": ("~", "<method 'encode' of 'av.video.stream.VideoStream' objects>"),
    "interactions (counterfactuals)": ("interactions.py", "find_interactions"),
    "truth to bytes": ("truth.py", "to_bytes"),
}


def timed(work: Callable[[], float]) -> float:
    """Amount of work per second of this process's CPU time."""
    start = time.process_time()
    amount = work()
    return amount / (time.process_time() - start)


def profile(work: Callable[[], object]) -> dict[str, float]:
    """Share of the time per stage."""
    profiler = cProfile.Profile()
    profiler.runcall(work)
    stats = pstats.Stats(profiler)
    total: float = stats.total_tt  # type: ignore[attr-defined]
    shares = {}
    for stage, (file, function) in STAGES.items():
        for (path, _, name), (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
            if name == function and (path == file or path.endswith(f"world/{file}")):
                shares[stage] = cumulative / total
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="dense")
    parser.add_argument("--sources", type=int, default=16, help="sources per measurement (about 9 windows each)")
    parser.add_argument("--warm", type=int, default=24, help="sources before it, to fill the picture cache")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    settings = resolve(WorldSettings, arguments.preset)
    first, last = arguments.warm, arguments.warm + arguments.sources
    result: dict[str, object] = {"preset": arguments.preset, "machine": platform.processor() or platform.machine()}

    for source in range(first):
        source_windows(settings, 3, source)
    rates = [timed(lambda s=source: len(source_windows(settings, 3, s))) for source in range(first, last)]
    result["windows_per_second_and_core"] = round(float(np.median(rates)), 1)

    with tempfile.TemporaryDirectory() as folder:
        paths = []
        chosen = clips(settings, 3, range(first * 5, first * 5 + 5))
        for clip in chosen:
            paths.append(Path(folder) / f"{clip.spec.index}.mp4")
            write_video(paths[-1], clip.frames(), settings.fps)
        times = np.arange(16) / 4.0
        result["windows_per_second_from_mp4"] = round(
            float(np.median([timed(lambda p=p: read_frames(p, times) is not None) for p in paths * 4])), 1
        )

        def render_and_encode() -> float:
            return (
                sum(write_video(Path(folder) / "r.mp4", clip.frames(), settings.fps) for clip in chosen) / settings.fps
            )

        result["render_and_encode_times_real_time"] = round(timed(render_and_encode), 1)

        def everything(out: str) -> float:
            plan = SimulationPlan(seed=3, clips=first * 5 + 15, world=settings)
            from factorjepa.corpus.simulated import _make_source

            seconds = 0.0
            for source in range(first, first + 3):
                indices = list(range(source * 5, source * 5 + 5))
                _make_source(Path(folder) / out, plan.world.model_dump(), 3, indices)
                seconds += sum(clip.seconds for clip in clips(settings, 3, indices, seconds=[0.1] * 5))
            return seconds

        result["everything_times_real_time"] = round(timed(lambda: everything("a")), 1)
        shares = profile(lambda: everything("b"))

        start = time.perf_counter()
        manifest = simulate_corpus(
            Path(folder) / "c", SimulationPlan(seed=3, clips=60, world=settings), arguments.workers
        )
        video = sum(clip.seconds for clip in manifest)
        result[f"simulate_{arguments.workers}_workers_times_real_time"] = round(
            video / (time.perf_counter() - start), 1
        )

    start = time.perf_counter()
    count = sum(1 for _ in stream_windows(settings, 3, range(first, last + arguments.sources), arguments.workers))
    result[f"windows_per_second_{arguments.workers}_workers"] = round(count / (time.perf_counter() - start), 1)

    for name, value in result.items():
        print(f"{name.replace('_', ' '):<44} {value}")
    print("\nwhere the time of `simulate` goes (shares overlap with what they contain)")
    for stage, share in sorted(shares.items(), key=lambda item: -item[1]):
        print(f"  {stage:<38} {share:6.1%}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result | {"profile": shares}, indent=2))


if __name__ == "__main__":
    main()
