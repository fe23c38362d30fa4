"""Five axes of one corpus against others: matched estimates, clustered intervals, controls, verdicts (appendix B.4).

Cities and then sources are drawn in both corpora, and the matching is done anew for what was drawn. Everything that is
said of a replicate is computed from sums that `regime` made: nothing here knows a picture.

Legend: M measures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from .. import commands
from ..errors import RegimeError
from ..regime.axes import AXES, MEASURES, NAMES, Domain
from ..regime.controls import EXPECTED
from ..regime.estimate import matched_means, means_by_scene
from ..regime.matching import COVARIATES, design, present
from ..regime.population import Population, refuse_incomparable
from ..regime.settings import PRIMARY
from ..regime.table import COLUMNS
from .intervals import p_value
from .measures import Array
from .multiplicity import holm
from .regime_drawing import Found, Pairing, Progress, RegimeSettings, contrasted, drawn
from .regime_rows import (
    BalanceRow,
    ControlRow,
    DomainRow,
    MeasureRow,
    RegimeComparison,
    SceneRow,
    Variation,
    WithoutCity,
)
from .regime_scenes import SCENE, scene_rows, why_no_scenes
from .verdict import LEAST_CITIES, UNTESTABLE

STABLE, NOT_STABLE, UNAVAILABLE = "stable separation", "not stable", "unavailable"
_RESTS_ON = {"visibility": ("contiguity",), "interaction": ("consistency",)}  # what else a control asks of an axis
_ATTENUATED = 0.05  # least relative loss under a control
_SAME = 1e-9


def compare_regimes(
    first: Population,
    references: Sequence[Population],
    settings: RegimeSettings | None = None,
    progress: Progress | None = None,
) -> RegimeComparison:
    """`first` against each of `references`. Holm's family is five axes times the references."""
    settings = settings or RegimeSettings()
    _refuse_too_few(settings, len(AXES) * len(references))
    everyone = [first, *references]
    refuse_incomparable(everyone)
    everywhere = set.intersection(*(present(one.clips) for one in everyone))
    scenes = sorted({str(c.attributes[SCENE]) for one in everyone for c in one.clips}) if SCENE in everywhere else []
    total = settings.replicates * len(references)
    measures: list[MeasureRow] = []
    strata: list[SceneRow] = []
    balance: list[BalanceRow] = []
    notes: list[str] = []
    for number, reference in enumerate(references):
        made = design(first.clips, reference.clips, settings.fields, settings.caliper, everywhere)
        pairing = Pairing(first, reference, made, scenes)
        found = drawn(pairing, settings, progress, number * settings.replicates, total)
        measures += _measure_rows(pairing, found, settings)
        strata += scene_rows(pairing, found, settings)
        notes += why_no_scenes(pairing)
        balance.append(_balance(pairing))
    controls = [row for one in everyone for row in _controls(one)]
    _adjust(measures, settings.alpha)
    _heed_controls(measures, controls, first.name)
    unavailable = sorted({name for one in everyone for name in one.table.about.unavailable}, key=NAMES.index)
    notes += [first.table.about.lacks(name) for name in unavailable if name in AXES]
    return RegimeComparison(
        first.name, [one.name for one in references], first.table.about.measured_by,
        dataclasses.asdict(settings) | {"thresholds": first.table.about.thresholds}, measures, strata, balance,
        controls, [row for one in everyone for row in _domain(one)],
        notes, commands.command(),
    )  # fmt: skip


def _refuse_too_few(settings: RegimeSettings, contrasts: int) -> None:
    """The smallest p-value is 1 / (B + 1), and Holm multiplies it by the number of contrasts."""
    needed = math.ceil(contrasts / settings.alpha - 1e-9) - 1
    if settings.replicates < needed:
        raise RegimeError(
            f"{settings.replicates} replicates: no p-value is below 1/{settings.replicates + 1}, and Holm over "
            f"{contrasts} contrasts would call nothing stable, whatever the corpora. Take at least {needed}"
        )


def _measure_rows(pairing: Pairing, found: Found, settings: RegimeSettings) -> list[MeasureRow]:
    first, reference = pairing.both
    alternatives = _alternatives(pairing, settings)
    unavailable = set(first.table.about.unavailable) | set(reference.table.about.unavailable)
    rows = []
    for column, measure in enumerate(MEASURES):
        cells = contrasted(
            found.means_2M[:, column], found.means_B2M[:, :, column],
            [one[:, :, column] for one in found.jack_means], settings.confidence,
        )  # fmt: skip
        effect = cells["difference"]
        replicates = found.means_B2M[:, 0, column] - found.means_B2M[:, 1, column]
        scale = float(np.abs(found.means_2M[:, column]).max())
        row = MeasureRow(
            reference.name, measure.name, measure.title, measure.axis, str(measure.domain), measure.unit,
            cells["first"], cells["other"], effect, cells["ratio"], _eligible(pairing, 0, column),
            _eligible(pairing, 1, column), p_value(effect.value, replicates, scale), float("nan"), "",
        )  # fmt: skip
        if measure.name in unavailable:
            row.verdict = UNAVAILABLE
        elif measure.axis:
            row.variations = [
                Variation(name, float(values[column]), _agrees(float(values[column]), effect.value))
                for name, values in alternatives.items()
            ]
            row.without_city = _without_cities(pairing, found, column, settings)
            row.verdict = _verdict(row, pairing)
        rows.append(row)
    return rows


def _alternatives(pairing: Pairing, settings: RegimeSettings) -> dict[str, Array]:
    """Differences [M] under every other threshold, weighting, normalisation and caliper."""
    first = pairing.both[0]
    controls = {expected.control for expected in EXPECTED}
    found = {}
    for v, name in enumerate(first.table.about.variants):
        if name != PRIMARY and name not in controls:
            found[name] = pairing.difference(lambda one, v=v: (one.totals_CVM[:, v], one.terms_CVM[:, v]))  # type: ignore[misc]
    found["all frames (unconditional)"] = pairing.difference(_unconditional)
    if pairing.scenes:
        found["equal-stratum weights"] = _equal_stratum(pairing)
    for name, factor in (("caliper / 2", 0.5), ("caliper x 2", 2.0)):
        try:
            made = design(first.clips, pairing.both[1].clips, pairing.made.fields, settings.caliper * factor)
        except RegimeError:  # nobody is as near as that
            found[name] = np.full(len(COLUMNS), np.nan)
            continue
        found[name] = pairing.difference(lambda one: (one.totals_CVM[:, 0], one.terms_CVM[:, 0]), made)
    return found


def _unconditional(one: Population) -> tuple[Array, Array]:
    """A frame with too few agents counts 0 instead of not at all."""
    terms = one.terms_CVM[:, 0].copy()
    conditional = [k for k, measure in enumerate(MEASURES) if measure.domain is not Domain.ALL]
    terms[:, conditional] = one.frames_C[:, None]
    return one.totals_CVM[:, 0], terms


def _equal_stratum(pairing: Pairing) -> Array:
    found, groups = pairing.whole
    means = []
    for one, rows, group in zip(pairing.both, (found.row_A, found.row_B), groups, strict=True):
        scene = one.scenes(pairing.scenes)[rows]
        by_scene = means_by_scene(one.totals_CVM[rows, 0], one.terms_CVM[rows, 0], group, scene, len(pairing.scenes))
        means.append(by_scene)
    both = np.isfinite(means[0]) & np.isfinite(means[1])
    difference = np.where(both, means[0] - means[1], 0.0).sum(0)
    return np.where(both.any(0), difference / np.maximum(both.sum(0), 1), np.nan)


def _without_cities(pairing: Pairing, found: Found, column: int, settings: RegimeSettings) -> list[WithoutCity]:
    """Leave one city of either corpus out; of a reference that is drawn by source, nothing: no place is known there.

    The replicates that happened not to draw a city are a bootstrap without it (Efron 1992, jackknife after bootstrap).
    """
    effect = float(found.means_2M[0, column] - found.means_2M[1, column])
    rows = []
    tail = (1 - settings.confidence) / 2
    for side, one in enumerate(pairing.both):
        if len(one.clusters) < 2 or (side == 1 and one.cluster == "source"):
            continue
        for city, name in enumerate(one.clusters):
            left = found.jack_means[side][city, :, column]
            its = found.means_B2M[found.drawn_BC[side][:, city] == 0][:, :, column]
            values = its[:, 0] - its[:, 1]
            values = values[np.isfinite(values)]
            low, high = np.quantile(values, [tail, 1 - tail]) if len(values) else (np.nan, np.nan)
            difference = float(left[0] - left[1])
            survives = _agrees(difference, effect) and bool(low > 0 or high < 0)
            rows.append(WithoutCity(one.name, name, difference, float(low), float(high), survives))
    return rows


def _verdict(row: MeasureRow, pairing: Pairing) -> str:
    """Stable only if the interval excludes zero, no variation turns it round, and no city carries it alone.

    Both corpora are drawn by cluster, so both need enough of them.
    """
    effect, balance = row.difference, _balance(pairing)
    for count, one in zip((balance.clusters_first, balance.clusters_other), pairing.both, strict=True):
        if count < LEAST_CITIES:
            groups = f"{one.cluster} group{'' if count == 1 else 's'} of {one.name}"
            return f"{UNTESTABLE}: {count} matched {groups} {'is' if count == 1 else 'are'} too few"
    if np.isnan(effect.low):
        return f"{UNTESTABLE}: {effect.note or 'no interval'}"
    reasons = []
    if not (effect.low > 0 or effect.high < 0):
        reasons.append("interval includes zero")
    if turned := [one.name for one in row.variations if not one.agrees and np.isfinite(one.difference)]:
        reasons.append(f"turned round by {', '.join(turned)}")
    if unknown := [one.name for one in row.variations if np.isnan(one.difference)]:
        reasons.append(f"no value under {', '.join(unknown)}")
    if carried := [f"{one.city} of {one.corpus}" for one in row.without_city if not one.survives]:
        reasons.append(f"not without {', '.join(carried)}")
    if reasons:
        return f"{NOT_STABLE}: {'; '.join(reasons)}"
    return f"{STABLE}, {'higher' if effect.value > 0 else 'lower'}"


def _adjust(rows: Sequence[MeasureRow], alpha: float) -> None:
    """Holm over every axis and reference that has a p-value."""
    family = [row for row in rows if row.axis and np.isfinite(row.p)]
    for row, adjusted in zip(family, holm([row.p for row in family]), strict=True):
        row.adjusted_p = float(adjusted)
        if row.verdict.startswith(STABLE) and adjusted > alpha:
            row.verdict = f"{NOT_STABLE}: Holm-adjusted p = {adjusted:.2g}"


def _heed_controls(rows: Sequence[MeasureRow], controls: Sequence[ControlRow], first: str) -> None:
    """An axis that fails its control in either corpus is not stable, whatever its interval says."""
    for row in rows:
        concerned = {row.measure, *_RESTS_ON.get(row.measure, ())}
        failed = [
            f"{one.control} of {one.corpus} ({one.measure} must {one.must})"
            for one in controls
            if not one.passed and one.measure in concerned and one.corpus in (first, row.reference)
        ]
        if failed and row.verdict.startswith(STABLE):
            row.verdict = f"{NOT_STABLE}: failed {', '.join(failed)}"


def _balance(pairing: Pairing) -> BalanceRow:
    (found, groups), made, reference = pairing.whole, pairing.made, pairing.both[1]
    pairs = len(found.row_A)
    clusters = [
        len(np.unique(one.cluster_V[one.source_C[rows]]))
        for one, rows in zip(pairing.both, (found.row_A, found.row_B), strict=True)
    ]
    return BalanceRow(
        reference.name, made.fields, made.given_up, made.absent, made.caliper, *made.candidates, pairs,
        1 - pairs / made.candidates[0], 1 - pairs / made.candidates[1], len(np.unique(groups[0])),
        len(np.unique(groups[1])), clusters[0], clusters[1], len(np.unique(found.stratum_P)), made.narrowed,
        dict(zip(COVARIATES, made.before_Z.tolist(), strict=True)),
        dict(zip(COVARIATES, found.after_Z.tolist(), strict=True)),
        float(np.abs(made.before_Z).max()), float(np.abs(found.after_Z).max()),
    )  # fmt: skip


def _eligible(pairing: Pairing, side: int, column: int) -> float:
    one, found = pairing.both[side], pairing.whole[0]
    rows = found.row_A if side == 0 else found.row_B
    return float(one.terms_CVM[rows, 0, column].sum() / max(one.frames_C[rows].sum(), 1))


def _controls(one: Population) -> list[ControlRow]:
    """Whether each measure loses under its control what it must, and keeps the rest. Over all clips, sources alike."""
    names = one.table.about.variants

    def mean(variant: str, measure: str) -> float:
        v, m = names.index(variant), COLUMNS.index(measure)
        return float(matched_means(one.totals_CVM[:, v, m : m + 1], one.terms_CVM[:, v, m : m + 1], one.source_C)[0])

    rows = []
    for expected in EXPECTED:
        for measure in (*expected.attenuates, *expected.preserves):
            if measure in one.table.about.unavailable:
                continue
            before, after = mean(PRIMARY, measure), mean(expected.control, measure)
            loses = measure in expected.attenuates
            passed = (
                before - after >= _ATTENUATED * abs(before) if loses else abs(after - before) <= _SAME * abs(before)
            )
            must = "attenuate" if loses else "stay"
            rows.append(ControlRow(one.name, str(expected.control), measure, must, before, after, bool(passed)))
    return rows


def _domain(one: Population) -> list[DomainRow]:
    row_of = {clip_id: row for row, clip_id in enumerate(one.table.clip_ids)}
    counts = [one.table.domain[row_of[clip.clip_id]] for clip in one.clips]
    return [DomainRow(one.name, name, value) for name, value in sum(counts[1:], counts[0]).rates().items()]


def _agrees(value: float, effect: float) -> bool:
    return bool(np.isfinite(value) and effect != 0 and np.sign(value) == np.sign(effect))
