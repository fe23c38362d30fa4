"""Decision 1: what comes after the context changes no prediction, whichever diagnostic asks and whoever answers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from factorjepa.diagnostics.asks import Answers, OwnFuture
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
    asks = [ask for one in DIAGNOSTICS for ask in one(pairs["settings"]).asks(pairs["part"])]
    asks = [ask for ask in asks if not isinstance(ask, OwnFuture)]
    one, other = (Answers(subject(learner), pairs[name], asks) for name in ("one", "other"))
    for ask in asks:
        assert torch.equal(one[ask].tokens_BtD, other[ask].tokens_BtD), ask
        if one[ask].layers_LBD is not None:
            assert torch.equal(one[ask].layers_LBD, other[ask].layers_LBD)
    assert not torch.equal(pairs["one"].target(), pairs["other"].target())
    tokens = torch.stack([one[ask].tokens_BtD for ask in set(asks)])
    assert (tokens[1:] - tokens[:-1]).abs().amax((1, 2, 3)).min() > 0, "two asks with the same answer"
