"""Examples to look at: everyone's future of one clip, and what each channel carries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from factorjepa.decoded import DecodedExample, read_all_decoded
from factorjepa.diagnostics.asks import PLAIN, Predicted
from factorjepa.diagnostics.evaluator import Evaluator
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.errors import RenderingError
from factorjepa.rendering.evaluation import Looking
from factorjepa.rendering.examples import influence_map, render, without_channel
from factorjepa.training.restore import restore
from factorjepa.training.run import RunDirectory

from .test_decode_evaluation import CPU, subject


def test_examples_hold_every_method_and_the_channels_of_ours(
    trained: Callable[..., Path], decoder_folder: Path, tmp_path: Path
) -> None:
    runs = [trained("factorjepa"), trained("frozen"), trained("factorjepa_raw")]
    settings = EvaluateSettings(split="audit", clips=4)
    render(runs, tmp_path, Looking(decoder_folder), settings, CPU, 2)
    found, problems = read_all_decoded(tmp_path)
    assert not problems
    assert len(found) == 2
    for example in found:
        assert list(example.methods) == ["frozen", "factorjepa_raw", "factorjepa"], "the paper's columns"
        assert example.removed_from == "factorjepa"
        assert set(example.without) == set(example.influence) == {"L", "A", "I"}
        assert example.seconds == pytest.approx((0.25, 0.5, 0.75, 1.0))
        assert example.agents_THW is not None
        assert example.agents_THW.shape == example.observed_THW3.shape[:3]
        for values in example.influence.values():
            sums = values.sum((1, 2))
            assert ((np.abs(sums - 1) < 1e-3) | (sums < 1e-6)).all(), "shares of the change, or no change at all"
    render(runs[:2], tmp_path, Looking(decoder_folder), settings, CPU, 1)
    assert len(read_all_decoded(tmp_path)[0]) == 1, "pictures of an earlier rendering are gone"


def test_the_channels_left_out_one_by_one_add_up_to_the_prediction(
    trained: Callable[..., Path], evaluator: Callable[..., Evaluator]
) -> None:
    scene = next(iter(evaluator(clips=2).parts[2]))
    learner = restore(RunDirectory.existing(trained("factorjepa")), CPU).learner
    predicted = PLAIN.answer(subject(learner), scene)
    left = sum(predicted.tokens_BtD - without_channel(predicted, k) for k in "LAI")
    torch.testing.assert_close(left, predicted.tokens_BtD, atol=1e-4, rtol=0)
    with pytest.raises(RenderingError, match="has no channels"):
        without_channel(Predicted(predicted.tokens_BtD), "L")


def test_an_influence_map_is_where_the_picture_changes() -> None:
    full = torch.zeros(2, 3, 4, 4)
    without = full.clone()
    without[0, :, 1, 2] = 0.5
    influence = influence_map(full, without)
    assert influence[0, 1, 2] == pytest.approx(1.0)
    assert influence.sum() == pytest.approx(1.0), "nothing changes in the second frame"


def test_a_channel_that_changes_nothing_says_so() -> None:
    frames = np.zeros((1, 4, 4, 3), np.uint8)
    example = DecodedExample(
        "a", (1.0,), frames[0], frames, frames, {"factorjepa": frames}, {}, "factorjepa",
        {"L": frames + 51, "A": frames},
    )  # fmt: skip
    assert example.changes().endswith("layout 20.0 %, agents 0.0 %.")
