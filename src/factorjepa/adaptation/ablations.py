"""Ablations and falsification controls: FactorJEPA with one thing changed each, some of them in two places."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..objective import LossWeights
from ..predictors import FactorizedOptions
from .factor import CURRICULUM, DI_PLUS, FACTORJEPA, INT, RAW
from .method import WHOLE_RUN, Method


def _losses(**changes: Any) -> LossWeights:
    return dataclasses.replace(FACTORJEPA.losses, **changes)


def _options(**changes: Any) -> FactorizedOptions:
    assert isinstance(FACTORJEPA.predictor, FactorizedOptions)
    return FACTORJEPA.predictor.replace(**changes)


_OFF = {
    "factor": "no factor targets: only visibility is supervised",
    "visibility": "gates find their own meaning",
    "separation": "channels may say the same",
    "sparsity": "edges cost nothing",
}
_SCALED = ("factor", "visibility", "separation", "sparsity")
_SIZES = {"half": 0.5, "double": 2.0}

PLACES = 0.2  # L_places is some ten times L_factor's size

_MOVING = (
    FACTORJEPA.variant(
        "agent_motion", "agents move", "an agent need not go on as it went: its own state and its pairs say how",
        predictor=_options(interactions="motion", own_motion=True),
    ),
    FACTORJEPA.variant(
        "future_places", "future places", "agents that move by their state and pairs are told where they will be",
        predictor=_options(interactions="motion", own_motion=True), losses=_losses(places=PLACES),
    ),
)  # fmt: skip

_ONE_CHANGE: tuple[Method, ...] = (
    *(
        FACTORJEPA.variant(f"no_{term}_loss", f"- L_{term}", why, losses=_losses(**{term: 0.0}))
        for term, why in _OFF.items()
    ),
    FACTORJEPA.variant(
        "no_nonlinear_loss", "- L_nlin", "separation by covariance alone", losses=_losses(nonlinear=0.0)
    ),
    FACTORJEPA.variant(
        "no_visibility_path", "- visibility gate", "every agent counts fully everywhere",
        predictor=_options(visibility="open"), losses=_losses(visibility=0.0),
    ),
    FACTORJEPA.variant(
        "no_interaction_path", "- interactions", "no pair is ever looked at",
        predictor=_options(interactions="off"), losses=_losses(sparsity=0.0),
    ),
    RAW.variant(
        "raw_no_interaction_path", "- interactions", "factorized agents, and no pair is ever looked at",
        predictor=_options(interactions="off"), losses=dataclasses.replace(RAW.losses, sparsity=0.0),
    ),
    FACTORJEPA.variant(
        "no_reliability", "- reliability weights", "every retained target counts fully", reliability=False
    ),
    FACTORJEPA.variant("no_curriculum", "- curriculum", "all terms and raw clips from the start", stages=WHOLE_RUN),
    RAW.variant(
        "factorjepa_raw_views", "+ views", "stages and factor views without the targets",
        stages=CURRICULUM,
    ),
    FACTORJEPA.variant(
        "misaligned_targets", "misaligned targets", "targets of another moment of the same clip: must not help",
        targets="misaligned",
    ),
    FACTORJEPA.variant(
        "shuffled_targets", "shuffled targets", "targets of other clips: must not help", targets="shuffled"
    ),
    *(
        FACTORJEPA.variant(f"{size}_ranks", f"{size} ranks", "how wide the channels must be",
                           predictor=_options(rank_scale=scale))
        for size, scale in _SIZES.items()
    ),
    *(
        FACTORJEPA.variant(
            f"{size}_{term}", f"{factor:g} x lambda_{term}", "how much the coefficient matters",
            losses=_losses(**{term: factor * getattr(FACTORJEPA.losses, term)}), loss_scale=((term, factor),),
        )
        for term in _SCALED
        for size, factor in _SIZES.items()
    ),
    FACTORJEPA.variant(
        "residual_path", "+ dense residual", "what the dictionaries cannot span", predictor=_options(residual=True)
    ),
    FACTORJEPA.variant(
        "slots", "slots for tracklets", "agents found in the context tokens: no teacher at inference",
        predictor=_options(agents="slots"), losses=_losses(visibility=0.0),
    ),
    *(
        method.variant(
            f"{method.name}_{injection}", f"{injection} injection",
            "where tokens should meet the agents' geometry", predictor=_options(injection=injection),
        )
        for method in (RAW, FACTORJEPA)
        for injection in ("early", "both")
    ),
    *(
        method.variant(
            f"{method.name}_chosen", "chosen blocks",
            "whether it gains on Auto-RGN where the same rule says which blocks train", encoder="chosen",
        )
        for method in (RAW, FACTORJEPA, DI_PLUS, INT, *_MOVING)
    ),
    FACTORJEPA.variant(
        "pair_motion", "pairs move agents", "an interaction moves an agent, it does not only add a vector",
        predictor=_options(interactions="motion"),
    ),
    *_MOVING,
)  # fmt: skip

_TRIED_AGAIN = (
    "no_interaction_path", "raw_no_interaction_path", "no_curriculum", "factorjepa_raw_views", "misaligned_targets",
    "shuffled_targets", "pair_motion",
)  # fmt: skip


def _both_chosen(method: Method) -> Method:
    """Where a study found FactorJEPA ahead: states early and late, and Auto-RGN's rule says which blocks train."""
    assert isinstance(method.predictor, FactorizedOptions)
    return method.variant(
        f"{method.name}_both_chosen", "both, chosen blocks", f"{method.why}; states early and late, Auto-RGN's blocks",
        predictor=method.predictor.replace(injection="both"), encoder="chosen",
    )  # fmt: skip


ABLATIONS: tuple[Method, ...] = (
    *_ONE_CHANGE,
    *map(_both_chosen, (RAW, FACTORJEPA)),
    *(_both_chosen(method) for method in _ONE_CHANGE if method.name in _TRIED_AGAIN),
)
