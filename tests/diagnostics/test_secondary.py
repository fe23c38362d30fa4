"""Rollouts, order, pace, correspondence and semantic probes: what they may see, and what they must find."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from corpus.clips import make_clip
from factorjepa.corpus.manifest import Clip, listed
from factorjepa.diagnostics.action import ActionTop1
from factorjepa.diagnostics.asks import PLAIN, Answers, Predict, Predicted, Subject
from factorjepa.diagnostics.classifier import Classifier, indicators
from factorjepa.diagnostics.continuing import FromEarly, Paced, encode, last_level
from factorjepa.diagnostics.correspondence import cycle_back, kendall
from factorjepa.diagnostics.diagnostic import Diagnostic, Part, Role
from factorjepa.diagnostics.evaluator import Evaluator
from factorjepa.diagnostics.reordered import REVERSED, RIFFLED, shown_evidence
from factorjepa.diagnostics.rollout import LevelMoments, Lift, Moments, Rolled, Rollout
from factorjepa.diagnostics.scene import Scene
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.diagnostics.stability import RolloutDrift
from factorjepa.diagnostics.taxonomy_f1 import TaxonomyF1
from factorjepa.diagnostics.transformations import TemporalOrder
from factorjepa.errors import DiagnosticsError
from factorjepa.missing import Missing
from factorjepa.teacher.states import GEOMETRY, object_states
from factorjepa.training.restore import restore
from factorjepa.training.run import RunDirectory

from .conftest import CPU
from .fakes import means, reasons, subject
from .test_leaks import with_another_future

Make = Callable[..., Evaluator]
Rows = dict[Role, list[tuple[Clip, int]]]
ROLES: tuple[Role, ...] = ("fit", "choose", "measure")


@pytest.fixture
def model(trained: Callable[..., Path]) -> Callable[[str], Subject]:
    return lambda family: subject(restore(RunDirectory.existing(trained(family)), CPU).learner)


def blanked(scene: Scene, first: int) -> Scene:
    """The same clips, grey from a frame on, and with no evidence about agents from there on."""
    other = with_another_future(scene)
    other.frames_BTHW3[:, first:] = 128
    teacher = scene.known.teacher
    assert teacher is not None
    cells = teacher.cells.where(teacher.cells.frame_C < first)
    other.known = dataclasses.replace(scene.known, teacher=dataclasses.replace(teacher, cells=cells))
    return other


@pytest.mark.parametrize("family", ["frozen", "factorjepa", "mono_states_early"])
def test_a_rollout_sees_no_more_than_the_frames_it_begins_with(
    family: str, model: Callable[[str], Subject], evaluator: Make
) -> None:
    side, who = evaluator(clips=2), model(family)
    fit, scene = next(iter(side.parts[0])), next(iter(side.parts[2]))
    rollout = Rollout(2, Lift.fit(LevelMoments(16).answer(who, fit), 1e-3))
    rolled, other, grey = (rollout.answer(who, one) for one in (scene, with_another_future(scene), blanked(scene, 8)))
    for field in dataclasses.fields(Rolled):
        assert torch.equal(getattr(rolled, field.name), getattr(other, field.name)), "the future was looked at"
    assert torch.equal(rolled.steps_BtD, grey.steps_BtD)
    assert torch.equal(rolled.free_BtD, grey.free_BtD)
    assert not torch.equal(rolled.taught_BtD, grey.taught_BtD), "who is told of frames 9-12 must see them"
    one_go = FromEarly(2).answer(who, scene).tokens_BtD
    assert torch.equal(one_go, FromEarly(2).answer(who, blanked(scene, 8)).tokens_BtD)


def test_what_is_fed_back_decides_the_later_steps_alone(model: Callable[[str], Subject], evaluator: Make) -> None:
    who, scene = model("full"), next(iter(evaluator(clips=2).parts[2]))
    lift = Lift.fit(LevelMoments(16).answer(who, scene), 1e-3)
    nothing = Lift("nothing", torch.zeros_like(lift.weight_FL))
    one, other = (Rollout(2, each).answer(who, scene).steps_BtD for each in (lift, nothing))
    places = scene.grid[1] * scene.grid[2]
    assert torch.equal(one[:, :places], other[:, :places])
    assert (one - other)[:, places:].abs().mean((0, 2)).min() > 0


def test_the_lift_finds_a_linear_map_and_equal_lifts_are_one_ask() -> None:
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(400, 6, generator=random).double(), torch.randn(7, 20, generator=random).double()
    x1 = torch.cat([x, torch.ones(400, 1)], dim=1)
    moments = Moments(x1.T @ x1, x1.T @ (x1 @ weight), 400, 1)
    lift = Lift.fit(moments, 1e-9)
    assert torch.allclose(lift(x.float()), (x1 @ weight).float(), atol=1e-4)
    assert Rollout(2, lift) == Rollout(2, Lift.fit(moments, 1e-9)) != Rollout(2, Lift.fit(moments, 1.0))


def test_a_lift_of_training_clips_explains_most_of_other_contexts(
    model: Callable[[str], Subject], evaluator: Make
) -> None:
    """Else a rollout would measure the ridge."""
    side, who = evaluator(clips=2), model("full")
    fit, scene = next(iter(side.parts[0])), next(iter(side.parts[2]))
    levels = encode(who, scene, range(12))
    lift = Lift.fit(LevelMoments(16).answer(who, fit), 1e-3)
    apart = (lift(last_level(who, levels)) - levels).square().mean()
    assert apart < 0.5 * (levels - levels.mean((0, 1))).square().mean()


def test_an_impossible_rollout_and_a_frame_after_the_context_are_refused(
    model: Callable[[str], Subject], evaluator: Make
) -> None:
    who, scene = model("frozen"), next(iter(evaluator(clips=1).parts[2]))
    with pytest.raises(DiagnosticsError, match=r"lower rollout\.early"):
        FromEarly(6).answer(who, scene)
    with pytest.raises(DiagnosticsError, match="no context frame"):
        encode(who, scene, [11, 12])
    with pytest.raises(DiagnosticsError, match=r"lower pace\.paces"):
        Paced(1, 7).answer(who, scene)


def test_orders_are_permutations_and_paces_end_with_the_context() -> None:
    assert RIFFLED.of(12) == [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]
    assert REVERSED.of(4) == [3, 2, 1, 0]
    for context in range(2, 17):
        assert sorted(RIFFLED.of(context)) == sorted(REVERSED.of(context)) == list(range(context))
    assert [Paced(pace, 3).frames(12, 2) for pace in (1, 2, 3)] == [[8, 9, 10, 11], [5, 7, 9, 11], [2, 5, 8, 11]]


def test_a_reversed_context_reverses_the_agents(evaluator: Make) -> None:
    scene = next(iter(evaluator(clips=6).parts[2]))
    assert scene.known.teacher is not None
    cells = scene.known.teacher.cells
    there_and_back = shown_evidence(shown_evidence(cells, REVERSED.of(12)), REVERSED.of(12))
    for field in dataclasses.fields(cells):
        one, other = (torch.as_tensor(getattr(each, field.name)) for each in (there_and_back, cells))
        assert torch.equal(one, other), field.name
    ahead, backwards = (object_states(shown_evidence(cells, order)) for order in ([8, 9, 10, 11], [11, 10, 9, 8]))
    at = GEOMETRY.index("velocity_x")
    forth, back = (one.geometry_BNG[..., at : at + 2][one.valid_BN] for one in (ahead, backwards))
    assert forth.abs().max() > 0
    assert torch.allclose(forth, -back, atol=1e-5)


def test_frames_that_follow_each_other_differently_are_predicted_differently(
    model: Callable[[str], Subject], evaluator: Make
) -> None:
    scene = next(iter(evaluator(clips=2).parts[2]))
    asks = [PLAIN, Predict(REVERSED), Predict(RIFFLED), *(Paced(pace, 3) for pace in (1, 2, 3))]
    for family in ("full", "factorjepa"):
        answers = Answers(model(family), scene, asks)
        tokens = torch.stack([answers[ask].tokens_BtD for ask in asks])
        assert (tokens[1:] - tokens[:-1]).abs().amax((1, 2, 3)).min() > 0


@given(st.permutations(range(6)))
@settings(max_examples=25)
def test_tau_of_a_permutation_is_kendalls(ranks: list[int]) -> None:
    assert kendall(torch.tensor([ranks])).item() == pytest.approx(kendalltau(range(6), ranks).statistic)


def test_cycles_that_close_elsewhere_are_as_long_as_the_way() -> None:
    assert cycle_back(1 - torch.eye(4)[None]).item() == 0
    onto_the_first = torch.ones(1, 4, 4)
    onto_the_first[0, :, 2] = torch.tensor([0.1, 0.2, 0.3, 0.4])  # all match tubelet 2, which matches the first best
    assert cycle_back(onto_the_first).item() == 1.5
    assert kendall(onto_the_first.argmin(2)).item() == 0


@given(st.integers(0, 50))
@settings(max_examples=10)
def test_classes_that_lie_apart_are_told_apart(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = [np.arange(n) % 3 for n in (60, 12, 30)]
    x = [np.eye(3)[one] + 0.05 * random.normal(size=(len(one), 3)) for one in labels]
    wanted = [indicators(one, 3) for one in labels]
    probe = Classifier.fit(x[0], wanted[0], x[1], wanted[1], EvaluateSettings().probes.grid)
    assert np.array_equal(probe.top(x[2]), labels[2])
    assert np.array_equal(probe.present(x[2]), wanted[2] > 0)


def test_a_prediction_that_tells_what_was_done_is_read() -> None:
    random = torch.Generator().manual_seed(1)
    one = TemporalOrder(EvaluateSettings())
    for role, count in zip(ROLES, (20, 6, 6), strict=True):
        scene = cast(Scene, SimpleNamespace(clips=tuple(clip(n) for n in range(count)), grid=(2, 2, 2)))
        said = {ask: torch.randn(count, 8, 5, generator=random) for ask in one.classes()}
        said[PLAIN] += 3.0
        one.see(Part(role, True, False), scene, cast(Answers, {ask: Predicted(tokens) for ask, tokens in said.items()}))
    one.finish()
    assert [found.value for found in one.found if found.variant == "pooled"] == [1.0] * 6
    assert means(one)["chance"] == 1 / 2


@given(st.lists(st.integers(1, 9), min_size=5, max_size=9))
@settings(max_examples=20)
def test_the_first_training_clips_are_used_however_they_are_batched(sizes: list[int]) -> None:
    chosen = EvaluateSettings.model_validate({"probes": {"transformed_clips": 5}, "rollout": {"fit_clips": 5}})
    one, drift, part, seen = TemporalOrder(chosen), RolloutDrift(chosen), Part("fit", True, False), 0
    for size in sizes:
        clips = tuple(clip(seen + n) for n in range(size))
        scene = cast(Scene, SimpleNamespace(clips=clips, grid=(2, 2, 2)))
        if asked := list(one.asks(part)):
            one.see(part, scene, cast(Answers, {ask: Predicted(torch.zeros(size, 8, 5)) for ask in asked}))
        for ask in cast(list[LevelMoments], list(drift.asks(part))):
            told = Moments(torch.eye(3), torch.ones(3, 6), 7, min(ask.clips, size))
            drift.see(part, scene, cast(Answers, {ask: told}))
        seen += size
    assert {each.clip_id for each in one.pools["fit"].clips} == {str(n) for n in range(5)}
    assert len(one.pools["fit"]) == 2 * 5
    assert drift._moments is not None
    assert drift._moments.clips == 5


def clip(number: int, **attributes: str) -> Clip:
    return dataclasses.replace(make_clip(0), clip_id=str(number), attributes=attributes)


def shown(one: Diagnostic, rows: Rows) -> Diagnostic:
    """Let it see clips in which nothing moves and whose prediction writes down a number."""
    for role, clips in rows.items():
        still = np.ones((len(clips), 1, 1))
        scene = SimpleNamespace(
            clips=tuple(each for each, _ in clips), grid=(2, 1, 2), kept=lambda key, make, still=still: still
        )
        tokens_BD = torch.nn.functional.one_hot(torch.tensor([value for _, value in clips]), 4).float()
        answers = cast(Answers, {PLAIN: Predicted(tokens_BD[:, None].repeat(1, 4, 1))})
        one.see(Part(role, True, False), cast(Scene, scene), answers)
    one.finish()
    return one


def test_actions_of_the_manifest_are_read_and_unknown_ones_cannot_be() -> None:
    words = ["cross", "turn", "wait"]
    counts = zip(ROLES, (30, 6, 6), strict=True)
    rows: Rows = {role: [(clip(n, action=words[n % 3]), n % 3) for n in range(count)] for role, count in counts}
    rows["measure"] += [(clip(90, action="fly"), 0), (clip(91), 0)]
    found = shown(ActionTop1(EvaluateSettings()), rows)
    values = {each.clip.clip_id: each.value for each in found.found if each.variant == "pooled"}
    assert values == {**{str(n): 1.0 for n in range(6)}, "90": 0.0}
    assert means(found)["chance"] == pytest.approx(2 / 7), "the commonest of three classes, and one that nobody knows"
    reason = "the manifest has no 'action'"
    assert found.missing == [Missing("action_top1", variant, reason, 1) for variant in ("pooled", "chance")]


def test_without_actions_and_motion_there_is_no_accuracy() -> None:
    found = shown(ActionTop1(EvaluateSettings()), {role: [(clip(n), 0) for n in range(4)] for role in ROLES})
    assert not found.found
    assert [lack.clips for lack in found.missing] == [4]


def test_taxonomy_rows_are_of_the_training_clips_classes_whatever_is_there() -> None:
    kinds = ["pedestrian", "pedestrian; pedal cycle", "pedestrian; animal"]
    counts = zip(ROLES[:2], (30, 6), strict=True)
    rows: Rows = {role: [(clip(n, taxonomy=kinds[n % 3]), n % 3) for n in range(count)] for role, count in counts}
    rows["measure"] = [(clip(n, taxonomy=kinds[n % 2]), n % 2) for n in range(4)]
    rows["measure"] += [(clip(8, taxonomy="pedestrian; ship"), 0), (clip(9), 0)]
    found = shown(TaxonomyF1(EvaluateSettings()), rows)
    assert {each.variant for each in found.found} == {
        f"{row}/{kind}" for row in ("tp", "fp", "fn") for kind in ("animal", "pedal cycle", "pedestrian")
    } | {"chance"}
    assert means(found)["tp/pedestrian"] == 1
    assert means(found)["chance"] == pytest.approx((2 * 1 / 2 + 2 * 0.4 / 1.4 + 0) / 3), "always yes: 2 p / (1 + p)"
    assert means(found)["tp/pedal cycle"] == pytest.approx(2 / 5)
    assert means(found)["fp/animal"] == means(found)["fn/pedal cycle"] == means(found)["tp/animal"] == 0
    assert reasons(found) == {
        "the manifest has no 'taxonomy'": 1, "it shows a class that no training clip does, which has no F1": 1,
    }  # fmt: skip


def test_where_nobody_looked_for_agents_there_is_no_f1() -> None:
    found = shown(TaxonomyF1(EvaluateSettings()), {role: [(clip(n), 0) for n in range(4)] for role in ROLES})
    assert not found.found
    assert reasons(found) == {"the manifest has no 'taxonomy'": 4}


def test_lists_in_the_manifest_come_apart() -> None:
    assert listed("pedestrian; pedal cycle") == listed("pedestrian;pedal cycle;") == ["pedestrian", "pedal cycle"]
    assert listed("") == []


def test_other_labels_are_another_evaluator(evaluator: Make) -> None:
    side = evaluator(clips=2)
    before = side.identity()
    scenes = copy.copy(side.parts[2])
    scenes.clips = cast(Any, [dataclasses.replace(each, attributes={"action": "wait"}) for each in scenes.clips])
    side.parts[2] = scenes
    assert {name for name, value in side.identity().items() if value != before[name]} == {"labels"}
