"""Scores of one backbone as arrays: runs by clips by variants, clips sorted by city and source.

Legend: R runs (method, seed); N clips; K variants of a diagnostic; V sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ScoresError
from ..scores import DiagnosticInfo, RunInfo, Scores
from ..words import counted
from .measures import Array
from .resampling import Hierarchy, Mask


@dataclass(frozen=True)
class Block:
    """Everything measured of one diagnostic; NaN where a clip or a run has no value."""

    info: DiagnosticInfo
    variants: tuple[str, ...]
    values_RNK: Array
    note: str = ""

    def components(self, names: tuple[str, ...]) -> Array:
        return self.values_RNK[:, :, [self.variants.index(name) for name in names]]


@dataclass(frozen=True)
class Panel:
    """One backbone's scores."""

    backbone: str
    runs: tuple[tuple[str, int], ...]
    about: dict[str, list[RunInfo]]  # by method
    hierarchy: Hierarchy
    clip_starts_V: np.ndarray[Any, Any]  # first clip of each source
    blocks: dict[str, Block]
    catalogue: Mapping[str, str] = field(default_factory=dict)  # titles of methods that have no runs here
    clip_ids: tuple[str, ...] = ()  # [N]

    @property
    def methods(self) -> list[str]:
        return sorted({method for method, _ in self.runs})

    def seeds(self, method: str) -> tuple[int, ...]:
        return tuple(seed for name, seed in self.runs if name == method)

    def positions(self, method: str, seeds: tuple[int, ...]) -> list[int]:
        return [self.runs.index((method, seed)) for seed in seeds]

    def title(self, method: str) -> str:
        return self.about[method][0].title if method in self.about else self.catalogue.get(method, method)

    def family(self, method: str) -> str:
        return self.about[method][0].family if method in self.about else ""

    @property
    def source_N(self) -> np.ndarray[Any, Any]:
        sizes = np.diff(np.append(self.clip_starts_V, self.clips))
        return np.repeat(np.arange(self.hierarchy.sources), sizes)

    @property
    def clips(self) -> int:
        return int(next(iter(self.blocks.values())).values_RNK.shape[1])


def panel_of(scores: Scores, backbone: str, common: bool = False, catalogue: Mapping[str, str] | None = None) -> Panel:
    """The arrays of one backbone. Methods must have been measured on the same clips; `common` keeps the shared ones."""
    chosen = scores.select(backbone=backbone)
    if not len(chosen):
        raise ScoresError(f"there are no scores of backbone {backbone!r}; there are: {scores.values('backbone')}")
    run_rows, runs = _run_codes(chosen)
    clip_rows, places = _clip_codes(chosen)
    hierarchy, clip_starts = _hierarchy(places)
    if hierarchy.sources < 2:
        raise ScoresError(
            f"backbone {backbone!r}: all clips come from one source ({places[0][1]!r}), and nothing can be said about "
            "another: evaluate clips of at least two sources, better of six cities or more"
        )
    names, diagnostic_rows = chosen.coded("diagnostic")
    value_rows = chosen.table["value"].to_numpy()
    variants, variant_rows = chosen.coded("variant")
    found = {}
    for number, name in enumerate(names):
        rows = np.flatnonzero(diagnostic_rows == number)
        used, local = np.unique(variant_rows[rows], return_inverse=True)
        values = np.full((len(runs), len(places), len(used)), np.nan)
        present = np.zeros((len(runs), len(places)), np.bool_)
        values[run_rows[rows], clip_rows[rows], local] = value_rows[rows]
        present[run_rows[rows], clip_rows[rows]] = True
        note = _same_clips(name, runs, present, values, common)
        found[name] = Block(scores.diagnostics[name], tuple(variants[k] for k in used), values, note)
    blocks = {
        name: found[name] for name in scores.diagnostics if name in found
    }  # the order in which they are described
    about: dict[str, list[RunInfo]] = {}
    for run in scores.runs:
        if run.backbone == backbone:
            about.setdefault(run.method, []).append(run)
    clip_ids = tuple(clip for *_, clip in places)
    return Panel(backbone, tuple(runs), about, hierarchy, clip_starts, blocks, catalogue or {}, clip_ids)


def _run_codes(scores: Scores) -> tuple[np.ndarray[Any, Any], list[tuple[str, int]]]:
    methods, method_rows = scores.coded("method")
    seeds, seed_rows = scores.coded("seed")
    used, rows = np.unique(method_rows * len(seeds) + seed_rows, return_inverse=True)
    return rows, [(methods[code // len(seeds)], int(seeds[code % len(seeds)])) for code in used]


def _clip_codes(scores: Scores) -> tuple[np.ndarray[Any, Any], list[tuple[str, str, str]]]:
    """A clip is known by its city, source and name; sorted by them."""
    cities, city_rows = scores.coded("city")
    sources, source_rows = scores.coded("source")
    clips, clip_rows = scores.coded("clip_id")
    codes = (city_rows * len(sources) + source_rows) * len(clips) + clip_rows
    used, rows = np.unique(codes, return_inverse=True)
    inner, clip = np.divmod(used, len(clips))
    city, source = np.divmod(inner, len(sources))
    return rows, [(cities[c], sources[s], clips[n]) for c, s, n in zip(city, source, clip, strict=True)]


def _hierarchy(places: list[tuple[str, str, str]]) -> tuple[Hierarchy, np.ndarray[Any, Any]]:
    starts, source_cities = [], []
    for number, (city, source, _) in enumerate(places):
        if not number or places[number - 1][:2] != (city, source):
            starts.append(number)
            source_cities.append(city)
    cities = sorted(set(source_cities))
    return Hierarchy.of([cities.index(city) for city in source_cities]), np.asarray(starts)


def _same_clips(diagnostic: str, runs: list[tuple[str, int]], present_RN: Mask, values_RNK: Array, common: bool) -> str:
    """Refuse runs measured on different clips, or keep what all share; runs that never saw the diagnostic stand out."""
    measured = present_RN.any(1)
    shared_N = present_RN[measured].all(0)
    if (present_RN[measured] == shared_N).all():
        return ""
    counts = {runs[r]: int(present_RN[r].sum()) for r in np.flatnonzero(measured)}
    if not common:
        listed = ", ".join(f"{method} (seed {seed}): {count}" for (method, seed), count in counts.items())
        raise ScoresError(
            f"{diagnostic}: the runs were not measured on the same clips ({listed}; {int(shared_N.sum())} in common). "
            "Evaluate all runs on one corpus and split, or keep the common clips with --common"
        )
    if not shared_N.any():
        raise ScoresError(f"{diagnostic}: the runs have no clip in common; evaluate all on one corpus and split")
    values_RNK[:, ~shared_N] = np.nan
    return f"{counted(shared_N.sum(), 'common clip')} of {int(present_RN.any(0).sum())}"
