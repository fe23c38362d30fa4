"""Gates and edges that no longer open: what a model with them has besides its controls does nothing then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LAST = 50  # updates, at most, whose mean says how a run ended; of a short one the last fifth


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
    """The pathways that had closed when a run ended, in words: by the mean of its last updates that had something to
    pass."""
    updates = [record for record in records if "loss" in record]
    last = updates[-min(LAST, max(1, len(updates) // 5)) :]
    found = []
    for pathway in PATHWAYS:
        seen = [record[pathway.measure] for record in last if record.get(pathway.those) and pathway.measure in record]
        if seen and sum(seen) / len(seen) < pathway.least:
            found.append(pathway.words)
    return tuple(found)
