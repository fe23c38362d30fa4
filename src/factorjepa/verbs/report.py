"""Verbs that show results: `curve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import console
from ..words import counted


def curve(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, each from `factorjepa train`.")],
    out: Annotated[Path, typer.Option(help="The figure: .png, .pdf or .svg.")] = Path("curve.png"),
) -> None:
    """Draw the training curve of one run, or of several in one picture: validation error, loss terms, stages shaded.

    Example:  [bold]factorjepa curve runs/factorjepa runs/auto_rgn --out curve.png[/bold]
    """
    from ..report.curves import training_curve

    written = training_curve(runs, out)
    console.print(f"{written}: the training curve of {counted(len(runs), 'run')}", highlight=False, soft_wrap=True)
