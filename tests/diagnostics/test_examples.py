"""Examples to look at: chosen by rank, true to the scores, with questions whose answers are clear."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from corpus.clips import make_clip
from factorjepa.diagnostics.evaluation import evaluate
from factorjepa.diagnostics.examples import make_examples, query_token
from factorjepa.diagnostics.pooled import Pool
from factorjepa.diagnostics.questions import TOPICS, UNCLEAR, Head, motion_of, questions
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.errors import StorageError
from factorjepa.examples import read_examples
from factorjepa.storage import only_writer

from .conftest import CPU

SPEED, SIDE = TOPICS


def test_examples_agree_with_the_scores_and_come_hardest_first(trained: Callable[..., Path], tmp_path: Path) -> None:
    runs = [trained("frozen"), trained("factorjepa")]
    settings = EvaluateSettings(split="audit", diagnostics=("future_l1",))
    scores = evaluate(runs, tmp_path, settings, CPU).scores
    said: list[tuple[int, int]] = []
    make_examples(runs, tmp_path, settings, CPU, 3, progress=lambda done, total: said.append((done, total)))
    assert said[-1][0] == said[-1][1] == max(done for done, _ in said)
    found, problems = read_examples(tmp_path)
    assert (len(found), problems) == (3, [])
    hardest: list[float] = []
    for example in found:
        for method in ("frozen", "factorjepa"):
            row = scores.select(method=method, diagnostic="future_l1", variant="pooled", clip_id=example.clip_id)
            assert example.errors[method].mean() == pytest.approx(row.columns()["value"][0], rel=1e-4)
        hardest.append(float(example.errors["factorjepa"].mean()))
        assert example.query is not None
        assert example.similarities["target"][example.query] == pytest.approx(1.0, abs=1e-4)
        for question in example.questions:
            assert set(question.answers) == {"Frozen V-JEPA", "FactorJEPA"}
            assert all(sum(shares) == pytest.approx(1.0) for shares in question.answers.values())
            assert "optical flow" in question.measured
    assert hardest == sorted(hardest, reverse=True)
    with only_writer(tmp_path, "evaluating"), pytest.raises(StorageError, match="another process is evaluating"):
        make_examples(runs, tmp_path, settings, CPU, 3)
    assert len(read_examples(tmp_path)[0]) == 3, "those that are there stay"


def street(*movers: tuple[float, int], noise: float = 0.0) -> NDArray[np.float32]:
    """Four flows of a picture in which square areas move sideways, by sides per frame."""
    motion = noise * np.random.default_rng(0).normal(size=(4, 32, 32, 2)).astype(np.float32)
    for row, (speed, side) in enumerate(movers):
        motion[:, 8 * row : 8 * row + side, 4 : 4 + side, 0] += speed
    return motion


def side_of(motion: NDArray[np.float32]) -> int:
    measured = motion_of(motion)[None]
    return int(SIDE.labels(measured, measured)[0])


def test_a_side_is_asked_about_only_where_motion_clearly_has_one() -> None:
    assert side_of(street((0.02, 8))) == 2
    assert side_of(street((-0.02, 8), noise=0.0005)) == 0
    assert side_of(street((0.02, 8), (-0.02, 8))) == 1
    assert side_of(street((0.02, 8), (-0.02, 5))) == UNCLEAR, "between a side and none"
    assert side_of(street(noise=0.0005)) == UNCLEAR, "noise goes nowhere: nothing is asked, and no side is made up"
    turned = street((0.02, 8))
    turned[2:] *= -0.2
    assert side_of(turned) == UNCLEAR, "the halves of the future disagree"


def test_speeds_near_the_border_of_two_classes_are_not_asked_about() -> None:
    training = np.zeros((100, 4))
    training[:, 0] = np.linspace(0, 1, 100)
    asked = np.array([[0.1, 0, 0, 0], [0.3, 0, 0, 0], [0.5, 0, 0, 0], [0.66, 0, 0, 0], [0.9, 0, 0, 0]])
    assert SPEED.labels(asked, training).tolist() == [0, UNCLEAR, 1, UNCLEAR, 2]
    assert "25 %" in SPEED.how(asked[0], training)


def test_clips_without_a_clear_answer_are_neither_asked_nor_fitted_on() -> None:
    def pool(balances: list[float]) -> Pool:
        made = Pool()
        motion = np.array([[0.01, one, one, one] for one in balances])
        clips = [dataclasses.replace(make_clip(0), clip_id=str(number)) for number in range(len(balances))]
        made.add(clips, torch.from_numpy(motion[:, 1:2]), motion)
        return made

    pools = {"x": {"fit": pool([-0.9, 0.9] * 4 + [0.4]), "choose": pool([-0.8, 0.8]), "measure": pool([0.9, 0.4])}}
    found = questions(pools, {"0", "1"}, (0.01, 1.0))
    assert set(found) == {"0"}
    (asked,) = [one for one in found["0"] if one.question == SIDE.question]
    assert asked.right == 2
    assert np.argmax(asked.answers["x"]) == 2
    assert "90 % of all motion goes to the right" in asked.measured


def test_a_head_reads_what_is_there_and_doubts_what_is_not() -> None:
    generator = np.random.default_rng(0)
    x, noise = generator.normal(size=(240, 5)), generator.normal(size=(240, 5))
    label = np.digitize(x[:, 2], np.quantile(x[:, 2], (1 / 3, 2 / 3)))
    knows, guesses = (
        Head.fit(f[:120], label[:120], f[120:180], label[120:180], (0.001, 0.1, 10.0)) for f in (x, noise)
    )
    assert (knows(x[180:]).argmax(1) == label[180:]).mean() > 0.85
    assert guesses(noise[180:]).max() < 0.6  # a strong penalty was chosen: near a third each


def test_the_query_is_unusual_and_on_an_agent_where_one_is_known() -> None:
    tokens = np.ones((8, 3), np.float32)
    tokens[6] = (-1, 1, 0)
    assert query_token(tokens, None, 4) == 6
    marked = np.zeros(8, bool)
    marked[[1, 5]] = True
    assert query_token(tokens, marked, 4) == 5
