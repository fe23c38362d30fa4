"""Verbs that make data: `simulate` and `pack`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import console, counting, error_console
from ..words import counted


def simulate(
    out: Annotated[Path, typer.Argument(help="Folder for the corpus: new, or one that this command began.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings as key=value, e.g. size=192 disorder=0.5")
    ] = None,
    clips: Annotated[int, typer.Option(help="How many clips.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.", min=0)] = 0,
    preset: Annotated[str, typer.Option(help="dense, sparse, or the path of a YAML file.")] = "dense",
    clips_per_source: Annotated[int, typer.Option(help="Clips of one street; fewer: more streets.", min=1, max=5)] = 5,
    shares: Annotated[
        tuple[float, float, float], typer.Option(help="Of the sources, for train, validation and test.")
    ] = (0.8, 0.1, 0.1),
    dealt_as: Annotated[
        int | None, typer.Option(help="A pilot's: streets lie in the splits that a corpus of so many clips gives them.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; all cores by default.", min=1)] = None,
) -> None:
    """Simulate a DENSEWORLD corpus: H.264 clips with ground truth and a manifest. Run it again to finish.

    Example:  [bold]factorjepa simulate out --clips 200 --seed 7[/bold]
    """
    from .. import commands
    from ..config import resolve
    from ..corpus.simulated import enough_clips, planned, simulate_corpus, sources_of, without_clips
    from ..corpus.splits import Split
    from ..world import WorldSettings

    plan = planned(resolve(WorldSettings, preset, overrides or []), seed, clips, clips_per_source, shares, dealt_as)
    repaired: list[str] = []
    with counting("simulate", "clip") as progress:
        manifest = simulate_corpus(out, plan, workers, progress, repaired.append)
    commands.record(out)
    if repaired:
        damaged = "\n".join(f"  {what}" for what in repaired)
        error_console.print(
            f"{counted(len(repaired), 'damaged clip')} made again:\n{damaged}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    empty = without_clips(plan, (clip.split for clip in manifest))
    if empty:
        enough = enough_clips(plan)
        more = f"--clips {enough} gives each some" if enough else "more --clips, cities or larger --shares may"
        error_console.print(
            f"no clips for {', '.join(empty)}: whole sources go to one split, and audit takes whole cities. {more}",
            highlight=False,
            soft_wrap=True,
        )
    elif sources_of(plan)[Split.TEST] == 1 and (enough := enough_clips(plan, Split.TEST)):
        error_console.print(
            "the test clips come from one source: they can be measured on, but nothing can be compared. "
            f"--clips {enough} gives them two",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"{counted(len(manifest), 'clip')} in {out}. Look: factorjepa inspect {out}; factorjepa preview {out}",
        highlight=False,
        soft_wrap=True,
    )


def pack(
    corpus: Annotated[Path, typer.Argument(help="A corpus folder with a manifest.parquet.")],
    out: Annotated[Path, typer.Argument(help="Folder for the shards.")],
    shard_mb: Annotated[int, typer.Option(help="Size of a shard in megabytes.", min=1)] = 1000,
) -> None:
    """Copy a corpus into tar shards (webdataset layout) for network storage. Run it again to finish.

    Example:  [bold]factorjepa pack out shards --shard-mb 500[/bold]
    """
    from ..corpus.store import pack as pack_corpus

    with counting("pack", "clip") as progress:
        packed = pack_corpus(corpus, out, shard_mb * 1_000_000, progress)
    console.print(f"{counted(len(packed), 'clip')} in {out}", highlight=False, soft_wrap=True)
