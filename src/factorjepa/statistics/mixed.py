"""Nested mixed-effects check (appendix E): method and seed fixed, city and source random intercepts.

    y = beta_0 + beta_method + gamma_seed + u_city + u_source(city) + epsilon

It is a check of direction only. It has no term for what a clip does to both methods, so its standard error is not used.

Legend: N observations; one of each array per observation.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from .estimand import Request
from .measures import Array, Measure
from .panel import Panel

Codes = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True)
class MixedEffects:
    """`note` says what was wrong with the fit; the effect is NaN where there is none."""

    effect: float
    standard_error: float
    note: str = ""
    converged: bool = True


@dataclass(frozen=True)
class Observations:
    """One entry per method, seed and clip, sorted by city."""

    value_N: Array
    first_N: Codes  # 1: the first method
    seed_N: Codes
    city_N: Codes
    source_N: Codes


def observations(panel: Panel, measure: Measure, a: Request, b: Request) -> Observations:
    """Two methods on the clips they share."""
    clips = np.flatnonzero(a.mask_N)
    runs = [(side.method, seed) for side in (a, b) for seed in side.seeds]
    values_RN = panel.blocks[measure.diagnostic].components(measure.components)[:, clips, 0]
    value = values_RN[[panel.runs.index(run) for run in runs]].T.ravel()  # clip by clip, hence sorted by city
    source = np.repeat(panel.source_N[clips], len(runs))
    first = np.tile([int(method == a.method) for method, _ in runs], len(clips))
    seed = np.tile([seed for _, seed in runs], len(clips))
    return Observations(value, first, seed, panel.hierarchy.city_V[source], source)


def mixed_effects(data: Observations) -> MixedEffects:
    """How much more the first method has than the second, by restricted maximum likelihood."""
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec
    from statsmodels.tools.sm_exceptions import ConvergenceWarning

    value, seed, city, source = data.value_N, data.seed_N, data.city_N, data.source_N
    scale = float(value.std())
    if scale == 0:
        return MixedEffects(0.0, float("nan"), "failed: all values are equal")
    seeds = (seed == each for each in np.unique(seed)[1:])
    fixed = np.column_stack([np.ones(len(value)), data.first_N, *seeds]).astype(np.float64)
    if np.linalg.matrix_rank(fixed) < fixed.shape[1]:
        return MixedEffects(float("nan"), float("nan"), "not estimable: no seed ran both methods")
    cities = np.unique(city)
    inside = [np.unique(source[city == c], return_inverse=True) for c in cities]
    nested = any(len(found) > 1 for found, _ in inside)
    spec = VCSpec(
        ["source"],
        [[[f"source {s}" for s in found] for found, _ in inside]],
        [[np.eye(len(found))[local] for found, local in inside]],
    )
    per_city = np.ones((len(value), 1)) if len(cities) > 1 else None  # one city: its intercept is the fixed one
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = MixedLM(value / scale, fixed, city, exog_re=per_city, exog_vc=spec if nested else None)
            fit = model.fit(reml=True, method=["lbfgs", "powell"])  # gradients end at a boundary, by the last bit
            effect, spread = float(fit.fe_params[1]) * scale, float(fit.bse_fe[1]) * scale
    except (np.linalg.LinAlgError, ValueError) as error:
        return MixedEffects(float("nan"), float("nan"), f"failed: {error}")
    warned = [str(w.message) for w in said if issubclass(w.category, ConvergenceWarning)]
    singular = any("singular" in text or "boundary" in text for text in warned)
    notes = (["singular"] if singular else []) + ([] if fit.converged else ["did not converge"])
    return MixedEffects(effect, spread, ", ".join(notes), bool(fit.converged))
