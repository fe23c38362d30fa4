"""`compare(scores, settings)`: from a table of scores to scorecard, contrasts, ranks and verdict.

Per backbone and diagnostic: distributions of every measure and method from one set of draws; contrasts are differences
of distributions on the clips that both methods have. Adjustment for multiplicity comes last, over everything tested.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .. import commands
from ..errors import ScoresError
from ..scores import DiagnosticInfo, Scores
from ..words import nearest
from .comparison import Comparison
from .contrasts import PRESPECIFIED, Contrast, extended
from .deciding import FEW_SEEDS, ONE_SEED, about_seeds, deciding, most_freedom
from .estimand import Distribution, Estimator, Request
from .intervals import bca, expected_coverage, p_value, separation
from .measures import Array, Measure, alternatives_of, direction_of, measures_of, unit_of
from .mixed import mixed_effects, observations
from .multiplicity import benjamini_hochberg, holm
from .pairing import Pair, Unpaired, lacking, missing_seeds, own_requests, pair_up, trained_once
from .panel import Panel, panel_of
from .pareto import pareto_rows
from .pooling import Pool, pool_of
from .ranks import rank_rows
from .rows import NAN, ContrastRow, MixedCheck, ScoreRow
from .sensitivity import sensitivities
from .untested import untested
from .variants import SEPARATOR, with_variants
from .verdict import LEAST_CITIES, RULE, UNTESTABLE, decide, decide_as_the_paper, verdict

FEW_CITIES = 10  # fewer, and a 95 % interval may cover less than 90 %
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CompareSettings:
    """How to compare."""

    replicates: int = 10_000
    seed: int = 0
    confidence: float = 0.95
    alpha: float = 0.05
    common: bool = False  # keep the clips that all methods share where they differ
    mixed: Literal["primary", "all", "none"] = "primary"  # contrasts that get the mixed-effects check
    alternatives: Mapping[str, Sequence[str]] | None = None  # None: variants named alt/... and single horizons
    contrasts: Sequence[Contrast] | None = None  # None: the paper's and their extensions
    also: Sequence[Contrast] = ()  # beside those, unless they hold the two methods already, either way round
    variants: Sequence[str] = ()  # DIAGNOSTIC/VARIANT: compared by as if they were diagnostics
    # How much trainings vary, in the interval that decides: what a pair's seeds say, helped by other methods' or alone.
    seed_variance: Literal["moderated", "own"] = "moderated"


def compare(
    scores: Scores,
    settings: CompareSettings | None = None,
    progress: Progress | None = None,
    catalogue: Mapping[str, str] | None = None,
) -> Comparison:
    """Everything that appendix E asks for; deterministic for a seed. `catalogue` has titles of methods without runs."""
    settings = settings or CompareSettings()
    scores = with_variants(scores, settings.variants)
    _check(scores, settings)
    backbones = scores.values("backbone")
    panels = [panel_of(scores, backbone, settings.common, catalogue) for backbone in backbones]
    total, done = sum(len(panel.blocks) for panel in panels), 0
    score_rows: list[ScoreRow] = []
    contrast_rows: list[ContrastRow] = []
    notes: list[str] = []
    names = {name: info.title for name, info in scores.diagnostics.items()}
    for panel in panels:
        work = _Backbone(panel, settings)
        for name, info in scores.diagnostics.items():
            if name not in panel.blocks:
                work.unmeasured(info)
                continue
            work.diagnostic(name)
            done += 1
            if progress:
                progress(done, total)
        work.adjust()
        score_rows += work.scores
        contrast_rows += work.rows
        notes += work.notes(names)
    titles = {**(catalogue or {}), **{method: panel.title(method) for panel in panels for method in panel.methods}}
    pareto = [row for panel in panels for row in pareto_rows(panel.backbone, score_rows, panel.about)]
    said = verdict(contrast_rows, titles, names)
    about = dataclasses.asdict(settings) | {"decided_by": RULE}
    ranks = rank_rows(score_rows)
    return Comparison(
        about, scores.evaluator, score_rows, contrast_rows, ranks, pareto, said, notes, commands.command()
    )


def _check(scores: Scores, settings: CompareSettings) -> None:
    if not len(scores):
        raise ScoresError("there are no scores to compare")
    if settings.replicates < 100:
        raise ScoresError(f"{settings.replicates} replicates give no interval: ask for at least 100, better 10,000")
    unknown = sorted(set(settings.alternatives or ()) - scores.diagnostics.keys())
    if unknown:
        raise ScoresError(f"alternatives of diagnostics that the scores do not hold: {', '.join(unknown)}")
    there = scores.values("method")
    for contrast in settings.also:
        for name in (contrast.a, contrast.b):
            if name not in there:
                raise ScoresError(f"{contrast.name}: the scores hold no method {name!r}{nearest(name, there)}")
        if contrast.a == contrast.b:
            raise ScoresError(f"{contrast.name}: a method is not compared with itself")


class _Backbone:
    """Collects the rows of one backbone, diagnostic by diagnostic."""

    def __init__(self, panel: Panel, settings: CompareSettings) -> None:
        self.panel, self.settings = panel, settings
        self.estimator = Estimator(panel, settings.replicates, settings.seed)
        families = {method: panel.family(method) for method in panel.methods}
        asked = settings.contrasts
        known = [*PRESPECIFIED, *extended(panel.methods, families)] if asked is None else list(asked)
        pairs = {frozenset((one.a, one.b)) for one in known}
        more = {pair: one for one in settings.also if (pair := frozenset((one.a, one.b))) <= {*panel.methods}}
        self.asked = [one for pair, one in more.items() if pair not in pairs]
        self.contrasts = [*known, *self.asked]
        self.scores: list[ScoreRow] = []
        self.rows: list[ContrastRow] = []

    def diagnostic(self, name: str) -> None:
        block, chosen = self.panel.blocks[name], self.settings.alternatives
        measures = measures_of(block.info, block.variants, (chosen or {}).get(name))
        effects: dict[str, dict[str, Distribution | None]] = {}
        for measure in alternatives_of(block.info, measures, chosen):
            found, pairs = self._measure(measure, block.info, self.contrasts, complete=False)
            for pair in pairs:
                effects.setdefault(pair.contrast.name, {})[measure.variant] = _effect(pair, found, measure.sign)
        headline, *others = measures
        found, pairs = self._measure(headline, block.info, self.contrasts)
        pools = self._pools(headline, found)
        for pair in pairs:
            if row := self._contrast(pair, found, headline, block.info, effects.get(pair.contrast.name, {}), pools):
                self.rows.append(row)
        done = {row.variant for row in self.scores if row.diagnostic == name}
        for measure in others:
            if measure.variant not in done:
                self._measure(measure, block.info, (), complete=False)
        diagnostics = list(self.panel.blocks)
        self.scores.sort(key=lambda row: (diagnostics.index(row.diagnostic), not row.headline))

    def unmeasured(self, info: DiagnosticInfo) -> None:
        """A diagnostic that no run of this backbone has: what was prespecified on it says that it cannot be tested."""
        for contrast in self.contrasts:
            if contrast.confirmatory and info.status == "primary":
                why = lacking(self.panel, contrast, ())
                self.rows.append(self._row(contrast, info, f"{UNTESTABLE}: {why}"))

    def _row(self, contrast: Contrast, info: DiagnosticInfo, decision: str = "") -> ContrastRow:
        asked = contrast in self.asked or SEPARATOR in info.name  # a variant that is compared by
        tested = "primary" if contrast.confirmatory and info.status == "primary" else "exploratory"
        family = "asked for" if asked else tested
        return ContrastRow(
            self.panel.backbone, contrast.name, contrast.a, contrast.b, info.name, info.status, family,
            decision=decision,
        )  # fmt: skip

    def adjust(self) -> None:
        """Holm over the confirmatory family, Benjamini-Hochberg over the others, then the decisions.

        What somebody asked for is a family of its own: one large effect more, and the step-up procedure would make the
        rest easier to decide.
        """
        for family, adjustment, adjusted in (
            ("primary", "Holm", holm),
            ("exploratory", "Benjamini-Hochberg", benjamini_hochberg),
            ("asked for", "Benjamini-Hochberg", benjamini_hochberg),
        ):
            tested = [row for row in self.rows if row.family == family and not np.isnan(row.p)]
            for row, value in zip(tested, adjusted([row.p for row in tested]), strict=True):
                row.adjusted_p, row.adjustment = float(value), adjustment
            unknown_as_one = np.nan_to_num([row.deciding.p for row in tested], nan=1.0)  # it counts in its family
            for row, value in zip(tested, adjusted(unknown_as_one.tolist()), strict=True):
                row.deciding.adjusted_p = NAN if np.isnan(row.deciding.p) else float(value)
        for row in self.rows:
            row.paper_decision = decide_as_the_paper(row, self.settings.alpha)
            row.decision = decide(row, self.settings.alpha)
            if row.decision.startswith(UNTESTABLE):  # it counts in its family, but an adjusted p would claim a test
                row.adjusted_p, row.deciding.adjusted_p, row.adjustment = NAN, NAN, ""
        order = [contrast.name for contrast in self.contrasts]
        self.rows.sort(key=lambda row: order.index(row.contrast))  # stable: diagnostics keep theirs

    def notes(self, diagnostics: Mapping[str, str]) -> list[str]:
        """What a reader of the whole must know; `diagnostics` are titles by name."""
        said, place = [], self.panel.hierarchy
        if place.cities == 1:
            said.append("one city: sources were resampled, and nothing is said about other cities")
        elif place.cities < FEW_CITIES:
            narrow = _too_narrow(place.cities, self.settings.confidence)
            said.append(f"{narrow}, and p-values are too small; decisions allow for it")
        if place.cities < LEAST_CITIES:
            said.append(f"nothing is decided: it takes at least {LEAST_CITIES} cities")
        smaller, which = untested(self.rows, diagnostics)
        if smaller:
            said.append(f"{smaller}. Not made: {which}")
        asked = [one for one in self.contrasts if not one.confirmatory]
        absent = sorted({one.name for one in asked if not {one.a, one.b} <= {*self.panel.methods}})
        if absent:
            said.append(f"not testable, a method is missing: {', '.join(absent)}")
        family = sum(row.family == "primary" and not np.isnan(row.p) for row in self.rows)
        few = about_seeds(self._seeds(), family, self.settings.alpha, most_freedom(self.rows))
        if place.cities >= LEAST_CITIES and few:
            said.append(few)
        if family / (self.settings.replicates + 1) > self.settings.alpha:
            said.append(
                f"{self.settings.replicates} replicates are too few for {family} tests to pass Holm's procedure"
            )
        return [f"{self.panel.backbone}: {each}" for each in said]

    def _seeds(self) -> int:
        """The fewest of any contrast between methods that train."""
        if any(row.deciding.note == ONE_SEED for row in self.rows):
            return 1
        return min((len(row.seeds) for row in self.rows if len(row.seeds) > 1), default=FEW_SEEDS)

    def _pools(self, measure: Measure, found: Mapping[Request, Distribution]) -> dict[tuple[int, ...], Pool | None]:
        """What the methods that were trained with the same seeds say together of how much trainings vary."""
        if self.settings.seed_variance == "own":
            return {}
        values: dict[tuple[int, ...], list[Array]] = {}
        for request in own_requests(self.estimator, measure).values():
            if request in found:
                values.setdefault(request.seeds, []).append(found[request].seeds_S)
        return {seeds: pool_of(its) for seeds, its in values.items()}

    def _measure(
        self, measure: Measure, info: DiagnosticInfo, contrasts: Sequence[Contrast], complete: bool = True
    ) -> tuple[dict[Request, Distribution], list[Pair | Unpaired]]:
        """Distributions of all methods and contrasts; score rows are written on the way."""
        own = own_requests(self.estimator, measure)
        pairs = [pair_up(self.estimator, measure, contrast, own) for contrast in contrasts]
        sides = [side for pair in pairs if isinstance(pair, Pair) for side in (pair.a, pair.b)]
        usable = [request for request in (*own.values(), *sides) if request.mask_N.any()]
        found = self.estimator.distributions(measure, usable, complete)
        for method in self.panel.methods:
            self.scores.append(self._score(method, measure, info, own.get(method), found))
        return found, pairs

    def _score(
        self,
        method: str,
        measure: Measure,
        info: DiagnosticInfo,
        request: Request | None,
        found: Mapping[Request, Distribution],
    ) -> ScoreRow:
        row = ScoreRow(
            self.panel.backbone, method, self.panel.title(method), self.panel.family(method), info.name,
            measure.variant, measure.headline, info.status, direction_of(info, measure.variant),
            unit_of(info, measure.variant),
        )  # fmt: skip
        clips = self.panel.blocks[info.name].note
        its = found.get(request) if request else None
        if request is None or its is None:
            row.note = _joined("no value", clips)
            return row
        interval = bca(its.estimate, its.replicates_B, (its.jackknife_J,), self.settings.confidence)
        row.mean, row.low, row.high, row.interval = its.estimate, interval.low, interval.high, interval.kind
        row.seeds, row.seed_values = list(request.seeds), its.seeds_S.tolist()
        if len(its.seeds_S) > 1:
            row.seed_sd = float(its.seeds_S.std(ddof=1))
        row.clips, row.sources, row.cities = its.clips, its.sources, its.cities
        row.note = _joined(
            clips, missing_seeds(self.panel, request), interval.note, _clusters(its.cities, self.settings.confidence)
        )
        return row

    def _contrast(
        self,
        pair: Pair | Unpaired,
        found: Mapping[Request, Distribution],
        measure: Measure,
        info: DiagnosticInfo,
        constructions: Mapping[str, Distribution | None],
        pools: Mapping[tuple[int, ...], Pool | None],
    ) -> ContrastRow | None:
        """The row of a contrast, undecided; None where it is neither testable nor part of the confirmatory family."""
        contrast, confidence = pair.contrast, self.settings.confidence
        row = self._row(contrast, info)
        confirmatory = row.family == "primary"
        if isinstance(pair, Unpaired):
            row.decision = f"{UNTESTABLE}: {pair.why}"
            return row if confirmatory else None
        first, second = found[pair.a], found[pair.b]
        effect = first.over(second, measure.sign)
        scale = max(abs(first.estimate), abs(second.estimate))
        interval = bca(effect.estimate, effect.replicates_B, (effect.jackknife_J,), confidence, scale)
        row.effect, row.low, row.high, row.interval = effect.estimate, interval.low, interval.high, interval.kind
        row.units = separation(effect.estimate, interval)
        row.ratio, (row.ratio_low, row.ratio_high) = _ratio(first, second, confidence)
        row.p = p_value(effect.estimate, effect.replicates_B, scale)
        pool = pools.get(pair.a.seeds) if pair.a.seeds == pair.b.seeds else None
        row.deciding = deciding(effect, confidence, not trained_once(self.panel, pair), pool)
        row.sensitivities = sensitivities(effect, interval, constructions, confidence, scale)
        row.stable = all(each.agrees for each in row.sensitivities)
        row.mixed = self._mixed(pair.a, pair.b, measure, effect.estimate, confirmatory)
        if pair.paired_seeds:
            row.seeds, row.seed_effects = sorted({*pair.a.seeds, *pair.b.seeds}), effect.seeds_S.tolist()
        row.clips, row.sources, row.cities = effect.clips, effect.sources, effect.cities
        row.dropped = pair.dropped
        clips = self.panel.blocks[info.name].note
        row.note = _joined(clips, pair.note, interval.note, _clusters(effect.cities, confidence))
        return row

    def _mixed(self, a: Request, b: Request, measure: Measure, effect: float, confirmatory: bool) -> MixedCheck:
        if self.settings.mixed == "none" or (self.settings.mixed == "primary" and not confirmatory):
            return MixedCheck()
        if not measure.linear:
            return MixedCheck(note="not defined: the metric is no mean over clips")
        fit = mixed_effects(observations(self.panel, measure, a, b))
        normalised = measure.sign * fit.effect
        supportive = fit.converged and bool(normalised * effect > 0)
        return MixedCheck(normalised, fit.standard_error, supportive, fit.note)


def _effect(pair: Pair | Unpaired, found: Mapping[Request, Distribution], sign: float) -> Distribution | None:
    return None if isinstance(pair, Unpaired) else found[pair.a].over(found[pair.b], sign)


def _ratio(first: Distribution, second: Distribution, confidence: float) -> tuple[float, tuple[float, float]]:
    """a / b, where both are positive in every replicate: else a ratio means nothing."""
    for side in (first, second):
        if side.estimate <= 0 or not side.replicates_B.min() > 0:  # NaN is not positive either
            return NAN, (NAN, NAN)
    estimate = first.estimate / second.estimate
    jackknife = first.jackknife_J / second.jackknife_J
    interval = bca(estimate, first.replicates_B / second.replicates_B, (jackknife,), confidence)
    return estimate, (interval.low, interval.high)


def _clusters(cities: int, confidence: float) -> str:
    if cities == 1:
        return "one city: sources resampled"
    return _too_narrow(cities, confidence) if cities < FEW_CITIES else ""


def _too_narrow(cities: int, confidence: float) -> str:
    return f"{cities} cities: intervals are too narrow, some cover {expected_coverage(cities, confidence):.0%}"


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
