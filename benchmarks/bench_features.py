"""Frames per second of frozen DINOv2 features, against transformers' model with the same weights in the same run.

    python benchmarks/bench_features.py --arch dinov2_vitg14_reg --device cuda --json dinov2.json
    python benchmarks/bench_features.py                       # ViT-S on whatever is here

Weights are random: time does not depend on them; what the two models compute is compared nonetheless. Only torch,
numpy and transformers are needed.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorjepa.backbones.blocks import fastest_attention
from factorjepa.backbones.dinov2 import PATCH, SPECS, Dinov2, Dinov2Spec, build_dinov2
from results import machine, publish

COMPILE_MODES = {"compiled": None, "graphs": "reduce-overhead"}
WAYS = ("transformers", "transformers compiled", "ours", *(f"ours {mode}" for mode in COMPILE_MODES))


def transformers_model(spec: Dinov2Spec, size: int, device: torch.device | str = "cpu") -> Any:
    """transformers' DINOv2 of these sizes, its table of positions for `size` px, without weights worth anything."""
    from transformers import Dinov2Config, Dinov2Model, Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    sizes = {
        "hidden_size": spec.dim, "num_hidden_layers": spec.depth, "num_attention_heads": spec.heads, "mlp_ratio": 4,
        "use_swiglu_ffn": spec.swiglu, "image_size": size, "patch_size": PATCH,
    }  # fmt: skip
    with torch.device(device):
        if spec.registers:
            return Dinov2WithRegistersModel(Dinov2WithRegistersConfig(num_register_tokens=spec.registers, **sizes))
        return Dinov2Model(Dinov2Config(**sizes))


def to_transformers(state: Mapping[str, Tensor], names: Mapping[str, Any]) -> dict[str, Tensor]:
    """Released keys to those of transformers (`names`: its state dict, because its versions name them differently)."""
    separate = any(".q_proj." in name for name in names)
    converted = {}
    for key, tensor in state.items():
        if not key.startswith("blocks."):
            converted[_outside_blocks(key)] = tensor
            continue
        _, number, part, *inner = key.split(".")
        layer, kind = f"encoder.layer.{number}", inner[-1]
        if inner[0] == "qkv":
            heads = ("q_proj", "k_proj", "v_proj") if separate else ("query", "key", "value")
            place = "attention" if separate else "attention.attention"
            converted |= {
                f"{layer}.{place}.{head}.{kind}": third for head, third in zip(heads, tensor.chunk(3), strict=True)
            }
        elif inner[0] == "w12" and f"{layer}.mlp.gate_proj.{kind}" in names:
            gate, value = tensor.chunk(2)
            converted |= {f"{layer}.mlp.gate_proj.{kind}": gate, f"{layer}.mlp.up_proj.{kind}": value}
        else:
            inside = {
                ("attn", "proj"): "attention.o_proj" if separate else "attention.output.dense",
                ("mlp", "w12"): "mlp.weights_in",
                ("mlp", "w3"): "mlp.down_proj" if f"{layer}.mlp.down_proj.{kind}" in names else "mlp.weights_out",
                ("ls1", "gamma"): "layer_scale1.lambda1",
                ("ls2", "gamma"): "layer_scale2.lambda1",
            }
            renamed = inside.get((part, inner[0]))
            ending = "" if inner[0] == "gamma" else f".{kind}"
            converted[f"{layer}.{renamed}{ending}" if renamed else f"{layer}.{'.'.join((part, *inner))}"] = tensor
    return converted


def _outside_blocks(key: str) -> str:
    renamed = {"pos_embed": "position_embeddings", "patch_embed.proj": "patch_embeddings.projection"}
    if key.startswith("norm."):
        return f"layernorm.{key.removeprefix('norm.')}"
    stem, _, kind = key.rpartition(".") if key.startswith("patch_embed") else (key, "", "")
    return f"embeddings.{renamed.get(stem, stem)}{'.' if kind else ''}{kind}"


def random_model(spec: Dinov2Spec, device: torch.device, dtype: torch.dtype) -> Dinov2:
    """Built on the device itself: initialising a billion parameters on a CPU takes longer than the benchmark."""
    model = build_dinov2(spec, device="meta").to(dtype).to_empty(device=device).eval().requires_grad_(False)
    generator = torch.Generator(device).manual_seed(0)
    for name, parameter in model.named_parameters():
        if name.endswith(("gamma", "norm1.weight", "norm2.weight", "norm.weight")):
            parameter.fill_(1.0)
        else:
            parameter.normal_(std=0.02, generator=generator)
    return model


def timed(run: Callable[[], object], device: torch.device, warmup: int, runs: int) -> list[float]:
    """Seconds of each run, from the call until the device is done; on a CPU, those that this process was given."""
    on_gpu = device.type == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    clock = time.perf_counter if on_gpu else time.process_time
    seconds = []
    for number in range(warmup + runs):
        wait()
        start = clock()
        run()
        wait()
        if number >= warmup:
            seconds.append(clock() - start)
    return seconds


def same_in_transformers(ours: Dinov2, size: int, device: torch.device, dtype: torch.dtype) -> Any:
    """transformers' model with the weights of `ours`, and its positions at `size` px."""
    theirs = transformers_model(ours.spec, size, "meta").to(dtype).to_empty(device=device).eval()
    state = ours.state_dict()
    side = size // PATCH
    state["pos_embed"] = torch.cat((ours.pos_embed[:, :1], ours.positions(side, side)), dim=1)
    theirs.load_state_dict(to_transformers(state, theirs.state_dict()), strict=True)
    return theirs.requires_grad_(False)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="dinov2_vits14", choices=tuple(SPECS))
    parser.add_argument("--size", type=int, default=518, help="pixels of the square frame, a multiple of 14")
    parser.add_argument("--batch", type=int, help="frames at once; default: 32 on a GPU, 1 on a CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="default: bfloat16 on a GPU")
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="default: all on a GPU, the uncompiled on a CPU")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="of torch on a CPU, where CPU seconds are counted")
    parser.add_argument("--json", type=Path, help="also write the JSON line to this file")
    arguments = parser.parse_args(words)
    on_gpu = arguments.device.startswith("cuda")
    if arguments.size % PATCH:
        parser.error(f"--size must be a multiple of {PATCH}")
    arguments.batch = arguments.batch or (32 if on_gpu else 1)
    arguments.dtype = arguments.dtype or ("bfloat16" if on_gpu else "float32")
    arguments.ways = arguments.ways or (list(WAYS) if on_gpu else ["transformers", "ours"])
    return arguments


def main(words: list[str]) -> int:
    arguments = parse(words)
    torch.set_num_threads(arguments.threads)
    device, dtype = torch.device(arguments.device), getattr(torch, arguments.dtype)
    where = machine(device)
    print(
        f"{arguments.arch}, {arguments.size} px, {arguments.dtype}, {arguments.batch} frames at once, {where}",
        flush=True,
    )
    images = torch.randn(arguments.batch, 3, arguments.size, arguments.size, device=device).to(dtype)
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        ours = random_model(SPECS[arguments.arch], device, dtype)
        theirs = same_in_transformers(ours, arguments.size, device, dtype)

        def their_tokens(given: Tensor) -> Tensor:
            return theirs(given).last_hidden_state[:, 1 + ours.spec.registers :]

        difference = float((ours(images[:1]) - their_tokens(images[:1])).abs().max())
        print(f"  largest difference of a token's component: {difference:.2g}")
        for way in arguments.ways:
            whose, _, mode = way.partition(" ")
            step: Callable[[Tensor], Tensor] = ours if whose == "ours" else their_tokens
            attention = fastest_attention() if whose == "ours" else contextlib.nullcontext()
            if mode:
                torch.compiler.reset()
                step = torch.compile(step, mode=COMPILE_MODES[mode])
            with attention:
                seconds = timed(lambda step=step: step(images), device, arguments.warmup, arguments.runs)
            rate = arguments.batch / statistics.median(seconds)
            rows.append({"way": way, "frames_per_second": rate, "median_ms": 1e3 * statistics.median(seconds)})
            ratio = rate / rows[0]["frames_per_second"]
            print(f"  {way:<22} {rate:9.2f} frames/s   {ratio:.2f}x {rows[0]['way']}", flush=True)
    result = {
        "benchmark": "features", "arch": arguments.arch, "size": arguments.size, "batch": arguments.batch,
        "dtype": arguments.dtype, "machine": where, "torch": torch.__version__, "runs": arguments.runs,
        "largest_difference": difference, "rows": rows,
    }  # fmt: skip
    publish(result, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
