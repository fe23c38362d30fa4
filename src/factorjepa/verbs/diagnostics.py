"""Verbs that measure: `evaluate`, `scorecard`, `diagnostics`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from ..terminal import console, counting, error_console, listing
from ..words import counted, listed
from .devices import chosen_device

if TYPE_CHECKING:
    from ..scores import DiagnosticInfo, Scores

_NUMBER, _COLUMN, _GAP = 7, 11, 2  # characters: "-0.1234", the widest column, and between two of them
_ARROWS = {"lower": "↓", "higher": "↑"}
_Column = tuple[str, list[str]]  # a method's title, and its number on each diagnostic


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    out: Annotated[Path, typer.Option(help="Folder for scores.parquet and its parts.")],
    split: Annotated[str, typer.Option(help="test, audit or validation.")] = "test",
    clips: Annotated[int | None, typer.Option(help="A stratified subset of at most this many clips.", min=1)] = None,
    batch: Annotated[int | None, typer.Option(help="Clips at a time.", min=1)] = None,
    data: Annotated[Path | None, typer.Option(help="Another corpus than the one the runs were trained on.")] = None,
    targets: Annotated[Path | None, typer.Option(help="Its packets (default: targets/ in it).")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as key=value, e.g. masks.realisations=4; repeatable.")
    ] = None,
    examples: Annotated[
        int, typer.Option(help="Clips kept for the report to show, with maps and questions.", min=0)
    ] = 0,
    side_by_side: Annotated[int, typer.Option(help="Runs at a time, each in a process of its own.", min=1)] = 1,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
) -> None:
    """Measure runs with every diagnostic, in one pass over the clips. Run it again to finish or to add runs.

    Runs that read object states need packets of the evaluated clips: factorjepa targets DATA --split test.

    Example:  [bold]factorjepa evaluate runs/frozen runs/factorjepa --out scores --split audit[/bold]
    """

    from ..config import resolve
    from ..diagnostics.evaluation import Registered, failures
    from ..diagnostics.evaluation import evaluate as measure
    from ..diagnostics.settings import EvaluateSettings
    from ..diagnostics.several import SideBySide

    settings = resolve(EvaluateSettings, None, change or [], split=split, clips=clips, batch=batch)
    place = chosen_device(device)
    ahead = SideBySide(side_by_side, settings, place, Registered(settings.diagnostics))
    with counting("evaluating", "run" if side_by_side > 1 else "clip") as progress:

        def in_runs(done: int, total: int, note: str) -> None:
            """One bar, whether processes tell of their runs or what they left is measured clip by clip."""
            progress(done * len(runs) // max(1, total), len(runs), note)

        told = in_runs if side_by_side > 1 else progress
        made = measure(runs, out, settings, place, data, targets, told, ahead=ahead)
    for table in _summary(made.scores, console.width):
        console.print(table, "")
    for line in _remarks(made.scores):
        console.print(line, highlight=False, markup=False)
    listing([f"{run}: was evaluated before and has not changed" for run in made.again], "not changed either")
    listing(made.scores.lacks(), "all are kept with the scores")
    console.print(f"{made.path}: {counted(len(made.scores), 'score')}", highlight=False, soft_wrap=True)
    if examples:
        from ..diagnostics.examples import make_examples

        whole = [run for run in runs if str(run) not in made.failed]
        with counting("examples", "clip") as progress:
            kept = make_examples(whole, out, settings, place, examples, data, targets, progress)
        console.print(f"{out / 'examples'}: {counted(len(kept), 'clip')} to look at", highlight=False, soft_wrap=True)
    if made.failed:
        said = failures(made.failed)
        error_console.print(f"not evaluated:\n{said}", highlight=False, soft_wrap=True, markup=False)
        raise typer.Exit(1)


def scorecard(
    data: Annotated[Path, typer.Argument(help="A corpus.")],
    encoder: Annotated[
        list[str], typer.Option(help="An architecture, or ARCH=FILE with its weights; repeatable.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder for scores.parquet and its parts.")],
    split: Annotated[str, typer.Option(help="test, audit or validation.")] = "test",
    clips: Annotated[int | None, typer.Option(help="A stratified subset of at most this many clips.", min=1)] = None,
    batch: Annotated[int | None, typer.Option(help="Clips at a time.", min=1)] = None,
    size: Annotated[
        int | None, typer.Option(help="Pixels at which clips are read (default: the largest of the encoders').", min=32)
    ] = None,
    context: Annotated[int, typer.Option(help="Frames that the encoders see, of the window's 16.", min=2)] = 12,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as key=value, e.g. probes.fit_clips=500; repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
) -> None:
    """What probes read from frozen encoders: motion, actions, agents, order. Run it again to finish or to add some.

    nano comes with the package; others are fetched (`factorjepa weights list`) or given as ARCH=FILE.

    Example:  [bold]factorjepa scorecard out --encoder nano --encoder dinov2_vits14=dinov2_vits14_pretrain.pth \
    --out card[/bold]
    """

    from ..backbones.frozen import side_of
    from ..config import resolve
    from ..corpus.windows import WindowSpec
    from ..diagnostics.scorecard import scorecard as score
    from ..diagnostics.settings import EvaluateSettings

    settings = resolve(EvaluateSettings, None, change or [], split=split, clips=clips, batch=batch)
    pairs = [(arch, Path(file) if file else None) for arch, _, file in (one.partition("=") for one in encoder)]
    window = WindowSpec(size=size or max(side_of(arch) for arch, _ in pairs))
    place = chosen_device(device)
    with counting("scoring", "clip") as progress:
        made = score(data, pairs, out, settings, place, window, context, progress)
    for table in _summary(made.scores, console.width):
        console.print(table, "")
    for line in _remarks(made.scores):
        console.print(line, highlight=False, markup=False)
    listing([f"{arch}: was scored before and has not changed" for arch in made.again], "not changed either")
    listing(made.scores.lacks(), "all are kept with the scores")
    console.print(f"clips were read at {made.size} px", highlight=False)
    console.print(f"{made.path}: {counted(len(made.scores), 'score')}", highlight=False, soft_wrap=True)


def diagnostics(
    name: Annotated[str | None, typer.Argument(help="One diagnostic, with all that is known about it.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All that is known about each.")] = False,
) -> None:
    """Every diagnostic: which way is better and its unit; of one, also its formula, evaluator and provenance.

    Example:  [bold]factorjepa diagnostics intervention_l1[/bold]
    """
    from ..diagnostics.registry import DIAGNOSTICS, chosen

    infos = [one.info for one in (DIAGNOSTICS if name is None else chosen([name]))]
    if name is not None or verbose:
        for info in infos:
            console.print(_described(info))
        return
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("diagnostic", no_wrap=True)
    table.add_column("title", no_wrap=True)
    table.add_column("better")
    table.add_column("unit")
    for status in dict.fromkeys(info.status for info in infos):
        table.add_row(f"[bold]{status}[/]", "", "", "")
        for info in infos:
            if info.status == status:
                table.add_row(info.name, info.title, info.direction, info.unit)
    console.print(table)
    console.print("Formula, frozen evaluator and provenance: factorjepa diagnostics NAME, or --verbose for all")


def _described(info: DiagnosticInfo) -> Table:
    """One diagnostic, a line for each thing."""
    table = Table(box=None, pad_edge=False, show_header=False, title=f"[bold]{info.name}[/]", title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    facts = {
        "title": info.title, "status": info.status, "better": info.direction, "unit": info.unit,
        "formula": info.formula, "evaluator": info.evaluator, "provenance": info.provenance,
    }  # fmt: skip
    for fact, said in facts.items():
        table.add_row(fact, escape(said))
    table.add_row("", "")
    return table


def _summary(scores: Scores, width: int) -> list[Table]:
    """Headlines from plain means over clips and seeds; intervals and contrasts are for the statistics.

    Methods side by side while there is room for their titles, broken into lines; then another table.
    """
    from ..scores import CHANCE

    scored = set(scores.values("diagnostic"))
    infos = [i for i in scores.diagnostics.values() if i.name in scored and i.reduction in ("mean", "macro_f1")]
    means: dict[tuple[str, str, str], dict[str, float]] = {}
    for (*place, variant), mean in scores.means("backbone", "method", "diagnostic", "variant").items():
        means.setdefault((place[0], place[1], place[2]), {})[variant] = mean
    methods = {(run.backbone, run.method): run.title for run in scores.runs}
    several = len({backbone for backbone, _ in methods}) > 1
    found = [
        (
            f"{title} ({backbone})" if several else title,
            [_headline(means.get((backbone, method, info.name), {}), info) for info in infos],
        )
        for (backbone, method), title in methods.items()
    ]
    by_chance = scores.means("diagnostic", "variant")
    chance = [f"{by_chance[i.name, CHANCE]:.4f}" if (i.name, CHANCE) in by_chance else "" for i in infos]
    names = [f"{info.title} {_ARROWS[info.direction]}" for info in infos]
    room = width - max(map(len, names), default=0) - _wide("chance")
    tables: list[Table] = []
    for methods_here in _fitting(found, room):
        table = Table(box=box.SIMPLE, show_edge=False, padding=(0, 1, 0, 0), title_justify="left")
        table.title = None if tables else "Means over clips and seeds"
        table.add_column("", no_wrap=True)
        for title, _ in (*methods_here, ("chance", chance)):
            table.add_column(escape("\n".join(_lines(title))), justify="right", no_wrap=True, vertical="bottom")
        for number, name in enumerate(names):
            table.add_row(name, *(cells[number] for _, cells in methods_here), chance[number])
        tables.append(table)
    return tables


def _remarks(scores: Scores) -> list[str]:
    """Which diagnostics were not measured, why a level of chance surprises, and runs that were not finished."""
    from ..report.cautions import unfinished
    from ..scores import CHANCE

    means = scores.means("diagnostic", "variant")
    scored = set(scores.values("diagnostic"))
    absent = [info.title for name, info in scores.diagnostics.items() if name not in scored]
    said = (
        [f"not measured on these clips: {listed(absent)} (factorjepa diagnostics NAME says with what)"]
        if absent
        else []
    )
    surprising = {
        info.title: info.about_chance(means[info.name, CHANCE])
        for info in scores.diagnostics.values()
        if (info.name, CHANCE) in means
    }
    if len(scores.values("source")) == 1:
        said.append("all clips come from one source: compare and report need two, better of six cities or more")
    said += [f"{title}: {why}" for title, why in surprising.items() if why]
    return said + unfinished(scores.runs)


def _headline(means: Mapping[str, float], info: DiagnosticInfo) -> str:
    """Of one method, from the mean of each variant."""
    import numpy as np

    from ..statistics.measures import measures_of

    if not means or (info.reduction == "mean" and info.headline not in means):
        return "-"
    headline = measures_of(info, sorted(means))[0]
    return f"{headline.reduce(np.array([means[component] for component in headline.components])):.4f}"


def _fitting(columns: Sequence[_Column], room: int) -> list[list[_Column]]:
    """Columns in groups that fit side by side."""
    groups: list[list[_Column]] = [[]]
    for column in columns:
        if groups[-1] and sum(_wide(title) for title, _ in (*groups[-1], column)) > room:
            groups.append([])
        groups[-1].append(column)
    return groups


def _wide(title: str) -> int:
    """Of a column: its longest line or a number, and the gap beside it."""
    return max([_NUMBER, *map(len, _lines(title))]) + _GAP


def _lines(title: str) -> list[str]:
    """Broken between words, and at a hyphen only within a word that is too long."""
    whole = textwrap.wrap(title, _COLUMN, break_on_hyphens=False, break_long_words=False)
    return [part for line in whole for part in textwrap.wrap(line, _COLUMN)]
