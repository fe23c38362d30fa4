"""What factorization costs: a training step of the predictor alone, against the plain monolithic one.

    python benchmarks/bench_predictor.py --arch vjepa2_1_vit_giant_384 --batch 4
    python benchmarks/bench_predictor.py                      # nano, on whatever is here
    python benchmarks/bench_predictor.py --batch 16 --agents 24 --neighbours 4 --filled 0.2    # as dense clips are

One step is forward, the whole objective and backward, on random context tokens, agents and pairs: under bf16 autocast
on a GPU, in fp32 on a CPU. Each variant is timed in the same process and given as a ratio to `monolithic`. Only torch
and numpy are needed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from factorjepa.backbones import build, names
from factorjepa.backbones.masks import future_split
from factorjepa.objective import FactorTargets, normalised_targets, objective
from factorjepa.predictors import (
    FactorizedOptions,
    FactorizedPredictor,
    LatentPredictor,
    MonolithicOptions,
    MonolithicPredictor,
    PerFactor,
)
from factorjepa.teacher.states import GEOMETRY, ObjectStates
from results import machine, publish

VARIANTS = {
    "monolithic": MonolithicOptions(),
    "monolithic recalled": MonolithicOptions(recalled=True),
    "monolithic late": MonolithicOptions(injection="late"),
    "monolithic direct": MonolithicOptions(injection="late", direct=True),
    "monolithic both": MonolithicOptions(injection="both"),
    "factorized": FactorizedOptions(),
    "factorized padded": FactorizedOptions(),  # as if nobody knew how many pairs each clip has
    "factorized both": FactorizedOptions(injection="both"),
    "factorized recalled": FactorizedOptions(recalled=True),
    "factorized carried": FactorizedOptions(recalled=True, carried=True),
    "factorized motion": FactorizedOptions(interactions="motion"),
    "factorized slots": FactorizedOptions(agents="slots"),
}


def agents(batch: int, count: int, neighbours: int, filled: float, device: torch.device) -> ObjectStates:
    """The first clip has all pairs, the others so many that `filled` of all places hold one."""
    generator = torch.Generator(device).manual_seed(0)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    geometry = uniform(batch, count, len(GEOMETRY))
    geometry[..., 2:4] = 0.05 + 0.1 * geometry[..., 2:4]
    geometry[..., 4:8] = 0.04 * (geometry[..., 4:8] - 0.5)
    first = torch.arange(count, device=device).repeat_interleave(neighbours)
    second = (first + 1 + torch.arange(count * neighbours, device=device) % neighbours) % count
    pairs = count * neighbours
    others = round(pairs * (filled * batch - 1) / max(1, batch - 1))
    counts = (pairs, *(max(0, min(pairs, others)),) * (batch - 1))
    return ObjectStates(
        F.normalize(uniform(batch, count, 64) - 0.5, dim=-1),
        geometry,
        torch.ones(batch, count, dtype=torch.bool, device=device),
        torch.arange(count, device=device).expand(batch, -1),
        torch.stack((first, second), dim=-1).expand(batch, -1, -1),
        torch.arange(pairs, device=device) < torch.tensor(counts, device=device)[:, None],
        context=12,
        pair_counts=counts,
    )


def measure(name: str, arguments: argparse.Namespace, device: torch.device) -> dict[str, object]:
    backbone = build(arguments.arch, device="meta")
    spec, options, batch = backbone.spec, VARIANTS[name], arguments.batch
    context_index, target_index = (
        part.expand(batch, -1).to(device) for part in future_split((spec.tubelets, *spec.grid), 12 // spec.tubelet)
    )
    model: LatentPredictor
    with device:
        torch.manual_seed(0)
        model = (
            FactorizedPredictor(spec, options)
            if isinstance(options, FactorizedOptions)
            else MonolithicPredictor(spec, options)
        )
        context = torch.randn(batch, context_index.shape[1], spec.levels_width)
        target = normalised_targets(torch.randn(batch, target_index.shape[1], spec.dim))
        wanted = FactorTargets(
            PerFactor(*(torch.randn(batch, 256) for _ in range(3))), PerFactor(*(torch.ones(batch) for _ in range(3))),
            torch.rand(batch, arguments.agents), torch.ones(batch, arguments.agents),
            torch.rand(batch, arguments.agents, 16, 2), torch.ones(batch, arguments.agents, 16).bool(),
        )  # fmt: skip
    model.set_recompute(arguments.recompute)
    states = agents(batch, arguments.agents, arguments.neighbours, arguments.filled, device)
    if name.endswith("padded"):
        states = dataclasses.replace(states, pair_counts=None)
    called = torch.compile(model, fullgraph=True) if arguments.compile else model
    on_gpu = device.type == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None

    def step() -> float:
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16) if on_gpu else contextlib.nullcontext():
            prediction = called(context, context_index, target_index, states)
        loss = objective(prediction, target, wanted).total
        loss.backward()
        return float(loss.detach())

    losses, milliseconds = [], []
    for number in range(arguments.warmup + arguments.runs):
        if number == arguments.warmup and on_gpu:
            torch.cuda.reset_peak_memory_stats()
        wait()
        start = time.perf_counter()
        losses.append(step())
        wait()
        if number >= arguments.warmup:
            milliseconds.append((time.perf_counter() - start) * 1e3)
    result: dict[str, object] = {
        "variant": name,
        "median_ms": statistics.median(milliseconds),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "same_loss_every_time": len(set(losses)) == 1,
    }
    if on_gpu:
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return result


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="nano", choices=names())
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--neighbours", type=int, default=12, help="pairs per agent")
    parser.add_argument("--filled", type=float, default=1.0, help="share of the batch's places for pairs that hold one")
    parser.add_argument("--recompute", action="store_true", help="recompute activations in the backward pass")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="also write the JSON line to this file")
    arguments = parser.parse_args(words)
    device = torch.device(arguments.device)
    where = machine(device)
    print(
        f"{arguments.arch}, batch {arguments.batch}, {arguments.agents} agents with {arguments.neighbours} pairs each, "
        f"{where}"
    )
    rows = []
    for name in dict.fromkeys(("monolithic", *arguments.variants)):
        if device.type == "cuda":
            torch.cuda.empty_cache()
        rows.append(row := measure(name, arguments, device))
        memory = f"   peak {row['peak_gib']:6.2f} GiB" if "peak_gib" in row else ""
        print(
            f"  {name:<20} {row['median_ms']:9.1f} ms   {row['median_ms'] / rows[0]['median_ms']:5.2f}x monolithic   "
            f"{row['parameters'] / 1e6:6.2f} M parameters{memory}"
            f"{'' if row['same_loss_every_time'] else '   NOT deterministic'}",
            flush=True,
        )
    result = {
        "benchmark": "predictor", "arch": arguments.arch, "machine": where, "torch": torch.__version__,
        "batch": arguments.batch, "agents": arguments.agents, "neighbours": arguments.neighbours,
        "filled": arguments.filled, "recompute": arguments.recompute, "compile": arguments.compile,
        "runs": arguments.runs, "rows": rows,
    }  # fmt: skip
    publish(result, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
