"""Verbs of the teacher: `targets`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal import console, counting
from .devices import chosen_device

if TYPE_CHECKING:
    from ..corpus.splits import Split

TARGETS = "targets"  # where packets lie in a corpus unless said otherwise


def targets(
    data: Annotated[Path, typer.Argument(help="A corpus folder with a manifest.parquet.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings as key=value, e.g. regions.kind=detector targets.grid=24")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the packets (default: targets/ in DATA).")] = None,
    preset: Annotated[str | None, typer.Option(help="Path of a YAML file with settings.")] = None,
    replication: Annotated[int, typer.Option(help="Which window of each clip: see the loader.", min=0)] = 0,
    split: Annotated[
        list[str] | None, typer.Option(help="train, validation, test or audit; may be repeated (default: all).")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes (default: all cores; 1 with a network on a GPU).", min=1)
    ] = None,
    engine: Annotated[str, typer.Option(help="processes (of this machine) or ray (a cluster).")] = "processes",
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: the GPU where there is one).")] = None,
    report: Annotated[bool, typer.Option("--report", help="Describe the packets that are there.")] = False,
    sample: Annotated[
        int, typer.Option(help="Clips for the report's threshold sensitivity; 0 leaves it out.", min=0)
    ] = 8,
) -> None:
    """Factor targets from the frozen teacher, one packet per clip window. Run it again to finish.

    Example:  [bold]factorjepa targets out features.kind=dinov2 features.weights=dinov2_vitg14_reg4_pretrain.pth[/bold]

    Example:  [bold]factorjepa targets out --report[/bold]
    """
    folder = out or data / TARGETS
    chosen = _splits(split)
    if device is not None:
        chosen_device(device)  # refused here: features that need none would not ask
    if report:
        _report(data, folder, chosen, replication, sample, device)
        return
    from .. import commands
    from ..config import resolve
    from ..engines import engine_named
    from ..teacher.making import make_packets
    from ..teacher.settings import TeacherSettings

    settings = resolve(TeacherSettings, preset, overrides or [])
    cluster = None if engine == "processes" else engine_named(engine, workers)
    with counting("targets", "clip") as progress:
        cache = make_packets(data, folder, settings, chosen, replication, workers, device, progress, engine=cluster)
    commands.record(folder)
    where, there = (f" --out {out}", f" --packets {out}") if out else ("", "")
    console.print(
        f"Packets in {folder}, by {cache.teacher}. Look at them: factorjepa targets {data}{where} --report; "
        f"factorjepa preview {data} --targets{there}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _splits(names: list[str] | None) -> list[Split] | None:
    from ..corpus.splits import Split
    from ..errors import ConfigError

    if names is None:
        return None
    if unknown := [name for name in names if name not in list(Split)]:
        raise ConfigError(f"--split {unknown[0]}: choose {', '.join(Split)}")
    return [Split(name) for name in names]


def _report(
    data: Path, folder: Path, chosen: list[Split] | None, replication: int, sample: int, device: str | None
) -> None:
    from ..corpus.access import Corpus, clips_of
    from ..corpus.splits import Split
    from ..errors import TeacherError
    from ..teacher.cache import PacketCache
    from ..teacher.coverage import coverage_of
    from ..teacher.report import counts_table, coverage_table, reliability_table, sensitivity_table
    from ..teacher.sensitivity import sensitivity
    from ..teacher.teacher import Teacher

    cache, corpus = PacketCache.open(folder), Corpus.open(data)
    there = {one: cache.shards(one, replication) for one in chosen or Split}
    for shards in there.values():
        for shard in shards:
            shard.verify()
    present = [one for one, shards in there.items() if shards]
    if not present:
        raise TeacherError(
            f"{folder}: has no packets of replication {replication} yet; run factorjepa targets {data} first"
        )
    sets = {one: clips_of(corpus, one) for one in present}
    coverage = {str(one): coverage_of(cache.packets(clips, replication)) for one, clips in sets.items()}
    console.print(f"{folder}: {cache.teacher}", highlight=False, soft_wrap=True, markup=False)
    for table in (coverage_table(coverage), counts_table(coverage), reliability_table(coverage)):
        console.print(table)
    if sample:
        # Thresholds are chosen on training and validation clips; test clips are described, never tuned on.
        preferred = [one for one in (Split.TRAIN, Split.VALIDATION, Split.AUDIT) if one in sets]
        if preferred:
            clips = sets[preferred[0]]
            some = clips.subset(min(sample, len(clips)), seed=0)
            with counting("sensitivity", "clip") as progress:
                variants = sensitivity(Teacher(cache.settings, device), some, replication, progress)
            console.print(sensitivity_table(variants, len(some)))
