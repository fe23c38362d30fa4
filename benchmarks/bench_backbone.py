"""Latency of predicting the future: encoder on the context frames, then the predictor, at small batch.

    python benchmarks/bench_backbone.py --arch vjepa2_1_vit_giant_384 --json giant.json
    python benchmarks/bench_backbone.py --arch vjepa2_1_vit_gigantic_384 --ways graphs --parts    # one row alone
    python benchmarks/bench_backbone.py                       # nano, on whatever is here

Each way of running is timed in the same process and reported against `--against` (by default eager with fp32 weights
under autocast, which is how the released code runs; on a CPU, plain eager). Weights are random: time does not depend on
them. Only torch and numpy are needed.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from factorjepa.backbones import Backbone, build, names
from factorjepa.backbones.blocks import fastest_attention
from factorjepa.backbones.masks import future_split
from results import machine, publish

GOALS_MS = {"vjepa2_1_vit_giant_384": 35.0, "vjepa2_1_vit_gigantic_384": 60.0}  # H200, batch 1, median
COMPILE_MODES = {"compiled": None, "graphs": "reduce-overhead", "autotuned": "max-autotune"}
WAYS = ("autocast", "eager", *COMPILE_MODES)


def random_backbone(arch: str, device: torch.device, dtype: torch.dtype) -> Backbone:
    """Built on the device itself: initialising 2B parameters on a CPU takes longer than the benchmark."""
    backbone = build(arch, device="meta").to(dtype).to_empty(device=device).eval().requires_grad_(False)
    for module in backbone.modules():
        for parameter in module.parameters(recurse=False):
            parameter.normal_(std=0.02)
        if isinstance(module, nn.LayerNorm):
            module.weight.fill_(1.0)
    return backbone


def timed(run: Callable[[], object], device: torch.device, warmup: int, runs: int) -> list[float]:
    """Milliseconds of each run, from the call until the device is done."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    milliseconds = []
    for number in range(warmup + runs):
        wait()
        start = time.perf_counter()
        run()
        wait()
        if number >= warmup:
            milliseconds.append((time.perf_counter() - start) * 1e3)
    return milliseconds


def measure(way: str, arguments: argparse.Namespace, device: torch.device) -> dict[str, object]:
    low = torch.bfloat16 if device.type == "cuda" else torch.float32
    weights = torch.float32 if way == "autocast" else low
    backbone = random_backbone(arguments.arch, device, weights)
    spec = backbone.spec
    tubelets = arguments.context_frames // spec.tubelet
    split = future_split((spec.tubelets, *spec.grid), tubelets)
    context_index, target_index = (part.expand(arguments.batch, -1).to(device) for part in split)
    video = torch.randn(arguments.batch, 3, arguments.context_frames, *spec.pixels, device=device, dtype=weights)

    def encode(clip: Tensor) -> Tensor:
        levels: Tensor = backbone.encoder(clip, levels=True)
        return levels

    def predict(levels: Tensor) -> Tensor:
        target: Tensor = backbone.predictor(levels, context_index, target_index)[0]
        return target

    def both(clip: Tensor) -> Tensor:
        return predict(encode(clip))

    steps: dict[str, Callable[[Tensor], Tensor]] = {"both": both, "encoder": encode, "predictor": predict}
    if way in COMPILE_MODES:
        steps = {name: torch.compile(step, fullgraph=True, mode=COMPILE_MODES[way]) for name, step in steps.items()}
    autocast = torch.autocast("cuda", torch.bfloat16) if way == "autocast" else contextlib.nullcontext()
    attention = fastest_attention() if arguments.attention == "cudnn" else contextlib.nullcontext()
    result: dict[str, object] = {"way": way, "weights": str(weights).removeprefix("torch.")}
    with torch.no_grad(), autocast, attention:
        inputs = {"both": video, "encoder": video, "predictor": encode(video).to(weights)}
        for name in steps if arguments.parts else ("both",):
            step, given = steps[name], inputs[name]
            begin = time.perf_counter()
            step(given)
            first = time.perf_counter() - begin

            def run(step: Callable[[Tensor], Tensor] = step, given: Tensor = given) -> None:
                if way in COMPILE_MODES:
                    torch.compiler.cudagraph_mark_step_begin()
                step(given)

            milliseconds = timed(run, device, arguments.warmup, arguments.runs)
            result[name] = {
                "median_ms": statistics.median(milliseconds),
                "p95_ms": sorted(milliseconds)[max(0, round(0.95 * len(milliseconds)) - 1)],
                "first_call_s": first,
            }
    if device.type == "cuda":
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return result


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="nano", choices=names())
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="default: all on a GPU, eager on a CPU")
    parser.add_argument("--against", choices=WAYS, help="the way that ratios are given against")
    parser.add_argument("--attention", choices=("cudnn", "default"), default="cudnn", help="preferred SDPA backend")
    parser.add_argument("--parts", action="store_true", help="time encoder and predictor alone as well")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--context-frames", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="also write the JSON line to this file")
    arguments = parser.parse_args(words)
    on_gpu = arguments.device.startswith("cuda")
    arguments.ways = arguments.ways or (list(WAYS) if on_gpu else ["eager"])
    if not on_gpu and "autocast" in arguments.ways:
        parser.error("autocast is timed on a GPU only")
    if arguments.against not in arguments.ways:
        arguments.against = arguments.ways[0]
    return arguments


def main(words: list[str]) -> int:
    arguments = parse(words)
    device = torch.device(arguments.device)
    where = machine(device)
    print(f"{arguments.arch}, {arguments.context_frames} context frames, batch {arguments.batch}, {where}")
    rows = []
    for way in arguments.ways:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        torch.compiler.reset()
        rows.append(measure(way, arguments, device))
        both = rows[-1]["both"]
        reference = next((row["both"]["median_ms"] for row in rows if row["way"] == arguments.against), None)
        ratio = f"{reference / both['median_ms']:.2f}x {arguments.against}" if reference else ""
        parts = "".join(
            f", {name} {rows[-1][name]['median_ms']:.1f}" for name in ("encoder", "predictor") if name in rows[-1]
        )
        peak = f", peak {rows[-1]['peak_gib']:.1f} GiB" if "peak_gib" in rows[-1] else ""
        print(
            f"  {way:<10} median {both['median_ms']:8.2f} ms   p95 {both['p95_ms']:8.2f} ms   {ratio}{parts}{peak}, "
            f"first call {both['first_call_s']:.0f} s",
            flush=True,
        )
    best = min(rows, key=lambda row: row["both"]["median_ms"])
    goal = GOALS_MS.get(arguments.arch)
    if goal is not None:
        verdict = "met" if best["both"]["median_ms"] <= goal else "NOT met"
        print(f"  goal (H200, batch 1): at most {goal:.0f} ms median: {verdict} by {best['way']}")
    result = {
        "benchmark": "backbone", "arch": arguments.arch, "machine": where, "torch": torch.__version__,
        "batch": arguments.batch, "context_frames": arguments.context_frames, "runs": arguments.runs,
        "attention": arguments.attention, "goal_ms": goal, "rows": rows,
    }  # fmt: skip
    publish(result, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
