"""Paper scale on one GPU: the figures of `docs/performance.md`, where the time goes, and how cost grows.

    python benchmarks/paper_scale.py --arch vjepa2_1_vit_giant_384 --out results --minutes 9
    python benchmarks/paper_scale.py --arch nano --device cpu --out results --quick       # tries every phase

Phases, by importance: `table` (training without and with the frozen-trunk cache, latency compiled and as a CUDA graph),
`more` (training with factor views, latency end to end), `eager` (training and latency uncompiled), `trace` (kernels of
an update), `crowd` (cost against agents and pairs), `batch` (larger passes), `picture` (cost against resolution and
frames). Every case goes into `OUT/ARCH.json` as soon as it is known; a case that fails is noted and the next one goes
on; what would begin after `--minutes` is left out and named.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from factorjepa.backbones import names
from factorjepa.config import resolve
from factorjepa.profiling.latency import end_to_end_latency, model_latency
from factorjepa.profiling.measuring import CURRICULUM_VIEWS, attempt
from factorjepa.profiling.report import conditions
from factorjepa.profiling.subject import Subject
from factorjepa.profiling.synthetic import Scenery, training_batches
from factorjepa.profiling.timing import timed
from factorjepa.profiling.trace import traced
from factorjepa.profiling.training import CLIPS, TrainingCase, filled_trunk, training_cost
from factorjepa.training.acceleration import compile_blocks
from factorjepa.training.settings import PRESET_OF, TrainSettings
from factorjepa.training.update import Update

PHASES = ("machine", "table", "more", "eager", "trace", "crowd", "batch", "picture")
GPUS = 8  # of the paper's node: they share an update of 128 clips


class Session:
    """One process's worth of cases, written down as they come."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.device = arguments, torch.device(arguments.device)
        self.began = time.monotonic()
        self.path = arguments.out / f"{arguments.arch}.json"
        self.found: dict[str, Any] = {"benchmark": "paper_scale", "left_out": []}
        self.scenery = Scenery(arguments.agents, arguments.neighbours)
        settings = resolve(
            TrainSettings, PRESET_OF.get(arguments.arch, "nano"), list(arguments.set), data="-", arch=arguments.arch,
            method=arguments.method,
        )  # fmt: skip
        passes = 1 if arguments.quick else max(1, CLIPS // (GPUS * settings.batch))
        given = {word.partition("=")[0] for word in arguments.set}
        canonical = {"accumulate": passes, "masks": "blocks"}
        self.settings = settings.model_copy(update={k: v for k, v in canonical.items() if k not in given})
        self.updates = 1 if arguments.quick else arguments.updates

    def case(self, section: str, name: str, measure: Callable[[], dict[str, Any]]) -> None:
        minutes = (time.monotonic() - self.began) / 60
        if minutes > self.arguments.minutes:
            self.found["left_out"].append(f"{section}: {name}")
        else:
            rows = self.found.setdefault(section, {})
            attempt(rows, name, measure)
            rows[name]["at_minute"] = round((time.monotonic() - self.began) / 60, 2)
            shown = {key: value for key, value in rows[name].items() if not isinstance(value, dict | list)}
            print(f"[{section}] {name}: {json.dumps(shown)}", flush=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.found, indent=1) + "\n")

    def run(self) -> None:
        phases = self.arguments.phases
        if "machine" in phases and self.device.type == "cuda":
            self.machine()
        with Subject.made(self.settings, self.device) as subject, contextlib.ExitStack() as self.stack:
            self.found["conditions"] = conditions(self.settings, self.scenery, subject.compiled)
            for phase in PHASES[1:]:
                if phase in phases:
                    getattr(self, phase)(subject)

    def machine(self) -> None:
        """What this GPU does at its best: a large product, and attention as the encoder and the predictor need it."""
        self.case("machine", "products", _products)
        for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"):
            for name, shape, backward in (
                ("encoder target", (4, 22, 4608, 64), False),
                ("encoder context", (4, 22, 1338, 64), False),
                ("predictor", (4, 12, 2490, 32), False),
                ("predictor with backward", (4, 12, 2490, 32), True),
            ):
                self.case("machine", f"{name}, {backend}", lambda b=backend, s=shape, w=backward: _attention(b, s, w))

    def trained(self, subject: Subject, **case: Any) -> Callable[[], dict[str, Any]]:
        return lambda: training_cost(subject, TrainingCase(self.scenery, updates=self.updates, **case)).as_json()

    def table(self, subject: Subject) -> None:
        scenery, trained = self.scenery, functools.partial(self.trained, subject)
        warmup, runs = (1, 2) if self.arguments.quick else (50, 500)
        fastest = "compiled" if subject.compiled else "eager"
        self.case("training", f"{fastest}, no cache", trained())
        if "error" in self.found["training"].get(f"{fastest}, no cache", {}) and self.device.type == "cuda":
            self.without_cudnn()
            self.case("training", f"{fastest}, no cache, flash attention", trained())
        self.case("training", f"{fastest}, cache", trained(cached=True))
        self.case("latency", fastest, lambda: model_latency(subject, scenery, fastest, warmup, runs).as_json())
        if self.device.type == "cuda":
            self.case("latency", "graph", lambda: model_latency(subject, scenery, "graph", warmup, runs).as_json())

    def more(self, subject: Subject) -> None:
        fastest = "compiled" if subject.compiled else "eager"
        warmup, runs = (1, 2) if self.arguments.quick else (50, 500)
        views = self.trained(subject, cached=True, viewed=CURRICULUM_VIEWS)
        self.case("training", f"{fastest}, cache, views", views)
        self.case("latency", "end to end", lambda: end_to_end_latency(subject, self.scenery, fastest, warmup, runs))

    def without_cudnn(self) -> None:
        """For the rest of the session: should its attention refuse a shape, all else is still worth measuring."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        self.found["attention"] = "flash"
        torch.compiler.reset()  # compiled code keeps the backend that was preferred when it was traced
        order = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        self.stack.enter_context(sdpa_kernel(order, set_priority=True))

    def eager(self, subject: Subject) -> None:
        if not subject.compiled:
            return
        scenery, few = self.scenery, min(3, self.updates)
        self.case("training", "agreement", lambda: self.agreement(subject))
        for name, cached in (("eager, no cache", False), ("eager, cache", True)):
            case = TrainingCase(scenery, cached=cached, compiled=False, updates=few)
            self.case("training", name, lambda case=case: training_cost(subject, case).as_json())
        self.case("latency", "eager", lambda: model_latency(subject, scenery, "eager", 10, 100).as_json())

    def agreement(self, subject: Subject) -> dict[str, Any]:
        """Loss and gradient norm of one pass, compiled and not: they differ by rounding."""
        settings = self.settings
        batch = training_batches(settings, subject.grid(settings)[1], self.scenery, 1)[0].to(self.device)
        update, found = subject.update(settings), {}
        for stance in ("default", "force_eager"):
            with torch.compiler.set_stance(stance):
                subject.optimiser.zero_grad(set_to_none=True)
                update.begin(settings.updates)
                loss, _ = update.loss(subject.learner, batch, update.scales, settings.updates)
                loss.backward()
            gradients = [p.grad for p in subject.learner.parameters() if p.grad is not None]
            found[f"loss_{stance}"] = float(loss.detach())
            found[f"gradient_{stance}"] = float(torch.nn.utils.get_total_norm(gradients))
        return found

    def trace(self, subject: Subject) -> None:
        """One update of two passes under the profiler, without and with the cache."""
        if self.device.type != "cuda":
            return
        settings = self.settings.model_copy(update={"accumulate": 2})
        passes = training_batches(settings, subject.grid(settings)[1], self.scenery, 2)
        steps = itertools.count(settings.updates)

        def one(update: Update) -> None:
            step = next(steps)
            update.begin(step)
            update(step, passes, len(passes))

        def of(update: Update) -> dict[str, Any]:
            one(update)
            return traced(functools.partial(one, update), self.device)

        def cached() -> dict[str, Any]:
            with filled_trunk(subject, settings, passes) as trunk:
                return of(subject.update(settings, trunk))

        self.case("trace", "update, no cache", lambda: of(subject.update(settings)))
        self.case("trace", "update, cache", cached)  # fails, and is noted, where nothing stays frozen

    def crowd(self, subject: Subject) -> None:
        few = min(3, self.updates)
        for agents in (0, 4, 16, 32, 64):
            case = TrainingCase(Scenery(agents, 6), updates=few)
            self.case("agents", str(agents), lambda case=case: training_cost(subject, case).as_json())
        for neighbours in (1, 3, 6, 12):
            case = TrainingCase(Scenery(64, neighbours), updates=few)
            self.case("pairs", str(64 * neighbours), lambda case=case: training_cost(subject, case).as_json())

    def batch(self, subject: Subject) -> None:
        """Larger passes, as many clips an update."""
        clips = self.settings.batch * self.settings.accumulate
        for batch in (self.settings.batch * 2, self.settings.batch * 4):
            changes = {"batch": batch, "accumulate": max(1, clips // batch)}
            for name, cached in (("no cache", False), ("cache", True)):
                case = TrainingCase(self.scenery, cached=cached, updates=min(5, self.updates))
                self.case(
                    "batch", f"{batch}, {name}", lambda c=case, s=changes: training_cost(subject, c, **s).as_json()
                )

    def picture(self, subject: Subject) -> None:
        """Resolution and frames; with blocks compiled for any length, because here each point has others."""
        if subject.compiled:
            torch.compiler.reset()
            compile_blocks(subject.learner, dynamic=None)
        few = min(3, self.updates)
        patch = subject.learner.spec.patch
        case = TrainingCase(self.scenery, updates=few)
        for size in sorted(
            {self.settings.size, *(patch * side for side in ((4, 6) if patch == 8 else (16, 20, 28, 32)))}
        ):
            self.case("size", str(size), lambda size=size: training_cost(subject, case, size=size).as_json())
        for frames in (8, 16, 24, 32):
            changes = {"frames": frames, "context": frames * 3 // 4}
            self.case("frames", str(frames), lambda s=changes: _other_context(subject, case, s))


def _other_context(subject: Subject, case: TrainingCase, changes: dict[str, int]) -> dict[str, Any]:
    """The learner knows how many frames its context has."""
    before = subject.learner.context
    subject.learner.context = changes["context"]
    subject.learner._splits.clear()
    try:
        return training_cost(subject, case, **changes).as_json()
    finally:
        subject.learner.context = before
        subject.learner._splits.clear()


def _products() -> dict[str, Any]:
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = timed(lambda: a @ b, torch.device("cuda"), 10, 50)
    return {"tflop_per_s": 2 * 8192**3 / times.median / 1e12}


def _attention(backend: str, shape: tuple[int, int, int, int], backward: bool) -> dict[str, Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, heads, tokens, width = shape
    made = [
        torch.randn(batch, tokens, heads, width, device="cuda", dtype=torch.bfloat16, requires_grad=backward)
        for _ in range(3)
    ]
    q, k, v = (x.transpose(1, 2) for x in made)
    upstream = torch.randn(batch, tokens, heads, width, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    def run() -> None:
        mixed = F.scaled_dot_product_attention(q, k, v)
        if backward:
            torch.autograd.grad(mixed, made, upstream)

    with sdpa_kernel(getattr(SDPBackend, backend)):
        times = timed(run, torch.device("cuda"), 5, 20)
    flops = 4 * batch * heads * tokens**2 * width * (3.5 if backward else 1)
    return {"ms": 1e3 * times.median, "tflop_per_s": flops / times.median / 1e12}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="nano", choices=names())
    parser.add_argument("--method", default="factorjepa")
    parser.add_argument("--out", type=Path, required=True, help="folder of ARCH.json")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument("--minutes", type=float, default=9.0, help="no case begins after this")
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--neighbours", type=int, default=6, help="pairs per agent")
    parser.add_argument("--updates", type=int, default=10, help="timed, after five")
    parser.add_argument("--set", nargs="*", default=[], help="training settings as key=value")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="one pass and one update a case: to try the script")
    Session(parser.parse_args(words)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
