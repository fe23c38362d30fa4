"""Opening a packet cache and reading packets at random, against one .npz file per packet in the same run.

    python benchmarks/bench_packets.py [--packets 10000] [--reads 2000] [--agents 12] [--cells 600] [--rounds 3]

Both hold the same columns of the same synthetic packets, with the sizes of dense simulated clips at 128 px. "read"
copies every column into memory, as np.load does; "view" hands out slices of the memory map, as the cache does when
asked. Opening means: header, all shards mapped, every clip looked up; and for the files, a listing of the folder. What
was just written is in the page cache for both. The median of the rounds counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from factorjepa.corpus.access import Corpus, TrainingClips
from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.corpus.splits import Split
from factorjepa.teacher.cache import PacketCache, corpus_identity, shard_folder, write_header
from factorjepa.teacher.making import PER_SHARD
from factorjepa.teacher.packet import COLUMNS, Packet, projections_for
from factorjepa.teacher.packet_shards import write_shard
from factorjepa.teacher.settings import TeacherSettings

SETTINGS = TeacherSettings()
FRAMES, WIDTH, DESCRIPTOR = SETTINGS.frames, SETTINGS.targets.width, SETTINGS.targets.descriptor_width
TRAILING = {
    "times": (FRAMES,), "layout": (WIDTH,), "agents": (WIDTH,), "interactions": (WIDTH,), "reliability": (3,),
    "chain": (FRAMES, 3, 3), "track_visibility_frames": (FRAMES,), "track_known": (FRAMES,), "pair_tracks": (2,),
    "pair_descriptor": (11,), "region_place": (4,), "region_descriptor": (DESCRIPTOR,), "cell_extent": (4,),
    "cell_descriptor": (DESCRIPTOR,),
}  # fmt: skip


def random_packet(seed: int, agents: int, cells: int) -> Packet:
    random = np.random.default_rng(seed)
    rows = {"tracks": agents, "pairs": 5 * agents, "regions": 14 * agents, "runs": 14 * agents * 20, "cells": cells}
    values = {}
    for name, (table, dtype) in COLUMNS.items():
        shape = (() if table is None else (rows[table],)) + TRAILING.get(name, ())
        values[name] = (random.random(shape) * 4).astype(dtype)
    values["slots"] = np.asarray(agents, np.int32)
    values["cell_slot"] = random.integers(0, agents, cells).astype(np.uint8)
    values["cell_frame"] = random.integers(0, SETTINGS.context, cells).astype(np.uint8)
    values["region_runs"] = np.full(rows["regions"], 20, np.uint32)
    return Packet(**values)


def make(folder: Path, count: int, agents: int, cells: int) -> tuple[Path, Path]:
    """A corpus of `count` training clips with packets in a cache and, the same ones, in single files."""
    clips = []
    for number in range(count):
        source = f"benchpur/s00/v{number:06d}"
        place = (f"{source}#0.0", "benchpur", "s00", source, 0, "walk", 0.0, 8.0, 12.0, 128, 128)
        clips.append(Clip(*place, f"clips/{source}.mp4", Split.TRAIN))
    manifest = Manifest(clips)
    manifest.write(folder)
    cache, files = folder / "targets", folder / "files"
    files.mkdir()
    header = {"digest": SETTINGS.digest(), "settings": SETTINGS.model_dump(mode="json"), "features": "none",
              "regions": "none", "corpus": corpus_identity(manifest)}  # fmt: skip
    write_header(cache, header, projections_for(8, SETTINGS))
    kinds = [random_packet(seed, agents, cells) for seed in range(PER_SHARD)]
    about = {"digest": SETTINGS.digest(), "replication": 0, "split": "train"}
    for number, start in enumerate(range(0, count, PER_SHARD)):
        ids = [clip.clip_id for clip in clips[start : start + PER_SHARD]]
        write_shard(shard_folder(cache, 0) / f"train-{number:05d}.safetensors", ids, kinds[: len(ids)], about)
    for number in range(count):
        np.savez(files / f"{number:06d}.npz", **vars(kinds[number % PER_SHARD]))
    return cache, files


def timed(work: Callable[[], object], rounds: int) -> float:
    """Median seconds of wall time."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"packets": 10_000, "reads": 2_000, "agents": 12, "cells": 600, "rounds": 3, "batch": 8}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        cache, files = make(Path(temporary), options.packets, options.agents, options.cells)
        clips: TrainingClips = Corpus.open(Path(temporary)).training()
        size = sum(path.stat().st_size for path in cache.rglob("*.safetensors")) / options.packets / 1000
        print(f"{options.packets} packets of {size:.0f} kB")
        opening = timed(lambda: PacketCache.open(cache).packets(clips), options.rounds)
        listing = timed(lambda: sorted(files.iterdir()), options.rounds)
        print(f"open: cache {opening * 1000:.0f} ms; listing {options.packets} files {listing * 1000:.0f} ms")
        packets, paths = PacketCache.open(cache).packets(clips), sorted(files.iterdir())
        order = np.random.default_rng(0).integers(0, options.packets, options.reads).tolist()
        chosen = [clips[index] for index in order]

        def view() -> None:
            for clip in chosen:
                packets.of(clip)

        def read() -> None:
            for clip in chosen:
                {name: np.array(value) for name, value in vars(packets.of(clip)).items()}

        def load() -> None:
            for index in order:
                with np.load(paths[index]) as stored:
                    {name: stored[name] for name in stored.files}

        def collate() -> None:
            for start in range(0, len(chosen), options.batch):
                packets.collate(chosen[start : start + options.batch])

        plain = timed(load, options.rounds)
        print(f"{'np.load of one .npz per packet':34s} {options.reads / plain:9.0f} packets/s    1.0x")
        for name, work in (
            ("cache, read", read),
            ("cache, view", view),
            (f"cache, batches of {options.batch}", collate),
        ):
            seconds = timed(work, options.rounds)
            print(f"{name:34s} {options.reads / seconds:9.0f} packets/s  {plain / seconds:5.1f}x")


if __name__ == "__main__":
    main()
