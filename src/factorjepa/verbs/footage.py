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
    faces: Annotated[
        list[Path] | None, typer.Option(help="Face detector, ONNX; of several, what any finds is blurred.")
    ] = None,
    plates: Annotated[list[Path] | None, typer.Option(help="Registration-plate detector, ONNX; or several.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Of the detectors: cpu or cuda (default: cuda where onnxruntime has it).")
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Contact sheets of what was and was not blurred; also of a finished corpus.")
    ] = False,
    store: Annotated[str | None, typer.Option(help="folder (plain files; the default) or shards (tar).")] = None,
    shard_mb: Annotated[int | None, typer.Option(help="Size of a shard in megabytes.", min=1)] = None,
    preset: Annotated[str | None, typer.Option(help="Path of a YAML file with settings.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as key=value, e.g. clips.fps=8; may be repeated.")
    ] = None,
    engine: Annotated[str, typer.Option(help="processes (of this machine) or ray (a cluster).")] = "processes",
    workers: Annotated[int | None, typer.Option(help="Worker processes; all cores by default.", min=1)] = None,
) -> None:
    """Footage to a corpus: shots, clips, quality, privacy, splits, a manifest and a data card. Run it again to finish,
    or with more sources to add them.

    Example:  [bold]factorjepa ingest footage --template footage/table.csv[/bold]

    Example:  [bold]factorjepa ingest footage/table.csv --out corpus --faces scrfd.onnx --plates plates.onnx[/bold]
    """
    from ..errors import ConfigError
    from ..footage.listing import list_sources, refuse_nested, write_template

    if out is not None:
        refuse_nested(sources, out)
    found = list_sources(sources, capture_mode)
    if template is not None:
        write_template(template, found)
        listed = counted(sum(not one.refused for one in found), "file")
        _say(f"{template}: {listed}. Complete it, then: factorjepa ingest {template} --out CORPUS")
        return
    if out is None:
        raise ConfigError("say where the corpus goes: --out CORPUS (or write a table of the files with --template)")
    _say_derived(sources, found)

    from .. import commands
    from ..config import resolve
    from ..engines import engine_named
    from ..footage.configuration import IngestConfiguration
    from ..footage.ingest import ingest as ingest_files
    from ..footage.privacy import build, notices, placed

    options = {
        "privacy.mode": privacy, "privacy.device": device, "privacy.faces": [*map(str, faces or [])],
        "privacy.plates": [*map(str, plates or [])], "store.kind": store, "store.shard_mb": shard_mb,
    }  # fmt: skip
    told = [f"{name}={json.dumps(value)}" for name, value in options.items() if value]
    configuration = resolve(IngestConfiguration, preset, [*told, *(overrides or [])])
    filtering = placed(configuration.privacy)
    make_filter = functools.partial(build, filtering)
    for notice in notices(make_filter()):
        _say(notice, error=True)
    if audit and filtering.mode == "off":
        _say("--audit: privacy is off, so there are no contact sheets to write", error=True)
    workforce = engine_named(engine, workers, gpus=float(filtering.device == "cuda"))
    result = ingest_files(out, found, configuration.settings, make_filter, workforce, audit, counting)
    commands.record(out)
    _report(out, result)


def _say_derived(sources: Sequence[Path], found: Sequence[Listed]) -> None:
    """Whatever was concluded from folders is said, so that it can be wrong aloud."""
    if all(source.suffix.lower() == ".csv" for source in sources):
        return
    places = sorted({f"{one.city}/{one.session}" for one in found if not one.refused})
    if not places:
        return
    shown = ", ".join(places[:6]) + (", ..." if len(places) > 6 else "")
    _say(f"City and session taken from folder names: {shown}. A CSV says it better: --template", error=True)


def _report(out: Path, result: Ingested) -> None:
    from ..corpus.inspection import rejected_tables
    from ..corpus.rejected import REJECTED_CSV
    from ..corpus.splits import Split
    from ..errors import CorpusError

    if result.repaired:
        damaged = "\n".join(f"  {what}" for what in result.repaired)
        _say(f"{counted(len(result.repaired), 'damaged file')} made again:\n{damaged}", error=True)
    if result.rejected:
        error_console.print(rejected_tables(result.rejected))
    manifest = result.manifest
    if not len(manifest):
        raise CorpusError(
            f"{out}: no clip came of this footage; what was left out, and why: {out / REJECTED_CSV}. Correct its table "
            "or give it more sources, in this folder; other settings need another one"
        )
    if empty := [split.value for split in Split if split != Split.AUDIT and not manifest.select(split=split)]:
        refuses = "`evaluate --split test`" if empty == [Split.TEST] else "`train`"
        _say(
            f"no clips for {', '.join(empty)}, and {refuses} refuses a corpus without: whole sources go to one split, "
            "and stay there. Give the same command with more sources; or say in a table's column `split` where each "
            "goes (--template writes a table), and ingest that into another --out", error=True,
        )  # fmt: skip
    elif len({clip.source for clip in manifest.select(split=Split.TEST)}) == 1:
        _say(
            "the test clips come from one source: they can be measured on, but nothing can be compared. Give it more: "
            "more sources, or, into another --out, other shares or a column `split` in the table", error=True,
        )  # fmt: skip
    if result.added:
        _say(f"{counted(result.added, 'source')} added; the others keep their splits, clips and files")
    if behind := _behind(out, result):
        again = "; ".join(f"factorjepa {verb} {out}" for verb in behind)
        _say(f"what was made of this corpus does not know its new clips; add them, in this order: {again}", error=True)
    hours = sum(clip.seconds for clip in manifest) / 3600
    left = f"; what was left out, and why: {out / REJECTED_CSV}" if result.rejected else ""
    _say(
        f"{counted(len(manifest), 'clip')} ({hours:.2f} h) in {out}{left}. "
        f"Look: factorjepa inspect {out}; factorjepa preview {out}"
    )


def _behind(out: Path, result: Ingested) -> list[str]:
    """Verbs to be run again: of sources that joined there are no packets, trunk records or strata yet."""
    from ..regime.strata import DENSITY
    from .regime import REGIME
    from .teacher import TARGETS
    from .training import TRUNK

    stratified = sum(DENSITY in clip.attributes for clip in result.manifest)
    if not result.added and stratified in (0, len(result.manifest)):
        return []
    folders = {"targets": TARGETS, "trunk": TRUNK, "regime measure": REGIME}
    return [verb for verb, folder in folders.items() if (out / folder).is_dir() or (folder == REGIME and stratified)]


def _say(text: str, error: bool = False) -> None:
    (error_console if error else console).print(text, highlight=False, markup=False, soft_wrap=True)
