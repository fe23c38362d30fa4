"""Verbs on the five axes: `regime measure` and `regime compare`."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..terminal import console, counting
from .teacher import TARGETS

if TYPE_CHECKING:
    from rich.table import Table

    from ..regime.population import Cluster
    from ..regime.settings import Thresholds
    from ..regime.table import RegimeTable
    from ..statistics.regime_rows import Estimate, RegimeComparison

REGIME = "regime"  # where measures lie in a corpus unless said otherwise

regime_app = typer.Typer(
    name="regime",
    help="How dense is this world: five axes, measured and compared with matched scenes.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

By = Annotated[
    str, typer.Option(help="teacher (packets), truth (simulated), or auto: the teacher where there are packets.")
]
Classes = Annotated[
    Path | None,
    typer.Option("--detector", help="An ONNX detector that names the teacher's regions (default: the packets' own)."),
]
Preset = Annotated[str | None, typer.Option(help="Path of a YAML file with thresholds.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A threshold as key=value, e.g. near=0.1; repeat.")]


@regime_app.command("measure")
def measure(
    corpus: Annotated[Path, typer.Argument(help="A corpus folder with a manifest.parquet.")],
    by: By = "auto",
    packets: Annotated[Path | None, typer.Option(help="Folder of the packets (default: targets/ in CORPUS).")] = None,
    detector: Classes = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the measures (default: regime/ in CORPUS).")] = None,
    strata: Annotated[
        bool, typer.Option(help="Write density and occlusion strata, cut on training clips, into the manifest.")
    ] = True,
    preset: Preset = None,
    overrides: Set = None,
) -> None:
    """Measure every clip on the five axes, under all prespecified thresholds and both controls.

    Example:  [bold]factorjepa regime measure out[/bold]
    """
    from .. import commands
    from ..config import resolve
    from ..corpus.manifest import Manifest
    from ..regime.settings import Thresholds
    from ..regime.strata import cuts_of, with_strata

    thresholds = resolve(Thresholds, preset, overrides or [])
    folder = out or corpus / REGIME
    table = _measured(corpus, by, packets, folder, thresholds, detector)
    commands.record(folder)
    console.print(_corpus_table(corpus, table))
    console.print(_domain_table(table))
    for name in table.about.unavailable:
        console.print(f"{name}: unavailable, because {table.about.measured_by} tells no superclasses", highlight=False)
    if strata:
        manifest = Manifest.read(corpus)
        cuts = cuts_of(manifest, table)
        with_strata(manifest, table, cuts).write(corpus)
        for cut in cuts:
            console.print(
                f"{cut.attribute} in the manifest: low to {cut.lower:.3g}, high from {cut.upper:.3g} ({cut.axis}; "
                f"thirds of {cut.training_clips} training clips)",
                highlight=False,
            )
    console.print(f"Measures in {folder}", highlight=False, soft_wrap=True)


@regime_app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(help="The corpus in question.")],
    references: Annotated[list[Path], typer.Argument(help="One or two corpora to compare it with.")],
    by: By = "auto",
    detector: Classes = None,
    mode: Annotated[list[str] | None, typer.Option(help="Capture modes; repeat (default: drive).")] = None,
    match_on: Annotated[
        list[str] | None,
        typer.Option(help="Stratum fields; repeat (default: as many of the paper's five as leave half matched)."),
    ] = None,
    caliper: Annotated[float, typer.Option(help="Standard deviations that a covariate may differ.", min=0.0)] = 0.25,
    clusters: Annotated[
        str, typer.Option(help="What is drawn first, one for all or one per corpus: city, session or source.")
    ] = "city",
    replicates: Annotated[int, typer.Option(help="Of the bootstrap, each with its own matching.", min=100)] = 2000,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for tables and figure (default: regime/comparison/ in the "
                                             "first corpus).")] = None,
    preset: Preset = None,
    overrides: Set = None,
) -> None:  # fmt: skip
    """Compare corpora on the five axes: matched scenes, clustered intervals, controls, verdicts.

    Example:  [bold]factorjepa regime compare dense sparse[/bold]
    """
    from ..config import resolve
    from ..corpus.manifest import Manifest
    from ..regime.population import Population
    from ..regime.settings import Thresholds
    from ..report.regime import write_scene_figure
    from ..statistics.regime import RegimeSettings, compare_regimes

    thresholds, corpora = resolve(Thresholds, preset, overrides or []), [first, *references]
    populations = []
    for folder, name, drawn_first in zip(corpora, _names(corpora), _clusters(clusters, len(corpora)), strict=True):
        table = _measured(folder, by, None, folder / REGIME, thresholds, detector)
        populations.append(Population.of(name, Manifest.read(folder), table, mode or ["drive"], drawn_first))
    settings = RegimeSettings(
        replicates, seed, fields=tuple(match_on) if match_on is not None else None, caliper=caliper
    )
    with counting("comparing", "replicate") as progress:
        found = compare_regimes(populations[0], populations[1:], settings, progress)
    out = out or first / REGIME / "comparison"
    found.write(out)
    _show(found)
    if found.scenes:
        write_scene_figure(found, out / "scenes.png")
    figure = ", and scenes.png" if found.scenes else ""
    console.print(f"{out}: every table as CSV, regime.json{figure}", highlight=False, soft_wrap=True)


def _measured(
    corpus: Path, by: str, packets: Path | None, folder: Path, thresholds: Thresholds, detector: Path | None
) -> RegimeTable:
    from ..regime.measuring import measured, open_measurer

    measurer = open_measurer(corpus, by, packets or corpus / TARGETS, thresholds, detector)
    with counting(f"measuring {corpus.name}", "look") as progress:
        return measured(corpus, folder, measurer, thresholds, progress)


def _names(corpora: list[Path]) -> list[str]:
    """Folder names; whole paths where two are the same."""
    names = [folder.resolve().name for folder in corpora]
    return names if len(set(names)) == len(names) else [str(folder) for folder in corpora]


def _clusters(text: str, count: int) -> list[Cluster]:
    from typing import get_args

    from ..errors import ConfigError
    from ..regime.population import Cluster

    chosen = [word.strip() for word in text.split(",")]
    chosen = chosen * count if len(chosen) == 1 else chosen
    if len(chosen) != count or any(word not in get_args(Cluster) for word in chosen):
        raise ConfigError(f"--clusters {text}: give one of {', '.join(get_args(Cluster))} for all, or one per corpus")
    return cast("list[Cluster]", chosen)


def _show(found: RegimeComparison) -> None:
    for line in _balance_lines(found):
        console.print(line, highlight=False)
    for reference in found.references:
        console.print(_axes_table(found, reference))
        for row in found.measures:
            if row.reference == reference and row.axis:
                console.print(f"{row.title}: {row.verdict}", highlight=False, markup=False)
        if any(row.reference == reference for row in found.scenes):
            for measure, heading, scale in (
                ("count", "agents per frame", 1.0),
                ("occupancy", "% of valid area", 100.0),
            ):
                console.print(_scene_table(found, reference, measure, heading, scale))
    console.print(_controls_table(found))
    for line in found.notes:
        console.print(line, highlight=False, markup=False)


def _balance_lines(found: RegimeComparison) -> list[str]:
    lines = []
    for row in found.balance:
        given_up = f" (given up, too few matches: {', '.join(row.given_up)})" if row.given_up else ""
        absent = f" (not known everywhere: {', '.join(row.absent)})" if row.absent else ""
        lines.append(
            f"[bold]{found.first} against {row.reference}[/]: {row.pairs} pairs of {row.candidates_first} and "
            f"{row.candidates_other} clips, matched on {', '.join(row.fields)}{given_up}{absent}; unmatched "
            f"{row.unmatched_first:.0%} and {row.unmatched_other:.0%}; {row.sources_first} and {row.sources_other} "
            f"sources; max |SMD| {row.max_smd_before:.2f} before, {row.max_smd_after:.2f} after"
        )
    return lines


def _axes_table(found: RegimeComparison, reference: str) -> Table:
    table = _table(f"Five axes, {found.first} against matched {reference}; 95 % intervals, Holm-adjusted p")
    table.add_column("axis")
    for heading in (found.first, reference, "difference", "ratio", "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found.measures:
        if row.reference != reference or not row.axis:
            continue
        p = "-" if isnan(row.adjusted_p) else f"{row.adjusted_p:.2g}"
        table.add_row(row.title, _cell(row.first), _cell(row.other), _cell(row.difference, "+"), _cell(row.ratio), p)
    return table


def _scene_table(found: RegimeComparison, reference: str, measure: str, heading: str, scale: float) -> Table:
    """One half of the paper's table of scene-matched density and occupancy."""
    table = _table(f"Scene-matched {heading}: {found.first} against {reference}")
    table.add_column("scene")
    for column in ("pairs", reference, found.first, "difference", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in found.scenes:
        if (row.reference, row.measure) == (reference, measure):
            cells = (_cell(row.other, scale=scale), _cell(row.first, scale=scale), _cell(row.difference, "+", scale))
            table.add_row(row.scene, str(row.pairs), *cells, _cell(row.ratio))
    return table


def _controls_table(found: RegimeComparison) -> Table:
    table = _table("Negative controls (permutations)")
    for column in ("corpus", "control", "measure", "must", "measured", "under control", ""):
        table.add_column(column, justify="right" if column in ("measured", "under control") else "left")
    for row in found.controls:
        passed = "[green]passed[/]" if row.passed else "[red]failed[/]"
        numbers = f"{row.measured:.3f}", f"{row.under_control:.3f}"
        table.add_row(row.corpus, row.control.split()[0], row.measure, row.must, *numbers, passed)
    return table


def _corpus_table(corpus: Path, measured: RegimeTable) -> Table:
    """Means over clips by capture mode: what a corpus is like before anything is matched."""
    import numpy as np

    from ..corpus.manifest import Manifest
    from ..regime.axes import MEASURES, NAMES
    from ..regime.settings import PRIMARY

    modes = [clip.capture_mode for clip in Manifest.read(corpus)]
    totals, terms = measured.variant(PRIMARY)
    table = _table(f"{corpus}: measured by {measured.about.measured_by}")
    for heading in ("measure", "over", "all", *sorted(set(modes)), "eligible"):
        table.add_column(heading, justify="left" if heading in ("measure", "over") else "right")
    for column, one in enumerate(MEASURES):
        groups = [np.ones(len(modes), bool), *(np.array([m == mode for m in modes]) for mode in sorted(set(modes)))]
        cells = [_number(totals[g, column].sum() / terms[g, column].sum()) if terms[g, column].sum() else "-"
                 for g in groups]  # fmt: skip
        share = terms[:, NAMES.index(one.name)].sum() / measured.frames_C.sum()
        table.add_row(f"[bold]{one.title}[/]" if one.axis else one.title, str(one.domain), *cells, f"{share:.0%}")
    return table


def _domain_table(measured: RegimeTable) -> Table:
    table = _table("The measuring system on this corpus")
    table.add_column("rate")
    table.add_column("", justify="right")
    if measured.domain:
        for name, value in sum(measured.domain[1:], measured.domain[0]).rates().items():
            table.add_row(name, _number(value))
    return table


def _cell(estimate: Estimate, sign: str = "", scale: float = 1.0) -> str:
    if isnan(estimate.value):
        return "no value"
    interval = "-" if isnan(estimate.low) else f"{estimate.low * scale:.2f} {estimate.high * scale:.2f}"
    return f"{estimate.value * scale:{sign}.2f}\n[dim]{interval}[/]"


def _number(value: float) -> str:
    return "-" if isnan(value) else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE, pad_edge=False, title=title, title_justify="left")
