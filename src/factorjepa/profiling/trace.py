"""Where the time of an update goes on a GPU: kernels by kind, and how long none ran."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .timing import paced, wait

# In this order: a name belongs to the first kind that it fits. `triton` kernels are what the compiler has fused, the
# others of that kind our own (`backbones/turning.py`, `eightrows.py`).
KINDS = {
    "attention": re.compile(r"fmha|flash|sdpa|attention", re.IGNORECASE),
    "products": re.compile(r"gemm|gemv|nvjet|cutlass|cublas|xmma|wgmma|splitk", re.IGNORECASE),
    "optimiser": re.compile(r"multi_tensor|adam|lerp|foreach", re.IGNORECASE),
    "copies": re.compile(r"memcpy|memset", re.IGNORECASE),
    "fused elementwise": re.compile(r"^(triton|_turn|_turn_back|_normed|_plain$)"),
    "elementwise": re.compile(""),
}

# Stretches of the device's time line that the profiler names after what the host was doing; kernels lie within them.
_ANNOTATION = re.compile(r"ProfilerStep|Optimizer\.|##|Torch-Compiled|CompiledF|autograd::|nccl:")


_IN_A_ROW = 3


def kind_of(kernel: str) -> str:
    return next(kind for kind, name in KINDS.items() if name.search(kernel))


def summary(kernels: Mapping[str, tuple[float, int]], wall_us: float, most: int = 25) -> dict[str, Any]:
    """Shares of the wall time by kind, and the longest kernels; `kernels` gives microseconds and calls by name.

    Kernels run one after the other here (one stream), so what they leave of the wall time is idle.
    """
    shares = dict.fromkeys(KINDS, 0.0)
    for name, (microseconds, _) in kernels.items():
        shares[kind_of(name)] += microseconds / wall_us
    shares["idle"] = max(0.0, 1.0 - sum(shares.values()))
    longest = sorted(kernels.items(), key=lambda item: -item[1][0])[:most]
    return {
        "wall_ms": wall_us / 1e3,
        "shares": shares,
        "kernels": [
            {"name": name, "ms": us / 1e3, "calls": calls, "share": us / wall_us} for name, (us, calls) in longest
        ],
    }


def traced(run: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """The summary of one `run`, which must have run before: timed in a row without the profiler, looked at with it."""
    from torch.autograd.profiler_util import DeviceType  # type: ignore[attr-defined]
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    wall_us = paced(run, device, _IN_A_ROW).median * 1e6
    with profiler(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        run()
        wait(device)
    kernels: dict[str, tuple[float, int]] = {}
    for event in recorded.key_averages():
        if event.device_type == DeviceType.CUDA and not _ANNOTATION.match(event.key):
            kernels[event.key] = (event.self_device_time_total, event.count)
    return summary(kernels, wall_us)
