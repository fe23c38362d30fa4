"""How many kernels an update launches, and on a GPU how long they take: what bounds small models that share one.

    python benchmarks/count_kernels.py --methods auto_rgn factorjepa factorjepa_raw_both_chosen

On a CPU operators that are no views are counted, of the loss and its gradient, in fp32: on a GPU in bf16 there are
casts besides. On a GPU a whole update of 32 clips is traced, and said where the host waits in it. Clips are made up
(`factorjepa profile` has the same).
"""

from __future__ import annotations

import argparse
import collections
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from factorjepa.config import resolve
from factorjepa.profiling.subject import Subject
from factorjepa.profiling.synthetic import Scenery, training_batches
from factorjepa.training.settings import TrainSettings

VIEWS = {
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "empty", "empty_like", "expand",
    "lift_fresh", "new_empty", "permute", "promote_types", "select", "slice", "split", "split_with_sizes", "squeeze",
    "t", "transpose", "unbind", "unfold", "unsqueeze", "view",
}  # fmt: skip


WARMUP = 4  # updates


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.by_name: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        if name not in VIEWS:
            self.by_name[name] += 1
        return func(*args, **(kwargs or {}))


def count(method: str, scenery: Scenery, batch: int) -> collections.Counter[str]:
    """Of the loss and its gradient, in the method's last stage."""
    settings = resolve(TrainSettings, "nano", data="-", method=method, size=64, batch=batch)
    with Subject.made(settings, torch.device("cpu")) as subject:
        update = subject.update(settings)
        batches = training_batches(settings, subject.grid(settings)[1], scenery, 2)
        update.begin(settings.updates)
        for one in itertools.islice(batches, 1):
            with Counting() as counting:
                loss, _ = update.loss(subject.learner, one.to(subject.device), update.scales, settings.updates)
                loss.backward()  # type: ignore[no-untyped-call]
    return counting.by_name


def trace(method: str, scenery: Scenery, batch: int, precision: str) -> collections.Counter[str]:
    """Microseconds of every operator's kernels on the GPU, of one update in the method's last stage; says the sum."""
    settings = resolve(
        TrainSettings, "nano", data="-", method=method, size=64, batch=batch, precision=precision, compile=False
    )
    with Subject.made(settings, torch.device("cuda")) as subject:
        update = subject.update(settings)
        batches = itertools.cycle(training_batches(settings, subject.grid(settings)[1], scenery, 4))

        def one() -> None:
            update.begin(settings.updates)
            update(settings.updates, itertools.islice(batches, 1), 1)
            torch.cuda.synchronize()

        for _ in range(WARMUP):
            one()
        waits(lambda: update(settings.updates, itertools.islice(batches, 1), 1))
        with torch.profiler.profile() as profiler:
            one()
    events = profiler.key_averages()
    on_gpu = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA and not e.is_user_annotation]
    busy, launched = sum(e.self_device_time_total for e in on_gpu) / 1000, sum(e.count for e in on_gpu)
    print(f"{method}, {precision}: {launched:,} kernels, the GPU busy for {busy:.1f} ms")
    operators = [e for e in events if e.device_type == torch.autograd.DeviceType.CPU]
    return collections.Counter({e.key: round(e.self_device_time_total) for e in operators})


def waits(launch: Callable[[], object]) -> None:
    """Say where the host waits for the GPU before it has launched everything: there should be no such place."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            launch()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = collections.Counter(f"{one.filename}:{one.lineno}" for one in told if "synchroniz" in str(one.message))
    print(f"the host waits {sum(places.values())} times {dict(places) or ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["auto_rgn", "factorjepa"])
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--neighbours", type=int, default=4)
    gpu = torch.cuda.is_available()
    parser.add_argument("--batch", type=int, default=32 if gpu else 2)
    parser.add_argument("--precision", default="auto", help="On a GPU.")
    arguments = parser.parse_args()
    scenery = Scenery(arguments.agents, arguments.neighbours)
    for method in arguments.methods:
        if gpu:
            found = trace(method, scenery, arguments.batch, arguments.precision)
            print("  " + ", ".join(f"{name} {time / 1000:.2f} ms" for name, time in found.most_common(8)))
            continue
        found = count(method, scenery, arguments.batch)
        most = ", ".join(f"{name} {number}" for name, number in found.most_common(8))
        print(f"{method}: {sum(found.values()):,} kernels of loss and gradient ({most})")


if __name__ == "__main__":
    main()
