"""How many clips one core hands to training, by where they come from, beside what one GPU takes.

    python benchmarks/bench_feeding.py                                                       # a study of nano: 64 px
    python benchmarks/bench_feeding.py --arch vjepa2_1_vit_giant_384 --width 854 --height 480 --eats 18.6 --cached 37.8

Three ways, each in turn, the quickest of `--rounds`: the loader decodes clips from video (seek, decode, resize); the
loader copies windows that were decoded before (`corpus/decoded_windows.py`); the trunk cache's target records are read
from their shards (`training/trunk_shards.py`), the first time with their checksum and then without. Rates are clips per
CPU second of this process, all its threads together, so that other work on the machine disturbs them little; files
come from memory, so a slow disk is not in them. Clips are the made-up street of `bench_loader.py`, records random
numbers of the right shape. `--eats` is what a GPU trains per second, `--cached` the same with the trunk cache, where it
needs both: masked passes see the pixels.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import torch

from bench_loader import make_corpus
from factorjepa.backbones import names
from factorjepa.backbones.spec import BackboneSpec, resolve
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.decoded_windows import decode_windows
from factorjepa.corpus.loader import Loader
from factorjepa.corpus.splits import Split
from factorjepa.corpus.windows import WindowSpec
from factorjepa.training.trunk_shards import RecordShards
from results import publish

SIZES = {"nano": 64, "small": 64}  # as their presets have it; the others run at their own size


def cpu_rate(work: Callable[[], int]) -> float:
    """Clips per CPU second."""
    start = time.process_time()
    count = work()
    return count / (time.process_time() - start)


def loaded(folder: Path, spec: WindowSpec, batch: int, decoded: Path | None) -> Callable[[], int]:
    clips = Corpus.open(folder).training()
    return lambda: sum(len(b.clips) for b in Loader(clips, spec, batch, seed=0, decoded=decoded))


class Records:
    """Shards with a target record for each of some clips, read batch by batch as `Trunk` reads them."""

    def __init__(self, folder: Path, spec: BackboneSpec, window: WindowSpec, clips: int, batch: int) -> None:
        side = window.size // spec.patch
        self.shape = (1, window.frames // spec.tubelet * side * side, spec.dim)
        self.folder, self.batch, self.ids = folder, batch, [f"clip {number}" for number in range(clips)]
        record = torch.randn(self.shape, generator=torch.Generator().manual_seed(0)).half()
        with RecordShards(folder, {}) as shards:
            for clip_id in self.ids:
                shards.add("target", clip_id, record)
        self.open()

    @property
    def megabytes(self) -> float:
        return math.prod(self.shape) * 2 / 1e6

    def open(self) -> None:
        """As a run that begins: nothing has been compared with its checksum yet."""
        self.shards = RecordShards(self.folder, {})

    def read(self) -> int:
        for start in range(0, len(self.ids), self.batch):
            part = self.ids[start : start + self.batch]
            assert not self.shards.read("target", part, torch.empty(len(part), *self.shape, dtype=torch.float16))
        return len(self.ids)

    def read_first(self) -> int:
        self.open()
        return self.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="nano", choices=names())
    parser.add_argument("--size", type=int, help="pixels (default: 64 for nano and small, else the architecture's own)")
    for name, default in (("clips", 32), ("width", 128), ("height", 128), ("batch", 8), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--eats", type=float, help="clips that one GPU trains on in a second")
    parser.add_argument("--cached", type=float, help="the same with the trunk cache")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    spec = resolve(options.arch)
    window = WindowSpec(size=options.size or SIZES.get(options.arch, spec.pixels[0]))
    with tempfile.TemporaryDirectory() as temporary:
        corpus, windows = Path(temporary) / "corpus", Path(temporary) / "windows"
        make_corpus(corpus, options.clips, options.width, options.height)
        decode_windows(corpus, windows, [Split.TRAIN], window, workers=1)
        records = Records(Path(temporary) / "records", spec, window, options.clips, options.batch)
        pixels = (options.eats, options.cached)
        ways: dict[str, tuple[Callable[[], int], tuple[float | None, ...]]] = {
            "video, decoded by the loader": (loaded(corpus, window, options.batch, None), pixels),
            "windows that were decoded before": (loaded(corpus, window, options.batch, windows), pixels),
            "trunk records, first epoch that reads": (records.read_first, (options.cached,)),
            "trunk records, later": (records.read, (options.cached,)),
        }
        rates: dict[str, float] = {}
        for _ in range(options.rounds):
            for name, (work, _) in ways.items():
                rates[name] = max(rates.get(name, 0.0), cpu_rate(work))
    print(
        f"{options.arch}, {window.frames} frames at {window.size} px out of {options.width}x{options.height} H.264; a "
        f"window has {window.frames * window.size**2 * 3 / 1e6:.1f} MB, a target record {records.megabytes:.1f} MB"
    )
    first = next(iter(rates.values()))
    for name, (_, eaten) in ways.items():
        cores = ", ".join(f"{clips / rates[name]:.2f} cores for {clips:g} clips/s" for clips in eaten if clips)
        print(f"{name:38s} {rates[name]:9.1f} clips/s and core {rates[name] / first:7.1f}x  {cores}")
    publish({"arch": options.arch, "size": window.size, "width": options.width, "height": options.height,
             "megabytes": records.megabytes, "clips_per_core_second": rates}, options.json)  # fmt: skip


if __name__ == "__main__":
    main()
