"""Gates and edges that no longer open: what a model with them has besides its controls does nothing then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LAST = 50  # updates whose mean says how a run ended


@dataclass(frozen=True)
class Pathway:
    """Closed where `measure` of an update's record lies below `least` although there are some of `those`."""

    words: str
    measure: str
    those: str
    least: float

    def closed(self, record: Mapping[str, float]) -> bool:
        return bool(record.get(self.those)) and record.get(self.measure, self.least) < self.least


PATHWAYS = (
    Pathway("agents", "gate_max", "agents", 0.02),
    Pathway("pairs", "edge_max", "pairs", 1e-3),
    Pathway("early agents", "early_gate_max", "agents", 0.02),
    Pathway("early pairs", "early_edge_max", "pairs", 1e-3),
)


def closed_at_the_end(records: Iterable[Mapping[str, float]]) -> tuple[str, ...]:
    """The pathways that had closed when a run ended, in words."""
    last = [record for record in records if "loss" in record][-LAST:]
    names = {name for record in last for name in record}
    means = {name: _mean([record[name] for record in last if name in record]) for name in names}
    return tuple(pathway.words for pathway in PATHWAYS if pathway.closed(means))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
