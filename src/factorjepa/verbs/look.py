"""Verbs to look at things: `info`, `inspect`, `preview`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal import console
from ..words import counted
from .teacher import TARGETS

if TYPE_CHECKING:
    from ..corpus.manifest import Clip
    from ..pixels import Frames
    from ..teacher.cache import PacketCache
    from ..teacher.packet import Packet


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
    movie: Annotated[bool, typer.Option("--mp4", help="Write an mp4 instead of a GIF.")] = False,
    targets: Annotated[bool, typer.Option("--targets", help="What the teacher saw in one clip's window.")] = False,
    packets: Annotated[
        Path | None, typer.Option(help="Folder of the packets (default: targets/ in the corpus).")
    ] = None,
    replication: Annotated[int, typer.Option(help="Which window of the clip packets are of.", min=0)] = 0,
) -> None:
    """A contact sheet of clips, and one clip with masks, ids, visibility and interactions drawn over it.

    Of a clip without ground truth, the teacher's regions and tracks are drawn where there are packets; else nothing.

    With --targets: one window with the teacher's regions, tracks, visibility and interaction edges, and the factor
    views D_L, D_A and D_I.

    Example:  [bold]factorjepa preview out --clip 'navapur/s00/v000#0.0'[/bold]

    Example:  [bold]factorjepa preview out --targets --mp4[/bold]
    """
    if targets:
        _preview_targets(corpus, packets, out or corpus / "preview", clip, movie, replication)
        return
    said = _pictures(corpus, packets, out or corpus / "preview", clip, count, movie, replication)
    console.print(said, highlight=False, soft_wrap=True, markup=False)


def _pictures(
    data: Path, packets: Path | None, folder: Path, clip_id: str | None, count: int, movie: bool, replication: int
) -> str:
    """Draw the pictures of `preview`; return what they are."""
    from ..corpus.manifest import Manifest
    from ..corpus.preview import animated_clip, choose_clips, contact_sheet, has_truth, liveliest
    from ..corpus.store import open_store
    from ..errors import CorpusError, TeacherError
    from ..teacher.preview import targets_overlay

    manifest, store = Manifest.read(data), open_store(data)
    clip = manifest.clip(clip_id) if clip_id else liveliest(manifest)
    several, ending = choose_clips(manifest, count), "mp4" if movie else "gif"
    sheet, moving = folder / "contact_sheet.png", folder / f"overlay.{ending}"
    contact_sheet(sheet, several, store)
    if has_truth(clip, store):
        animated_clip(moving, clip, store)
        note = "with masks, ids, visibility and interactions drawn over it"
    else:
        try:
            clip, window, packet, cache = _seen(data, packets, clip_id, replication)
            targets_overlay(moving, window, packet, cache.settings)
            note = f"with what the teacher saw, not ground truth, drawn over it ({cache.header['regions']})"
        except (CorpusError, TeacherError) as error:
            if packets is not None:
                raise
            moving = folder / f"clip.{ending}"
            animated_clip(moving, clip, store)
            note = (
                f"with nothing drawn over it: it has no ground truth, and no targets of the teacher to draw ({error})"
            )
    return f"{sheet}: one frame each of {counted(len(several), 'clip')}\n{moving}: clip {clip.clip_id}, {note}"


def _preview_targets(
    data: Path, packets: Path | None, folder: Path, clip_id: str | None, movie: bool, replication: int
) -> None:
    from ..teacher.preview import targets_animation

    clip, window, packet, cache = _seen(data, packets, clip_id, replication)
    path = folder / f"targets.{'mp4' if movie else 'gif'}"
    about = (f"{clip.clip_id} ({clip.split})", cache.header["features"], f"regions: {cache.header['regions']}")
    targets_animation(path, window, packet, cache.settings, about)
    console.print(f"{path} ({clip.clip_id})", highlight=False, soft_wrap=True)


def _seen(
    data: Path, packets: Path | None, clip_id: str | None, replication: int
) -> tuple[Clip, Frames, Packet, PacketCache]:
    """A clip that was named, or the liveliest that has packets: its window and its packet."""
    from ..corpus.access import Corpus, clips_of
    from ..corpus.manifest import Manifest
    from ..corpus.preview import liveliest
    from ..errors import TeacherError
    from ..teacher.cache import PacketCache
    from ..teacher.teacher import teacher_window

    cache, corpus = PacketCache.open(packets or data / TARGETS), Corpus.open(data)
    if clip_id is None:
        there = [clip for clip in corpus.manifest if cache.has(clip.split, replication)]
        if not there:
            again = f"factorjepa targets {data} --replication {replication}"
            raise TeacherError(f"{cache.folder}: holds no packets of replication {replication}; make them with {again}")
        clip = liveliest(Manifest(there))
    else:
        clip = corpus.manifest.clip(clip_id)
    clips = clips_of(corpus, clip.split)
    packet = cache.packets(clips, replication).of(clip)
    return clip, teacher_window(clips, clip, cache.settings, replication), packet, cache
