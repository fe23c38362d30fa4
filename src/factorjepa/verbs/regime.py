"""Verbs on the five axes: `regime measure`, `regime compare`, `regime check` and `regime reference`."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..terminal import console, counting
from ..words import counted
from .teacher import TARGETS

if TYPE_CHECKING:
    from rich.table import Table

    from ..regime.check import Check
    from ..regime.population import Cluster
    from ..regime.settings import Thresholds
    from ..regime.table import RegimeTable
    from ..statistics.regime_rows import Estimate, RegimeComparison

REGIME = "regime"  # where measures lie in a corpus unless said otherwise
SCENES = "scenes.png"
REFERENCES = 2  # at most: the paper's contrasts are five axes times two references

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
    split: Annotated[
        list[str] | None, typer.Option(help="Only clips of this split, e.g. where others have no packets; repeat.")
    ] = None,
    preset: Preset = None,
    overrides: Set = None,
) -> None:
    """Measure every clip on the five axes, under all prespecified thresholds and both controls.

    Example:  [bold]factorjepa regime measure out[/bold]
    """
    from .. import commands
    from ..config import resolve
    from ..regime.settings import Thresholds

    thresholds = resolve(Thresholds, preset, overrides or [])
    folder = out or corpus / REGIME
    table = _measured(corpus, by, packets, folder, thresholds, detector, split)
    commands.record(folder)
    console.print(_corpus_table(corpus, table))
    console.print(_domain_table(table))
    for name in table.about.unavailable:
        console.print(table.about.lacks(name), highlight=False)
    if strata:
        _write_strata(corpus, table)
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
    replicates: Annotated[int, typer.Option(help="Of the bootstrap, each with its own matching; for Holm "
                                               "at least 199 with two references.", min=99)] = 2000,
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
    from ..statistics.regime import compare_regimes
    from ..statistics.regime_drawing import RegimeSettings

    thresholds, corpora = resolve(Thresholds, preset, overrides or []), [first, *references]
    _refuse_repeated(corpora)
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
        write_scene_figure(found, out / SCENES)
    else:
        (out / SCENES).unlink(missing_ok=True)  # of an earlier comparison
    figure = f", and {SCENES}" if found.scenes else ""
    console.print(f"{out}: every table as CSV, regime.json{figure}", highlight=False, soft_wrap=True)


@regime_app.command("check")
def check(
    corpus: Annotated[Path, typer.Argument(help="A corpus folder with packets.")],
    layout: Annotated[str, typer.Option("--format", help="mot, coco, bdd100k, nuscenes or simulated.")],
    labels: Annotated[
        Path | None,
        typer.Option(help="Folder of MOT sequences or a gt.txt; a COCO JSON; labels/box_track_20/SPLIT; v1.0-*."),
    ] = None,
    fps: Annotated[float | None, typer.Option(help="Annotated frames of a second (COCO; MOT without seqinfo.ini).",
                                              min=0.01)] = None,
    size: Annotated[str | None, typer.Option(help="WIDTHxHEIGHT of the annotated pictures (MOT without seqinfo.ini).")
                    ] = None,
    packets: Annotated[Path | None, typer.Option(help="Folder of the packets (default: targets/ in CORPUS).")] = None,
    detector: Classes = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the table (default: regime/check/ in CORPUS).")] = None,
    preset: Preset = None,
    overrides: Set = None,
) -> None:  # fmt: skip
    """Does the teacher count what people marked? Native annotations serve this check and no statistic.

    Clips belong to annotations by the name of the file they were cut from.

    Example:  [bold]factorjepa regime check bdd --format bdd100k --labels bdd100k/labels/box_track_20/val[/bold]
    """
    from .. import commands
    from ..config import resolve
    from ..corpus.manifest import Manifest
    from ..regime.check import check_corpus
    from ..regime.measuring import Opening
    from ..regime.readers.native import open_native
    from ..regime.settings import Thresholds

    thresholds = resolve(Thresholds, preset, overrides or [])
    native = open_native(layout, labels, corpus, fps, _size(size))
    measurer = Opening(corpus, "teacher", packets or corpus / TARGETS, thresholds, detector)()
    with counting("checking", "clip") as progress:
        found = check_corpus(Manifest.read(corpus), measurer, native, thresholds, progress)
    folder = found.write(out or corpus / REGIME / "check")
    commands.record(folder)
    console.print(_agreement_table(corpus, native.name, found))
    without = f"; {found.unmarked} have no annotated moment" if found.unmarked else ""
    console.print(f"{counted(len(found.clips), 'clip')} checked{without}. No statistic uses any of this.")
    console.print(f"{folder / 'agreement.csv'}: the same for every clip", highlight=False, soft_wrap=True)


@regime_app.command("reference")
def reference(
    layout: Annotated[str, typer.Argument(help="bdd100k or nuscenes.")],
    folder: Annotated[Path, typer.Argument(help="The dataset as published: bdd100k/, or the folder of v1.0-*.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for table.csv and nuScenes' videos (default: FOLDER).")
    ] = None,
    camera: Annotated[str, typer.Option(help="Of nuScenes.")] = "CAM_FRONT",
    version: Annotated[str | None, typer.Option(help="Of nuScenes' tables (default: the one there is).")] = None,
) -> None:
    """A published dataset as a table that `factorjepa ingest` takes. nuScenes' pictures become one video per scene.

    Example:  [bold]factorjepa regime reference nuscenes nuscenes --out ns; factorjepa ingest ns/table.csv --out \
    ns-corpus[/bold]
    """
    from ..regime.readers.reference import list_bdd100k, list_nuscenes

    if layout == "bdd100k":
        made = list_bdd100k(folder, out or folder)
    elif layout == "nuscenes":
        with counting("muxing", "scene") as progress:
            made = list_nuscenes(folder, out or folder, camera, version, progress)
    else:
        from ..errors import ConfigError

        raise ConfigError(f"reference {layout!r}: choose bdd100k or nuscenes")
    for line in made.notes:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print(
        f"{made.table}: {counted(made.videos, 'video')} to ingest: factorjepa ingest {made.table} --out CORPUS",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def _size(text: str | None) -> tuple[int, int] | None:
    from ..errors import ConfigError

    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(side.isdecimal() and 0 < int(side) < 100_000 for side in sides):
        raise ConfigError(f"--size {text}: give width and height in pixels, as in 1920x1080")
    return int(sides[0]), int(sides[1])


def strata_by_teacher(corpus: Path, splits: list[str]) -> None:
    """Density and occlusion of the clips that the teacher has seen, into the manifest: what a study stratifies by."""
    from ..regime.settings import Thresholds

    _write_strata(corpus, _measured(corpus, "teacher", None, corpus / REGIME, Thresholds(), None, splits))


def _write_strata(corpus: Path, table: RegimeTable) -> None:
    from ..corpus.manifest import Manifest
    from ..regime.strata import cuts_of, with_strata

    manifest = Manifest.read(corpus)
    cuts = cuts_of(manifest, table)
    with_strata(manifest, table, cuts).write(corpus)
    for cut in cuts:
        console.print(
            f"{cut.attribute} in the manifest: low to {cut.lower:.3g}, high from {cut.upper:.3g} ({cut.axis}; "
            f"thirds of {cut.training_clips} training clips)",
            highlight=False,
        )


def _measured(
    corpus: Path, by: str, packets: Path | None, folder: Path, thresholds: Thresholds, detector: Path | None,
    splits: list[str] | None = None,
) -> RegimeTable:  # fmt: skip
    from ..regime.measuring import Opening, measured

    chosen = None if splits is None else tuple(splits)
    opening = Opening(corpus, by, packets or corpus / TARGETS, thresholds, detector, chosen)
    with counting(f"measuring {corpus.name}", "look") as progress:
        return measured(folder, opening, progress)


def _refuse_repeated(corpora: list[Path]) -> None:
    from ..errors import ConfigError

    if len(corpora) > 1 + REFERENCES:
        raise ConfigError(
            f"{len(corpora) - 1} references: give one or two. Holm's family is five axes times the references, and "
            "a wider one decides less; compare again for others"
        )
    places = [folder.resolve() for folder in corpora]
    if repeated := [str(folder) for k, folder in enumerate(corpora) if places[k] in places[:k]]:
        raise ConfigError(f"{', '.join(repeated)} is given twice: a corpus is compared with others, each of them once")


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


def _agreement_table(corpus: Path, native: str, found: Check) -> Table:
    table = _table(f"{corpus}: the teacher against {native}; outside every statistic")
    table.add_column("measure")
    for heading in ("teacher", "marked", "rank r, frames", "rank r, clips", "frames", "clips"):
        table.add_column(heading, justify="right")
    for row in found.pooled():
        numbers = (row.teacher, row.native, row.rank_correlation, row.clip_correlation)
        table.add_row(row.measure, *map(_number, numbers), str(row.frames), str(row.clips))
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
