"""The verb that compares: `compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from ..terminal import console, counting
from ..words import counted

if TYPE_CHECKING:
    from rich.table import Table

    from ..statistics import Comparison, ContrastRow, ScoreRow
    from ..statistics.contrasts import Contrast
    from ..statistics.explaining import Explained, Ladder
    from ..statistics.rows import RankRow, StratumRow

_CONTRASTS = 12  # at most, besides those of FactorJEPA


def compare(
    scores: Annotated[list[Path], typer.Argument(help="Scores files, or folders with a scores.parquet; joined.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the tables (default: comparison/ beside the first scores).")
    ] = None,
    replicates: Annotated[
        int, typer.Option(help="Of the paired hierarchical bootstrap.", min=100, max=10_000_000)
    ] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    common: Annotated[
        bool, typer.Option("--common", help="Keep the clips that all methods share where they differ.")
    ] = False,
    mixed: Annotated[
        bool, typer.Option(help="Fit the mixed-effects check of the confirmatory contrasts (about 1 s each).")
    ] = True,
    seed_variance: Annotated[
        Literal["moderated", "own"],
        typer.Option(help="How much trainings vary, for decisions: a pair's seeds helped by other methods', or alone."),
    ] = "moderated",
    data: Annotated[
        Path | None, typer.Option(help="Corpus whose manifest has strata (default: the one the runs were trained on).")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="A manifest column to show effects by; repeat (default: density and occlusion)."),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", help="Two methods to compare as well, A:B for A over B; repeat. Exploratory."),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option("--variant", help="A variant to compare by as well, e.g. future_l1/teacher_agents; repeat."),
    ] = None,
) -> None:
    """Compare methods: clustered intervals, paired contrasts, decisions adjusted for how many there are.

    Example:  [bold]factorjepa compare scores[/bold]

    Example:  [bold]factorjepa compare scores --also lora:dora --variant future_l1/teacher_agents[/bold]
    """
    from ..adaptation import METHODS
    from ..report.provenance import corpus_of
    from ..scores import Scores
    from ..statistics import CompareSettings
    from ..statistics import compare as run
    from ..statistics.strata import strata_in, stratified, unmeasured
    from ..statistics.variants import with_variants
    from ..storage import refuse_unwritable

    joined = with_variants(Scores.joined([Scores.read(path) for path in scores]), variant or ())
    out = out or (scores[0] if scores[0].is_dir() else scores[0].parent) / "comparison"
    refuse_unwritable(out)
    levels = strata_in(data or corpus_of(joined), joined, by, required=bool(data or by))
    settings = CompareSettings(
        replicates, seed, common=common, mixed="primary" if mixed else "none", seed_variance=seed_variance,
        also=[_asked(pair) for pair in also or ()], variants=variant or (),
    )  # fmt: skip
    with counting("comparing", "diagnostic") as progress:
        found = run(joined, settings, progress, {name: method.title for name, method in METHODS.items()})
    found.strata = stratified(joined, levels, settings)
    found.notes += unmeasured(levels, joined)
    found.write(out)
    titles = {name: info.title for name, info in joined.diagnostics.items()}
    for backbone in joined.values("backbone"):
        _show(found, backbone, titles, variant or ())
        for table in _strata(found, backbone, titles, {one.method: one.title for one in joined.runs}):
            console.print(table)
    if ranks := [row for row in found.ranks if joined.diagnostics[row.diagnostic].status == "primary"]:
        console.print(_ranks(ranks, titles))
    for line in [*found.verdict, *found.notes]:
        console.print(line, highlight=False, markup=False)
    console.print(f"{out}: all diagnostics and contrasts as CSV, and comparison.json", highlight=False, soft_wrap=True)


def _asked(pair: str) -> Contrast:
    from ..errors import ScoresError
    from ..statistics.contrasts import Contrast as Asked

    a, colon, b = pair.partition(":")
    if not (a and colon and b) or ":" in b:
        raise ScoresError(f"--also {pair}: two methods are compared, as A:B, for example factorjepa:lora")
    return Asked(f"{a} over {b}", a, b)


def _show(found: Comparison, backbone: str, titles: dict[str, str], variants: Sequence[str]) -> None:
    """The primary diagnostics, and the pairs and variants that were asked for; everything else is in the files."""
    from math import isfinite

    headline = [r for r in found.scores if r.backbone == backbone and r.headline and r.status == "primary"]
    if headline:
        console.print(_means(backbone, headline, titles))
    known = [r for r in found.contrasts if r.backbone == backbone and isfinite(r.effect) and r.status == "primary"]
    confirmatory = [row for row in known if row.family == "primary"]
    exploratory, asked, more = _exploratory(found, backbone, known)
    methods = {row.method: row.title for row in found.scores}
    for heading, rows in (
        ("prespecified contrasts, Holm", confirmatory),
        ("exploratory, Benjamini-Hochberg", exploratory),
        ("asked for with --also, exploratory", asked),
    ):
        if rows:
            console.print(f"[bold]{escape(backbone)}: {heading}; positive favours the first[/]")
            for table in _contrasts(rows, {row.diagnostic: titles[row.diagnostic] for row in rows}, methods):
                console.print(table)
    if more:
        console.print(f"{counted(more, 'contrast')} more: contrasts.csv", highlight=False)
    if not (confirmatory or exploratory or asked) and len(methods) > 1:
        pair = ":".join([*methods][:2])
        console.print(f"These methods are not compared by default: add --also {pair}", highlight=False)
    for steps in _explained(found, backbone, titles):
        console.print(steps)
    for name in variants:
        rows = [r for r in found.contrasts if r.backbone == backbone and r.diagnostic == name and isfinite(r.effect)]
        if rows:
            console.print(_by_variant(rows, f"{backbone}: {titles[name]}; positive favours the first", methods))


def _exploratory(
    found: Comparison, backbone: str, known: Sequence[ContrastRow]
) -> tuple[list[ContrastRow], list[ContrastRow], int]:
    """What no table of steps shows: contrasts that we make, pairs that were asked for, and how many more there are.

    A pair that was asked for is shown as such also where we compare it anyway, with the decision that it has there.
    FactorJEPA over the others comes first; over frozen is shown where FactorJEPA is not there.
    """
    from ..statistics.contrasts import FROZEN, foremost

    rows = [row for row in known if row.family != "primary"]
    asked = [row for row in rows if found.asked_for(row)]
    ours = foremost([row.method for row in found.scores if row.backbone == backbone])
    steps = {(step.a, step.b) for _, its in _ladders(found, backbone) for step in its}
    left = [row for row in rows if (row.a, row.b) not in steps and row not in asked]
    if ours is not None:
        left = [row for row in left if row.b != FROZEN or row.a == ours]
    left.sort(key=lambda row: (row.a != ours, row.b == FROZEN))
    names = list(dict.fromkeys(row.contrast for row in left))
    most = max(_CONTRASTS, sum(any(row.a == ours for row in left if row.contrast == name) for name in names))
    return [row for row in left if row.contrast in names[:most]], asked, len(names[most:])


def _ladders(found: Comparison, backbone: str) -> Iterator[tuple[Ladder, list[Explained]]]:
    """Steps that are worth a table of their own."""
    from ..statistics.explaining import LADDERS, worth_showing

    for ladder in LADDERS:
        rows = [row for row in found.explained(ladder) if row.backbone == backbone]
        if worth_showing(rows, ladder):
            yield ladder, rows


def _explained(found: Comparison, backbone: str, titles: dict[str, str]) -> Iterator[Table]:
    """What explains a gain and what each part is worth, where enough steps were measured."""
    from ..statistics.explaining import told

    for ladder, rows in _ladders(found, backbone):
        shown, more = told(rows)
        asked = f"{ladder.heading[0].lower()}{ladder.heading[1:]}?"
        said = {
            "methods": f"{asked} Steps that change one thing, besides what was tuned",
            "variants": "what variants change, and what they are beside controls",
        }
        left = f"; {counted(more, 'step')} more with variants: {ladder.name}.csv" if more else ""
        for where, its in shown.items():
            more_said = left if where == [*shown][-1] else ""
            yield _steps(its, f"{backbone}: {said[where]}; positive is a gain; exploratory{more_said}", titles)


def _steps(rows: Sequence[Explained], title: str, titles: dict[str, str]) -> Table:
    from math import isnan

    from ..statistics.explaining import AREA, COLUMNS
    from ..statistics.verdict import brief

    table = _table(title)
    table.add_column("what changes")
    for diagnostic, variant in COLUMNS:
        heading = AREA if variant else titles.get(diagnostic, diagnostic)
        table.add_column(heading, justify="right", width=15)  # of an interval; decisions may take two lines
    for step in dict.fromkeys(row.step for row in rows):
        cells = []
        for row in (row for row in rows if row.step == step):
            decision = brief(row.decision)
            said = f"{row.effect:+.4f}\n[dim]{row.low:+.4f} {row.high:+.4f}[/]" + (f"\n{decision}" if decision else "")
            cells.append("" if isnan(row.effect) else said)
        table.add_row(escape(step), *cells)
    return table


def _means(backbone: str, rows: Sequence[ScoreRow], titles: dict[str, str]) -> Table:
    """Methods by primary diagnostics: mean, interval below it."""
    table = _table(f"{backbone}: means with 95 % intervals")
    table.add_column("method", max_width=22)
    diagnostics = list(dict.fromkeys(row.diagnostic for row in rows))
    for name in diagnostics:
        arrow = "↓" if next(row for row in rows if row.diagnostic == name).direction == "lower" else "↑"
        table.add_column(f"{titles[name]} {arrow}", justify="right", max_width=17)
    by_place = {(row.method, row.diagnostic): row for row in rows}
    for method in dict.fromkeys(row.method for row in rows):
        cells = [by_place.get((method, name)) for name in diagnostics]
        title = next(row.title for row in rows if row.method == method)
        table.add_row(escape(title), *("" if row is None else _mean(row) for row in cells))
    return table


def _mean(row: ScoreRow) -> str:
    from math import isnan

    if isnan(row.mean):
        return "no value"
    interval = "no interval" if isnan(row.low) else f"{row.low:.4f} {row.high:.4f}"
    return f"{row.mean:.4f}\n[dim]{interval}[/]"


def _contrasts(rows: Sequence[ContrastRow], titles: Mapping[str, str], methods: Mapping[str, str]) -> Iterator[Table]:
    """A table per contrast: the paper's interval and adjusted p, and the decision, which needs more than these."""
    from ..statistics.contrasts import PRESPECIFIED
    from ..statistics.verdict import decided

    named = {contrast.name for contrast in PRESPECIFIED}
    for number, contrast in enumerate(dict.fromkeys(row.contrast for row in rows)):
        its = [row for row in rows if row.contrast == contrast]
        over = f"{methods[its[0].a]} over {methods[its[0].b]}"
        table = _table(escape(f"{contrast}: {over}" if contrast in named else over))
        table.show_header = not number
        table.add_column("", min_width=max(map(len, titles.values())), no_wrap=True)
        for heading, width in (("effect", 7), ("95 % interval", 15), ("units", 5), ("adj. p", 6)):
            table.add_column(heading, justify="right", no_wrap=True, min_width=width)
        table.add_column("decision")
        for row in its:
            unstable = ", unstable" if decided(row) and not row.stable else ""
            table.add_row(
                titles[row.diagnostic], f"{row.effect:+.4f}", f"{row.low:+.4f} {row.high:+.4f}", f"{row.units:+.1f}",
                f"{row.adjusted_p:.2g}" if row.adjustment else "", row.decision.partition(":")[0] + unstable,
            )  # fmt: skip
        yield table


def _by_variant(rows: Sequence[ContrastRow], title: str, methods: Mapping[str, str]) -> Table:
    """All contrasts by one variant."""
    from ..statistics.verdict import brief

    table = _table(title)
    table.add_column("")
    table.add_column("effect, 95 % interval", justify="right", width=15)
    table.add_column("decision", max_width=24)
    for row in rows:
        said = f"{row.effect:+.4f}\n[dim]{row.low:+.4f} {row.high:+.4f}[/]"
        table.add_row(escape(f"{methods[row.a]} over {methods[row.b]}"), said, brief(row.decision))
    return table


def _ranks(rows: Sequence[RankRow], titles: dict[str, str]) -> Table:
    """Whether methods keep their order on another backbone; below it, between what and what as one is left out."""
    table = _table("Do methods keep their order on another backbone? Descriptive; ranges: one method left out")
    table.add_column("", no_wrap=True)
    for heading in ("backbones", "methods", "Spearman", "Kendall"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = [_rank(row.spearman, row.spearman_without_method), _rank(row.kendall, row.kendall_without_method)]
        table.add_row(titles[row.diagnostic], escape(f"{row.first}, {row.second}"), str(len(row.methods)), *cells)
    return table


def _rank(value: float, ends: Sequence[float]) -> str:
    from math import isnan

    if isnan(value):
        return "no value"
    return f"{value:+.2f}" + (f"\n[dim]{ends[0]:+.2f} {ends[1]:+.2f}[/]" if ends else "")


def _strata(found: Comparison, backbone: str, titles: dict[str, str], methods: dict[str, str]) -> list[Table]:
    """One contrast by stratum, a table for each manifest column; every other contrast is in strata.csv."""
    from ..statistics.strata import ordered, shown_contrast

    rows = [row for row in found.strata if row.backbone == backbone]
    rows = [row for row in rows if row.contrast == shown_contrast(rows)]
    tables = []
    for column in dict.fromkeys(row.column for row in rows):
        its = [row for row in rows if row.column == column]
        over = f"{methods.get(its[0].a, its[0].a)} over {methods.get(its[0].b, its[0].b)}"
        table = _table(f"{backbone}: {over} by {column.replace('_', ' ')}, 95 % intervals; descriptive, none decides")
        table.add_column("")
        cells = {(row.diagnostic, row.level): row for row in its}
        levels = ordered([row.level for row in its])
        for level in levels:
            one = next(row for row in its if row.level == level)
            amounts = f"{counted(one.clips, 'clip')}, {counted(one.cities, 'city', 'cities')}"
            table.add_column(f"{level}\n[dim]{amounts}[/]", justify="right", no_wrap=True)
        for diagnostic in dict.fromkeys(row.diagnostic for row in its):
            table.add_row(titles[diagnostic], *(_stratum(cells[diagnostic, level]) for level in levels))
        tables.append(table)
    return tables


def _stratum(row: StratumRow) -> str:
    from math import isnan

    if isnan(row.effect):
        return "no value"
    interval = "no interval" if isnan(row.low) else f"{row.low:+.4f} {row.high:+.4f}"
    return f"{row.effect:+.4f}\n[dim]{interval}[/]"


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")
