"""The taxonomy on streets broken in one known way: the right cell must come out, and nothing from a whole street."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from factorjepa.detectors.boxes import Detections
from factorjepa.errors import RenderingError
from factorjepa.rendering.failure_settings import Attribution, FailureSettings, Symptom
from factorjepa.rendering.failures import Failure, attribute
from factorjepa.rendering.failures import find_failures as find_in
from factorjepa.rendering.metrics.lpips import Lpips
from factorjepa.rendering.pair import Future, Pair
from factorjepa.rendering.symptoms import Strength

SIDE, FRAMES, SIZE = 96, 4, (12, 18)


@dataclass(frozen=True)
class Body:
    """Somebody who walks: a patterned rectangle, in pixels."""

    colours: tuple[tuple[float, float, float], tuple[float, float, float]]  # upper and lower half
    place: tuple[float, float]  # of the centre in the context frame
    step: tuple[float, float]  # per frame

    def box(self, time: float) -> tuple[int, int, int, int]:
        left, top = (round(p + v * time - s / 2) for p, v, s in zip(self.place, self.step, SIZE, strict=True))
        return left, top, left + SIZE[0], top + SIZE[1]

    def look(self) -> np.ndarray:
        rng = np.random.default_rng([int(1000 * value) for colour in self.colours for value in colour])
        halves = np.repeat(np.array(self.colours, np.float32)[:, None], SIZE[1] // 2, axis=0)
        pattern = cv2.resize(rng.standard_normal((6, 4)).astype(np.float32), SIZE)
        return np.clip(halves + 0.25 * pattern[..., None], 0, 1)


@dataclass(frozen=True)
class Street:
    """A street over time. `when` is the moment that each of the frames shows the agents at."""

    bodies: tuple[Body, ...]
    shift: int = 0  # of the background, px
    hedge: int = 0  # px from the left: a blurred hedge stands at the lower edge, where nobody walks
    when: tuple[float, ...] = tuple(range(1, FRAMES + 1))

    def frames(self) -> Tensor:
        return torch.stack([self.picture(time) for time in self.when])

    def picture(self, time: float) -> Tensor:
        canvas = np.roll(background(), self.shift, axis=1).copy()
        canvas += hedge(self.hedge) * (np.array([0.05, 0.35, 0.05], np.float32) - canvas)
        for body in self.bodies:
            left, top, right, bottom = body.box(time)
            canvas[top:bottom, left:right] = body.look()
        return torch.from_numpy(canvas).permute(2, 0, 1)

    def seen(self) -> list[Detections]:
        result = []
        for time in self.when:
            boxes = np.array([body.box(time) for body in self.bodies], np.float64).reshape(-1, 4) / SIDE
            result.append(Detections(boxes, np.full(len(boxes), 0.9), np.zeros(len(boxes), np.int64)))
        return result


def background() -> np.ndarray:
    rng = np.random.default_rng(4)
    noise = [rng.random((cells, cells, 3)).astype(np.float32) for cells in (4, 12, 32)]
    layers = [cv2.resize(one, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC) for one in noise]
    return np.clip(0.5 * layers[0] + 0.3 * layers[1] + 0.2 * layers[2], 0, 1).astype(np.float32)


def hedge(width: int) -> np.ndarray:
    """1 inside, 0 outside, and no edge between: what is blurred has none."""
    inside = np.zeros((SIDE, SIDE), np.float32)
    inside[78:, :width] = 1.0
    return cv2.GaussianBlur(inside, (0, 0), 3.0)[..., None]


RED, GREEN, BLUE, WHITE, BLACK = (0.9, 0.1, 0.1), (0.1, 0.8, 0.2), (0.1, 0.2, 0.9), (0.9, 0.9, 0.9), (0.1, 0.1, 0.1)
YELLOW, CYAN, PURPLE = (0.95, 0.9, 0.1), (0.1, 0.9, 0.9), (0.6, 0.1, 0.7)
ANNA = Body((RED, BLACK), (14, 24), (5, 0))
BELA = Body((CYAN, WHITE), (27, 25), (5, 0))
CARL = Body((YELLOW, GREEN), (78, 66), (-5, 0))
DORA = Body((BLUE, PURPLE), (65, 67), (-5, 0))
WHOLE = Street((ANNA, BELA, CARL, DORA))


def without(*gone: Body) -> Street:
    return Street(tuple(body for body in WHOLE.bodies if body not in gone))


def also(*more: Body) -> Street:
    return Street((*WHOLE.bodies, *more))


def instead(**changes: Body) -> Street:
    named = {"anna": ANNA, "bela": BELA, "carl": CARL, "dora": DORA} | changes
    return Street(tuple(named.values()))


def moved(body: Body, x: float, y: float) -> Body:
    return dataclasses.replace(body, place=(body.place[0] + x, body.place[1] + y))


def dressed(body: Body) -> Body:
    other = {RED: GREEN, BLACK: WHITE, CYAN: RED, WHITE: BLACK, YELLOW: PURPLE, GREEN: RED, BLUE: YELLOW, PURPLE: WHITE}
    return dataclasses.replace(body, colours=tuple(other[colour] for colour in body.colours))


def slowed(share: float) -> Street:
    return dataclasses.replace(WHOLE, when=tuple(share * time for time in WHOLE.when))


def swapped(*pairs: tuple[str, str]) -> Street:
    named = {"anna": ANNA, "bela": BELA, "carl": CARL, "dora": DORA}
    changed = dict(named)
    for one, other in pairs:
        changed[one] = dataclasses.replace(named[one], place=named[other].place)
        changed[other] = dataclasses.replace(named[other], place=named[one].place)
    return instead(**changed)


STRANGER = Body((WHITE, RED), (48, 40), (0, 0))
GHOST = Body((BLACK, YELLOW), (20, 78), (0, 0))
# symptom: broken in one way, and broken more
BROKEN: dict[Symptom, tuple[Street, Street]] = {
    Symptom.LAYOUT_DRIFT: (dataclasses.replace(WHOLE, shift=3), dataclasses.replace(WHOLE, shift=7)),
    Symptom.AGENT_OMISSION: (without(CARL), without(CARL, ANNA)),
    Symptom.AGENT_DUPLICATION: (also(moved(CARL, 2, -20)), also(moved(CARL, 2, -20), moved(ANNA, -2, 20))),
    Symptom.INTERACTION_INCONSISTENCY: (swapped(("anna", "bela")), swapped(("anna", "bela"), ("carl", "dora"))),
    Symptom.MOTION_UNDER_DISPERSION: (slowed(0.3), slowed(0.0)),
    Symptom.APPEARANCE_SUBSTITUTION: (instead(carl=dressed(CARL)), instead(carl=dressed(CARL), anna=dressed(ANNA))),
    Symptom.UNSUPPORTED_CONTENT: (also(STRANGER), also(STRANGER, GHOST)),
    Symptom.SCENERY_SUBSTITUTION: (dataclasses.replace(WHOLE, hedge=56), dataclasses.replace(WHOLE, hedge=96)),
}
CASES: dict[Attribution, Callable[[Street, Street], tuple[Street, Street]]] = {
    Attribution.PREDICTION_CONDITIONED: lambda less, more: (WHOLE, less),
    Attribution.ORACLE_PRESENT: lambda less, more: (less, less),
    Attribution.MIXED: lambda less, more: (less, more),
}


@dataclass(frozen=True)
class Triplet:
    """X, O and P of one clip, and who is seen in each."""

    context_3HW: Tensor
    observed_T3HW: Tensor
    oracle_T3HW: Tensor
    predicted_T3HW: Tensor
    agents_observed: Sequence[Detections]
    agents_oracle: Sequence[Detections]
    agents_predicted: Sequence[Detections]


def find_failures(one: Triplet, lpips: Lpips | None = None) -> list[Failure]:
    observed, oracle = Future(one.observed_T3HW, one.agents_observed), Future(one.oracle_T3HW, one.agents_oracle)
    pair = Pair(one.context_3HW, observed, oracle)
    return find_in(pair, pair.read(Future(one.predicted_T3HW, one.agents_predicted)), lpips)


def triplet(oracle: Street, predicted: Street) -> Triplet:
    x, o, p = WHOLE.frames(), oracle.frames(), predicted.frames()
    return Triplet(WHOLE.picture(0), x, o, p, WHOLE.seen(), oracle.seen(), predicted.seen())


def softened(whole: Triplet, blur: float, shake: float) -> Triplet:
    """As a fair decoder draws it: blurred, and with boxes that are not exact."""
    rng = np.random.default_rng(0)

    def drawn(frames: Tensor) -> Tensor:
        pictures = frames.permute(0, 2, 3, 1).numpy()
        soft = np.stack([cv2.GaussianBlur(np.ascontiguousarray(one), (0, 0), blur) for one in pictures])
        return torch.from_numpy(soft).permute(0, 3, 1, 2)

    def shaken(found: Sequence[Detections]) -> list[Detections]:
        return [
            dataclasses.replace(one, boxes=one.boxes + rng.normal(0, shake / SIDE, one.boxes.shape)) for one in found
        ]

    return dataclasses.replace(
        whole,
        oracle_T3HW=drawn(whole.oracle_T3HW),
        predicted_T3HW=drawn(whole.predicted_T3HW),
        agents_oracle=shaken(whole.agents_oracle),
        agents_predicted=shaken(whole.agents_predicted),
    )


@pytest.mark.parametrize("attribution", list(CASES))
@pytest.mark.parametrize("symptom", list(BROKEN))
def test_a_street_broken_in_one_way_lands_in_its_cell_of_the_table(symptom: Symptom, attribution: Attribution) -> None:
    found = find_failures(triplet(*CASES[attribution](*BROKEN[symptom])))
    assert [(one.symptom, one.attribution) for one in found] == [(symptom, attribution)]


@pytest.mark.parametrize(("oracle", "predicted", "attribution"), [
    (0.5, 2.5, Attribution.PREDICTION_CONDITIONED), (2.5, 2.5, Attribution.ORACLE_PRESENT),
    (2.0, 4.0, Attribution.MIXED), (2.5, 0.5, None),
])  # fmt: skip
def test_scenery_that_is_blurred_has_lost_its_detail_even_where_nobody_walks(
    oracle: float, predicted: float, attribution: Attribution | None
) -> None:
    empty = Street(())
    nobody = dataclasses.replace(triplet(empty, empty), observed_T3HW=empty.frames(), agents_observed=empty.seen())
    drawn = dataclasses.replace(
        nobody,
        oracle_T3HW=softened(nobody, oracle, 0).oracle_T3HW,
        predicted_T3HW=softened(nobody, predicted, 0).predicted_T3HW,
    )
    found = [(one.symptom, one.attribution) for one in find_failures(drawn)]
    assert found == ([(Symptom.LOST_DETAIL, attribution)] if attribution else [])


def test_a_pattern_of_the_decoders_own_keeps_no_detail() -> None:
    empty = Street(())
    nobody = dataclasses.replace(triplet(empty, empty), observed_T3HW=empty.frames(), agents_observed=empty.seen())
    flat = softened(nobody, 4.0, 0).predicted_T3HW
    waves = 0.06 * torch.sin(torch.arange(SIDE) * 1.1)  # as much gradient as the street has
    found = find_failures(dataclasses.replace(nobody, predicted_T3HW=(flat + waves).clamp(0, 1)))
    (lost,) = [one for one in found if one.symptom is Symptom.LOST_DETAIL]
    assert lost.evidence["static scene's edges kept, predicted"] < 0.35
    assert lost.evidence["static scene's edges kept, oracle"] == pytest.approx(1.0, abs=0.02)


def test_an_unbroken_street_has_no_failure() -> None:
    assert find_failures(triplet(WHOLE, WHOLE)) == []


def test_a_slightly_soft_street_with_inexact_boxes_has_no_failure() -> None:
    assert find_failures(softened(triplet(WHOLE, WHOLE), blur=0.8, shake=0.6)) == []


def test_a_known_failure_is_found_in_a_soft_picture_as_well() -> None:
    found = find_failures(softened(triplet(WHOLE, without(CARL)), blur=0.8, shake=0.6))
    cells = [(one.symptom, one.attribution) for one in found]
    assert cells == [(Symptom.AGENT_OMISSION, Attribution.PREDICTION_CONDITIONED)]


def test_agents_that_melt_are_under_dispersed_in_whoever_melts_them() -> None:
    agents, scenery = find_failures(softened(triplet(WHOLE, WHOLE), blur=4.0, shake=0.0))
    assert (agents.symptom, agents.attribution) == (Symptom.MOTION_UNDER_DISPERSION, Attribution.ORACLE_PRESENT)
    assert agents.evidence["sharpness ratio of agents found again, predicted"] < 0.4
    assert (scenery.symptom, scenery.attribution) == (Symptom.LOST_DETAIL, Attribution.ORACLE_PRESENT)


def smeared(strength: float) -> Tensor:
    """The street with a grey smear where Carl is, so strong of a plain grey body."""
    frames = without(CARL).frames()
    for frame, time in zip(frames, WHOLE.when, strict=True):
        left, top, right, bottom = CARL.box(time)
        place = frame[:, top:bottom, left:right]
        around = frame[:, top - 8 : bottom + 8, left - 5 : left].mean(dim=(1, 2))[:, None, None]
        place.copy_(around + strength * (0.2 - around) + 0.1 * (place - around))
    return frames


@pytest.mark.parametrize(("in_oracle", "attribution"), [
    (False, Attribution.PREDICTION_CONDITIONED), (True, Attribution.ORACLE_PRESENT),
])  # fmt: skip
def test_a_faint_smear_in_the_place_of_an_agent_is_not_the_agent_nor_a_new_one(
    in_oracle: bool, attribution: Attribution
) -> None:
    whole = dataclasses.replace(triplet(WHOLE, WHOLE), predicted_T3HW=smeared(0.15))  # the detector falls for it
    if in_oracle:
        whole = dataclasses.replace(whole, oracle_T3HW=smeared(0.15))
    found = find_failures(whole)
    assert [(one.symptom, one.attribution) for one in found] == [(Symptom.AGENT_OMISSION, attribution)]


def test_somebody_grey_who_stands_out_is_still_somebody() -> None:
    (found,) = find_failures(dataclasses.replace(triplet(WHOLE, WHOLE), predicted_T3HW=smeared(1.0)))
    assert found.symptom is Symptom.APPEARANCE_SUBSTITUTION


def test_an_agent_in_a_loose_box_has_not_faded() -> None:
    whole = triplet(WHOLE, instead(carl=dressed(CARL)))
    for one in whole.agents_predicted:
        box = one.boxes[2]
        box += np.tile(box[2:] - box[:2], 2) * np.array([-0.3, -0.3, 0.3, 0.3])
    (found,) = find_failures(whole)
    assert found.symptom is Symptom.APPEARANCE_SUBSTITUTION


@pytest.mark.parametrize(("there", "said"), [((ANNA,), False), ((ANNA, BELA), True)])
@pytest.mark.parametrize("melted", [False, True], ids=["still", "melted"])
def test_one_agent_that_is_found_again_does_not_say_how_a_future_moves(
    there: tuple[Body, ...], said: bool, melted: bool
) -> None:
    drawn = triplet(WHOLE, Street(there, when=WHOLE.when if melted else (0.0,) * FRAMES))
    if melted:
        drawn = dataclasses.replace(drawn, predicted_T3HW=softened(drawn, 4.0, 0).predicted_T3HW)
    found = [one.symptom for one in find_failures(drawn)]
    assert Symptom.AGENT_OMISSION in found
    assert (Symptom.MOTION_UNDER_DISPERSION in found) == said


def test_one_agent_that_moves_says_nothing_for_one_that_stands() -> None:
    """The second is found again and has no motion to lose."""
    eve = Body((GREEN, YELLOW), (20, 70), (0, 0))
    before = Street((ANNA, eve))
    still = dataclasses.replace(before, when=(0.0,) * FRAMES)
    whole = Triplet(before.picture(0), *(before.frames(),) * 2, still.frames(), *(before.seen(),) * 2, still.seen())
    assert Symptom.MOTION_UNDER_DISPERSION not in [one.symptom for one in find_failures(whole)]


def test_what_the_oracle_alone_gets_wrong_is_no_failure_of_the_prediction() -> None:
    assert find_failures(triplet(without(CARL), WHOLE)) == []


def test_another_missing_agent_than_the_oracles_belongs_to_the_prediction() -> None:
    (found,) = find_failures(triplet(without(CARL), without(ANNA)))
    assert (found.symptom, found.attribution) == (Symptom.AGENT_OMISSION, Attribution.PREDICTION_CONDITIONED)
    assert (found.oracle, found.shared) == (found.predicted, 0)


def test_an_edge_from_nowhere_is_unsupported_content_without_any_detector() -> None:
    whole = triplet(WHOLE, WHOLE)
    drawn = whole.predicted_T3HW.clone()
    drawn[:, :, 36:54, 40:60] = torch.tensor([[0.0, 0.0, 1.0, 1.0] * 5]).repeat(18, 1)
    (found,) = find_failures(dataclasses.replace(whole, predicted_T3HW=drawn))
    assert (found.symptom, found.attribution) == (Symptom.UNSUPPORTED_CONTENT, Attribution.PREDICTION_CONDITIONED)


def test_evidence_holds_the_three_errors_and_they_obey_the_triangle() -> None:
    less, more = BROKEN[Symptom.LAYOUT_DRIFT]
    (found,) = find_failures(triplet(less, more))
    assert 0 < found.evidence["E_e2e"] <= found.evidence["G_visible"] + found.evidence["E_oracle"] + 1e-6
    assert found.evidence["background flow, predicted"] > found.evidence["background flow, oracle"] > 0.012


def test_lpips_adds_evidence_and_decides_nothing() -> None:
    torch.manual_seed(0)
    one = triplet(WHOLE, BROKEN[Symptom.APPEARANCE_SUBSTITUTION][0])
    (plain,), (told,) = find_failures(one), find_failures(one, lpips=Lpips().requires_grad_(False))
    assert (plain.symptom, plain.attribution) == (told.symptom, told.attribution)
    more = told.evidence.keys() - plain.evidence.keys()
    assert more == {"agent-crop LPIPS, oracle", "agent-crop LPIPS, predicted"}
    assert told.evidence["agent-crop LPIPS, oracle"] == 0


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 1))
def test_every_symptom_that_is_there_has_one_attribution(predicted: float, oracle: float, part: float) -> None:
    found = attribute(Strength(predicted, oracle, part * predicted), FailureSettings())
    assert (found is None) == (predicted < 1)
    if found is not None and part == 0:
        assert found is Attribution.PREDICTION_CONDITIONED
    if found is not None and part == 1:
        assert found is Attribution.ORACLE_PRESENT


@pytest.mark.parametrize(("predicted", "oracle", "shared", "wanted"), [
    (10.0, 0.7, 0.7, Attribution.PREDICTION_CONDITIONED),  # O loses one of many, which is no symptom
    (10.0, 2.0, 2.0, Attribution.MIXED),
    (10.0, 9.0, 0.1, Attribution.PREDICTION_CONDITIONED),  # O fails as well, elsewhere
    (1.1, 0.9, 0.9, Attribution.ORACLE_PRESENT),
])  # fmt: skip
def test_the_oracle_shares_the_blame_only_for_what_it_shows(
    predicted: float, oracle: float, shared: float, wanted: Attribution
) -> None:
    assert attribute(Strength(predicted, oracle, shared), FailureSettings()) is wanted


def test_frames_and_agents_must_belong_together() -> None:
    whole = triplet(WHOLE, WHOLE)
    with pytest.raises(RenderingError, match="agents of 3 predicted frames"):
        find_failures(dataclasses.replace(whole, agents_predicted=whole.agents_predicted[:3]))
    with pytest.raises(RenderingError, match="oracle frames are"):
        find_failures(dataclasses.replace(whole, oracle_T3HW=whole.oracle_T3HW[:3]))
