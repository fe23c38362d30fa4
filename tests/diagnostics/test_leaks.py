"""Decision D1: what comes after the context changes no prediction, whichever diagnostic asks and whoever answers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from factorjepa.diagnostics import asks
from factorjepa.diagnostics.asks import PLAIN, Answers, OwnFuture, Predict
from factorjepa.diagnostics.evaluator import Evaluator
from factorjepa.diagnostics.registry import DIAGNOSTICS
from factorjepa.diagnostics.scene import Scene
from factorjepa.training.restore import restore
from factorjepa.training.run import RunDirectory

from .conftest import CPU, FAMILIES
from .fakes import subject


def with_another_future(scene: Scene) -> Scene:
    other = copy.copy(scene)
    other._targets, other._kept = {}, {}
    other.frames_BTHW3 = scene.frames_BTHW3.copy()
    future = other.frames_BTHW3[:, scene.context :]
    future[:] = np.random.default_rng(0).integers(0, 256, future.shape)
    return other


@pytest.fixture(scope="module")
def pairs() -> dict[str, Any]:
    """Both scenes, made once for all families."""
    return {}


@pytest.mark.parametrize("family", FAMILIES)
def test_perturbing_the_future_leaves_every_prediction_unchanged(
    family: str, trained: Callable[..., Path], evaluator: Callable[..., Evaluator], pairs: dict[str, Any]
) -> None:
    if not pairs:
        side = evaluator(clips=3)
        scene = next(iter(side.parts[2]))
        pairs.update(part=side.parts[2].part, settings=side.settings, one=scene, other=with_another_future(scene))
    learner = restore(RunDirectory.existing(trained(family)), CPU).learner
    asked = [ask for one in DIAGNOSTICS for ask in one(pairs["settings"]).asks(pairs["part"])]
    asked = [ask for ask in asked if not isinstance(ask, OwnFuture)]
    one, other = (Answers(subject(learner), pairs[name], asked) for name in ("one", "other"))
    for ask in asked:
        assert torch.equal(one[ask].tokens_BtD, other[ask].tokens_BtD), ask
        if one[ask].layers_LBD is not None:
            assert torch.equal(one[ask].layers_LBD, other[ask].layers_LBD)
    assert not torch.equal(pairs["one"].target(), pairs["other"].target())
    tokens = torch.stack([one[ask].tokens_BtD for ask in set(asked) if isinstance(ask, Predict)])
    assert (tokens[1:] - tokens[:-1]).abs().amax((1, 2, 3)).min() > 0, "two asks with the same answer"


def test_factor_targets_of_evaluated_clips_reach_no_prediction(
    trained: Callable[..., Path], evaluator: Callable[..., Evaluator]
) -> None:
    """Object states come from the evidence in the context; the packet's targets might as well be lost."""
    side = evaluator(clips=2)
    scene = next(iter(side.parts[2]))
    lost = copy.copy(scene)
    assert scene.known.teacher is not None
    targets = {
        field.name: torch.full_like(getattr(scene.known.teacher, field.name), torch.nan)
        for field in dataclasses.fields(scene.known.teacher)
        if field.name.endswith(("_BW", "reliability_B3", "visibility_BN", "visibility_BNT"))
    }
    lost.known = dataclasses.replace(scene.known, teacher=dataclasses.replace(scene.known.teacher, **targets))
    learner = restore(RunDirectory.existing(trained("factorjepa")), CPU).learner
    one, other = (Answers(subject(learner), each, [PLAIN, Predict(hidden=0.5)]) for each in (scene, lost))
    for ask in (PLAIN, Predict(hidden=0.5)):
        assert torch.equal(one[ask].tokens_BtD, other[ask].tokens_BtD)


def test_only_the_structure_diagnostics_read_factor_targets() -> None:
    folder = Path(asks.__file__).parent
    readers = {path.name for path in folder.glob("*.py") if "teacher_targets(" in path.read_text()}
    assert readers == {"factors.py", "structure.py"}
    assert {path.name for path in folder.glob("*.py") if "_BW" in path.read_text()} == {"factors.py", "structure.py"}
