"""What two methods are compared on: the seeds that both ran, the clips that both have a value for.

Legend: N clips.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..words import counted
from .contrasts import Contrast
from .estimand import Estimator, Request
from .measures import Measure
from .panel import Panel


@dataclass(frozen=True)
class Pair:
    """A contrast on a measure: what to ask for on either side."""

    contrast: Contrast
    a: Request
    b: Request
    paired_seeds: bool  # whether seeds of the two stand side by side
    dropped: int  # clips that only one of the two has a value for
    note: str = ""


@dataclass(frozen=True)
class Unpaired:
    """A contrast that cannot be tested, and why."""

    contrast: Contrast
    why: str


def own_requests(estimator: Estimator, measure: Measure) -> dict[str, Request]:
    """Every measured method on its own clips."""
    found = {}
    for method in estimator.panel.methods:
        if seeds := estimator.measured(measure, method):
            found[method] = Request(method, seeds, estimator.defined(measure, method, seeds).tobytes())
    return found


def pair_up(estimator: Estimator, measure: Measure, contrast: Contrast, own: Mapping[str, Request]) -> Pair | Unpaired:
    """Both sides on what they share."""
    panel = estimator.panel
    if why := lacking(panel, contrast, own):
        return Unpaired(contrast, why)
    seeds_a, seeds_b, note = _seeds(panel, own[contrast.a], own[contrast.b])
    first_N = estimator.defined(measure, contrast.a, seeds_a)
    second_N = estimator.defined(measure, contrast.b, seeds_b)
    both_N = first_N & second_N
    if not both_N.any():
        return Unpaired(contrast, "no clip has a value for both")
    a, b = Request(contrast.a, seeds_a, both_N.tobytes()), Request(contrast.b, seeds_b, both_N.tobytes())
    dropped = int((first_N | second_N).sum() - both_N.sum())
    notes = [note, f"{counted(dropped, 'clip')} left out: a value for one method only" if dropped else ""]
    paired = seeds_a == seeds_b or _untrained(panel, a) or _untrained(panel, b)
    return Pair(contrast, a, b, paired, dropped, "; ".join(each for each in notes if each))


def lacking(panel: Panel, contrast: Contrast, measured: Collection[str]) -> str:
    """Why a contrast cannot be made on a diagnostic that these methods were measured on; nothing where it can."""
    absent = [method for method in (contrast.a, contrast.b) if method not in panel.methods]
    if absent:
        return f"no scores of {' and '.join(map(panel.title, absent))}"
    unmeasured = [method for method in (contrast.a, contrast.b) if method not in measured]
    return f"not measured for {' and '.join(map(panel.title, unmeasured))}" if unmeasured else ""


def missing_seeds(panel: Panel, request: Request) -> str:
    """Seeds that other methods have and this one has not, in words."""
    every = sorted({seed for _, seed in panel.runs})
    absent = [str(seed) for seed in every if seed not in request.seeds]
    return f"without seed {', '.join(absent)}" if absent and not _untrained(panel, request) else ""


def trained_once(panel: Panel, pair: Pair) -> bool:
    """Whether a side was trained, and once only: then nobody knows how much a second training would differ."""
    return any(len(side.seeds) == 1 and not _untrained(panel, side) for side in (pair.a, pair.b))


def _seeds(panel: Panel, a: Request, b: Request) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """The seeds that both have; a single run that trains nothing stands beside all seeds of the other."""
    if a.seeds == b.seeds or _untrained(panel, a) or _untrained(panel, b):
        return a.seeds, b.seeds, ""
    shared = tuple(seed for seed in a.seeds if seed in b.seeds)
    if not shared:
        return a.seeds, b.seeds, "no seed in common: seeds are not paired"
    every = len({*a.seeds, *b.seeds})
    return shared, shared, f"{len(shared)} of {every} seeds: the others are missing for one method"


def _untrained(panel: Panel, request: Request) -> bool:
    runs = panel.about.get(request.method, [])
    return len(request.seeds) == 1 and bool(runs) and all(run.trainable == 0 for run in runs)
