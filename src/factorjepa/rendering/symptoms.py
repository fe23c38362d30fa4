"""Panel B as numbers: how strongly each symptom shows in a decoded future, and how much of it the oracle shows already.

A strength is in thresholds: from 1 on the symptom is there. `shared` is the part of the prediction's strength that the
oracle decode has as well, counted by the same agents, pairs or displacements, not only by the same amount.

Legend: T frames, N observed agents, M agents of a decoded frame, H x W pixels, s pixels a side of flow.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..detectors.boxes import Detections, box_iou
from .counterparts import NOBODY, Counterparts, Picture, centres, counterparts
from .failure_settings import FailureSettings
from .metrics.agents import areas, covered_shares
from .outlines import gradient, strongest_around

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Strength:
    """Of one symptom, in thresholds."""

    predicted: float
    oracle: float
    shared: float
    evidence: Mapping[str, float] = field(default_factory=dict)


class Least(NamedTuple):
    """Of a symptom that is counted: the share that must be affected, and how many of a frame."""

    rate: float
    per_frame: float

    @classmethod
    def of(cls, settings: FailureSettings) -> Least:
        return cls(settings.rate, settings.per_frame)


class Decoded:
    """One decoded future beside the observed one, frame by frame."""

    def __init__(self, frames: Sequence[Picture], agents: Sequence[Detections], seen: Observed) -> None:
        self.frames, self.agents = frames, agents
        settings = seen.settings
        self.parts: list[Counterparts] = [
            counterparts(x, there, y, found, settings.reach, settings.alike, settings.same_place, settings.faded)
            for x, there, y, found in zip(seen.frames, seen.agents, frames, agents, strict=True)
        ]
        self.sure = [(one.scores >= settings.sure) & (areas(one.boxes) >= settings.smallest) for one in agents]


class Observed:
    """X, and who of it counts: sure, large enough and not hidden."""

    def __init__(self, frames: Sequence[Picture], agents: Sequence[Detections], settings: FailureSettings) -> None:
        self.frames, self.agents, self.settings = frames, agents, settings
        size = [areas(one.boxes) for one in agents]
        hidden = [covered_shares(one.boxes) >= settings.hidden for one in agents]
        sure = [(a.scores >= settings.sure) & (s >= settings.smallest) for a, s in zip(agents, size, strict=True)]
        self.counted: list[Flags] = [s & ~h for s, h in zip(sure, hidden, strict=True)]
        self.hidden: list[Flags] = [s & h for s, h in zip(sure, hidden, strict=True)]
        self.small: list[Flags] = [c & (s < settings.small) for c, s in zip(self.counted, size, strict=True)]
        self.large: list[Flags] = [c & ~s for c, s in zip(self.counted, self.small, strict=True)]
        self.total = _count(self.counted)

    @cached_property
    def gradients(self) -> list[NDArray[np.float32]]:
        return [gradient(one) for one in self.frames]

    @cached_property
    def edge_limits(self) -> list[NDArray[np.float32]]:
        """Of a decoded frame's gradient, above which it is an edge that X does not show around."""
        return [strongest_around(one) + np.float32(self.settings.edge) for one in self.gradients]

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in (*self.frames, *self.gradients, *self.edge_limits))


def omission(seen: Observed, oracle: Decoded, predicted: Decoded) -> Strength:
    """Agents of X that P lacks or has faded. Recall of small and of hidden ones is told apart, as the paper asks."""

    def missed(decoded: Decoded, who: Sequence[Flags]) -> list[Flags]:
        return [those & ~part.kept_N for those, part in zip(who, decoded.parts, strict=True)]

    gone_p, gone_o, total = missed(predicted, seen.large), missed(oracle, seen.large), _count(seen.large)
    evidence = {
        "recall, predicted": _one_less(_count(gone_p), total),
        "recall, oracle": _one_less(_count(gone_o), total),
        "recall of small agents, predicted": _one_less(_count(missed(predicted, seen.small)), _count(seen.small)),
        "recall of hidden agents, predicted": _one_less(_count(missed(predicted, seen.hidden)), _count(seen.hidden)),
    }
    rule = seen.settings
    least = Least(rule.omitted, rule.omitted_per_frame)
    return _of_instances(gone_p, gone_o, _both(gone_p, gone_o), total, total, least, evidence)


def duplication(seen: Observed, oracle: Decoded, predicted: Decoded) -> Strength:
    """Extra agents of P that look like one of X which is in its own place as well."""

    def copied(decoded: Decoded) -> list[Flags]:
        """By observed agent."""
        result = []
        for part, sure, agents in zip(decoded.parts, decoded.sure, seen.agents, strict=True):
            originals = part.original_M[part.extra_M & sure & (part.original_M != NOBODY)]
            result.append(np.isin(np.arange(len(agents.scores)), originals))
        return result

    twice_p, twice_o = copied(predicted), copied(oracle)
    found = sum(int(sure.sum()) for sure in predicted.sure)
    fragments = [np.bincount(p.original_M[p.original_M != NOBODY]).max(initial=0) for p in predicted.parts]
    evidence = {
        "duplicates per agent, predicted": _share(_count(twice_p), seen.total),
        "duplicates per agent, oracle": _share(_count(twice_o), seen.total),
        "precision, predicted": _one_less(sum(int((p.extra_M & s).sum()) for p, s in _sure(predicted)), found),
        "most fragments of one agent": 1.0 + max(fragments, default=0),
    }
    return _of_instances(
        twice_p, twice_o, _both(twice_p, twice_o), seen.total, seen.total, Least.of(seen.settings), evidence
    )


def interaction(seen: Observed, oracle: Decoded, predicted: Decoded) -> Strength:
    """Neighbours of X whose order, separation or collision is another in P.

    A pair is broken when its offset changed by as much as the two are apart and with it the geometry's kind: they
    changed sides, collide or no longer do, or are no neighbours any more. Agents that move together break nothing.
    """
    pairs = [_neighbours(one, who, seen.settings) for one, who in zip(seen.agents, seen.counted, strict=True)]
    known_p, broken_p, error_p = _pairs_of(seen, predicted, pairs)
    known_o, broken_o, error_o = _pairs_of(seen, oracle, pairs)
    evidence = {
        "pairs broken, predicted": _share(_count(broken_p), _count(known_p)),
        "pairs broken, oracle": _share(_count(broken_o), _count(known_o)),
        "pairwise displacement, predicted": error_p,
        "pairwise displacement, oracle": error_o,
    }
    total_p, total_o = _count(known_p), _count(known_o)
    return _of_instances(
        broken_p, broken_o, _both(broken_p, broken_o), total_p, total_o, Least.of(seen.settings), evidence
    )


def appearance(seen: Observed, oracle: Decoded, predicted: Decoded) -> Strength:
    """Agents that stayed in their place and changed their look."""

    def changed(decoded: Decoded) -> list[Flags]:
        limit, place = seen.settings.alike, seen.settings.same_place
        return [
            who & part.kept_N & (part.overlap_N >= place) & (part.unlikeness_N >= limit)
            for who, part in zip(seen.counted, decoded.parts, strict=True)
        ]

    other_p, other_o = changed(predicted), changed(oracle)
    evidence = {
        "share of agents that look different, predicted": _share(_count(other_p), seen.total),
        "share of agents that look different, oracle": _share(_count(other_o), seen.total),
    }
    return _of_instances(
        other_p, other_o, _both(other_p, other_o), seen.total, seen.total, Least.of(seen.settings), evidence
    )


def unsupported_agents(seen: Observed, oracle: Decoded, predicted: Decoded) -> Strength:
    """Agents of P that nobody of X accounts for."""

    def strangers(decoded: Decoded) -> list[Flags]:
        return [part.extra_M & sure & (part.original_M == NOBODY) for part, sure in _sure(decoded)]

    odd_p, odd_o = strangers(predicted), strangers(oracle)
    shared = []
    for t, (here, there) in enumerate(zip(odd_p, odd_o, strict=True)):
        boxes_o = oracle.agents[t].boxes[there]
        overlap = box_iou(predicted.agents[t].boxes, boxes_o).max(axis=1, initial=0.0)
        shared.append(here & (overlap >= seen.settings.same_place))
    found_p, found_o = (sum(int(sure.sum()) for sure in decoded.sure) for decoded in (predicted, oracle))
    evidence = {
        "false-positive agents, predicted": _share(_count(odd_p), found_p),
        "false-positive agents, oracle": _share(_count(odd_o), found_o),
    }
    return _of_instances(odd_p, odd_o, shared, found_p, found_o, Least.of(seen.settings), evidence)


def stronger(*strengths: Strength) -> Strength:
    """Two signs of one symptom: the one that the prediction shows more decides; all evidence is kept."""
    first = max(strengths, key=lambda one: one.predicted)
    evidence = functools.reduce(lambda a, b: {**a, **b}, (dict(one.evidence) for one in strengths))
    return Strength(first.predicted, first.oracle, first.shared, evidence)


def _of_instances(
    predicted: Sequence[Flags],
    oracle: Sequence[Flags],
    shared: Sequence[Flags],
    total_p: int,
    total_o: int,
    least: Least,
    evidence: Mapping[str, float],
) -> Strength:
    """Both conditions of a symptom that is counted: the share affected, and how many of a frame."""
    frames = len(predicted)

    def strength(count: int, total: int) -> float:
        return min(_share(count, total) / least.rate, count / frames / least.per_frame)

    in_p, in_o = _count(predicted), _count(oracle)
    whole = strength(in_p, total_p)
    part = whole * _share(_count(shared), in_p)
    return Strength(whole, strength(in_o, total_o), part, evidence)


def _neighbours(agents: Detections, who: Flags, settings: FailureSettings) -> NDArray[np.intp]:
    """Pairs `[K, 2]`, first below second."""
    apart = np.linalg.norm(centres(agents.boxes)[:, None] - centres(agents.boxes)[None], axis=-1)
    return np.argwhere(np.triu((apart <= settings.near) & who[:, None] & who[None], 1))


def _pairs_of(
    seen: Observed, decoded: Decoded, pairs: Sequence[NDArray[np.intp]]
) -> tuple[list[Flags], list[Flags], float]:
    """Which pairs are in the decoded frames, which of them are broken, and their mean relative displacement."""
    settings = seen.settings
    known: list[Flags] = []
    broken: list[Flags] = []
    errors: list[float] = []
    for t, pairs_K2 in enumerate(pairs):
        part, x, y = decoded.parts[t], seen.agents[t].boxes, decoded.agents[t].boxes
        here = np.asarray(part.kept_N[pairs_K2].all(axis=1))
        wrong = np.zeros(len(pairs_K2), bool)
        for k in np.flatnonzero(here):
            before, after = x[pairs_K2[k]], y[part.partner_N[pairs_K2[k]]]
            d_x, d_y = (np.subtract(*centres(two)[::-1]) for two in (before, after))
            body = float(np.sqrt(areas(before)).mean())
            change = float(np.linalg.norm(d_y - d_x)) / max(float(np.linalg.norm(d_x)), body)
            other_side = float(d_x @ d_y) < 0
            collides = (_shared_part(before) >= settings.collision) != (_shared_part(after) >= settings.collision)
            parted = float(np.linalg.norm(d_y)) > 1.5 * settings.near
            wrong[k] = change >= settings.displaced and (other_side or collides or parted)
            errors.append(change)
        known.append(here)
        broken.append(wrong)
    return known, broken, float(np.mean(errors)) if errors else float("nan")


def _shared_part(boxes_24: NDArray[np.float64]) -> float:
    """Of the smaller of two boxes."""
    low, high = boxes_24[:, :2].max(axis=0), boxes_24[:, 2:].min(axis=0)
    return float((high - low).clip(0).prod() / max(float(areas(boxes_24).min()), 1e-12))


def _sure(decoded: Decoded) -> zip[tuple[Counterparts, Flags]]:
    return zip(decoded.parts, decoded.sure, strict=True)


def _both(first: Sequence[Flags], second: Sequence[Flags]) -> list[Flags]:
    return [a & b for a, b in zip(first, second, strict=True)]


def _count(flags: Sequence[Flags]) -> int:
    return sum(int(one.sum()) for one in flags)


def _one_less(part: float, whole: float) -> float:
    """NaN where there was nobody."""
    return 1.0 - part / whole if whole else float("nan")


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
