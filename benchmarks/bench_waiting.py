"""How should threads wait for each other? Updates of nano with threads that spin and threads that sleep.

    python benchmarks/bench_waiting.py

Each way alone, and beside a process that keeps one core busy, as somebody else's job on a shared machine would. Whoever
spins holds the core that the thread it waits for has to run on. `factorjepa` lets threads sleep (`cli.py`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from results import machine, publish

_WAYS = {"spinning": {}, "sleeping": {"OMP_WAIT_POLICY": "PASSIVE"}}
_BUSY = "while True: pass"


def updates(count: int, batch: int) -> float:
    """Seconds for so many forward and backward passes."""
    import torch

    from factorjepa import backbones

    torch.manual_seed(0)
    encoder = backbones.build("nano").encoder
    video = torch.randn(batch, 3, 16, 64, 64)
    encoder(video).square().mean().backward()
    start = time.perf_counter()
    for _ in range(count):
        encoder(video).square().mean().backward()
    return time.perf_counter() - start


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    if asked.child:
        print(updates(asked.updates, asked.batch))
        return 0
    plain = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    child = [sys.executable, __file__, "--child", "--updates", str(asked.updates), "--batch", str(asked.batch)]
    seconds: dict[str, dict[str, float]] = {}
    for beside in ("alone", "beside a busy process"):
        busy = [] if beside == "alone" else [subprocess.Popen([sys.executable, "-c", _BUSY])]
        try:
            seconds[beside] = {
                way: float(subprocess.run(child, env=plain | extra, check=True, capture_output=True, text=True).stdout)
                for way, extra in _WAYS.items()
            }
        finally:
            for process in busy:
                process.kill()
                process.wait()
    print("| | spinning, s | sleeping, s | |\n|---|---|---|---|")
    for beside, taken in seconds.items():
        spinning, sleeping = taken["spinning"], taken["sleeping"]
        print(f"| {beside} | {spinning:.1f} | {sleeping:.1f} | {spinning / sleeping:.2f}x |")
    publish({"machine": machine("cpu"), "cores": os.cpu_count(), "seconds": seconds}, asked.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
