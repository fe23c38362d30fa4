"""Examples to look at: everyone's future of one clip, and what each channel carries."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from decoded_streets import decoded
from factorjepa.decoded import AGENTS, MOVING, STATIC, DecodedExample, read_all_decoded, write_decoded
from factorjepa.diagnostics.asks import PLAIN, Predicted
from factorjepa.diagnostics.evaluator import Evaluator
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.errors import RenderingError
from factorjepa.rendering import examples
from factorjepa.rendering.evaluation import Looking
from factorjepa.rendering.examples import influence_map, render, without_channel
from factorjepa.rendering.where import errors_by_region
from factorjepa.training.restore import restore
from factorjepa.training.run import RunDirectory
from factorjepa.verbs.decode import decode_app

from .test_decode_evaluation import CPU, subject


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_examples_hold_every_method_and_the_channels_of_ours(
    trained: Callable[..., Path], decoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        for errors in example.errors.values():
            assert sum(one.area for one in errors) == pytest.approx(1.0)
    before = {path: path.read_bytes() for path in (tmp_path / "decoded").rglob("*.*")}
    with monkeypatch.context() as patched:
        patched.setattr(examples, "write_gallery", full_disk)
        with pytest.raises(OSError, match="No space left"):
            render(runs[:2], tmp_path, Looking(decoder_folder), settings, CPU, 1)
    after = {path: path.read_bytes() for path in (tmp_path / "decoded").rglob("*.*")}
    assert after == before, "what was there stays until all that is new is written"
    render(runs[:2], tmp_path, Looking(decoder_folder), settings, CPU, 1)
    assert len(read_all_decoded(tmp_path)[0]) == 1, "pictures of an earlier rendering are replaced"


def test_pictures_of_another_decoder_or_split_are_replaced_only_on_demand(
    trained: Callable[..., Path], decoder_folder: Path, tmp_path: Path
) -> None:
    runs, settings = [trained("frozen")], EvaluateSettings(split="audit", clips=2)
    other = dataclasses.replace(decoded(), decoder="mini for nano, 0123456789abcdef", split="audit")
    kept = write_decoded(tmp_path / "decoded" / "00", other) / "frames.npz"
    before = kept.read_bytes()
    with pytest.raises(RenderingError, match="pictures of 1 clip of the audit split by mini for nano, 0123") as error:
        render(runs, tmp_path, Looking(decoder_folder), settings, CPU, 1)
    assert "--overwrite" in str(error.value)
    assert kept.read_bytes() == before
    render(runs, tmp_path, Looking(decoder_folder), settings, CPU, 1, overwrite=True)
    assert [one.decoder for one in read_all_decoded(tmp_path)[0]] != [other.decoder]
    common = ["--out", str(tmp_path), "--decoder", str(decoder_folder), "--clips", "2", "--count", "1"]
    again = CliRunner().invoke(
        decode_app, ["render", str(runs[0]), *common, "--split", "audit"], catch_exceptions=False
    )
    assert "1 clip to look at, in place of 1 clip drawn before" in again.output
    with pytest.raises(RenderingError, match="these would be of the validation split"):
        render(runs, tmp_path, Looking(decoder_folder), EvaluateSettings(split="validation", clips=2), CPU, 1)


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


@given(st.integers(0, 2**31), st.booleans())
def test_errors_of_the_regions_add_up_to_those_of_the_picture(seed: int, contour: bool) -> None:
    rng = np.random.default_rng(seed)
    seen, ideal, drawn = rng.integers(0, 256, (3, 2, 5, 6, 3), dtype=np.uint8)
    agents, moves = rng.random((2, 2, 5, 6)) < rng.random((2, 1, 1, 1))
    found = errors_by_region(seen, ideal, drawn, agents if contour else None, moves)
    assert sum(one.area for one in found) == pytest.approx(1.0)
    for frames, values in ((drawn, [one.predicted for one in found]), (ideal, [one.oracle for one in found])):
        whole = np.abs(frames.astype(float) - seen).mean() / 255
        assert sum(one.area * value for one, value in zip(found, values, strict=True)) == pytest.approx(whole)
    assert contour or AGENTS not in {one.region for one in found}


def test_an_error_lies_in_the_region_where_it_was_made() -> None:
    seen = np.full((1, 4, 4, 3), 100, np.uint8)
    drawn, agents, moves = seen.copy(), np.zeros((1, 4, 4), bool), np.zeros((1, 4, 4), bool)
    agents[:, 0], moves[:, :2] = True, True
    drawn[:, 3] = 151
    found = {one.region: (one.area, one.predicted) for one in errors_by_region(seen, seen, drawn, agents, moves)}
    assert found == {AGENTS: (0.25, 0.0), MOVING: (0.25, 0.0), STATIC: (0.5, pytest.approx(0.1))}
