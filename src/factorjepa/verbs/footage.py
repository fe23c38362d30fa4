"""The verb for real video: `ingest`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal import console, counting, error_console
from ..words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..footage.ingest import Ingested
    from ..footage.listing import Listed


def ingest(
    sources: Annotated[list[Path], typer.Argument(help="Videos, folders of videos, or a CSV that lists them.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the corpus: new, or one that this command began.")
    ] = None,
    template: Annotated[
        Path | None, typer.Option(help="Only write a CSV of the files found, with fields to complete.")
    ] = None,
    capture_mode: Annotated[str, typer.Option(help="drive, walk or aerial, for files of which nothing says it.")] = "",
    privacy: Annotated[str | None, typer.Option(help="on (default), or off: faces and plates stay visible.")] = None,
    faces: Annotated[Path | None, typer.Option(help="Face detector, ONNX.")] = None,
    plates: Annotated[Path | None, typer.Option(help="Registration-plate detector, ONNX.")] = None,
    audit: Annotated[bool, typer.Option("--audit", help="Contact sheets of what was and was not blurred.")] = False,
    preset: Annotated[str | None, typer.Option(help="Path of a YAML file with settings.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as key=value, e.g. clips.fps=8; may be repeated.")
    ] = None,
    engine: Annotated[str, typer.Option(help="processes (of this machine) or ray (a cluster).")] = "processes",
    workers: Annotated[int | None, typer.Option(help="Worker processes; all cores by default.", min=1)] = None,
) -> None:
    """Footage to a corpus: shots, clips, quality, privacy, splits, a manifest and a data card. Run it again to finish.

    Example:  [bold]factorjepa ingest footage --template footage/table.csv[/bold]

    Example:  [bold]factorjepa ingest footage/table.csv --out corpus --faces scrfd.onnx --plates plates.onnx[/bold]
    """
    from ..errors import ConfigError
    from ..footage.listing import list_sources, write_template

    found = list_sources(sources, capture_mode)
    if template is not None:
        write_template(template, found)
        listed = counted(sum(not one.refused for one in found), "file")
        _say(f"{template}: {listed}. Complete it, then: factorjepa ingest {template} --out CORPUS")
        return
    if out is None:
        raise ConfigError("say where the corpus goes: --out CORPUS (or write a table of the files with --template)")
    _say_derived(sources, found)

    from ..config import resolve
    from ..engines import engine_named
    from ..footage.configuration import IngestConfiguration
    from ..footage.ingest import ingest as ingest_files
    from ..footage.privacy import build, notices

    options = {"mode": privacy, "faces": faces, "plates": plates}
    told = [f"privacy.{name}={json.dumps(str(value))}" for name, value in options.items() if value]  # YAML's off is no
    configuration = resolve(IngestConfiguration, preset, [*told, *(overrides or [])])
    make_filter = functools.partial(build, configuration.privacy)
    for notice in notices(make_filter()):
        _say(notice, error=True)
    result = ingest_files(
        out, found, configuration.settings, make_filter, engine_named(engine, workers), audit, counting
    )
    _report(out, result)


def _say_derived(sources: Sequence[Path], found: Sequence[Listed]) -> None:
    """Whatever was concluded from folders is said, so that it can be wrong aloud."""
    if all(source.suffix.lower() == ".csv" for source in sources):
        return
    places = sorted({f"{one.city}/{one.session}" for one in found if not one.refused})
    shown = ", ".join(places[:6]) + (", ..." if len(places) > 6 else "")
    _say(f"City and session taken from folder names: {shown}. A CSV says it better: --template", error=True)


def _report(out: Path, result: Ingested) -> None:
    from ..corpus.inspection import rejected_table
    from ..corpus.splits import Split

    if result.repaired:
        damaged = "\n".join(f"  {what}" for what in result.repaired)
        _say(f"{counted(len(result.repaired), 'damaged clip')} made again:\n{damaged}", error=True)
    if result.rejected:
        error_console.print(rejected_table(result.rejected))
    manifest = result.manifest
    if empty := [split.value for split in Split if split != Split.AUDIT and not manifest.select(split=split)]:
        hint = "whole sources go to one split; more sources, or other shares, give it some"
        _say(f"no clips for {', '.join(empty)}: {hint}", error=True)
    hours = sum(clip.seconds for clip in manifest) / 3600
    left = f"; what was left out, and why: {out / 'rejected.parquet'}" if result.rejected else ""
    _say(
        f"{counted(len(manifest), 'clip')} ({hours:.2f} h) in {out}{left}. "
        f"Look: factorjepa inspect {out}; factorjepa preview {out}"
    )


def _say(text: str, error: bool = False) -> None:
    (error_console if error else console).print(text, highlight=False, markup=False, soft_wrap=True)
