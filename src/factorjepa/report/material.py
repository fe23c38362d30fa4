"""What a page is made of, looked up by name. Nothing here is computed but means of a city."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow.compute as pc

from ..adaptation import known
from ..adaptation.controls import LOOKING, VIEWED
from ..decoded import DecodedExample
from ..examples import Example
from ..rendering.gallery import column_order
from ..scores import CHANCE, DiagnosticInfo, RunInfo, Scores
from ..statistics import Comparison, ContrastRow, ScoreRow
from ..statistics.contrasts import FROZEN, OURS
from ..statistics.verdict import UNTESTABLE
from ..training.tuning import Tried
from ..words import AT, base_of, listed
from .curves import Run
from .provenance import Step, settings_of

T = TypeVar("T")
FAMILIES = ("reference", "generic", "control", "factorized", "ablation")
BASELINE = "auto_rgn"  # what the prespecified contrast `total` compares with


@dataclass(frozen=True)
class Statement:
    """What is known about the data, in sentences."""

    sentences: Sequence[str] = ()
    rows: Sequence[tuple[str, str]] = ()  # a name and its value


@dataclass(frozen=True)
class Decoded:
    """Futures that were drawn, and what they are worth; without scores only pictures."""

    examples: Sequence[DecodedExample] = ()
    scores: Scores | None = None
    comparison: Comparison | None = None

    def __bool__(self) -> bool:
        return bool(self.examples) or self.comparison is not None


def arranged(by_method: Mapping[str, T], order: Sequence[str]) -> dict[str, T]:
    """In that order; what it does not know comes last, as it was."""
    place = {method: number for number, method in enumerate(order)}
    return {method: by_method[method] for method in sorted(by_method, key=lambda one: place.get(one, len(place)))}


@dataclass
class Material:
    """Scores and what was found in them; everything else is optional."""

    title: str
    scores: Scores
    comparison: Comparison
    runs: Sequence[Run] = ()
    tried: Sequence[Tried] = ()  # values of settings that validation clips chose from
    examples: Sequence[Example] = ()
    decoded: Decoded = field(default_factory=Decoded)
    data: Statement = field(default_factory=Statement)
    steps: Sequence[Step] = ()  # commands, in the order of the work
    notes: Sequence[str] = ()  # what could not be read, in words

    @cached_property
    def backbones(self) -> list[str]:
        found: list[str] = self.scores.values("backbone")
        return found

    @cached_property
    def diagnostics(self) -> dict[str, DiagnosticInfo]:
        """Those with scores, in the registry's order."""
        present = set(self.scores.values("diagnostic"))
        return {name: info for name, info in self.scores.diagnostics.items() if name in present}

    @cached_property
    def primary(self) -> dict[str, DiagnosticInfo]:
        return {name: info for name, info in self.diagnostics.items() if info.status == "primary"}

    def title_of(self, method: str) -> str:
        """As its runs say; the catalogue's of a method that was not evaluated."""
        if method in self._about:
            return self._about[method].title
        unmeasured = known(method)
        return unmeasured.title if unmeasured is not None else method

    def variants(self, backbone: str) -> dict[str, str]:
        """Where FactorJEPA itself was not evaluated: its forms, and the form of Auto-RGN that each stands beside."""
        if not self.absent(backbone, (OURS,)):
            return {}
        compared: dict[str, set[str]] = {}
        for row in self._of_forms(backbone):
            compared.setdefault(row.a, set()).add(row.b)
        found = {form: self._beside(form, others) for form, others in compared.items()}
        return {form: other for form, other in found.items() if other is not None}

    def _beside(self, form: str, compared: Collection[str]) -> str | None:
        """Auto-RGN, of those that a form of FactorJEPA was compared with: with its settings, or at least with views.

        Over one without what they share, that would pass for what factorization gives.
        """
        word, known_as = form.partition(AT)[2], (BASELINE, VIEWED.name, LOOKING.name)
        first = [f"{base}{AT}{word}" for base in known_as if word]
        first += [LOOKING.name] if self._looks_back(form) else []
        first += [*known_as, *(name for name in self.order if base_of(name) in known_as)]
        return next((name for name in first if name in compared), None)

    def _looks_back(self, method: str) -> bool:
        options = settings_of(self._about[method]).get("predictor") if method in self._about else None
        return bool(isinstance(options, dict) and options.get("recalled"))

    def _of_forms(self, backbone: str) -> list[ContrastRow]:
        """What was found of FactorJEPA's forms over others."""
        families = {name: self.family(name) for name in self.methods(backbone)}
        forms = {n for n, family in families.items() if family == "ablation" or (family == "factorized" and AT in n)}
        return [row for row in self.contrasts(backbone) if row.a in forms and math.isfinite(row.effect)]

    def absent(self, backbone: str, methods: Sequence[str]) -> list[str]:
        """Those of the methods that were not evaluated."""
        present = {row.method for row in self.comparison.scores if row.backbone == backbone}
        return [method for method in methods if method not in present]

    def decision(self, row: ContrastRow) -> str:
        """As decided; where a method was not evaluated, its title instead of its id."""
        absent = self.absent(row.backbone, (row.a, row.b))
        if not absent:
            return row.decision
        were = "was" if len(absent) == 1 else "were"
        return f"{UNTESTABLE}: {listed([self.title_of(one) for one in absent])} {were} not evaluated"

    def family(self, method: str) -> str:
        return self._about[method].family if method in self._about else ""

    @cached_property
    def _about(self) -> dict[str, RunInfo]:
        return {run.method: run for run in reversed(self.scores.runs)}

    @cached_property
    def order(self) -> list[str]:
        """All methods as every section shows them: as the gallery does, the others by family."""

        def place(method: str) -> tuple[int, str]:
            family = self.family(method)
            return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES), self.title_of(method)

        return column_order(sorted({row.method for row in self.comparison.scores}, key=place))

    def methods(self, backbone: str) -> list[str]:
        """Those of one backbone, in order."""
        present = {row.method for row in self.comparison.scores if row.backbone == backbone}
        return [method for method in self.order if method in present]

    def few(self, backbone: str, most: int) -> list[str]:
        """The methods that a figure has room for: FactorJEPA, what it is compared with, then the best of the rest."""
        everyone = self.methods(backbone)
        beside = self.variants(backbone).values() or [BASELINE]
        first = dict.fromkeys([OURS, "factorjepa_raw", *beside, FROZEN])
        chosen = [method for method in first if method in everyone][:most]
        headline = next(iter(self.primary), None)
        means = {row.method: row.mean for row in self.rows(backbone, headline)} if headline else {}
        sign = -1.0 if headline and self.diagnostics[headline].direction == "higher" else 1.0

        def rank(method: str) -> tuple[bool, bool, float]:
            mean = sign * means.get(method, np.nan)
            return self.family(method) != "control", bool(np.isnan(mean)), float(np.nan_to_num(mean))

        rest = sorted((method for method in everyone if method not in chosen), key=rank)
        kept = {*chosen, *rest[: max(most - len(chosen), 0)]}
        return [method for method in everyone if method in kept]

    def rows(self, backbone: str, diagnostic: str | None, headline: bool = True) -> list[ScoreRow]:
        """Of the scorecard; without `headline` the other variants."""
        return [
            row
            for row in self.comparison.scores
            if row.backbone == backbone and row.diagnostic == diagnostic and row.headline == headline
        ]

    def contrasts(self, backbone: str, contrast: str | None = None) -> list[ContrastRow]:
        """Contrasts on primary diagnostics."""
        return [
            row
            for row in self.comparison.contrasts
            if row.backbone == backbone and row.status == "primary" and contrast in (None, row.contrast)
        ]

    def chance(self, backbone: str, diagnostic: str) -> float:
        """What who knows nothing scores; NaN where that is not known. The same for every method."""
        said = [row.mean for row in self.rows(backbone, diagnostic, headline=False) if row.variant == CHANCE]
        return next((mean for mean in said if np.isfinite(mean)), float("nan"))

    def name(self, diagnostic: str) -> str:
        info = self.scores.diagnostics.get(diagnostic)
        return info.title if info else diagnostic

    def city_effects(self, backbone: str, a: str, b: str, diagnostic: str) -> dict[str, float]:
        """`a` over `b` in each city, as the estimand weighs them: seeds, then clips of a source, then sources.

        Positive favours `a`. Empty where the diagnostic is no mean over clips.
        """
        info = self.scores.diagnostics[diagnostic]
        if info.reduction != "mean":
            return {}
        table = self.scores.select(backbone=backbone, diagnostic=diagnostic, variant=info.headline).table
        sides: list[dict[tuple[str, str, str], float]] = []
        for method in (a, b):
            rows = table.filter(pc.equal(table["method"], method)).to_pylist()
            values: dict[tuple[str, str, str], list[float]] = {}
            for row in rows:
                values.setdefault((row["city"], row["source"], row["clip_id"]), []).append(row["value"])
            sides.append({place: float(np.mean(found)) for place, found in values.items()})
        sign = 1.0 if info.direction == "higher" else -1.0
        by_source: dict[tuple[str, str], list[float]] = {}
        for place in sorted(sides[0].keys() & sides[1].keys()):
            by_source.setdefault(place[:2], []).append(sign * (sides[0][place] - sides[1][place]))
        by_city: dict[str, list[float]] = {}
        for (city, _), found in by_source.items():
            by_city.setdefault(city, []).append(float(np.mean(found)))
        return {city: float(np.mean(found)) for city, found in by_city.items()}
