"""Settings that validation chooses: every method tries the same values with one seed, and keeps the best for all.

A comparison in which one method was tuned and another was not says who was tuned. So all try the same values, but for
settings of what a method does not have, and a page says who had fewer tries. Test clips take no part: a run is judged
by its lowest Future-frame L1 on validation clips.
"""

from __future__ import annotations

import csv
import io
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import TrainingError
from ..storage import PARTIAL, write_text
from .run import JUDGED_BY, RunDirectory
from .several import Job

FROM_FILE = "file"  # a backbone that only the header of its weights names
TUNING, CHOSEN = "tuning", "chosen.csv"  # folder of the candidates beside that of the runs; what was tried
_BACKBONE, _METHOD, _ERROR, _CHOSEN = "backbone", "method", "validation Future-frame L1", "chosen"


@dataclass(frozen=True)
class Candidate:
    """A run with values to try."""

    values: Mapping[str, Any]
    job: Job

    def error(self) -> float:
        """The lowest validation error of a checkpoint that the run may choose; infinite where none is finite."""
        return min((value for step, value in self._judged() if step > 0), default=math.inf)

    def start(self) -> float:
        """That before the first update."""
        return min((value for step, value in self._judged() if step == 0), default=math.inf)

    def _judged(self) -> list[tuple[int, float]]:
        records = [record for record in RunDirectory(self.job.out).metrics() if JUDGED_BY in record]
        found = [(int(record["step"]), record[JUDGED_BY]) for record in records]
        return [(step, value) for step, value in found if math.isfinite(value)]


@dataclass(frozen=True)
class Choice:
    """What validation chose for a method. `edge`: settings of which it is the smallest or largest value."""

    candidate: Candidate
    tried: tuple[Candidate, ...]
    errors: tuple[float, ...]  # of all that were tried, in their order
    edge: tuple[str, ...]

    @property
    def tied(self) -> int:
        """How many candidates are as good as the chosen one."""
        return self.errors.count(min(self.errors))

    @property
    def improves(self) -> bool:
        """Whether training made the chosen one better than it began."""
        return min(self.errors) < self.candidate.start()


def choose(tried: Sequence[Candidate]) -> Choice:
    """The first of the best."""
    errors = tuple(candidate.error() for candidate in tried)
    if not math.isfinite(min(errors)):
        raise TrainingError(
            f"{tried[0].job.settings.method}: no value that was tried gave a finite validation error; try smaller ones"
        )
    best = tried[errors.index(min(errors))]
    edge = []
    for name, value in best.values.items() if errors.count(min(errors)) == 1 else ():
        values = [candidate.values[name] for candidate in tried]
        ordered = all(isinstance(one, int | float) for one in values)
        if ordered and len(set(values)) > 2 and value in (min(values), max(values)):  # of two, one is always best
            edge.append(name)
    return Choice(best, tuple(tried), errors, tuple(edge))


@dataclass(frozen=True)
class Tried:
    """A line of what was tried; values as they are written. `backbone` as the settings name it."""

    backbone: str
    method: str
    values: Mapping[str, str]
    error: float
    chosen: bool


def write_tried(folder: Path, choices: Mapping[str, Choice]) -> None:
    text = io.StringIO()
    names = list(dict.fromkeys(name for choice in choices.values() for name in choice.candidate.values))
    table = csv.writer(text, lineterminator="\n")
    table.writerow((_BACKBONE, _METHOD, *names, _ERROR, _CHOSEN))
    for method, choice in choices.items():
        for candidate, error in zip(choice.tried, choice.errors, strict=True):
            chosen = "yes" if candidate is choice.candidate else ""
            arch = candidate.job.settings.arch
            values = (candidate.values.get(name, "") for name in names)  # not every method has what is tuned
            table.writerow((arch, method, *values, f"{error:.6f}", chosen))
    write_text(folder / CHOSEN, text.getvalue())


def read_tried(folder: Path) -> list[Tried]:
    """What `write_tried` wrote; nothing where nothing was tuned."""
    path = folder / CHOSEN
    if not path.is_file():
        return []
    found = []
    with path.open(encoding="utf-8", newline="") as opened:
        for row in csv.DictReader(opened):
            try:
                backbone, method = row.pop(_BACKBONE, ""), row.pop(_METHOD)  # older tables name no backbone
                error, chosen = float(row.pop(_ERROR)), row.pop(_CHOSEN)
            except (KeyError, ValueError, TypeError):
                raise TrainingError(f"{path}: is not a table of what was tried; run the study again") from None
            found.append(Tried(backbone, method, {k: v for k, v in row.items() if v != ""}, error, chosen == "yes"))
    return found


def adopt(finished: Path, out: Path) -> None:
    """The chosen run stands among the others under its name, as if it had been trained there; whole or not at all."""
    if RunDirectory(out).steps():
        return
    temporary = out.with_name(f".{out.name}{PARTIAL}")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(finished, temporary, symlinks=True)
    shutil.rmtree(out, ignore_errors=True)  # begun, and without a checkpoint
    temporary.rename(out)
