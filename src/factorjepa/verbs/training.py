"""Verbs that train: `pretrain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import console, counting


def pretrain(
    out: Annotated[Path, typer.Argument(help="Folder of the run.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value, for example steps=200.")] = None,
    windows: Annotated[
        Path | None, typer.Option(help="Folder for the simulated windows (default: windows/ in the run).")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that simulate windows.", min=1)] = 2,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
) -> None:
    """Pretrain a small backbone from random weights on the simulated world, with V-JEPA's own objective.

    Example:  [bold]factorjepa pretrain runs/nano steps=200 batch=16 sources=40 sources_at_start=8[/bold]
    """
    import torch

    from ..config import resolve
    from ..training.pretrain import Pretraining, PretrainSettings

    settings = resolve(PretrainSettings, overrides=overrides or [])
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    run = Pretraining(out, settings, place)
    with counting(f"pretraining {settings.arch}", "steps") as progress:
        record = run.run(windows or out / "windows", workers, resume, progress)
    console.print(
        f"{out / 'weights.safetensors'}: future L1 {record['future_l1']:.4f} on held-out windows "
        f"(copying the last frame {record['copy_l1']:.4f}, their mean {record['mean_l1']:.4f})",
        highlight=False,
        soft_wrap=True,
    )
