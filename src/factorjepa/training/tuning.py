"""Settings that validation chooses: every method tries the same values with one seed, and keeps the best for all.

A comparison in which one method was tuned and another was not says who was tuned. So the budget is the same for all,
and test clips take no part: a run is judged by its lowest Future-frame L1 on validation clips.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import TrainingError
from ..storage import PARTIAL
from .run import RunDirectory
from .several import Job

JUDGED_BY = "val/future_l1"


@dataclass(frozen=True)
class Candidate:
    """A run with values to try."""

    values: Mapping[str, Any]
    job: Job

    def error(self) -> float:
        """The lowest validation error of the run; infinite where it has none that is finite."""
        found = [record[JUDGED_BY] for record in RunDirectory(self.job.out).metrics() if JUDGED_BY in record]
        return min((value for value in found if math.isfinite(value)), default=math.inf)


@dataclass(frozen=True)
class Choice:
    """What validation chose for a method. `edge`: names of settings whose first or last value it is."""

    candidate: Candidate
    errors: tuple[float, ...]  # of all candidates, in their order
    edge: tuple[str, ...]

    @property
    def tied(self) -> int:
        """How many candidates are as good as the chosen one; several are where training worsens all that they try,
        because each is then at its best before the first update."""
        return self.errors.count(min(self.errors))


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
        values = list(dict.fromkeys(candidate.values[name] for candidate in tried))
        if len(values) > 1 and value in (values[0], values[-1]):
            edge.append(name)
    return Choice(best, errors, tuple(edge))


def adopt(finished: Path, out: Path) -> None:
    """The chosen run stands among the others under its name, as if it had been trained there; whole or not at all."""
    if RunDirectory(out).steps():
        return
    temporary = out.with_name(f".{out.name}{PARTIAL}")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(finished, temporary, symlinks=True)
    shutil.rmtree(out, ignore_errors=True)  # begun, and without a checkpoint
    temporary.rename(out)
