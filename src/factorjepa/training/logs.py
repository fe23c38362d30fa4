"""Where the numbers of a run go: `metrics.jsonl`, which is the record, and beside it what people like to look at.

TensorBoard's event files lie in the run's folder under `events/`; Weights & Biases keeps its own. A resumed run goes
on in both where it stood, with no point twice.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from ..errors import TrainingError
from ..storage import write_text
from .run import EVENTS, RunDirectory

WANDB = "wandb.txt"


class Sink(Protocol):
    def log(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class Logs:
    """`log(record)` to the run's record and to every sink."""

    def __init__(self, run: RunDirectory, sinks: Sequence[Sink]) -> None:
        self.run, self.sinks = run, sinks

    @classmethod
    @contextlib.contextmanager
    def opened(cls, run: RunDirectory, log_to: Sequence[str] | None, resumed: int | None) -> Iterator[Logs]:
        """For a new run, or one `resumed` at a step; without `log_to` TensorBoard is used where it is installed."""
        if log_to is None:
            log_to = ["tensorboard"] if importlib.util.find_spec("tensorboard") else []
        with contextlib.ExitStack() as stack:
            sinks: list[Sink] = []
            for name in log_to:
                sinks.append(TensorBoard(run, resumed) if name == "tensorboard" else WeightsAndBiases(run, resumed))
                stack.callback(sinks[-1].close)
            yield cls(run, sinks)

    def log(self, record: dict[str, Any]) -> None:
        self.run.log(record)
        values = {name: float(value) for name, value in record.items() if name != "step"}
        for sink in self.sinks:
            sink.log(record["step"], values)


def refuse_missing(log_to: Sequence[str] | None) -> None:
    """An error that names the extra, before anything long begins."""
    for name in log_to or ():
        if importlib.util.find_spec(name) is None:
            raise TrainingError(f"log_to: {name} needs the package {name}: pip install 'factorjepa[logs]'")


def _later_second(folder: Path) -> None:
    """Files are read in the order of their names, which tell the second and then a count: 10 comes before 9 there."""
    now = f"events.out.tfevents.{int(time.time()):010d}."
    if any(path.name.startswith(now) for path in folder.glob("*")):
        time.sleep(1.0)


class TensorBoard:
    """Scalars as event files. On resuming, a mark tells readers to forget what was written after the checkpoint."""

    def __init__(self, run: RunDirectory, resumed: int | None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        _later_second(run.folder / EVENTS)
        self._writer = EventFileWriter(str(run.folder / EVENTS))
        if resumed is not None:
            start = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=time.time(), step=resumed + 1, session_log=start))

    def log(self, step: int, values: dict[str, float]) -> None:
        scalars = [
            self._summary.Value(tag=name if "/" in name else f"train/{name}", simple_value=value)
            for name, value in values.items()
        ]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=scalars)))

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases with this run's settings. `WANDB_MODE=offline` needs no network."""

    def __init__(self, run: RunDirectory, resumed: int | None) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "factorjepa"),
            id=_identity(run.folder / WANDB),
            name=run.folder.name,
            dir=str(run.folder),
            config=yaml.safe_load(run.config),
            resume="allow",
        )
        # Steps it has seen before a kill come again with the same values; it keeps the first.
        self._seen = 0 if resumed is None else int(self._run.step)

    def log(self, step: int, values: dict[str, float]) -> None:
        if step >= self._seen:
            self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


def _identity(path: Path) -> str:
    """The name by which Weights & Biases knows this run again."""
    if not path.exists():
        write_text(path, uuid.uuid4().hex)
    return path.read_text(encoding="utf-8")
