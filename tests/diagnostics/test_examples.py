"""Examples to look at: chosen by rank, true to the scores, with questions whose probe can be told right from wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from factorjepa.diagnostics.evaluation import evaluate
from factorjepa.diagnostics.examples import Head, make_examples, query_token
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.examples import read_examples

from .conftest import CPU


def test_examples_agree_with_the_scores_and_come_hardest_first(trained: Callable[..., Path], tmp_path: Path) -> None:
    runs = [trained("frozen"), trained("factorjepa")]
    settings = EvaluateSettings(split="audit", diagnostics=("future_l1",))
    scores = evaluate(runs, tmp_path, settings, CPU).scores
    make_examples(runs, tmp_path, settings, CPU, 3)
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
        assert len(example.questions) == 2
        for question in example.questions:
            assert set(question.answers) == {"Frozen V-JEPA", "FactorJEPA"}
            assert all(sum(shares) == pytest.approx(1.0) for shares in question.answers.values())
    assert hardest == sorted(hardest, reverse=True)


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
