"""`demo`: the whole loop on the embedded default, from streets to report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..terminal import console, counting
from .comparison import compare
from .data import simulate
from .diagnostics import evaluate
from .teacher import targets

METHODS = ("frozen", "auto_rgn", "factorjepa_raw", "factorjepa")
SEEDS = (17, 29)
CLIP = ["seconds=[4.5,6]"]  # a window is 4 s long: more would only take time
TRAINING = ["batch=4", "lr=0.00002", "warmup=4", "validation_clips=8"]
MEASURING = ["probes.fit_clips=20", "probes.choose_clips=8", "probes.transformed_clips=8"]
TESTED = 14  # clips
PER_SOURCE, SHARES = 2, (0.5, 0.15, 0.35)  # many streets, a third of them to test on


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path("demo"),
    clips: Annotated[int, typer.Option(help="Simulated clips.", min=20)] = 64,
    updates: Annotated[int, typer.Option(help="Updates of each run.", min=1)] = 16,
) -> None:
    """The whole loop on the embedded default: simulate, targets, train, evaluate, compare, report.

    Trains Auto-RGN, FactorJEPA-RAW and FactorJEPA from the shipped nano weights with two seeds. Run it again to finish.

    Example:  [bold]factorjepa demo --out demo[/bold]
    """
    from ..report.making import make_report

    started = time.monotonic()
    dense, scores = out / "dense", out / "scores"
    with _stage(1, "Simulate crowded streets"):
        simulate(dense, CLIP, clips=clips, seed=7, clips_per_source=PER_SOURCE, shares=SHARES)
    with _stage(2, "Let the frozen teacher look at them"):
        targets(dense, split=["train", "validation", "test"])
    with _stage(3, f"Adapt nano: {', '.join(METHODS)}; seeds {', '.join(map(str, SEEDS))}"):
        runs = _train(dense, out / "runs", updates)
    with _stage(4, "Measure them on streets that they have not seen"):
        evaluate(runs, scores, clips=TESTED, change=MEASURING, examples=3)
    with _stage(5, "Compare"):
        compare([scores], scores / "comparison", mixed=False)
    with _stage(6, "Report"):
        page = make_report(scores, runs, dense).page
    minutes = (time.monotonic() - started) / 60
    console.print(
        f"\nThe whole loop took {minutes:.1f} minutes. A few updates on a few dozen clips show that it works, not "
        f"which method is better. Open {page}",
        highlight=False,
        soft_wrap=True,
    )


@contextmanager
def _stage(number: int, what: str) -> Iterator[None]:
    console.rule(f"[bold]{number}/6  {what}", align="left", style="dim")
    yield


def _train(data: Path, folder: Path, updates: int) -> list[Path]:
    import torch

    from ..config import resolve
    from ..training.settings import TrainSettings
    from ..training.several import Job, train_all

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pace = [f"{name}={updates}" for name in ("updates", "validate_every", "save_every")]
    jobs = [
        Job(
            resolve(TrainSettings, "nano", [*TRAINING, *pace], data=str(data), method=method, seed=seed),
            folder / f"{method}-{seed}",
        )
        for method in METHODS
        for seed in (SEEDS if method != "frozen" else SEEDS[:1])
    ]
    with counting("training", "update") as progress:
        train_all(jobs, device, os.cpu_count() or 1, progress)
    return [job.out for job in jobs]
