"""`study` and `demo`: the whole loop in one command, from streets to report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal import console, counting, error_console
from ..workers import granted_cores
from .beside import DECODER_PART, RUNS_PART, Part, beside_the_teacher, packet_free
from .comparison import compare
from .data import simulate
from .decode import evaluate as decode_evaluate
from .decode import render as decode_render
from .decode import train_decoder
from .diagnostics import evaluate
from .regime import strata_by_teacher
from .teacher import targets

if TYPE_CHECKING:
    from ..study import StudySettings
    from ..training.several import Job


def study(
    out: Annotated[Path, typer.Option(help="Folder for everything the study makes.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings as key=value, e.g. clips=400 training.updates=500")
    ] = None,
    preset: Annotated[str, typer.Option(help="study, ablations, chosen, demo, or the path of a YAML file.")] = "study",
    until: Annotated[str, typer.Option(help="The last stage: simulate, targets, train, evaluate, …")] = "report",
) -> None:
    """Compare methods from nothing: simulate, targets, train all methods with all seeds, evaluate, compare, report.

    Every stage goes on where it was: run the same command again to finish.

    Example:  [bold]factorjepa study --out study clips=400 training.updates=500[/bold]
    """
    from ..config import resolve
    from ..study import StudySettings

    page = run_study(resolve(StudySettings, preset, overrides or []), out, until)
    if page is not None:
        console.print(f"Open {page}", highlight=False, soft_wrap=True)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path("demo"),
    clips: Annotated[int | None, typer.Option(help="Simulated clips (default: 64).", min=20)] = None,
    updates: Annotated[int | None, typer.Option(help="Updates of each run (default: 16).", min=1)] = None,
) -> None:
    """The whole loop on the embedded default: simulate, targets, train, evaluate, decode, compare, report.

    Trains Auto-RGN, FactorJEPA-RAW and FactorJEPA from the shipped nano weights with two seeds. Run it again to finish.

    Example:  [bold]factorjepa demo --out demo[/bold]
    """
    from ..config import resolve
    from ..study import StudySettings

    pace = [f"training.{name}={updates}" for name in ("updates", "validate_every", "save_every")] if updates else []
    started = time.monotonic()
    page = run_study(resolve(StudySettings, "demo", pace, clips=clips), out)
    minutes = (time.monotonic() - started) / 60
    console.print(
        f"\nThe whole loop took {minutes:.1f} minutes. A few updates on a few dozen clips show that it works, not "
        f"which method is better. Open {page}",
        highlight=False,
        soft_wrap=True,
    )


def run_study(settings: StudySettings, out: Path, until: str = "report") -> Path | None:
    """All stages up to `until`; the report's page, if it came to that."""
    from ..storage import only_writer

    with only_writer(out, "putting a study"):
        return _run_study(settings, out, until)


def _run_study(settings: StudySettings, out: Path, until: str) -> Path | None:
    import torch

    from ..errors import ConfigError
    from ..report.making import make_report
    from ..study import STAGES
    from ..training.several import refuse_others
    from ..words import listed, nearest

    if until not in STAGES:
        raise ConfigError(f"there is no stage {until!r}{nearest(until, STAGES)}; stages: {', '.join(STAGES)}")
    settings.check()
    if unused := settings.unused():
        said = f"tuned: not used for {listed(unused)}, which the study does not have"
        error_console.print(said, highlight=False, soft_wrap=True)
    corpus, scores = settings.corpus(out), out / "scores"
    windows = out / "windows" if settings.windows else None
    jobs = settings.jobs(corpus, out / "runs", windows)
    if not settings.tuning:  # else they are not known yet
        refuse_others(jobs)
    runs, seeds = [job.out for job in jobs], ", ".join(map(str, settings.seeds))
    beside = settings.side_by_side or (1 if torch.cuda.is_available() else granted_cores())
    left_out = {"simulate": settings.data is not None, "tune": not settings.tuning}
    stages = [stage for stage in STAGES if not left_out.get(stage)]
    wanted = [stage for stage in stages if STAGES.index(stage) <= STAGES.index(until)]
    if "simulate" in wanted and "targets" in wanted:
        settings.check_plan(compared="compare" in wanted)
    for number, stage in enumerate(wanted, start=1):
        what = {
            "simulate": "Simulate crowded streets", "targets": "Let the frozen teacher look at them",
            "strata": "Tell dense and occluded clips from others, by what the teacher saw",
            "tune": f"Let validation clips choose {', '.join(settings.tuning) or 'nothing'}",
            "train": f"Adapt {settings.preset}: {', '.join(settings.methods)}; seeds {seeds}",
            "evaluate": "Measure them on streets that they have not seen",
            "decode": "Draw the futures that they predict", "compare": "Compare", "report": "Report",
        }[stage]  # fmt: skip
        console.rule(f"[bold]{number}/{len(stages)}  {what}", align="left", style="dim")
        if stage == "simulate":
            simulate(
                corpus, list(settings.street), clips=settings.clips, seed=settings.world_seed, preset=settings.world,
                clips_per_source=settings.clips_per_source, shares=settings.shares, dealt_as=settings.dealt_as,
            )  # fmt: skip
        elif stage == "targets":
            if "compare" in wanted:
                settings.check_sources(corpus)
            parts = _beside(settings, wanted)
            with beside_the_teacher(settings, out, parts) if parts else contextlib.nullcontext(), _alone(corpus):
                _targets(settings, corpus)
        elif stage == "strata":
            with _alone(corpus):
                _strata(settings, corpus)
        elif stage == "tune":
            settings = _tune(settings, corpus, out, windows, beside)
            jobs = settings.jobs(corpus, out / "runs", windows)
        elif stage == "train":
            _train(settings, corpus, jobs, windows, beside)
        elif stage == "evaluate":
            evaluate(
                runs, scores, split=settings.split, clips=settings.tested, data=corpus,
                change=settings.measured(windows), examples=settings.examples, side_by_side=beside,
            )  # fmt: skip
        elif stage == "decode":
            _decode(settings, corpus, out, jobs, settings.measured(windows), beside)
        elif stage == "compare":
            compare([scores], scores / "comparison", mixed=settings.mixed, data=corpus)
        else:
            return make_report(scores, runs, corpus).page
    return None


def _alone(corpus: Path) -> contextlib.AbstractContextManager[None]:
    """Studies that share a corpus add to it one after the other: the second finds what the first has made."""
    from ..storage import in_turn

    said = f"another study is adding to {corpus}: waiting for it"
    return in_turn(corpus, "study", lambda: console.print(said, highlight=False, soft_wrap=True, markup=False))


def _targets(settings: StudySettings, data: Path) -> None:
    for window, splits in settings.looked_at().items():
        targets(data, settings.teaching(), split=splits, replication=window, device=settings.teacher_device)


def _beside(settings: StudySettings, wanted: Sequence[str]) -> dict[str, Part]:
    """What need not wait for the teacher, of the stages that are wanted."""
    parts: dict[str, Part] = {}
    if settings.beside_teacher and "train" in wanted and packet_free(settings):
        parts[RUNS_PART] = _train_packet_free
    if settings.beside_teacher and "decode" in wanted and settings.draws() == "train" and settings.methods_decoded():
        parts[DECODER_PART] = _train_decoder
    return parts


def _train_packet_free(settings: StudySettings, out: Path) -> None:
    alone = settings.model_copy(update={"methods": packet_free(settings)})
    data, windows = alone.corpus(out), out / "windows" if alone.windows else None
    if alone.tuning:
        alone = _tune(alone, data, out, windows, alone.beside_teacher)
    _train(alone, data, alone.jobs(data, out / "runs", windows), windows, alone.beside_teacher)


def _train_decoder(settings: StudySettings, out: Path) -> Path:
    """The study's own decoder, trained if it is not there."""
    from ..config import dump
    from ..decoded import DECODER
    from ..training.run import RunDirectory

    folder, wanted = out / "decoder", settings.decode_settings(settings.corpus(out))
    if (folder / DECODER).is_file():
        RunDirectory.existing(folder).refuse_other(dump(wanted), (), beside=settings.beside)
    else:
        train_decoder(wanted, folder, resume=True, beside=settings.beside)
    return folder


def _strata(settings: StudySettings, data: Path) -> None:
    """Before anybody is evaluated, as the paper asks; a corpus in which the teacher sees nobody has none."""
    from ..errors import RegimeError

    try:
        strata_by_teacher(data, ["train", "validation", settings.split])
    except RegimeError as error:
        console.print(f"no strata: {error}", highlight=False, soft_wrap=True, markup=False)


def _decode(
    settings: StudySettings, corpus: Path, out: Path, jobs: list[Job], change: list[str], side_by_side: int
) -> None:
    """Measure and draw decoded futures, with the packaged decoder or one trained on the study's own corpus."""
    draws = settings.draws()
    runs = [job.out for job in jobs if job.settings.method in settings.methods_decoded()]
    if draws == "none" or not runs:
        why = "decoder is none" if draws == "none" else "no method of `decoded` is in this study"
        console.print(f"left out: {why}", highlight=False)
        return
    decoder = _train_decoder(settings, out) if draws == "train" else None
    scores, split, clips = out / "scores", settings.split, settings.clips_decoded()
    lpips, detector = (Path(one) if one else None for one in (settings.lpips, settings.detector))
    decode_evaluate(runs, scores, decoder, split, clips, lpips, detector, corpus, None, change, side_by_side)
    if settings.examples:
        decode_render(runs, scores, decoder, settings.examples, split, clips, detector, corpus, change=change)


def _tune(settings: StudySettings, data: Path, out: Path, windows: Path | None, side_by_side: int) -> StudySettings:
    """Train the candidates of every method and keep what validation chooses; the chosen run is one of the study's."""
    from ..training.tuning import TUNING, adopt, choose, write_tried

    for name in sorted(settings.tuning.keys() & settings.training.keys()):
        said = f"training.{name} is not used: {name} is tuned (tuning={{}} tunes nothing)"
        error_console.print(said, highlight=False)
    tried = settings.candidates(data, out / TUNING, windows)
    _train(settings, data, [one.job for several in tried.values() for one in several], windows, side_by_side)
    choices = {name: choose(several) for name, several in tried.items()}
    chosen = settings.with_chosen({name: choice.candidate.values for name, choice in choices.items()})
    for name, choice in choices.items():
        values = ", ".join(f"{key}={value}" for key, value in choice.candidate.values.items())
        note = f"; {', '.join(choice.edge)} at the end of what was tried: try more" if choice.edge else ""
        if choice.tied > 1:
            note = f", the first of {choice.tied} that are equally good"
        if not choice.improves:
            note = f"{note}; no value improves on the start of training: try smaller ones, or more updates"
        console.print(f"{name}: {values}{note}", highlight=False)
    write_tried(out / TUNING, choices)
    for job in chosen.jobs(data, out / "runs", windows):
        if job.settings.seed == settings.seeds[0] and job.settings.method in choices:
            adopt(choices[job.settings.method].candidate.job.out, job.out)
    return chosen


def _train(settings: StudySettings, data: Path, jobs: list[Job], windows: Path | None, side_by_side: int) -> None:
    import torch

    from ..corpus.decoded_windows import decode_windows
    from ..corpus.splits import Split
    from ..training.several import train_all

    if windows is not None:
        splits = [Split.TRAIN, Split.VALIDATION, Split(settings.split)]
        with counting("decoding windows", "clip") as progress:
            decode_windows(data, windows, list(dict.fromkeys(splits)), *settings.shown(), progress=progress)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with counting("training", "update") as progress:
        train_all(jobs, device, side_by_side, progress)
