"""Controls that the paper left open: without them a gain of the tracklets would be credited to the factorization."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ..objective import LossWeights
from ..predictors import MonolithicOptions
from .ablations import PLACES
from .autorgn import AUTO_RGN
from .factor import CURRICULUM, INT
from .method import Method

PLAIN = Method(
    name="mono_top",
    title="Monolithic",
    family="control",
    why="what training the same blocks gives without states, targets and channels: Auto-RGN trains others",
    predictor=MonolithicOptions(),
    matched=True,
)
SUPERVISED = Method(
    name="mono_supervised",
    title="Monolithic + targets",
    family="control",
    why="the same supervision and curriculum without the factorization: heads read the pooled hidden states",
    predictor=MonolithicOptions(factor_heads=True),
    losses=LossWeights(visibility=0.0, separation=0.0, sparsity=0.0),  # without gates, channels and edges to act on
    stages=CURRICULUM,
    matched=True,
)
VIEWED = dataclasses.replace(
    AUTO_RGN,
    name="auto_rgn_views",
    title="Auto-RGN + views",
    family="control",
    why="what stages and factor views give as augmentation, without states, targets and channels",
    stages=CURRICULUM,
)
EDITED = dataclasses.replace(
    VIEWED,
    name="auto_rgn_int",
    title="Auto-RGN + views + interventions",
    why="what being shown interventions gives, without states, targets and channels: FactorJEPA-INT's control",
    edits=INT.edits,
)
LOOKING = dataclasses.replace(
    VIEWED,
    name="auto_rgn_look",
    title="Auto-RGN + views + look back",
    why="what a wide look at the context's last frames adds: on nano more than all that is known about agents",
    predictor=MonolithicOptions(
        recalled=True, recall_hidden=1330, extra_hidden=1142
    ),  # as docs/results/nano_look has it
    matched=False,
)

# A control has as many parameters as the form of FactorJEPA that it stands beside.
_BESIDE = {"late": "factorjepa", "early": "factorjepa_early", "both": "factorjepa_both"}
_WORDS: dict[str, str] = {
    "late": "after the transformer, as the paper's branches",
    "early": "into the target queries",
    "both": "into the target queries and after the transformer",
}


def _geometry(injection: Literal["late", "early", "both"]) -> Method:
    return Method(
        name=f"mono_states_{injection}",
        title=f"Monolithic + states ({injection})",
        family="control",
        why=f"the same object states, geometry and pairs {_WORDS[injection]}, through one dense head",
        predictor=MonolithicOptions(injection=injection),
        matched=True,
        level_with=_BESIDE[injection],
    )


def _everything(injection: Literal["late", "both"]) -> Method:
    return Method(
        name=f"mono_matched_{injection}",
        title=f"Monolithic + states + targets ({injection})",
        family="control",
        why=f"all that FactorJEPA is given, states {_WORDS[injection]}: what is left of a gain is the factorization",
        predictor=MonolithicOptions(injection=injection, factor_heads=True),
        losses=LossWeights(separation=0.0),  # without channels to set apart
        stages=CURRICULUM,
        matched=True,
        level_with=_BESIDE[injection],
    )


# Queries are narrower than tokens. Channels write into the tokens, so that a head behind the queries has less to say.
DIRECT = dataclasses.replace(
    _everything("late"),
    name="mono_direct_late",
    title="Monolithic + states + targets (late, into the tokens)",
    why="states and targets of FactorJEPA, states written into the tokens as channels are: must they be channels?",
    predictor=MonolithicOptions(injection="late", direct=True, factor_heads=True),
)


def _chosen(method: Method, name: str, why: str) -> Method:
    return dataclasses.replace(method, name=name, title=f"{method.title}, chosen blocks", why=why, encoder="chosen")


CHOSEN = (
    _chosen(
        _geometry("both"),
        "mono_states_chosen",
        "what object states add to Auto-RGN: its rule says which blocks train, a dense head reads the states",
    ),
    _chosen(
        dataclasses.replace(
            _geometry("both"),
            title="Monolithic + agents (both)",
            predictor=MonolithicOptions(injection="both", interactions="off"),
            level_with="raw_no_interaction_path_both_chosen",
        ),
        "mono_agents_chosen",
        "what agents without pairs add to Auto-RGN, through a dense head",
    ),
    _chosen(
        _everything("both"),
        "mono_matched_chosen",
        "what states, targets and stages add to Auto-RGN, through a dense head",
    ),
    _chosen(
        _geometry("late"),
        "mono_states_late_chosen",
        "what object states after the transformer add to Auto-RGN, through a dense head",
    ),
    _chosen(
        _everything("late"),
        "mono_matched_late_chosen",
        "what states after the transformer, targets and stages add to Auto-RGN, through a dense head",
    ),
    _chosen(
        DIRECT,
        "mono_direct_late_chosen",
        "the same written into the tokens, as channels are, instead of into the narrower queries",
    ),
    _chosen(
        dataclasses.replace(
            _everything("late"),
            title="Monolithic + states + targets + places (late)",
            predictor=MonolithicOptions(injection="late", factor_heads=True, interactions="motion", own_motion=True),
            losses=LossWeights(separation=0.0, places=PLACES),
            level_with="future_places_chosen",
        ),
        "mono_places_late_chosen",
        "what states, targets, stages and where each agent will be add to Auto-RGN, through a dense head",
    ),
)
GEOMETRY = tuple(_geometry(injection) for injection in ("late", "early", "both"))
EVERYTHING = (*(_everything(injection) for injection in ("late", "both")), DIRECT)
