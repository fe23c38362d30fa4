"""Clips that show nothing, nobody or too little: a reason instead of a score, and never a crash."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

from factorjepa.corpus.windows import WindowSpec
from factorjepa.diagnostics.asks import Answers
from factorjepa.diagnostics.diagnostic import Diagnostic, Part
from factorjepa.diagnostics.evaluator import Evaluator
from factorjepa.diagnostics.registry import DIAGNOSTICS
from factorjepa.diagnostics.scene import Scene
from factorjepa.errors import CorpusError
from factorjepa.world import ClipTruth

from .fakes import means, oracle, reasons, subject

Make = Callable[..., Evaluator]


def measured(side: Evaluator, part: Part, scene: Scene) -> dict[str, Diagnostic]:
    """All diagnostics on a scene that stands for every part."""
    measures = [one(side.settings) for one in DIAGNOSTICS]
    for role in ("fit", "choose", "measure"):
        this = dataclasses.replace(part, role=role)  # type: ignore[arg-type]
        for one in measures:
            if asks := list(one.asks(this)):
                one.see(this, scene, Answers(subject(oracle(side)), scene, asks))
    for one in measures:
        one.finish()
        assert all(math.isfinite(found.value) for found in one.found)
    return {one.info.name: one for one in measures}


def altered(scene: Scene, **changes: object) -> Scene:
    other = copy.copy(scene)
    other._targets, other._kept = {}, {}
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def test_black_clips_have_no_interventions_and_no_motion_but_an_error(evaluator: Make) -> None:
    side = evaluator(clips=2)
    scene = next(iter(side.parts[2]))
    black = altered(scene, frames_BTHW3=np.zeros_like(scene.frames_BTHW3))
    found = measured(side, Part("measure", False, False), black)
    assert means(found["intervention_l1"]) == {"retained": 0.0}
    assert "nothing moves by itself" in reasons(found["intervention_l1"])
    assert "training clips show no motion" in reasons(found["motion_cosine"])
    assert means(found["future_l1"])["pooled"] == 0


def nobody(truth: ClipTruth) -> ClipTruth:
    observed = {name: getattr(truth, name)[:0] for name in (
        "frame", "agent", "box", "visible_pixels", "amodal_pixels", "truncated", "depth", "position", "velocity",
        "image_velocity", "camera_velocity")}  # fmt: skip
    empty = np.zeros_like(truth.instance_values)
    return dataclasses.replace(truth, **observed, instance_values=empty, interactions=())


def test_streets_without_agents_are_measured_where_agents_do_not_matter(evaluator: Make) -> None:
    side = evaluator(clips=2)
    scene = next(iter(side.parts[2]))
    truths = [nobody(truth) for truth in scene.known.truths or ()]
    empty = altered(scene, known=dataclasses.replace(scene.known, truths=truths))
    found = measured(side, Part("measure", True, True, True), empty)
    assert "agents" not in means(found["future_l1"])
    assert "true_region" not in means(found["intervention_l1"])
    assert "counterfactual" not in means(found["intervention_l1"])
    assert "no agent is seen both now and when the window ends" in reasons(found["position_readout"])
    assert means(found["intervention_l1"])["pooled"] == 0


def test_one_clip_is_enough_for_all_that_needs_no_other(evaluator: Make) -> None:
    side = evaluator(clips=1)
    found = measured(side, Part("measure", True, True, True), next(iter(side.parts[2])))
    assert "fewer than three audit sources: none to fit a probe on" in reasons(found["depth_truth"])
    assert {"future_l1", "mask_slope", "intervention_l1", "motion_cosine"} <= {k for k, v in found.items() if v.found}


def test_clips_shorter_than_the_window_are_refused_by_name(evaluator: Make) -> None:
    side = evaluator(clips=1)
    side.conditions = dataclasses.replace(side.conditions, window=WindowSpec(frames=64, size=32))
    with pytest.raises(CorpusError, match="is shorter than the 16 s window"):
        list(side.parts[2])
