"""Verbs that show results: `curve`, `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import console, counting, error_console
from ..words import counted


def curve(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, each from `factorjepa train`.")],
    out: Annotated[Path, typer.Option(help="The figure: .png, .pdf or .svg.")] = Path("curve.png"),
) -> None:
    """Draw the training curve of one run, or of several in one picture: validation error, loss terms, stages shaded.

    Example:  [bold]factorjepa curve runs/factorjepa runs/auto_rgn --out curve.png[/bold]
    """
    from ..report.curves import Run, differing, training_curve

    read = [Run.read(run) for run in runs]
    if others := differing(read):
        error_console.print(
            f"The runs were not validated on the same windows ({'; '.join(others)}): their errors do not compare.",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    written = training_curve(read, out)
    console.print(f"{written}: the training curve of {counted(len(runs), 'run')}", highlight=False, soft_wrap=True)


def report(
    out: Annotated[
        list[Path],
        typer.Argument(help="The folder that `factorjepa evaluate` wrote, with scores.parquet; several: see --out."),
    ],
    runs: Annotated[
        list[Path] | None, typer.Option(help="Folders of runs for the training curves (default: those evaluated).")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The corpus, for the statement about data and privacy.")] = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the page (default: report/ in OUT; the comparison lies in OUT)."),
    ] = None,
) -> None:
    """One page that answers: does factorization help, by how much, how sure are we, where does it fail.

    It opens from the disk, asks nothing of a network, and has its tables as CSV beside it.

    Scores of several folders, for example of two backbones, make one page in --out, with their joined scores beside it.

    Example:  [bold]factorjepa report scores --runs runs/factorjepa --runs runs/auto_rgn --data out[/bold]

    Example:  [bold]factorjepa report study/scores small/scores --out both[/bold]
    """
    from ..report.making import join_scores, make_report

    folder = out[0]
    if len(out) > 1:
        folder, evaluated = join_scores(out, to)
        runs = runs or evaluated
    with counting("comparing", "diagnostic") as progress:
        made = make_report(folder, runs, data, to, progress=progress)
    for line in made.verdict:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for note in made.notes:
        error_console.print(note, highlight=False, markup=False, soft_wrap=True)
    console.print(f"{made.page}: open it in a browser; its tables are in {made.page.parent / 'tables'}",
                  highlight=False, markup=False, soft_wrap=True)  # fmt: skip
