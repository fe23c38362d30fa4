"""Verbs that draw: `decode train`, `decode evaluate`, `decode render`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from ..terminal import console, counting, error_console, listing
from ..words import counted
from .devices import chosen_device

if TYPE_CHECKING:
    from ..rendering.settings import DecodeSettings
    from ..scores import Scores
    from ..statistics import Comparison

decode_app = typer.Typer(
    name="decode", help="Latents to RGB: train a decoder, draw predicted futures, measure them.", no_args_is_help=True,
    rich_markup_mode="rich",
)  # fmt: skip

Runs = Annotated[list[Path], typer.Argument(help="Folders of runs.")]
Out = Annotated[Path, typer.Option(help="Folder of the evaluation; everything goes into decoded/ in it.")]
DecoderPath = Annotated[
    Path | None, typer.Option("--decoder", help="A folder of `decode train` (default: the one shipped for nano).")
]
Split = Annotated[str, typer.Option(help="test, audit or validation.")]
Clips = Annotated[int | None, typer.Option(help="A stratified subset of at most this many clips.", min=1)]
Detector = Annotated[
    Path | None, typer.Option(help="ONNX agent detector (default: the shipped one, on simulated clips only).")
]
Data = Annotated[Path | None, typer.Option(help="Another corpus than the one the runs were trained on.")]
Targets = Annotated[Path | None, typer.Option(help="Its packets (default: targets/ in it).")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")]
Change = Annotated[list[str] | None, typer.Option("--set", help="A setting as key=value, e.g. batch=4; repeatable.")]


@decode_app.command()
def train(
    data: Annotated[Path, typer.Argument(help="A corpus folder.")],
    out: Annotated[Path, typer.Option(help="Folder of the decoder.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings as key=value, e.g. updates=500 decoder.kind=taef2.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="A YAML file of settings (default: mini for nano).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the decoder in this folder.")] = False,
    device: Device = None,
) -> None:
    """Train a decoder of one backbone on target-encoder latents of the training split; no run is involved.

    Example:  [bold]factorjepa decode train out --out decoder updates=2000[/bold]
    """
    from ..config import resolve
    from ..rendering.settings import DecodeSettings
    from ..training.run import CONFIG, RunDirectory

    folder = RunDirectory(out)
    folder.refuse_taken(resume)
    begun = out / CONFIG if resume and folder.steps() else None
    train_decoder(resolve(DecodeSettings, begun or preset, overrides or [], data=str(data)), out, resume, device)


def train_decoder(
    settings: DecodeSettings, out: Path, resume: bool, device: str | None = None, beside: Sequence[str] = ()
) -> None:
    """Train, with progress, and say what came of it; paths of `beside` may have been moved together with it."""
    from ..rendering.training import DecoderTraining

    training = DecoderTraining(settings, chosen_device(device))
    losses = settings.losses.model_dump()
    off = [name for name, weight in losses.items() if not weight]
    if off:
        error_console.print(f"disabled terms of the objective: {', '.join(off)}", highlight=False)
    with counting("decoder", "update") as progress:
        made = training.run(out, resume, progress, beside)
    found = made.validation
    console.print(
        f"{made.path}: chosen at update {made.step}, validation loss {found['validation/loss']:.4f}, "
        f"PSNR {found['validation/psnr']:.2f} dB",
        highlight=False,
        soft_wrap=True,
    )


@decode_app.command()
def evaluate(
    runs: Runs,
    out: Out,
    decoder: DecoderPath = None,
    split: Split = "test",
    clips: Clips = None,
    lpips: Annotated[
        Path | None, typer.Option(help="Weights of LPIPS (AlexNet); without them LPIPS is not available.")
    ] = None,
    detector: Detector = None,
    data: Data = None,
    targets: Targets = None,
    change: Change = None,
    side_by_side: Annotated[int, typer.Option(help="Runs at a time, each in a process of its own.", min=1)] = 1,
    device: Device = None,
) -> None:
    """Measure decoded futures: PSNR, SSIM, LPIPS, flow, agents; end to end, against the oracle, and the visible gap.

    Example:  [bold]factorjepa decode evaluate runs/* --out scores[/bold]
    """
    from ..config import resolve
    from ..decoded import FOLDER
    from ..diagnostics.evaluation import failures
    from ..diagnostics.settings import EvaluateSettings
    from ..errors import ScoresError
    from ..rendering.evaluation import Looking, evaluate_decoded
    from ..report.provenance import corpus_of
    from ..statistics import CompareSettings, compare
    from ..statistics.strata import strata_in, stratified, unmeasured

    settings = resolve(EvaluateSettings, None, change or [], split=split, clips=clips)
    looking = Looking(decoder, lpips, detector)
    place = chosen_device(device)
    with counting("decoding", "run" if side_by_side > 1 else "clip") as progress:
        made = evaluate_decoded(runs, out, looking, settings, place, data, targets, progress, side_by_side)
    # Agents are counted on clips that have any, observed or decoded, so some runs have a clip more than others.
    comparing = CompareSettings(mixed="none", common=True)
    try:
        comparison = compare(made.scores, comparing)
    except ScoresError as error:
        console.print(f"no intervals: {error}", highlight=False, soft_wrap=True, markup=False)
    else:
        levels = strata_in(data or corpus_of(made.scores), made.scores)
        comparison.strata = stratified(made.scores, levels, comparing)
        comparison.notes += unmeasured(levels, made.scores)
        comparison.write(out / FOLDER / "comparison")
        console.print(_table(comparison, made.scores))
        if failing := _failing(comparison, made.scores):
            console.print(failing, highlight=False, soft_wrap=True, markup=False)
    listing(made.scores.lacks(), "all are kept with the scores")
    console.print(f"{made.path}: {counted(len(made.scores), 'score')}", highlight=False, soft_wrap=True)
    if made.failed:
        error_console.print(f"not decoded:\n{failures(made.failed)}", highlight=False, soft_wrap=True, markup=False)
        raise typer.Exit(1)


@decode_app.command()
def render(
    runs: Runs,
    out: Out,
    decoder: DecoderPath = None,
    count: Annotated[int, typer.Option(help="Clips to draw.", min=1)] = 3,
    split: Split = "test",
    clips: Clips = None,
    detector: Detector = None,
    data: Data = None,
    targets: Targets = None,
    change: Change = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace pictures of another decoder or split.")
    ] = False,
    device: Device = None,
) -> None:
    """Draw the future of a few clips: observed, oracle, every method, and with a channel left out.

    Pictures that the same decoder drew of the same split before are replaced.

    Example:  [bold]factorjepa decode render runs/frozen-17 runs/factorjepa-17 --out scores --count 3[/bold]
    """
    from ..config import resolve
    from ..decoded import drawn_by
    from ..diagnostics.settings import EvaluateSettings
    from ..rendering.evaluation import Looking
    from ..rendering.examples import render as draw

    settings = resolve(EvaluateSettings, None, change or [], split=split, clips=clips)
    looking, earlier = Looking(decoder, None, detector), len(drawn_by(out))
    with counting("rendering", "clip") as progress:
        folders = draw(runs, out, looking, settings, chosen_device(device), count, data, targets, progress, overwrite)
    instead = f", in place of {counted(earlier, 'clip')} drawn before" if earlier else ""
    console.print(
        f"{folders[0].parent}: {counted(len(folders), 'clip')} to look at{instead}", highlight=False, soft_wrap=True
    )


def _failing(comparison: Comparison, scores: Scores) -> str:
    """How often each method fails in a way that the oracle does not; empty where no detector looked."""
    order = [run.method for run in scores.runs]
    rows = [row for row in comparison.scores if row.diagnostic == "decoded_failures" and row.headline]
    rows.sort(key=lambda row: order.index(row.method))
    shares = [f"{row.title} {100 * row.mean:.0f} % [{100 * row.low:.0f}, {100 * row.high:.0f}]" for row in rows
              if row.clips]  # fmt: skip
    return f"Clips with a failure that only the prediction shows: {', '.join(shares)}" if shares else ""


def _table(comparison: Comparison, scores: Scores) -> Table:
    """The paper's table: a row per source of latents, mean and deficit to the oracle, the interval below."""
    from ..report.numbers import decimals, number

    rows = {(row.method, row.diagnostic, row.variant): row for row in comparison.scores}
    measures = {
        name: info.direction
        for name, info in scores.diagnostics.items()
        if info.status == "secondary" and any(row.diagnostic == name for row in comparison.scores)
    }
    methods = {run.method: run.title for run in scores.runs}
    table = Table(box=box.SIMPLE, pad_edge=False, padding=0, title_justify="left",  # five intervals in 80 columns
                  title="Decoded futures: mean, 95 % interval, worse than the oracle by")  # fmt: skip
    table.add_column("latents of", min_width=12)
    for name, direction in measures.items():
        title = name.removeprefix("decoded_").replace("_", " ")
        table.add_column(f"{title} {'↓' if direction == 'lower' else '↑'}", justify="right", no_wrap=True)

    def cell(method: str, name: str, variant: str, beside: str | None) -> str:
        row = rows.get((method, name, variant))
        if row is None:
            return "not\navailable"
        places = min(decimals(row.low, row.high, row.mean), 3)
        worse = rows.get((method, name, beside)) if beside else None
        behind = f"\n[dim]by {number(worse.mean, places)}[/]" if worse is not None else ""
        between = f"{number(row.low, places)} {number(row.high, places)}"
        return f"{number(row.mean, places)}\n[dim]{between}[/]{behind}"

    any_method = next(iter(methods), "")
    table.add_row("last frame", *(cell(any_method, name, "copy", None) for name in measures))
    table.add_row("oracle", *(cell(any_method, name, "oracle", None) for name in measures))
    for method, title in methods.items():
        table.add_row(title, *(cell(method, name, "pooled", "deficit") for name in measures))
    return table
