"""Scene matching that is blind to outcomes (appendix B.3).

Clips that agree in every stratum field are matched 1:1 without replacement on standardised covariates, by the
assignment that matches most pairs within the calipers and, of these, has the least distance. This module sees
manifests, never a measurement.

Legend: A, B the two corpora; Z covariates; P matched pairs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ..corpus.manifest import Clip
from ..errors import RegimeError
from ..seeding import stream
from .scene import Array, Ints

FIELDS = ("capture_mode", "scene_type", "illumination", "weather", "road_context")  # the last is given up first
COVARIATES = ("duration", "valid support", "aspect ratio", "resolution", "frame rate")
BALANCED = 0.1  # |SMD| of the matched population stays below, for every covariate
LEAST_MATCHED = 0.5  # of the smaller corpus: with fewer, the strata are too fine for these corpora
CALIPER = 0.25  # standard deviations by which a covariate of a pair may differ, at most
_FORBIDDEN = 1e6
_LOT = 1e-9  # of a squared standard deviation: less than any difference that matters


@dataclass(frozen=True)
class Stratum:
    """Clips of both corpora that agree in every field."""

    name: tuple[str, ...]
    rows_A: Ints
    rows_B: Ints
    z_A: Array  # [A, Z] standardised
    z_B: Array
    caliper: float
    cost_AB: Array  # squared distance; _FORBIDDEN beyond the caliper

    @classmethod
    def of(cls, name: tuple[str, ...], rows_A: Ints, rows_B: Ints, z_A: Array, z_B: Array, caliper: float) -> Stratum:
        apart_ABZ = z_A[:, None] - z_B[None]
        allowed = (np.abs(apart_ABZ) <= caliper).all(-1)
        # Where many are equally near, as in corpora of one format and length, lots decide, not the manifest's order.
        lots_AB = _LOT * stream("matching", *name).random(allowed.shape)
        cost_AB = np.where(allowed, (apart_ABZ**2).sum(-1) + lots_AB, _FORBIDDEN)
        return cls(name, rows_A, rows_B, z_A, z_B, caliper, cost_AB)

    def within(self, caliper: float) -> Stratum:
        return self.of(self.name, self.rows_A, self.rows_B, self.z_A, self.z_B, caliper)


@dataclass(frozen=True)
class Design:
    """Everything that matching needs; the same for every replicate."""

    fields: tuple[str, ...]
    given_up: tuple[str, ...]  # fields that would have left too few matches
    absent: tuple[str, ...]  # fields that some corpus does not have
    strata: tuple[Stratum, ...]  # those that both corpora have clips in; common support
    before_Z: Array  # SMD of all candidates
    caliper: float
    candidates: tuple[int, int]

    @property
    def narrowed(self) -> int:
        """Strata whose caliper was narrowed for the sake of balance."""
        return sum(stratum.caliper < self.caliper for stratum in self.strata)


@dataclass(frozen=True)
class Matched:
    """Pairs: positions among the rows that were offered, and the clips there."""

    place_A: Ints
    place_B: Ints
    row_A: Ints
    row_B: Ints
    stratum_P: Ints
    apart_PZ: Array  # standardised differences

    @property
    def after_Z(self) -> Array:
        """SMD of the matched clips."""
        return self.apart_PZ.mean(0) if len(self.apart_PZ) else np.full(len(COVARIATES), np.nan)


def present(clips: Sequence[Clip]) -> set[str]:
    """The fields that every clip has."""
    return {"capture_mode"} | {
        field for field in FIELDS[1:] if clips and all(field in clip.attributes for clip in clips)
    }


def covariates(clips: Sequence[Clip]) -> Array:
    """[clips, Z]"""
    return np.array(
        [(c.seconds, c.width * c.height, c.width / c.height, min(c.width, c.height), c.fps) for c in clips], np.float64
    ).reshape(-1, len(COVARIATES))


def design(
    clips_A: Sequence[Clip],
    clips_B: Sequence[Clip],
    fields: Sequence[str] | None = None,
    caliper: float = CALIPER,
    everywhere: set[str] | None = None,
) -> Design:
    """Strata on `fields`, or on as many of the paper's as leave `LEAST_MATCHED` of the smaller corpus matched.

    `everywhere` are the fields that all corpora of a comparison have: one that is not known consistently is left out.
    """
    if not clips_A or not clips_B:
        raise RegimeError(f"nothing to match: {len(clips_A)} and {len(clips_B)} clips; choose other capture modes")
    known = present(clips_A) & present(clips_B) & (everywhere if everywhere is not None else set(FIELDS))
    if fields is not None and (unknown := [field for field in fields if field not in known]):
        raise RegimeError(
            f"cannot match on {', '.join(unknown)}: not every clip has it. Fields: {', '.join(sorted(known))}"
        )
    usable = tuple(fields) if fields is not None else tuple(field for field in FIELDS if field in known)
    wanted = LEAST_MATCHED * min(len(clips_A), len(clips_B))
    chosen = usable
    while True:
        made = _common_support(_design(clips_A, clips_B, chosen, usable, known, caliper))
        everyone = match(made, np.arange(len(clips_A)), np.arange(len(clips_B)))
        if len(everyone.row_A) >= wanted or fields is not None or len(chosen) == 1:
            break
        chosen = chosen[:-1]
    if not len(everyone.row_A):
        raise RegimeError(
            f"no pair of clips agrees in {', '.join(chosen)} and lies within {caliper:g} standard deviations on "
            f"{', '.join(COVARIATES)} (differences before matching, in standard deviations: "
            f"{', '.join(f'{v:.2f}' for v in made.before_Z)}); match on fewer fields, widen --caliper, or add clips"
        )
    return made


def match(made: Design, offered_A: Ints, offered_B: Ints) -> Matched:
    """Match the clips `offered` (rows, possibly repeated: a bootstrap's copies are clips of their own)."""
    by_A, by_B = (np.argsort(offered, kind="stable") for offered in (offered_A, offered_B))
    sorted_A, sorted_B = offered_A[by_A], offered_B[by_B]
    found: list[tuple[NDArray[np.intp], NDArray[np.intp], int]] = []
    apart: list[Array] = []
    for number, stratum in enumerate(made.strata):
        local_A, place_A = _offered(stratum.rows_A, sorted_A, by_A)
        local_B, place_B = _offered(stratum.rows_B, sorted_B, by_B)
        if not len(local_A) or not len(local_B):
            continue
        cost = stratum.cost_AB[np.ix_(local_A, local_B)]
        one, other = linear_sum_assignment(cost)
        near = cost[one, other] < _FORBIDDEN
        one, other = one[near], other[near]
        if not len(one):
            continue
        apart.append(stratum.z_A[local_A[one]] - stratum.z_B[local_B[other]])
        found.append((place_A[one], place_B[other], number))
    if not found:
        nobody = np.empty(0, np.int64)
        return Matched(nobody, nobody, nobody, nobody, nobody, np.empty((0, len(COVARIATES))))
    all_A, all_B = (np.concatenate([part[side] for part in found]) for side in (0, 1))
    stratum_P = np.repeat([part[2] for part in found], [len(part[0]) for part in found])
    return Matched(all_A, all_B, offered_A[all_A], offered_B[all_B], stratum_P, np.concatenate(apart))


def _common_support(made: Design) -> Design:
    """The design with calipers under which the matched clips keep max |SMD| < `BALANCED`.

    The stratum that disturbs most gets a narrower caliper, until all are balanced: within `BALANCED` they are by
    themselves. Decided once, on whole corpora; what is drawn later is matched under these calipers.
    """
    strata = list(made.strata)
    while True:
        made = dataclasses.replace(made, strata=tuple(strata))
        found = match(made, *(np.arange(count) for count in made.candidates))
        if not len(found.row_A) or np.abs(found.after_Z).max() < BALANCED:
            break
        total, pairs = found.apart_PZ.sum(0), len(found.row_A)
        wide = [number for number in np.unique(found.stratum_P).tolist() if strata[number].caliper >= BALANCED]
        without = []
        for number in wide:
            its = found.stratum_P == number
            rest = (total - found.apart_PZ[its].sum(0)) / max(pairs - int(its.sum()), 1)
            without.append(np.abs(rest).max())
        worst = wide[int(np.argmin(without))]
        strata[worst] = strata[worst].within(strata[worst].caliper / 2)
    there = set(np.unique(found.stratum_P).tolist())
    kept = tuple(stratum for number, stratum in enumerate(strata) if number in there)
    return dataclasses.replace(made, strata=kept)


def standardised_differences(values_A: Array, values_B: Array, spread_Z: Array) -> Array:
    """SMD(z) over the given spread; infinite where a constant differs."""
    difference = values_A.mean(0) - values_B.mean(0)
    constant = spread_Z <= 1e-12 * np.maximum(np.abs(values_A.mean(0)), 1e-300)
    of_constants = np.where(np.isclose(difference, 0), 0.0, np.copysign(np.inf, difference))
    return np.where(constant, of_constants, difference / np.where(constant, 1.0, spread_Z))


def pooled_spread(values_A: Array, values_B: Array) -> Array:
    """Root of the mean of both variances, [Z]."""
    variances = [v.var(0, ddof=1) if len(v) > 1 else np.zeros(v.shape[1]) for v in (values_A, values_B)]
    return np.asarray(np.sqrt((variances[0] + variances[1]) / 2))


def _design(
    clips_A: Sequence[Clip], clips_B: Sequence[Clip], fields: tuple[str, ...], usable: tuple[str, ...],
    known: set[str], caliper: float,
) -> Design:  # fmt: skip
    values_A, values_B = covariates(clips_A), covariates(clips_B)
    spread_Z = pooled_spread(values_A, values_B)
    before_Z = standardised_differences(values_A, values_B, spread_Z)
    constant_Z = spread_Z <= 1e-12 * np.maximum(np.abs(values_A.mean(0)), 1e-300)
    # Two constants that differ keep a distance that no caliper allows.
    scale_Z = np.where(constant_Z, np.where(before_Z == 0, np.inf, 1e-9), spread_Z)
    z_A, z_B = values_A / scale_Z, values_B / scale_Z
    rows_A, rows_B = _by_stratum(clips_A, fields), _by_stratum(clips_B, fields)
    strata = []
    for name in sorted(rows_A.keys() & rows_B.keys()):
        a, b = np.array(rows_A[name]), np.array(rows_B[name])
        strata.append(Stratum.of(name, a, b, z_A[a], z_B[b], caliper))
    return Design(
        fields, tuple(f for f in usable if f not in fields), tuple(f for f in FIELDS if f not in known), tuple(strata),
        before_Z, caliper, (len(clips_A), len(clips_B)),
    )  # fmt: skip


def _by_stratum(clips: Sequence[Clip], fields: Sequence[str]) -> dict[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for row, clip in enumerate(clips):
        key = tuple(clip.capture_mode if f == "capture_mode" else str(clip.attributes[f]) for f in fields)
        found.setdefault(key, []).append(row)
    return found


def _offered(rows: Ints, sorted_offers: Ints, order: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Of a stratum's rows (ascending): which of them each offer is, and where in the offers it stands."""
    low, high = np.searchsorted(sorted_offers, rows), np.searchsorted(sorted_offers, rows, side="right")
    copies = high - low
    local = np.repeat(np.arange(len(rows)), copies)
    begun = np.repeat(np.cumsum(copies) - copies, copies)
    return local, order[np.arange(len(local)) - begun + np.repeat(low, copies)]
