"""Verbs to look at things: `info`, `inspect`, `preview`, `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import console
from .data import simulate


def info() -> None:
    """Versions, devices, memory and optional parts: what a bug report needs.

    Example:  [bold]factorjepa info[/bold]
    """
    from ..environment import describe_environment

    console.print(describe_environment())


def inspect(
    corpora: Annotated[list[Path], typer.Argument(help="Corpus folders, each with a manifest.parquet.")],
) -> None:
    """Composition of a corpus by city, mode, scene and split, and how dense it is; several corpora are compared.

    Example:  [bold]factorjepa inspect dense sparse[/bold]
    """
    from ..corpus.composition import compose
    from ..corpus.inspection import compare, describe
    from ..corpus.manifest import Manifest

    compositions = [compose(Manifest.read(folder)) for folder in corpora]
    for folder, composition in zip(corpora, compositions, strict=True):
        console.print(describe(str(folder), composition))
    if len(corpora) > 1:
        console.print(compare([folder.resolve().name for folder in corpora], compositions))


def preview(
    corpus: Annotated[Path, typer.Argument(help="A corpus folder with a manifest.parquet.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the pictures (default: preview/ in the corpus).")] = None,
    clip: Annotated[
        str | None, typer.Option(help="Clip id to animate (default: one of an audit city, if there is one).")
    ] = None,
    count: Annotated[int, typer.Option(help="Clips on the contact sheet.", min=1)] = 24,
    movie: Annotated[bool, typer.Option("--mp4", help="Write the overlay as mp4 instead of GIF.")] = False,
) -> None:
    """A contact sheet of clips, and one clip with masks, ids, visibility and interactions drawn over it.

    Example:  [bold]factorjepa preview out --clip 'navapur/s00/v000#0.0'[/bold]
    """
    from ..corpus.manifest import Manifest
    from ..corpus.preview import animated_overlay, choose_clips, contact_sheet, liveliest
    from ..corpus.store import open_store

    manifest, store = Manifest.read(corpus), open_store(corpus)
    folder = out or corpus / "preview"
    chosen = manifest.clip(clip) if clip else liveliest(manifest)
    sheet, moving = folder / "contact_sheet.png", folder / f"overlay.{'mp4' if movie else 'gif'}"
    contact_sheet(sheet, choose_clips(manifest, count), store)
    annotated = animated_overlay(moving, chosen, store)
    note = "" if annotated else ", which has no ground truth beside it"
    console.print(f"{sheet}\n{moving} ({chosen.clip_id}{note})", highlight=False, soft_wrap=True)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path("demo"),
    clips: Annotated[int, typer.Option(help="Clips per regime.", min=10)] = 40,
) -> None:
    """Everything there is, on the embedded default: simulate both regimes, compare them, draw them.

    Example:  [bold]factorjepa demo --out demo[/bold]
    """
    dense, sparse = out / "dense", out / "sparse"
    for folder in (dense, sparse):
        simulate(folder, [], clips=clips, seed=7, preset=folder.name, workers=None)
    inspect([dense, sparse])
    preview(dense, out / "pictures", None, 24, False)
