"""Verbs that train: `train`, `trunk`, `methods`, `budget`, `pretrain`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..signals import quitting, stopping
from ..terminal import console, counting, error_console
from .devices import chosen_device

TRUNK = "trunk"  # where records lie in a corpus unless said otherwise


def train(
    data: Annotated[Path, typer.Argument(help="A corpus folder; methods that need targets find them in targets/.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings as key=value, for example updates=200.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="What adapts: see `factorjepa methods` (default: factorjepa).")
    ] = None,
    preset: Annotated[str, typer.Option(help="nano, small, vitg_1b, vitG_2b, or a YAML file.")] = "nano",
    seed: Annotated[int | None, typer.Option(help="Of everything random in the run (default: 17).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    trunk_cache: Annotated[
        Path | None, typer.Option(help="Folder to keep what frozen blocks make of each clip: faster from epoch 2 on.")
    ] = None,
) -> None:
    """Adapt a pretrained backbone to a corpus with one method; all methods run under one protocol.

    Settings are those of the preset (nano: 100 updates of 8 clips); which there are: configs/nano.yaml.

    Example:  [bold]factorjepa train out --out runs/factorjepa --method factorjepa updates=200[/bold]
    On 8 GPUs:  [bold]torchrun --nproc-per-node 8 -m factorjepa train out --out runs/a[/bold]
    """
    with quitting():  # nothing is begun that would have to be finished
        from ..config import resolve
        from ..training.engine import Engine
        from ..training.parallel import Processes
        from ..training.refusing import refuse_idle
        from ..training.run import CONFIG, RunDirectory
        from ..training.settings import TrainSettings

    if device is not None:
        chosen_device(device)
    _refuse_contradictions(overrides or [], method=method, seed=seed, trunk_cache=trunk_cache)
    with Processes.started(device) as processes:
        with quitting():
            folder = RunDirectory(out)
            processes.by_first(lambda: folder.refuse_taken(resume))
            begun = out / CONFIG if resume and folder.steps() else None  # its own settings, unless told otherwise
            settings = resolve(
                TrainSettings, begun or preset, overrides or [], data=str(data), method=method, seed=seed,
                trunk_cache=str(trunk_cache) if trunk_cache else None,
            )  # fmt: skip
            refuse_idle(settings, [override.partition("=")[0] for override in overrides or ()])
            engine = Engine(settings, processes.device, processes)
        if processes.first and engine.trunk is not None:
            error_console.print(str(engine.trunk), highlight=False, soft_wrap=True)
        if processes.first:
            with stopping(engine.stop), training_progress(engine.method.title) as progress:
                finished = engine.run(out, resume, progress)
        else:
            with stopping(engine.stop, quiet=True):
                finished = engine.run(out, resume)
    if processes.first:
        found, before = finished.validation, folder.error_before()
        began = "" if before is None or not finished.best else f" ({before:.4f} before training)"
        console.print(
            f"{finished.run}: best checkpoint at step {finished.best}, validation Future-frame L1 "
            f"{found.future_l1:.4f}{began}, mask-ratio slope {found.slope:.4f}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
        if before is not None and finished.best and found.future_l1 >= before:
            console.print(
                "It is the best of the trained ones, and none is better than the start of training: try a smaller lr, "
                "or more updates", soft_wrap=True,
            )  # fmt: skip
        if finished.stopped:
            console.print(f"stopped at step {finished.step}; add --resume to go on", highlight=False)
    if finished.stopped:
        raise typer.Exit(143)


def _refuse_contradictions(overrides: list[str], **options: object) -> None:
    """What is said twice would be decided by an order that nobody sees."""
    from ..errors import ConfigError

    for override in overrides:
        key, _, value = override.partition("=")
        if key == "data":
            raise ConfigError(f"{override}: the corpus is the first argument; leave this out")
        if options.get(key) is not None and str(options[key]) != value:
            raise ConfigError(
                f"{override}: --{key.replace('_', '-')} {options[key]} says otherwise; leave one of them out"
            )
        if key == "windows" and value not in ("null", "") and not Path(value).is_dir():
            raise ConfigError(f"{override}: no such folder of decoded windows; leave windows out to decode the clips")


def trunk(
    data: Annotated[Path, typer.Argument(help="A corpus folder; methods that need targets find them in targets/.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value, as `train` gets them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the records (default: trunk/ in DATA).")] = None,
    method: Annotated[str | None, typer.Option(help="What will train: decides which blocks are frozen.")] = None,
    preset: Annotated[str, typer.Option(help="nano, small, vitg_1b, vitG_2b, or a YAML file.")] = "nano",
    seed: Annotated[int | None, typer.Option(help="Of the run; decides which clips, with clips=N.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    engine: Annotated[str, typer.Option(help="processes (of this machine) or ray (a cluster).")] = "processes",
    workers: Annotated[
        int | None, typer.Option(help="Worker processes (default: all cores; 1 with a GPU).", min=1)
    ] = None,
) -> None:
    """Keep what frozen blocks make of every clip, for `train --trunk-cache` to read. Run it again to finish.

    Example:  [bold]factorjepa trunk out --method factorjepa --engine ray[/bold]
    """

    from ..config import resolve
    from ..engines import engine_named
    from ..training.engine import Engine
    from ..training.settings import TrainSettings
    from ..training.trunk_filling import default_workers, fill_trunk

    folder = out or data / TRUNK
    settings = resolve(
        TrainSettings, preset, overrides or [], data=str(data), method=method, seed=seed, trunk_cache=str(folder)
    )
    place = chosen_device(device)
    if workers is None and engine == "processes":
        workers = default_workers(place)
    workforce = engine_named(engine, workers, gpus=float(place.type == "cuda"))
    run = Engine(settings, place)
    error_console.print(str(run.trunk), highlight=False, soft_wrap=True)
    with counting("trunk", "clip") as progress:
        kept = fill_trunk(run, workforce, progress)
    console.print(
        f"{len(kept.clip_ids)} clips in {folder}. Train with them: factorjepa train {data} --method {settings.method} "
        f"--trunk-cache {folder} --out RUN",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def methods(
    words: Annotated[
        list[str] | None, typer.Argument(help="Only methods whose name or family has one of these (default: all "
                                         "but ablations).")
    ] = None,
) -> None:  # fmt: skip
    """Adaptation methods: what trains, and what comparing with it shows.

    Example:  [bold]factorjepa methods ablation auto_rgn[/bold]
    """
    from rich import box
    from rich.table import Table

    from ..adaptation import METHODS
    from ..errors import TrainingError
    from ..words import base_of

    asked = [base_of(word) for word in words or ()]
    shown = {one.family for one in METHODS.values()} - {"ablation"}
    found = [
        one for one in METHODS.values()
        if (any(w in one.name or w == one.family for w in asked) if asked else one.family in shown)
    ]  # fmt: skip
    if not found:
        families = ", ".join(dict.fromkeys(one.family for one in METHODS.values()))
        raise TrainingError(f"no method is named like {' or '.join(map(repr, words or ()))}; families: {families}")
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("method", no_wrap=True)
    table.add_column("trains", max_width=22)
    table.add_column("why it is compared")
    family = ""
    for one in found:
        if one.family != family:
            family = one.family
            table.add_row(f"[bold]{family}[/]", "", "")
        table.add_row(one.name, one.scope, one.why)
    console.print(table)
    if not asked:
        console.print(f"{len(METHODS) - len(found)} ablations of these: factorjepa methods ablation", highlight=False)
    console.print(
        f"A method with other settings beside itself, in one study and on one page: {found[0].name}@WORD, any word.",
        highlight=False,
    )


def budget(
    arch: Annotated[str, typer.Option(help="An architecture of `factorjepa weights list`, nano or small.")] = "nano",
    preset: Annotated[
        str | None, typer.Option(help="Settings whose ranks and blocks count (default: by --arch).")
    ] = None,
) -> None:
    """Trainable parameters of every method, counted; fails when a matched one leaves the 5 % band.

    Example:  [bold]factorjepa budget --arch vjepa2_1_vit_giant_384[/bold]
    """
    from rich import box
    from rich.table import Table

    from ..adaptation import METHODS
    from ..adaptation.budget import PAPER, budgets
    from ..config import resolve
    from ..training.settings import PRESET_OF, TrainSettings

    settings = resolve(TrainSettings, preset or PRESET_OF.get(arch, "nano"), data="-", arch=arch)
    own = [settings.of_method(name) for name in METHODS]
    rows = [row for one in own for row in budgets(arch, one.scope, [one.resolved_method()], one.budget(arch))]
    table = Table(box=box.SIMPLE, pad_edge=False, title=f"{arch}: trainable parameters, millions", title_justify="left")
    for heading in ("method", "counted", "of FactorJEPA's", "paper", ""):
        table.add_column(heading, justify="right" if heading not in ("method", "") else "left")
    for row in rows:
        paper = PAPER.get(arch, {}).get(row.method.name)
        compared = row.method.matched or row.method.family == "ablation"
        share = f"{row.deviation:+.1%}" if compared else ""
        table.add_row(
            row.method.name, f"{row.trainable / 1e6:.2f}", share, f"{paper:g}" if paper else "",
            "" if row.within else f"[red]outside 5 %: {row.advice}[/]",
        )  # fmt: skip
    console.print(table)
    console.print("of FactorJEPA's: a control's is of the form of FactorJEPA that it stands beside.", highlight=False)
    if arch in PAPER:
        console.print(
            "paper: as its Panel D states them. Counts differ because the released weights do: their MLPs are not four "
            "times as wide as the encoder, as the paper's table has them.",
            highlight=False,
        )
    if not all(row.within for row in rows):
        raise typer.Exit(1)


@contextlib.contextmanager
def training_progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar that also shows the loss and how long the GPU waits for data."""
    with counting(f"training {title}", "update") as progress:
        yield lambda step, steps, text: progress(step, steps, text)


def pretrain(
    out: Annotated[Path, typer.Argument(help="Folder of the run.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value, for example steps=200.")] = None,
    world: Annotated[str, typer.Option(help="Preset of the simulated world, or a YAML file.")] = "sparse",
    windows: Annotated[
        Path | None, typer.Option(help="Folder for the simulated windows (default: windows/ in the run).")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that simulate windows.", min=1)] = 2,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
) -> None:
    """Pretrain a small backbone from random weights on the simulated world, with V-JEPA's own objective.

    Example:  [bold]factorjepa pretrain runs/nano steps=200 batch=16 sources=40 sources_at_start=8[/bold]
    """

    from ..config import resolve
    from ..training.pretrain import Pretraining, PretrainSettings
    from ..world import WorldSettings

    scenes = resolve(WorldSettings, world)
    settings = resolve(PretrainSettings, overrides=overrides or [], world=scenes.model_dump(mode="json"))
    place = chosen_device(device)
    run = Pretraining(out, settings, place)
    with counting(f"pretraining {settings.arch}", "step") as progress:
        record = run.run(windows or out / "windows", workers, resume, progress)
    console.print(
        f"{out / 'weights.safetensors'}: future L1 {record['future_l1']:.4f} on held-out windows "
        f"(copying the last frame {record['copy_l1']:.4f}, their mean {record['mean_l1']:.4f})",
        highlight=False,
        soft_wrap=True,
    )
