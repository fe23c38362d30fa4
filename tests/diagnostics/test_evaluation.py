"""From runs to scores: every family is measured, work is not repeated, and one bad run does not cost the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from factorjepa import scores as scores_module
from factorjepa.diagnostics import evaluation
from factorjepa.diagnostics.evaluation import evaluate
from factorjepa.diagnostics.registry import DIAGNOSTICS
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.errors import ConfigError, DiagnosticsError, ScoresError, TeacherError
from factorjepa.scores import Scores
from factorjepa.training.engine import Engine
from factorjepa.training.restore import restore
from factorjepa.training.run import RunDirectory
from factorjepa.training.settings import TrainSettings

from .conftest import CPU, FAMILIES

Trained = Callable[..., Path]


def test_every_family_gets_every_score_that_it_can_have(trained: Trained, tmp_path: Path) -> None:
    made = evaluate([trained(one) for one in FAMILIES], tmp_path / "out", EvaluateSettings(split="audit"), CPU)
    assert not made.failed
    found = Scores.read(tmp_path / "out")
    assert {run.method for run in found.runs} == set(FAMILIES)
    names = {one.info.name for one in DIAGNOSTICS}
    for method in FAMILIES:
        factorized = method.startswith("factorjepa")
        of_method = set(found.select(method=method).values("diagnostic"))
        assert of_method == (names if factorized else names - {"leakage", "leakage_truth"})
        assert len(found.select(method=method, diagnostic="future_l1", variant="pooled")) == 6
    frozen = found.select(method="frozen", diagnostic="future_l1")
    same = [frozen.select(variant=one).columns()["value"] for one in ("pooled", "own")]
    assert same[0] == pytest.approx(same[1], rel=1e-5)
    assert found.select(method="full", diagnostic="future_l1").values("value") != frozen.values("value")


def test_a_finished_part_is_kept_and_another_evaluation_is_not_overwritten(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [trained("frozen"), trained("full")]
    settings = EvaluateSettings(split="test", diagnostics=("future_l1",))
    first = evaluate(runs[:1], tmp_path, settings, CPU)
    both = evaluate(runs[1:], tmp_path, settings, CPU)
    assert {run.method for run in both.scores.runs} == {"frozen", "full"}, "a run is added to those already there"
    monkeypatch.setattr(evaluation, "restore", lambda *given: pytest.fail("measured again"))
    again = evaluate(runs, tmp_path, settings, CPU)
    assert len(again.again) == 2
    assert again.scores.table.num_rows == both.scores.table.num_rows == 2 * first.scores.table.num_rows
    monkeypatch.undo()
    before = (tmp_path / "scores.parquet").read_bytes()
    with pytest.raises(DiagnosticsError, match="holds scores of another evaluation"):
        evaluate(runs[:1], tmp_path, EvaluateSettings(split="audit", diagnostics=("future_l1",)), CPU)
    assert (tmp_path / "scores.parquet").read_bytes() == before
    damaged = next((tmp_path / "parts").glob("*full*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    alone = evaluate(runs[:1], tmp_path, settings, CPU)
    assert {run.method for run in alone.scores.runs} == {"frozen"}, "a damaged part of another run is left out"


def test_weights_that_are_not_finite_fail_alone_and_by_name(trained: Trained, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(trained("full"), broken, symlinks=True)
    for path in broken.glob("checkpoints/*/weights.safetensors"):
        weights = load_file(path)
        name = sorted(weights)[0]
        weights[name] = torch.full_like(weights[name], torch.nan)
        save_file(weights, path)
    settings = EvaluateSettings(split="test", diagnostics=("future_l1",))
    made = evaluate([broken, trained("frozen")], tmp_path / "out", settings, CPU)
    assert "not finite" in made.failed[str(broken)]
    assert [run.method for run in made.scores.runs] == ["frozen"]
    with pytest.raises(DiagnosticsError, match="no run could be evaluated"):
        evaluate([broken], tmp_path / "other", settings, CPU)


def test_two_runs_that_scores_could_not_tell_apart_are_refused(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticsError, match="could not tell them apart"):
        evaluate([trained("frozen"), trained("frozen")], tmp_path, EvaluateSettings(), CPU)


def test_an_unknown_diagnostic_is_named_with_its_nearest(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticsError, match="did you mean 'mask_slope'"):
        evaluate([trained("frozen")], tmp_path, EvaluateSettings(diagnostics=("mask_slop",)), CPU)


def test_without_packets_only_runs_that_read_states_are_refused(
    trained: Trained, streets: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(streets, bare, symlinks=True, ignore=shutil.ignore_patterns("targets"))
    settings = EvaluateSettings(split="test", clips=1)
    made = evaluate([trained("frozen")], tmp_path / "out", settings, CPU, data=bare)
    assert "depth" not in made.scores.values("diagnostic")
    with pytest.raises(TeacherError, match=r"factorjepa targets(.|\n)*never a target"):
        evaluate([trained("factorjepa")], tmp_path / "out", settings, CPU, data=bare)


def test_scores_of_another_evaluator_do_not_join(trained: Trained, tmp_path: Path) -> None:
    names = ("future_l1",)
    one = evaluate([trained("frozen")], tmp_path / "a", EvaluateSettings(split="test", diagnostics=names), CPU)
    masks = EvaluateSettings.model_validate({"split": "test", "diagnostics": names, "masks": {"realisations": 2}})
    two = evaluate([trained("full")], tmp_path / "b", masks, CPU)
    with pytest.raises(ScoresError, match="different evaluators \\(masks\\)"):
        Scores.joined([one.scores, two.scores])
    assert any(part.startswith(scores_module.ENCODER) for part in one.scores.evaluator)


def test_the_command_evaluates_and_says_what_it_found(process: Callable, trained: Trained, tmp_path: Path) -> None:  # type: ignore[type-arg]
    run = trained("frozen")
    words = ("evaluate", run, "--out", tmp_path / "out", "--set", "diagnostics=[future_l1]", "--device", "cpu")
    ran = process(*words)
    assert ran.returncode == 0, ran.stderr
    assert "Future-frame L1" in ran.stdout
    assert (tmp_path / "out" / "scores.parquet").exists()
    about = json.loads(next((tmp_path / "out" / "parts").glob("*.json")).read_text())
    assert about["run"] == str(run)
    listed = process("diagnostics")
    assert all(one.info.name in listed.stdout for one in DIAGNOSTICS)


def test_settings_that_make_no_curve_are_refused() -> None:
    with pytest.raises((ConfigError, ValueError), match="hidden"):
        EvaluateSettings.model_validate({"masks": {"hidden": [0.3]}})


@pytest.mark.parametrize("family", ["factorjepa", "lora"])
def test_a_restored_run_is_the_trained_one(family: str, trained: Trained) -> None:
    run = RunDirectory.existing(trained(family))
    restored = restore(run, CPU)
    weights, state = run.load(restored.step)
    for name, tensor in restored.learner.weights().items():
        assert torch.equal(tensor, weights[name]), name
    for name, tensor in restored.learner.target.owned_state().items():
        assert torch.equal(tensor, state["learner"]["target"][name]), name


def test_a_restored_interpolation_predicts_and_is_measured_as_it_was_made(
    trained: Trained, settings: Callable[..., TrainSettings], streets: Path, tmp_path: Path
) -> None:
    """WiSE-FT changes the encoder without training it: momentum encoder and reference must stay pretrained."""
    engine = Engine(settings(method="wise_0.5", data=str(streets), base=str(trained("full"))), CPU)
    engine.run(tmp_path, False)
    made, again = engine.learner.eval(), restore(RunDirectory.existing(tmp_path), CPU).learner
    video = torch.randn(2, 3, 16, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(made.predict(video, None).tokens_BtD, again.predict(video, None).tokens_BtD)
    assert torch.equal(made.future(video, made.reference), again.future(video, again.reference))
    assert not torch.equal(again.encoder(video), again.reference(video))
