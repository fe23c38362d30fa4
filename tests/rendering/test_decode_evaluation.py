"""Decoded scores: known answers of an oracle and a constant, no look into the future, and the whole way to a table."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from diagnostics.fakes import constant, oracle, subject
from diagnostics.test_leaks import with_another_future
from factorjepa.corpus.splits import Split
from factorjepa.decoded import DECODER
from factorjepa.detectors.boxes import Detections
from factorjepa.diagnostics.asks import Answers
from factorjepa.diagnostics.evaluation import evaluate, run_pass
from factorjepa.diagnostics.evaluator import Evaluator
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.errors import DiagnosticsError, RenderingError
from factorjepa.pixels import Frames
from factorjepa.rendering import drawn, failing
from factorjepa.rendering.decoder import StoredDecoder
from factorjepa.rendering.diagnostics import DecodedPsnr, refuse_broken_triangle
from factorjepa.rendering.drawn import Rendered, Studio
from factorjepa.rendering.evaluation import DECODED, Looking, evaluate_decoded
from factorjepa.rendering.failing import DecodedFailures
from factorjepa.rendering.metrics.lpips import Lpips
from factorjepa.rendering.pair import Pair
from factorjepa.scores import Scores
from factorjepa.statistics import CompareSettings, compare
from factorjepa.teacher.making import make_packets
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.training.restore import restore
from factorjepa.training.run import RunDirectory
from factorjepa.verbs.decode import decode_app

CPU = torch.device("cpu")
Values = dict[tuple[str, str], dict[str, float]]  # diagnostic and variant -> clip -> value


class Brightest:
    """Finds one agent in every frame: around the brightest pixel."""

    name = "the brightest pixel"

    def __call__(self, frames: Frames) -> list[Detections]:
        found = []
        for frame in frames:
            y, x = np.unravel_index(frame.sum(-1).argmax(), frame.shape[:2])
            box = np.array([[x - 6, y - 6, x + 7, y + 7]], float) / frame.shape[0]
            found.append(Detections(box.clip(0, 1), np.ones(1), np.zeros(1, np.int64)))
        return found


@pytest.fixture
def studio(stored: StoredDecoder) -> Studio:
    return Studio(stored, None, Brightest())


def scores_of(model: object, side: Evaluator, studio: Studio) -> Values:
    measures = [one(side.settings, studio) for one in DECODED]
    run_pass(subject(model), side, measures, lambda clips: None)
    values: Values = defaultdict(dict)
    for one in measures:
        for found in one.found:
            values[one.info.name, found.variant][found.clip.clip_id] = found.value
    return values


def test_who_knows_the_future_draws_what_the_oracle_draws(evaluator: Callable[..., Evaluator], studio: Studio) -> None:
    side = evaluator(clips=3)
    values = scores_of(oracle(side), side, studio)
    for name in ("decoded_l1", "decoded_psnr", "decoded_ssim", "decoded_flow_epe", "decoded_agent_f1"):
        assert values[name, "pooled"] == values[name, "oracle"]
        assert set(values[name, "deficit"].values()) == {0.0}
    for name in ("decoded_l1", "decoded_flow_epe"):
        assert set(values[name, "gap"].values()) == {0.0}
    assert values["decoded_flow_epe", "magnitude"] == values["decoded_flow_epe", "magnitude/oracle"]
    assert not any(values["decoded_failures", "any/prediction_conditioned"].values())


def test_the_last_frame_again_moves_nothing_and_every_frame_has_its_horizon(
    evaluator: Callable[..., Evaluator], studio: Studio
) -> None:
    side = evaluator(clips=3)
    values = scores_of(constant(side), side, studio)
    (scene,) = side.parts[2]
    for b, clip in enumerate(scene.clips):
        last, future = scene.frames_BTHW3[b, 11] / 255, scene.frames_BTHW3[b, 12:] / 255
        assert values["decoded_l1", "copy"][clip.clip_id] == pytest.approx(np.abs(future - last).mean(), abs=1e-6)
        motion = drawn.observed(scene, studio).flow_BTss2[b]
        assert values["decoded_flow_epe", "copy"][clip.clip_id] == pytest.approx(
            np.linalg.norm(motion, axis=-1).mean(), rel=1e-4
        )
        horizons = [values["decoded_l1", f"h{k}"][clip.clip_id] for k in (1, 2, 3, 4)]
        assert values["decoded_l1", "pooled"][clip.clip_id] == pytest.approx(np.mean(horizons), abs=1e-6)
    assert ("decoded_l1", "h5") not in values
    assert ("decoded_agent_f1", "truth") in values, "audit clips have ground truth"


def test_what_every_method_shares_is_read_once_for_all_of_them(
    evaluator: Callable[..., Evaluator], studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Counted(Pair):
        def __init__(self, *given: Any) -> None:
            made.append(given)
            super().__init__(*given)

    monkeypatch.setattr(failing, "Pair", Counted)
    side = evaluator(clips=3)
    for model in (oracle(side), constant(side)):
        run_pass(subject(model), side, [DecodedFailures(side.settings, studio)], lambda clips: None)
    assert len(made) == 3


def test_end_to_end_error_stays_below_gap_plus_oracle(evaluator: Callable[..., Evaluator], studio: Studio) -> None:
    side = evaluator(clips=3)
    values = scores_of(constant(side), side, studio)
    whole, gap, best = (values["decoded_l1", variant] for variant in ("pooled", "gap", "oracle"))
    assert all(whole[clip] <= gap[clip] + best[clip] + 1e-6 for clip in whole)
    assert all(gap[clip] > 0 for clip in gap)
    with pytest.raises(RenderingError, match="do not belong together"):
        refuse_broken_triangle(torch.tensor([0.1, 0.5]), torch.tensor([0.1, 0.1]), torch.tensor([0.1, 0.1]))


def test_what_nobody_gave_is_not_available(evaluator: Callable[..., Evaluator], stored: StoredDecoder) -> None:
    side, blind = evaluator(clips=2), Studio(stored)
    measures = [one(side.settings, blind) for one in DECODED]
    run_pass(subject(constant(side)), side, measures, lambda clips: None)
    lacking = {one.info.name: [lack.reason for lack in one.missing] for one in measures if not one.found}
    assert lacking == {
        "decoded_lpips": ["no weights of LPIPS were given: add --lpips PATH (lpips=PATH of a study)"],
        "decoded_agent_f1": ["no agent detector was given: add --detector PATH"],
        "decoded_failures": ["no agent detector was given: add --detector PATH"],
    }
    assert blind.identity()["LPIPS"] == "not available"


@pytest.mark.parametrize("family", ["frozen", "factorjepa"])
def test_the_future_changes_no_drawn_prediction(
    family: str, trained: Callable[..., Path], evaluator: Callable[..., Evaluator], studio: Studio
) -> None:
    scene = next(iter(evaluator(clips=2).parts[2]))
    learner = restore(RunDirectory.existing(trained(family)), CPU).learner
    ask = Rendered(studio)
    one, other = (Answers(subject(learner), some, (ask,))[ask] for some in (scene, with_another_future(scene)))
    assert np.array_equal(one.frames_BTHW3, other.frames_BTHW3)


def test_runs_become_scores_that_the_statistics_take(
    trained: Callable[..., Path], decoder_folder: Path, streets: Path, tmp_path: Path
) -> None:
    runs = [trained("frozen"), trained("factorjepa")]
    settings = EvaluateSettings(split="audit", clips=4)
    looking = Looking(decoder_folder)
    made = evaluate_decoded(runs, tmp_path, looking, settings, CPU)
    assert not made.failed
    read = Scores.read(tmp_path / "decoded")
    assert set(read.values("method")) == {"frozen", "factorjepa"}
    assert read.evaluator["decoder"].startswith("mini for file, ")
    comparison = compare(read, CompareSettings(replicates=200, mixed="none"))
    shown = {(row.diagnostic, row.variant) for row in comparison.scores}
    assert {("decoded_psnr", "pooled"), ("decoded_psnr", "oracle"), ("decoded_l1", "gap")} <= shown
    contract = json.loads((tmp_path / "decoded" / "decoder.json").read_text())
    assert contract["digest"] in read.evaluator["decoder"]
    again = evaluate_decoded(runs, tmp_path, looking, settings, CPU)
    assert len(again.again) == 2
    assert again.scores.table.equals(read.table)


def test_lpips_given_later_is_added_to_finished_scores_and_nothing_else_is_measured(
    trained: Callable[..., Path], decoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    weights = tmp_path / "lpips.safetensors"
    save_file(Lpips().state_dict(), weights)
    runs, settings = [trained("frozen"), trained("factorjepa")], EvaluateSettings(split="audit", clips=2)
    before = evaluate_decoded(runs, tmp_path, Looking(decoder_folder), settings, CPU).scores
    with pytest.raises(DiagnosticsError, match="name these runs, too"):
        evaluate_decoded(runs[:1], tmp_path, Looking(decoder_folder, weights), settings, CPU)

    def judged(*asked: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(DecodedPsnr, "judge", judged)
    monkeypatch.setattr(DecodedFailures, "judge", judged)
    made = evaluate_decoded(runs, tmp_path, Looking(decoder_folder, weights), settings, CPU)
    assert not made.failed
    rows = made.scores.table.to_pylist()
    added = [row for row in rows if row["diagnostic"] == "decoded_lpips"]
    assert {(row["method"], row["variant"]) for row in added} >= {("frozen", "pooled"), ("factorjepa", "gap")}
    assert [row for row in rows if row not in added] == before.table.to_pylist()
    assert "lpips.safetensors" in made.scores.evaluator["LPIPS"]
    assert not any(one.diagnostic == "decoded_lpips" for run in made.scores.runs for one in run.missing)
    with pytest.raises(DiagnosticsError, match="another evaluation"):  # what is there is not taken away
        evaluate_decoded(runs, tmp_path, Looking(decoder_folder), settings, CPU)


def test_a_text_in_place_of_the_weights_of_lpips_is_refused_before_anything_is_written(
    trained: Callable[..., Path], decoder_folder: Path, tmp_path: Path, command: Callable[..., Any]
) -> None:
    (tmp_path / "note.txt").write_text("hello\n")
    given = ("--out", tmp_path / "out", "--decoder", decoder_folder, "--lpips", tmp_path / "note.txt")
    ran = command("decode", "evaluate", trained("frozen"), *given)
    assert ran.returncode == 1
    assert f"{tmp_path / 'note.txt'}: cannot be read as weights of LPIPS: it is text" in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr
    assert "KeyError" not in ran.stderr
    assert not (tmp_path / "out").exists()


def test_packets_are_needed_of_the_clips_that_are_drawn_and_of_no_others(
    trained: Callable[..., Path], decoder_folder: Path, streets: Path, tmp_path: Path
) -> None:
    make_packets(streets, tmp_path / "some", TeacherSettings(), [Split.AUDIT], workers=1)
    runs, settings, looking = [trained("factorjepa")], EvaluateSettings(split="audit", clips=2), Looking(decoder_folder)
    assert not evaluate_decoded(runs, tmp_path, looking, settings, CPU, targets=tmp_path / "some").failed
    with pytest.raises(DiagnosticsError, match="packets of training, validation and audit clips"):
        evaluate(runs, tmp_path / "probed", settings, CPU, targets=tmp_path / "some")


def test_a_decoder_of_another_encoder_draws_nothing(
    trained: Callable[..., Path], decoder_folder: Path, tmp_path: Path
) -> None:
    with safe_open(decoder_folder / DECODER, framework="pt") as opened:
        header = json.loads(opened.metadata()["factorjepa decoder"])
    header["latents"]["encoder"] = "0000000000000000"
    save_file(load_file(decoder_folder / DECODER), tmp_path / DECODER, {"factorjepa decoder": json.dumps(header)})
    settings = EvaluateSettings(split="audit", clips=2)
    with pytest.raises(DiagnosticsError, match="was trained on the target encoder 0000000000000000"):
        evaluate_decoded([trained("frozen")], tmp_path / "new" / "out", Looking(tmp_path), settings, CPU)
    assert not (tmp_path / "new").exists(), "who fails leaves no folder behind"


def test_the_verbs_show_the_table_and_write_pictures(
    trained: Callable[..., Path], decoder_folder: Path, tmp_path: Path
) -> None:
    runs = [str(trained("frozen")), str(trained("factorjepa"))]
    common = ["--out", str(tmp_path), "--decoder", str(decoder_folder), "--split", "audit", "--clips", "3"]
    ran = CliRunner().invoke(decode_app, ["evaluate", *runs, *common], catch_exceptions=False)
    assert ran.exit_code == 0
    for word in ("oracle", "last frame", "FactorJEPA", "psnr ↑", "flow epe ↓"):
        assert word in ran.output
    assert "lpips ↓" not in ran.output  # a column that nobody has
    assert "no weights of LPIPS were given: add --lpips PATH" in ran.output.replace("\n", " ")
    _forget_a_clip(next((tmp_path / "decoded" / "parts").glob("*-factorjepa-*.parquet")), "decoded_agent_f1")
    again = CliRunner().invoke(decode_app, ["evaluate", *runs, *common], catch_exceptions=False)
    assert "no intervals" not in again.output
    drew = CliRunner().invoke(decode_app, ["render", *runs, *common, "--count", "2"], catch_exceptions=False)
    assert drew.exit_code == 0
    assert drew.output.rstrip().endswith("2 clips to look at")
    assert (tmp_path / "decoded" / "gallery.png").is_file()
    assert (tmp_path / "decoded" / "01" / "future.gif").is_file()


def _forget_a_clip(part: Path, diagnostic: str) -> None:
    """As where no agent is found in what one run draws of a clip."""
    scores = Scores.read(part)
    table = scores.table
    clip = scores.select(diagnostic=diagnostic).values("clip_id")[0]
    gone = pc.and_(pc.equal(table["diagnostic"], diagnostic), pc.equal(table["clip_id"], clip))
    Scores(table.filter(pc.invert(gone)), scores.diagnostics, scores.evaluator, scores.runs).write(part)
