"""What a model that knows the future, and one that knows nothing, must score; and that each is asked once."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from factorjepa.corpus.simulated import SimulationPlan
from factorjepa.diagnostics import position_readout
from factorjepa.diagnostics.altered import Edited
from factorjepa.diagnostics.asks import PLAIN, Answers, Predict, Predicted
from factorjepa.diagnostics.depth import Depth
from factorjepa.diagnostics.diagnostic import Diagnostic, Part
from factorjepa.diagnostics.evaluation import run_pass
from factorjepa.diagnostics.evaluator import Evaluator
from factorjepa.diagnostics.intervention_l1 import InterventionL1
from factorjepa.diagnostics.leakage import Leakage
from factorjepa.diagnostics.position_readout import PositionReadout, _agents
from factorjepa.diagnostics.probed import Probed
from factorjepa.diagnostics.registry import DIAGNOSTICS
from factorjepa.diagnostics.resimulation import Worlds, removed_agents
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.diagnostics.truth import seen_agents, true_frames, truth_of
from factorjepa.predictors import PerFactor
from factorjepa.scores import DiagnosticInfo
from factorjepa.statistics.measures import direction_of
from factorjepa.statistics.variants import is_better_for_more_or_less
from factorjepa.world import WorldSettings
from factorjepa.world.interactions import Interaction

from .fakes import Fake, constant, means, oracle, reasons, subject

Make = Callable[..., Evaluator]


@pytest.fixture
def scored(evaluator: Make) -> Callable[[Callable[[Evaluator], Fake]], dict[str, Diagnostic]]:
    def score(model: Callable[[Evaluator], Fake]) -> dict[str, Diagnostic]:
        side = evaluator()
        measures = [one(side.settings) for one in DIAGNOSTICS]
        run_pass(subject(model(side)), side, measures, lambda clips: None)
        return {one.info.name: one for one in measures}

    return score


def test_who_knows_the_future_scores_best(scored: Any) -> None:
    found = scored(oracle)
    assert means(found["future_l1"])["pooled"] == 0 == means(found["future_mse"])["pooled"]
    assert means(found["future_l1"])["agents"] == 0 == means(found["future_l1"])["own"]
    intervention = means(found["intervention_l1"])
    assert intervention["pooled"] == intervention["counterfactual"] == intervention["true_region_localised"] == 0
    assert intervention["magnitude"] == pytest.approx(1, abs=0.05)
    assert means(found["mask_slope"])["pooled"] == 0 == means(found["mask_slope"])["alt/auc"]
    for stable in ("rollout_drift", "horizon_decay", "exposure_gap", "tcc_cycle_back"):
        assert means(found[stable])["pooled"] == pytest.approx(0, abs=1e-6)
    assert means(found["tcc_kendall_tau"])["pooled"] == 1 == means(found["tcc_kendall_tau"])["alt/matched"]


def test_every_variant_is_better_the_way_that_it_is_said_to_be(scored: Any) -> None:
    """Sensitivities take decisions back by it. What probes read is left out: they learn from a few clips here."""
    best, worst = scored(oracle), scored(constant)
    apart = set()
    for name, one in best.items():
        if one.info.reduction != "mean" or isinstance(one, Probed | PositionReadout):
            continue
        poor = means(worst[name])
        for variant, value in means(one).items():
            if is_better_for_more_or_less(variant) and not math.isnan(value - poor[variant]):
                gain = (value - poor[variant]) * (1 if direction_of(one.info, variant) == "higher" else -1)
                assert gain >= -1e-6, f"{name}/{variant}"
                apart |= {f"{name}/{variant}"} if gain > 1e-3 else set()
    assert {"future_l1/pooled", "mask_slope/alt/auc", "mask_slope/hidden_0.5", "rollout_drift/q1"} <= apart


def test_a_change_at_the_wrong_place_is_worse_than_none(evaluator: Make) -> None:
    """Why `true_region` exceeds 1 for a model that does not know where an agent goes: it errs at both places."""
    side = evaluator()

    def misplaced(video: torch.Tensor, early: int = 0) -> torch.Tensor:
        return side.reference.future(video, early).roll(side.reference.grid(video)[2] // 2, dims=1)

    one = InterventionL1(side.settings)
    run_pass(subject(Fake(side, misplaced)), side, [one], lambda clips: None)
    assert means(one)["pooled"] > 1 < means(one)["true_region"]
    assert means(one)["magnitude"] == pytest.approx(1, abs=0.05)


def test_a_held_region_is_the_context_of_one_that_goes_on_with_another_future(evaluator: Make) -> None:
    side = evaluator()
    for scene in side.parts[2]:
        goes_on, held = (Edited("occlude", 0, source).frames(scene) for source in ("truth", "held"))
        assert np.array_equal(goes_on[:, : scene.context], held[:, : scene.context])
        before = scene.frames_BTHW3[:, scene.context :]
        touched_BT = [(held[:, scene.context + k] != before[:, k]).any((1, 2, 3)) for k in range(before.shape[1])]
        assert np.array_equal(np.array(touched_BT), np.broadcast_to(touched_BT[0], np.shape(touched_BT)))


def test_the_agent_taken_out_is_chosen_by_the_context_alone(evaluator: Make) -> None:
    side = evaluator()
    scene = copy.copy(next(iter(side.parts[2])))
    start, seen_until = float(scene.times_BT[0, 0]), float(scene.times_BT[0, scene.context - 1])
    largest = removed_of(scene, ())
    other = next(agent for agent in seen_agents(scene, 0) if agent != largest)

    def depends(agent: int, first: float, last: float) -> Interaction:
        return Interaction(0, agent, first, last, "avoidance", 99.0)

    late = depends(other, math.ceil(seen_until), math.ceil(seen_until) + 3)
    assert removed_of(scene, (late,)) == largest, "what happens after the context has no say"
    early = depends(other, math.ceil(start), math.ceil(start) + 1)
    assert removed_of(scene, (early, late)) == other
    goes_on = depends(largest, math.ceil(start), math.ceil(seen_until) + 9)
    longer = [depends(other, math.ceil(start), math.ceil(start) + 2)] * 2
    assert removed_of(scene, (goes_on, *longer)) == other, "of what goes on, only the part in the context counts"


def removed_of(scene: Any, interactions: tuple[Interaction, ...]) -> int | None:
    """Whom the first clip loses if these were its interactions."""
    first, *rest = scene.known.truths
    truths = [dataclasses.replace(first, interactions=interactions), *rest]
    scene.known, scene._kept = dataclasses.replace(scene.known, truths=truths), {}
    return removed_agents(scene)[0]


def test_who_answers_a_constant_scores_as_its_formula_says(scored: Any, evaluator: Make) -> None:
    found = scored(constant)
    l1, mse = (means(found[name]) for name in ("future_l1", "future_mse"))
    assert (l1["alt/mse"], mse["alt/l1"]) == (mse["pooled"], l1["pooled"])
    assert l1["pooled"] != mse["pooled"]
    size = torch.cat([scene.target().abs().mean((1, 2)) for scene in evaluator().parts[2]]).mean().item()
    assert means(found["future_l1"])["pooled"] == pytest.approx(size, rel=1e-6)
    assert means(found["mask_slope"])["hidden_0.9"] == pytest.approx(size, rel=1e-6)
    assert means(found["mask_slope"])["pooled"] == pytest.approx(0, abs=1e-9)
    intervention = means(found["intervention_l1"])
    assert 0.9 < intervention["pooled"] < 1 > intervention["localised"] > 0.9
    assert intervention["magnitude"] == 0
    assert intervention["numerator"] == pytest.approx(intervention["denominator"])
    assert means(found["motion_cosine"])["pooled"] == pytest.approx(0, abs=1e-6)
    action, taxonomy = means(found["action_top1"]), means(found["taxonomy_f1"])
    assert action["pooled"] <= action["chance"], "one class for all, and at best the commonest"
    assert 0.9 < intervention["true_region"] < 1 > intervention["true_region_held"] > 0.9
    for name in {variant.split("/")[1] for variant in taxonomy.keys() - {"chance"}}:
        assert taxonomy[f"tp/{name}"] + taxonomy[f"fp/{name}"] == 1, "who knows nothing says yes"
    assert means(found["exposure_gap"])["pooled"] == 0 == means(found["frame_order"])["pooled"]
    assert means(found["exposure_gap"])["free"] == pytest.approx(size, rel=1e-6)
    drift = means(found["rollout_drift"])
    targets = torch.cat([scene.target(early=2) for scene in evaluator().parts[2]])
    sizes = targets.abs().reshape(len(targets), 4, -1).mean(2)
    assert [drift[f"q{q}"] for q in range(1, 5)] == pytest.approx(sizes.mean(0).tolist(), rel=1e-5)
    assert drift["pooled"] == pytest.approx(np.polyfit(range(1, 5), sizes.mean(0).numpy(), 1)[0], abs=1e-6)
    assert means(found["tcc_cycle_back"])["pooled"] == pytest.approx(0.75), "four alike, of half a second each"
    assert means(found["tcc_kendall_tau"])["pooled"] == 0
    chances = {name: means(found[name])["pooled"] for name in ("arrow_of_time", "temporal_order", "playback_pace")}
    assert list(chances.values()) == pytest.approx([1 / 2, 1 / 2, 1 / 3])
    position = means(found["position_readout"])
    assert position["still"] / 3 < position["pooled"] < 3 * position["still"]


def test_what_several_diagnostics_ask_is_predicted_once(evaluator: Make) -> None:
    side = evaluator(masks={"hidden": (0.0, 0.5), "realisations": 2})
    model = constant(side)
    measures = [one(side.settings) for one in DIAGNOSTICS]
    run_pass(subject(model), side, measures, lambda clips: None)
    expected = wanted = 0
    for scenes in side.parts:
        asks = [ask for one in measures for ask in one.asks(scenes.part) if isinstance(ask, Predict)]
        batches = len(list(scenes))
        expected, wanted = expected + batches * len(set(asks)), wanted + batches * len(asks)
    assert model.calls == expected < wanted


def test_an_evaluation_that_was_not_asked_for_is_refused(evaluator: Make) -> None:
    side = evaluator(clips=1)
    answers = Answers(subject(constant(side)), next(iter(side.parts[2])), [PLAIN])
    with pytest.raises(KeyError, match="was not asked"):
        answers[Predict(hidden=0.5)]


class _Broken(Diagnostic):
    info = DiagnosticInfo("broken", "", "", "lower", "", "secondary", "", "")

    def asks(self, part: Part) -> tuple[Predict, ...]:
        return (PLAIN,)

    def see(self, part: Part, scene: Any, answers: Answers) -> None:
        self.put(scene.clips, "pooled", torch.full((len(scene),), torch.nan), "there is nothing")


def test_a_value_that_is_not_a_number_is_no_score_but_a_reason(evaluator: Make) -> None:
    side = evaluator()
    one = _Broken(side.settings)
    run_pass(subject(constant(side)), side, [one], lambda clips: None)
    assert not one.found
    assert set(reasons(one)) == {"there is nothing"}


def labelled(count: int, seed: int, width: int = 12) -> tuple[Any, dict[str, torch.Tensor]]:
    """A scene of clips whose factors are independent random vectors."""
    random = torch.Generator().manual_seed(seed)
    factors = {name: torch.randn(count, width, generator=random) for name in PerFactor._fields}
    teacher = SimpleNamespace(
        retained_B3=torch.ones(count, 3, dtype=torch.bool), **{f"{name}_BW": value for name, value in factors.items()}
    )
    clips = tuple(SimpleNamespace(clip_id=f"{seed}/{number}") for number in range(count))
    return SimpleNamespace(clips=clips, known=SimpleNamespace(teacher=teacher)), factors


def shown(one: Diagnostic, predicted: Callable[[dict[str, torch.Tensor]], Predicted]) -> dict[str, float]:
    for role, count, seed in (("fit", 150, 1), ("choose", 30, 2), ("measure", 30, 3)):
        scene, factors = labelled(count, seed)
        one.see(Part(role, True, False), scene, cast(Answers, {PLAIN: predicted(factors)}))  # type: ignore[arg-type]
    one.finish()
    return means(one)


def test_channels_that_hold_their_own_factor_do_not_leak() -> None:
    def clean(factors: dict[str, torch.Tensor]) -> Predicted:
        channels = PerFactor(*(factors[name][:, None].repeat(1, 4, 1) for name in PerFactor._fields))
        return Predicted(torch.zeros(1), channels)

    found = shown(Leakage(EvaluateSettings()), clean)
    for k in PerFactor._fields:
        assert found[f"{k}->{k}"] < 0.01 * found[f"constant->{k}"]
        for other in set(PerFactor._fields) - {k}:
            assert found[f"{k}->{other}"] > 0.9 * found[f"constant->{other}"]


def test_a_channel_that_holds_everything_leaks_everything() -> None:
    def mixed(factors: dict[str, torch.Tensor]) -> Predicted:
        everything = torch.cat([factors[name] for name in PerFactor._fields], dim=1)[:, None]
        return Predicted(torch.zeros(1), PerFactor(everything, everything, everything))

    found = shown(Leakage(EvaluateSettings()), mixed)
    assert found["layout->agents"] == pytest.approx(found["agents->agents"])
    assert found["layout->agents"] < 0.02 * found["constant->agents"]


def test_depth_finds_the_block_where_a_factor_appears() -> None:
    def layered(factors: dict[str, torch.Tensor]) -> Predicted:
        noise = torch.randn(len(factors["layout"]), 12, generator=torch.Generator().manual_seed(9))
        return Predicted(torch.zeros(1), None, torch.stack([noise, factors["layout"], factors["agents"]]))

    found = shown(Depth(EvaluateSettings()), layered)

    def explained(factor: str, block: int) -> float:
        return 1 - found[f"error/{factor}/{block:02d}"] / found[f"total/{factor}/{block:02d}"]

    assert explained("layout", 2) > 0.99
    assert explained("agents", 3) > 0.99
    assert max(explained("layout", 1), explained("agents", 2), explained("interactions", 3)) < 0.1


def test_a_prediction_that_writes_down_where_agents_go_is_read(
    evaluator: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apart(scene: Any, b: int) -> dict[int, Any]:
        """Agents that share a token cannot be told apart: one of each."""
        _, rows, columns = scene.grid
        by_token = {(int(p[0] * columns), int(p[1] * rows)): (agent, rest) for agent, rest in
                    _agents(scene, b).items() for p in rest[:1]}  # fmt: skip
        return dict(by_token.values())

    monkeypatch.setattr(position_readout, "_agents", apart)
    side = evaluator()
    knows, none = PositionReadout(side.settings), PositionReadout(side.settings)
    scenes = side.parts[2]
    for scene in scenes:
        _, rows, columns = scene.grid
        tokens = torch.zeros(len(scene), 2, rows, columns, 4)
        for b in range(len(scene)):
            for place, displacement, _ in apart(scene, b).values():
                column, row = (int(np.clip(place[k] * columns, 0, columns - 1)) for k in (0, 1))
                tokens[b, 1, row, column, :2] = torch.from_numpy(displacement)
        for one, said in ((knows, tokens), (none, torch.zeros_like(tokens))):
            one.see(scenes.part, scene, cast(Answers, {PLAIN: Predicted(said.flatten(1, 3))}))
    knows.finish()
    none.finish()
    assert means(knows)["pooled"] < 0.3 * means(none)["pooled"]


def test_the_position_that_is_read_is_that_of_the_windows_last_frame(evaluator: Make) -> None:
    """Of whatever length the future is: one that is predicted from eight frames lasts two seconds."""
    agents = 0
    for scene in evaluator().parts[2]:
        early = SimpleNamespace(**{name: getattr(scene, name) for name in ("known", "times_BT", "settings")}, context=8)
        for b in range(len(scene)):
            truth, numbers = truth_of(scene, b), true_frames(scene, b)
            for agent, (place, displacement, steady) in _agents(cast(Any, early), b).items():
                now, last = (
                    next(row for row in truth.observations(numbers[t]) if truth.agent_ids[truth.agent[row]] == agent)
                    for t in (7, 15)
                )
                boxes = truth.box[[now, last]].reshape(2, 2, 2).mean(1) / truth.size
                np.testing.assert_allclose((place, displacement), (boxes[0], boxes[1] - boxes[0]), atol=1e-6)
                np.testing.assert_allclose(steady, 2.0 * truth.image_velocity[now] / truth.size, atol=1e-6)
                agents += 1
    assert agents


def test_clips_of_a_corpus_with_many_streets_are_simulated_again_as_they_were() -> None:
    plan = SimulationPlan(seed=7, clips=6, clips_per_source=2, world=WorldSettings(seconds=(1.0, 1.0), size=32))
    worlds = Worlds(plan)
    for spec in plan.specs():
        clip = SimpleNamespace(clip_id=spec.clip_id)
        assert worlds.of(clip).spec.clip_id == spec.clip_id  # type: ignore[arg-type]
