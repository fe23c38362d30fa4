"""The command line: one verb per stage, grouped. `factorjepa VERB --help` shows an example of each."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.markup import escape

from . import __version__, commands
from .errors import AlreadyReported, FactorJEPAError, lacks_memory
from .signals import handling
from .storage import DISK_FULL, storage_error
from .terminal import console, error_console
from .verbs import (
    comparison,
    data,
    decode,
    diagnostics,
    footage,
    look,
    model,
    profiling,
    regime,
    report,
    study,
    teacher,
    training,
)
from .workers import let_threads_sleep

app = typer.Typer(
    name="factorjepa",
    help="World models for crowded, chaotic streets: from footage to report.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(rich_help_panel="Data")(data.simulate)
app.command(rich_help_panel="Data")(footage.ingest)
app.command(rich_help_panel="Data")(data.pack)
app.command(rich_help_panel="Data")(teacher.targets)
app.add_typer(regime.regime_app, rich_help_panel="Data")
app.command(rich_help_panel="Model")(model.features)
app.add_typer(model.weights_app, rich_help_panel="Model")
app.command(rich_help_panel="Model")(training.trunk)
app.command(rich_help_panel="Model")(training.train)
app.command(rich_help_panel="Model")(training.methods)
app.command(rich_help_panel="Model")(training.budget)
app.command(rich_help_panel="Model")(training.pretrain)
app.command(rich_help_panel="Model")(profiling.profile)
app.command(rich_help_panel="Evaluation")(diagnostics.evaluate)
app.command(rich_help_panel="Evaluation")(diagnostics.scorecard)
app.command(rich_help_panel="Evaluation")(comparison.compare)
app.add_typer(decode.decode_app, rich_help_panel="Evaluation")
app.command(rich_help_panel="Evaluation")(diagnostics.diagnostics)
app.command(rich_help_panel="Evaluation")(study.study)
app.command(rich_help_panel="Look")(study.demo)
app.command(rich_help_panel="Look")(look.inspect)
app.command(rich_help_panel="Look")(look.preview)
app.command(rich_help_panel="Evaluation")(report.report)
app.command(rich_help_panel="Look")(report.curve)
app.command(rich_help_panel="Look")(look.info)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        console.print(__version__, highlight=False)
        raise typer.Exit


_START_OVER = ("profile", "compare", "report", "features", "budget", "curve", "preview", "inspect")


class _Interrupted(BaseException):  # no `except Exception` may take it for an error of its own
    """Ctrl-C or SIGTERM. The command-line library would swallow a KeyboardInterrupt and say less."""

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number


def _interrupt(signal_number: int, frame: object) -> None:
    raise _Interrupted(signal_number)


def main() -> None:
    """Entry point: errors meant for people become one message and exit code 1; Ctrl-C gives 130, SIGTERM 143."""
    let_threads_sleep()
    with handling(_interrupt, even_ignored=True):  # a shell's background commands begin with Ctrl-C ignored
        _main()


def _main() -> None:
    commands.carry_out(commands.line_of(sys.argv[1:]))
    try:
        app()
    except _Interrupted as interrupted:
        kept = "it starts over" if sys.argv[1:2] and sys.argv[1] in _START_OVER else "what it finished is kept"
        error_console.print(f"interrupted; run the same command again: {kept}", highlight=False)
        sys.exit(128 + interrupted.signal_number)
    except AlreadyReported:
        sys.exit(1)
    except FactorJEPAError as error:
        error_console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        what = f"there is not enough memory for this ({escape(str(error))})"
        less = "fewer or smaller clips at a time take less (batch, size, frames, clips, workers, memory_gb)"
        error_console.print(f"[bold red]error:[/] {what}: {less}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        where = error.filename or "a file that is written"  # not every library says which
        error_console.print(f"[bold red]error:[/] {escape(str(storage_error(where, error)))}", soft_wrap=True)
        sys.exit(1)
