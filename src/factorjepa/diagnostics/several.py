"""Several runs measured side by side: one pass of a small backbone keeps neither all cores nor a GPU busy.

Each process has an evaluator of its own and keeps it from run to run. What a process could not measure, because it died
or the run is broken, is left to the caller, who measures it or says why not.
"""

from __future__ import annotations

import functools
import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..commands import carry_out, command
from ..engines import Lost, Processes
from ..errors import FactorJEPAError
from ..scores import Scores
from ..sharing import shared_gpu
from .diagnostic import Role
from .evaluation import SCORES, Entry, Evaluated, Instruments, Progress, earlier_part, measured
from .evaluator import Conditions, Evaluator
from .settings import EvaluateSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SideBySide:
    """`ahead` of `evaluate`: so many processes. `make` gives the instruments anew in each; it compares by value."""

    processes: int
    settings: EvaluateSettings
    device: torch.device
    make: Callable[[], Instruments]

    def __call__(self, entries: Sequence[Entry], out: Path, progress: Progress | None) -> set[str]:
        left = [entry for entry in entries if _unmeasured(entry, out)] if self.processes > 1 else []
        if len(left) <= 1:
            return set()
        # These processes may have none of their own, and share the room for what is kept of the clips.
        alone = self.settings.model_copy(
            update={"workers": 0, "memory_gb": self.settings.memory_gb / min(self.processes, len(left))}
        )
        work = functools.partial(_measure, alone, str(self.device), self.make, out, command())
        fresh: set[str] = set()
        processes = min(self.processes, len(left))
        with shared_gpu(self.device, processes):
            results = Processes(processes, tries=1).run(work, left)
            for ended, (number, found) in enumerate(results, start=1):
                if isinstance(found, Lost):
                    log.warning("%s: its process %s; it is measured after the others", left[number].name, found.why)
                else:
                    fresh |= found
                if progress is not None:
                    progress(ended, len(left), left[number].name)
        return fresh


def _unmeasured(entry: Entry, out: Path) -> bool:
    """Whether it is worth a process: a run with a part is looked at, and a broken one is named, by the caller."""
    try:
        return earlier_part(out, entry, entry.digest()) is None
    except (FactorJEPAError, OSError):
        return False


def _measure(
    settings: EvaluateSettings,
    device: str,
    make: Callable[[], Instruments],
    out: Path,
    line: str,
    entry: Entry,
) -> set[str]:
    """The run's folder, if it was measured here and now."""
    carry_out(line)
    torch.set_num_threads(1)
    instruments = _instruments(make)
    made = Evaluated(Scores.of_rows([], dict(instruments.infos), {}, []), out / SCORES)
    try:
        measured([entry], out, settings, torch.device(device), instruments, made, evaluators=_evaluator)
    except Exception as error:  # no room on the GPU beside the others, say: the caller meets it again, and alone
        log.warning("%s: %s: %s; it is measured after the others", entry.name, type(error).__name__, error)
        _evaluator.cache_clear()
        gc.collect()
        torch.cuda.empty_cache()
        return set()
    folder = str(entry.run.folder)
    return set() if folder in made.again or folder in made.failed else {folder}


@functools.lru_cache(maxsize=1)
def _instruments(make: Callable[[], Instruments]) -> Instruments:
    """Of this process: they may hold networks."""
    return make()


@functools.lru_cache(maxsize=1)
def _evaluator(
    conditions: Conditions, settings: EvaluateSettings, device: torch.device, roles: tuple[Role, ...]
) -> Evaluator:
    """Of this process: it holds decoded clips and what was worked out about them."""
    return Evaluator(conditions, settings, device, roles)
