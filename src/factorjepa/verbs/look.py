"""Verbs to look at things: `info`, `inspect`, `preview`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import console
from ..words import counted
from .teacher import TARGETS


def info() -> None:
    """Versions, devices, memory and optional parts: what a bug report needs.

    Example:  [bold]factorjepa info[/bold]
    """
    from ..environment import describe_environment

    console.print(describe_environment())


def inspect(
    corpora: Annotated[list[Path], typer.Argument(help="Corpus folders, each with a manifest.parquet.")],
    figure: Annotated[
        Path | None, typer.Option(help="Draw clips by city and capture mode (png, pdf or svg) of one corpus.")
    ] = None,
) -> None:
    """Composition of a corpus by city, mode, scene and split, how dense it is, what was left out, and privacy.

    Several corpora are compared.

    Example:  [bold]factorjepa inspect dense sparse[/bold]

    Example:  [bold]factorjepa inspect corpus --figure composition.pdf[/bold]
    """
    from ..corpus.charts import composition_figure
    from ..corpus.composition import compose
    from ..corpus.inspection import compare, describe, privacy_table, rejected_tables
    from ..corpus.manifest import Manifest
    from ..corpus.rejected import read_rejected
    from ..errors import ConfigError
    from ..footage.statement import read_statement

    if figure is not None and len(corpora) > 1:
        raise ConfigError("--figure draws one corpus: name one")
    manifests = [Manifest.read(folder) for folder in corpora]
    compositions = [compose(manifest) for manifest in manifests]
    for folder, manifest, composition in zip(corpora, manifests, compositions, strict=True):
        console.print(describe(str(folder), composition))
        rejected = read_rejected(folder)
        if rejected:
            console.print(rejected_tables(rejected))
        if statement := read_statement(folder):
            console.print(privacy_table(manifest, rejected, statement))
    if figure is not None:
        composition_figure(manifests[0], figure)
        console.print(f"{figure}: clips by city and capture mode", highlight=False, soft_wrap=True)
    if len(corpora) > 1 and (table := compare([folder.resolve().name for folder in corpora], compositions)).row_count:
        console.print(table)


def preview(
    corpus: Annotated[Path, typer.Argument(help="A corpus folder with a manifest.parquet.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the pictures (default: preview/ in the corpus).")] = None,
    clip: Annotated[
        str | None, typer.Option(help="Clip id to animate (default: one of an audit city, if there is one).")
    ] = None,
    count: Annotated[int, typer.Option(help="Clips on the contact sheet.", min=1)] = 40,
    movie: Annotated[bool, typer.Option("--mp4", help="Write the overlay as mp4 instead of GIF.")] = False,
    targets: Annotated[bool, typer.Option("--targets", help="What the teacher saw in one clip's window.")] = False,
    packets: Annotated[
        Path | None, typer.Option(help="Folder of the packets (default: targets/ in the corpus).")
    ] = None,
    replication: Annotated[int, typer.Option(help="Which window, with --targets.", min=0)] = 0,
) -> None:
    """A contact sheet of clips, and one clip with masks, ids, visibility and interactions drawn over it.

    With --targets: one window with the teacher's regions, tracks, visibility and interaction edges, and the factor
    views D_L, D_A and D_I.

    Example:  [bold]factorjepa preview out --clip 'navapur/s00/v000#0.0'[/bold]

    Example:  [bold]factorjepa preview out --targets --mp4[/bold]
    """
    if targets:
        _preview_targets(corpus, packets, out or corpus / "preview", clip, movie, replication)
        return
    console.print(_pictures(corpus, out or corpus / "preview", clip, count, movie), highlight=False, soft_wrap=True)


def _pictures(corpus: Path, folder: Path, clip: str | None, count: int, movie: bool) -> str:
    """Draw the pictures of `preview`; return what they are."""
    from ..corpus.manifest import Manifest
    from ..corpus.preview import animated_overlay, choose_clips, contact_sheet, liveliest
    from ..corpus.store import open_store

    manifest, store = Manifest.read(corpus), open_store(corpus)
    chosen = manifest.clip(clip) if clip else liveliest(manifest)
    sheet, moving = folder / "contact_sheet.png", folder / f"overlay.{'mp4' if movie else 'gif'}"
    several = choose_clips(manifest, count)
    contact_sheet(sheet, several, store)
    annotated = animated_overlay(moving, chosen, store)
    drawn = "masks, ids, visibility and interactions drawn over it"
    note = drawn if annotated else "no ground truth beside it to draw"
    return f"{sheet}: one frame each of {counted(len(several), 'clip')}\n{moving}: clip {chosen.clip_id}, with {note}"


def _preview_targets(
    data: Path, packets: Path | None, folder: Path, clip_id: str | None, movie: bool, replication: int
) -> None:
    from ..corpus.access import Corpus, clips_of
    from ..corpus.manifest import Manifest
    from ..corpus.preview import liveliest
    from ..teacher.cache import PacketCache
    from ..teacher.preview import targets_animation
    from ..teacher.teacher import teacher_window

    cache, corpus = PacketCache.open(packets or data / TARGETS), Corpus.open(data)
    if clip_id is None:
        there = [clip for clip in corpus.manifest if cache.has(clip.split, replication)]
        clip = liveliest(Manifest(there))
    else:
        clip = corpus.manifest.clip(clip_id)
    clips = clips_of(corpus, clip.split)
    packet = cache.packets(clips, replication).of(clip)
    path = folder / f"targets.{'mp4' if movie else 'gif'}"
    about = (f"{clip.clip_id} ({clip.split})", cache.header["features"], f"regions: {cache.header['regions']}")
    targets_animation(path, teacher_window(clips, clip, cache.settings, replication), packet, cache.settings, about)
    console.print(f"{path} ({clip.clip_id})", highlight=False, soft_wrap=True)
