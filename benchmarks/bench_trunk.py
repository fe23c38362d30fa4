"""What the frozen-trunk cache saves: updates per second of a whole training step with it, against without.

    python benchmarks/bench_trunk.py --arch vjepa2_1_vit_giant_384 --device cuda --json trunk.json
    python benchmarks/bench_trunk.py --masks spread           # nano, on whatever is here

One update is the momentum target, both masked passes, L_JEPA, backward and AdamW, with V-JEPA's own predictor and the
top K blocks training; random weights and clips (time does not depend on them), no decoding. Records are written to and
read from files in `--folder`; at most `--clips` of them, read again and again, so they come from memory unless they
outgrow it (`--cold` drops them from the page cache before each update). The first pass over the clips, which makes the
records, is timed on its own. Torch, numpy and safetensors are enough.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

from factorjepa.adaptation import METHODS
from factorjepa.adaptation.prepare import Scope
from factorjepa.backbones import names
from factorjepa.objective import jepa_loss
from factorjepa.profiling.subject import random_backbone
from factorjepa.training.learner import Learner
from factorjepa.training.masking import training_masks
from factorjepa.training.trunk import DTYPES, Trunk, lowest_trained
from results import machine, publish

SIZES = {"nano": 64, "small": 64}  # as their presets have it; the others run at their own size


class Bench:
    """A learner with its optimiser, and clips in memory."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments, self.device = arguments, torch.device(arguments.device)
        method = dataclasses.replace(METHODS["auto_rgn"], encoder="top")
        torch.manual_seed(0)
        backbone = random_backbone(arguments.arch, self.device)
        spec = backbone.spec
        self.size = arguments.size or SIZES.get(arguments.arch, spec.pixels[0])
        backbone.encoder.recompute = arguments.recompute
        self.learner = Learner(backbone, method, Scope(arguments.blocks), 0.99925, 12, seed=0).to(self.device)
        self.learner.predictor.set_recompute(arguments.recompute)
        self.learner.enter(0)
        self.optimiser = self.learner.optimiser(1e-5, 0.04)
        self.clip_ids = [f"clip {number}" for number in range(arguments.clips)]
        self.video = torch.randn(arguments.clips, 3, 16, self.size, self.size)
        cut = lowest_trained(self.learner.weights(), spec.depth)
        self.trunk = Trunk(
            folder, self.learner.encoder, cut, self.clip_ids, frames=16, context=12, size=self.size,
            whole_context=arguments.masks == "spread", dtype=arguments.dtype,
        )  # fmt: skip

    def loss(self, step: int, cached: bool) -> Tensor:
        batch, learner = self.arguments.batch, self.learner
        rows = [(step * batch + row) % len(self.clip_ids) for row in range(batch)]
        video, clip_ids = self.video[rows].to(self.device), [self.clip_ids[row] for row in rows]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            known = self.trunk.of(video, clip_ids) if cached else None
            wanted = learner.future(video, trunk=known)
            passes = training_masks(self.arguments.masks, 0, 0, clip_ids, learner.context_grid(video), step)
            losses = [
                jepa_loss(learner.predict(video, visible.to(self.device), trunk=known).tokens_BtD, wanted)
                for visible in passes
            ]
            return torch.stack(losses).mean()

    @torch.no_grad()
    def difference(self) -> float:
        """Mean absolute difference of the first batch's Y*, made with and without records."""
        batch = self.arguments.batch
        video, clip_ids = self.video[:batch].to(self.device), self.clip_ids[:batch]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            known = self.trunk.of(video, clip_ids)
            return (self.learner.future(video, trunk=known) - self.learner.future(video)).abs().mean().item()

    def update(self, step: int, cached: bool) -> float:
        """One update; its seconds."""
        if self.arguments.cold and cached:
            self.drop_pages()
        self.wait()
        started = time.perf_counter()
        self.optimiser.zero_grad(set_to_none=True)
        self.loss(step, cached).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.learner.target.update()
        self.wait()
        return time.perf_counter() - started

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def drop_pages(self) -> None:
        for path in self.trunk.shards.folder.rglob("*.safetensors"):
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="nano", choices=names())
    parser.add_argument("--masks", default="blocks", choices=("blocks", "spread"))
    parser.add_argument("--dtype", default="fp16", choices=tuple(DTYPES))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=1, help="K, the blocks that train")
    parser.add_argument("--size", type=int, help="pixels (default: 64 for nano and small, else the architecture's own)")
    parser.add_argument("--clips", type=int, default=32)
    parser.add_argument("--updates", type=int, default=16, help="timed, each way")
    parser.add_argument("--recompute", action="store_true", help="activation checkpointing, as in the large presets")
    parser.add_argument("--cold", action="store_true", help="records come from the disk, not from memory")
    parser.add_argument("--folder", type=Path, help="where the records go (default: the system's temporary folder)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="also write the JSON line to this file")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    arguments = parse(words)
    device = torch.device(arguments.device)
    where = machine(device)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        bench = Bench(arguments, Path(folder) / "trunk")
        print(f"{arguments.arch}, {bench.size} px, masks {arguments.masks}, batch {arguments.batch}, {where}")
        print(f"  {bench.trunk}", flush=True)
        filling = -(-arguments.clips // arguments.batch)
        with bench.trunk:
            difference = bench.difference()
            for step in range(2):  # warm up both ways
                bench.update(step, cached=False)
            fill = [bench.update(step, cached=True) for step in range(1, filling)]
        ways: dict[str, list[float]] = {"without": [], "with": []}
        for step in range(arguments.updates):  # in turn, so that a busy machine is busy for both
            ways["without"].append(bench.update(step, cached=False))
            ways["with"].append(bench.update(step, cached=True))
    seconds = {name: statistics.median(times) for name, times in ways.items()}
    seconds["making records"] = statistics.median(fill)
    for name, value in seconds.items():
        print(f"  {name:<15} {1 / value:8.3f} updates/s   {seconds['without'] / value:5.2f}x without")
    print(f"  Y* from {arguments.dtype} records (its values have variance 1): {difference:.1e} off in the mean")
    result = {
        "benchmark": "trunk", "arch": arguments.arch, "size": bench.size, "masks": arguments.masks,
        "batch": arguments.batch, "trainable_blocks": arguments.blocks, "dtype": arguments.dtype,
        "recompute": arguments.recompute, "cold": arguments.cold, "machine": where, "torch": torch.__version__,
        "bytes_per_clip": bench.trunk.bytes_per_clip, "mean_difference_of_targets": difference,
        "updates_per_second": {name: 1 / value for name, value in seconds.items()},
        "speed_up": seconds["without"] / seconds["with"],
    }  # fmt: skip
    publish(result, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
