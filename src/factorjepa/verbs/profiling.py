"""The verb `profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import console, counting
from .devices import chosen_device


def profile(
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Training settings as key=value, for example recompute=true.")
    ] = None,
    arch: Annotated[str, typer.Option(help="An architecture of `factorjepa weights list`, nano or small.")] = "nano",
    method: Annotated[str, typer.Option(help="What adapts: see `factorjepa methods`.")] = "factorjepa",
    agents: Annotated[int, typer.Option(help="Agents of a clip.", min=0)] = 16,
    neighbours: Annotated[int, typer.Option(help="Pairs of an agent.", min=0)] = 6,
    gpus: Annotated[int, typer.Option(help="GPUs that share an update of 128 clips: says how many passes.", min=1)] = 8,
    warmup: Annotated[int | None, typer.Option(help="Untimed predictions (default: 50; on a CPU 2).", min=0)] = None,
    runs: Annotated[int | None, typer.Option(help="Timed predictions (default: 500; on a CPU 5).", min=1)] = None,
    updates: Annotated[
        int | None, typer.Option(help="Timed updates, after five (default: 10; on a CPU 2).", min=1)
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file as they come.")] = None,
) -> None:
    """What a method costs on this machine: latency, memory, clips per second, share of the peak, GPU-hours.

    Random weights and made-up clips: time does not depend on them. Figures count from the paper's per-device batch.

    Example:  [bold]factorjepa profile --arch vjepa2_1_vit_giant_384 --method factorjepa --json vitg.json[/bold]
    """
    import json as format_json
    from typing import Any

    from ..config import resolve
    from ..profiling.measuring import profile as measured
    from ..profiling.report import table
    from ..profiling.subject import Subject
    from ..profiling.synthetic import Scenery
    from ..profiling.training import CLIPS
    from ..storage import refuse_unwritable, write_text
    from ..training.settings import PRESET_OF, TrainSettings

    place = chosen_device(device)
    if json is not None:
        refuse_unwritable(json.parent)
    settings = resolve(TrainSettings, PRESET_OF.get(arch, "nano"), overrides or [], data="-", arch=arch, method=method)
    if not any(one.startswith("accumulate=") for one in overrides or []):
        passes = max(1, CLIPS // (gpus * settings.batch)) if place.type == "cuda" else 1
        settings = settings.model_copy(update={"accumulate": passes})
    on_gpu = place.type == "cuda"

    def keep(found: dict[str, Any]) -> None:
        if json is not None:
            write_text(json, format_json.dumps(found, indent=1) + "\n")

    with Subject.made(settings, place) as subject, counting("profile", "case") as progress:
        found = measured(
            subject, Scenery(agents, neighbours), warmup=_or(warmup, 50 if on_gpu else 2),
            runs=_or(runs, 500 if on_gpu else 5), updates=_or(updates, 10 if on_gpu else 2),
            tell=keep, progress=progress,
        )  # fmt: skip
    console.print(table(found))
    if any("error" in one for section in ("training", "latency") for one in found[section].values()):
        raise typer.Exit(1)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
