"""How many kernels an update launches: what bounds a small model on a GPU, however fast that is.

    python benchmarks/count_kernels.py --methods auto_rgn factorjepa factorjepa_raw_both_chosen

Counted on a CPU in fp32, as operators that are no views; on a GPU in bf16 there are casts besides (precision=tf32 has
none), and the optimiser is one kernel for each group of parameters. Clips are made up (`factorjepa profile` has the
same).
"""

from __future__ import annotations

import argparse
import collections
import itertools
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
                loss, _ = update.loss(subject.learner, one, update.scales, settings.updates)
                loss.backward()  # type: ignore[no-untyped-call]
    return counting.by_name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["auto_rgn", "factorjepa"])
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--neighbours", type=int, default=4)
    parser.add_argument("--batch", type=int, default=2)
    arguments = parser.parse_args()
    for method in arguments.methods:
        found = count(method, Scenery(arguments.agents, arguments.neighbours), arguments.batch)
        most = ", ".join(f"{name} {number}" for name, number in found.most_common(8))
        print(f"{method}: {sum(found.values()):,} kernels of loss and gradient ({most})")


if __name__ == "__main__":
    main()
