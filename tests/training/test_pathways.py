"""Gates and edges that close are noticed while a run trains, and kept with its scores."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
import torch

from factorjepa.scores import RunInfo
from factorjepa.training.engine import Engine
from factorjepa.training.pathways import LAST, PATHWAYS, closed_at_the_end
from factorjepa.training.settings import TrainSettings

OPEN = {"loss": 1.0, "agents": 3.0, "gate_max": 0.7, "pairs": 5.0, "edge_max": 0.4}


def test_a_pathway_is_closed_only_where_there_is_something_to_pass() -> None:
    agents, pairs, *_ = PATHWAYS
    assert not agents.closed(OPEN)
    assert pairs.closed({**OPEN, "edge_max": 1e-5})
    assert not pairs.closed({**OPEN, "edge_max": 0.0, "pairs": 0.0})  # a batch of empty streets
    assert not any(pathway.closed({"loss": 1.0}) for pathway in PATHWAYS)  # a model without any


def test_how_a_run_ended_is_the_mean_of_its_last_updates() -> None:
    shut = {**OPEN, "edge_max": 1e-5}
    assert closed_at_the_end([OPEN] * 9 * LAST + [shut] * LAST) == ("pairs",)
    assert closed_at_the_end([shut] * 9 * LAST + [OPEN] * LAST) == ()
    assert closed_at_the_end([OPEN] * 9 + [{"future_l1": 0.4}]) == ()  # validations do not count
    empty = {**OPEN, "pairs": 0.0, "edge_max": 0.0}
    assert closed_at_the_end([OPEN] + [empty] * (LAST - 1)) == ()  # empty streets close nothing
    assert closed_at_the_end([shut] * 5 * LAST + [empty] * (LAST - 1)) == ("pairs",)
    assert closed_at_the_end([OPEN] * 8 + [shut] * 2) == ("pairs",)  # of a short run the end
    assert closed_at_the_end([]) == ()


def test_the_loop_says_once_which_run_it_is(
    settings: Callable[..., TrainSettings], caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(settings(method="factorjepa_raw"), torch.device("cpu"))
    for _ in range(2):
        engine._warn({**OPEN, "edge_max": 1e-5}, step=3)
    assert caplog.text.count("factorjepa_raw, step 3: edge_max is 1e-05: this pathway has died") == 1
    assert "gate_max" not in caplog.text


def test_scores_keep_it_and_older_ones_do_without() -> None:
    run = RunInfo("nano", "factorjepa", 17, "FactorJEPA", "factorized", 1, "a", "", 10, closed=("pairs",))
    record = json.loads(json.dumps(dataclasses.asdict(run)))
    assert RunInfo.of_record(record) == run
    del record["closed"]
    assert RunInfo.of_record(record).closed is None
