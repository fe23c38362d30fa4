"""The profiling contract, case by case: a case that fails is written down and the next one goes on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from .latency import Launched, Way, end_to_end_latency, model_latency
from .report import conditions
from .subject import Subject
from .synthetic import Scenery
from .training import TrainingCase, training_cost

log = logging.getLogger(__name__)

CURRICULUM_VIEWS = 0.3  # of the clips in the curriculum's last three stages

Tell = Callable[[dict[str, Any]], object]


def attempt(into: dict[str, Any], name: str, measure: Callable[[], dict[str, Any]]) -> None:
    """`into[name]`: the figures, or why there are none."""
    try:
        into[name] = measure()
    except Exception as error:  # whatever it is, the other cases are worth having
        log.warning("%s: %s: %s", name, type(error).__name__, error)
        into[name] = {"error": f"{type(error).__name__}: {error}"}


def _model(subject: Subject, scenery: Scenery, way: Way, warmup: int, runs: int) -> dict[str, Any]:
    return model_latency(subject, scenery, way, warmup, runs).as_json()


def profile(
    subject: Subject,
    scenery: Scenery,
    *,
    warmup: int,
    runs: int,
    updates: int,
    tell: Tell = lambda _: None,
    progress: Callable[[int, int, str], object] = lambda done, total, case: None,
) -> dict[str, Any]:
    """Training and latency of a subject; `tell` is given all that is known after each case, `progress` what is next."""
    found: dict[str, Any] = {"conditions": conditions(subject.settings, scenery, subject.compiled)}
    training: dict[str, Any] = found.setdefault("training", {})
    latency: dict[str, Any] = found.setdefault("latency", {})

    def trained(**case: Any) -> Callable[[], dict[str, Any]]:
        return lambda: training_cost(subject, TrainingCase(scenery, updates=updates, **case)).as_json()

    cases: list[tuple[dict[str, Any], str, Callable[[], dict[str, Any]]]] = []
    if subject.optimiser is not None:
        cases.append((training, "no cache", trained()))
    if subject.optimiser is not None and subject.learner.encoder.frozen_blocks:
        cases.append((training, "frozen-trunk cache", trained(cached=True)))
        if any(view != "raw" for view, _ in subject.learner.stage.views):
            name = f"frozen-trunk cache, {CURRICULUM_VIEWS:.0%} of clips in a factor view"
            cases.append((training, name, trained(cached=True, viewed=CURRICULUM_VIEWS)))
    fastest: Launched = "compiled" if subject.compiled else "eager"
    ways: tuple[Way, ...] = (fastest, "graph") if subject.device.type == "cuda" else (fastest,)
    cases += [(latency, way, functools.partial(_model, subject, scenery, way, warmup, runs)) for way in ways]
    cases.append((latency, "end to end", lambda: end_to_end_latency(subject, scenery, fastest, warmup, runs)))
    for done, (into, name, measure) in enumerate(cases):
        progress(done, len(cases), f"{'training' if into is training else 'latency'}, {name}")
        attempt(into, name, measure)
        tell(found)
    progress(len(cases), len(cases), "")
    return found
