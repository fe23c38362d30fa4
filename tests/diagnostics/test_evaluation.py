"""From runs to scores: every family is measured, work is not repeated, and one bad run does not cost the others."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from factorjepa import commands
from factorjepa import scores as scores_module
from factorjepa.corpus.manifest import Manifest
from factorjepa.corpus.store import pack
from factorjepa.corpus.windows import WindowSpec
from factorjepa.diagnostics import evaluation
from factorjepa.diagnostics.evaluation import Registered, evaluate
from factorjepa.diagnostics.registry import DIAGNOSTICS
from factorjepa.diagnostics.scorecard import scorecard
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.diagnostics.several import SideBySide
from factorjepa.errors import ConfigError, CorpusError, DiagnosticsError, ScoresError
from factorjepa.missing import Missing, told
from factorjepa.scores import Scores
from factorjepa.training.engine import Engine
from factorjepa.training.restore import restore
from factorjepa.training.run import RunDirectory
from factorjepa.training.sealed import read_sealed, sealed_settings, write_sealed
from factorjepa.training.settings import TrainSettings

from .conftest import CPU, FAMILIES

Trained = Callable[..., Path]


def changed(run: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The first tensor of every checkpoint."""
    for path in run.glob("checkpoints/*/weights.safetensors"):
        weights = read_sealed(path)
        name = sorted(weights)[0]
        write_sealed(path, weights | {name: change(weights[name])}, sealed_settings(path) or "")


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
    with pytest.raises(DiagnosticsError, match="future_l1 and future_mse in one of the two evaluations alone"):
        evaluate(runs[:1], tmp_path, EvaluateSettings(split="test", diagnostics=("future_mse",)), CPU)
    assert (tmp_path / "scores.parquet").read_bytes() == before
    damaged = next((tmp_path / "parts").glob("*full*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    alone = evaluate(runs[:1], tmp_path, settings, CPU)
    assert {run.method for run in alone.scores.runs} == {"frozen"}, "a damaged part of another run is left out"


def test_a_run_whose_part_was_deleted_is_named_when_its_scores_go(
    trained: Trained, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [trained("frozen"), trained("full")]
    settings = EvaluateSettings(split="test", diagnostics=("future_l1",))
    evaluate(runs, tmp_path, settings, CPU)
    evaluate(runs[:1], tmp_path, settings, CPU)
    assert not caplog.messages, "nothing is lost"
    for part in (tmp_path / "parts").glob("*full*"):
        part.unlink()
    left = evaluate(runs[:1], tmp_path, settings, CPU).scores
    assert left.values("method") == ["frozen"]
    (said,) = caplog.messages
    assert re.search(r"scores.parquet loses the scores of \w+-full-17: .*evaluate again", said), said
    evaluate(runs[:1], tmp_path, settings, CPU)
    (tmp_path / "scores.parquet").write_bytes(b"no scores")
    evaluate(runs[:1], tmp_path, settings, CPU)
    assert len(caplog.messages) == 1, "told once"


def test_weights_that_are_not_finite_fail_alone_and_by_name(trained: Trained, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(trained("full"), broken, symlinks=True)
    changed(broken, lambda tensor: torch.full_like(tensor, torch.nan))
    settings = EvaluateSettings(split="test", diagnostics=("future_l1",))
    made = evaluate([broken, trained("frozen")], tmp_path / "out", settings, CPU)
    assert "not finite" in made.failed[str(broken)]
    assert [run.method for run in made.scores.runs] == ["frozen"]
    with pytest.raises(DiagnosticsError, match="no run could be evaluated"):
        evaluate([broken], tmp_path / "other", settings, CPU)


def test_two_runs_that_scores_could_not_tell_apart_are_refused(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticsError, match="could not tell them apart"):
        evaluate([trained("frozen"), trained("frozen")], tmp_path, EvaluateSettings(), CPU)


def test_a_corpus_and_its_shards_are_the_same_clips_under_two_paths(
    trained: Trained, streets: Path, tmp_path: Path
) -> None:
    settings = EvaluateSettings(split="test", clips=1, diagnostics=("future_l1",))
    runs = [trained("frozen"), tmp_path / "packed"]
    pack(streets, tmp_path / "shards")
    shutil.copytree(trained("full"), runs[1], symlinks=True)
    config = (runs[1] / "config.yaml").read_text().replace(f"data: {streets}\n", f"data: {tmp_path / 'shards'}\n")
    (runs[1] / "config.yaml").write_text(config)
    for path in runs[1].glob("checkpoints/*/weights.safetensors"):  # as if it had been trained so
        write_sealed(path, read_sealed(path), config)
    with pytest.raises(DiagnosticsError, match=r"the same clips, under 2 paths .*: say with --data which to read"):
        evaluate(runs, tmp_path / "out", settings, CPU)
    assert len(evaluate(runs, tmp_path / "out", settings, CPU, data=streets).scores.runs) == 2
    Manifest(Manifest.read(streets)[1:]).write(tmp_path / "shards")
    with pytest.raises(DiagnosticsError, match="different corpora"):
        evaluate(runs, tmp_path / "out", settings, CPU)


def test_scores_of_another_run_of_the_same_name_are_not_replaced(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EvaluateSettings(split="test", diagnostics=("future_l1",))
    ours, theirs, out = tmp_path / "ours", tmp_path / "theirs", tmp_path / "out"
    for folder in (ours, theirs):
        shutil.copytree(trained("full"), folder, symlinks=True)
    before = evaluate([ours], out, settings, CPU).scores
    assert evaluate([theirs], out, settings, CPU).again == [str(theirs)]  # a copy has the same weights
    for folder in (ours, theirs):
        changed(folder, lambda tensor: tensor * 1.1)
    with pytest.raises(DiagnosticsError, match=f"ours and {theirs} are both full with seed .* --method full@other"):
        evaluate([theirs], out, settings, CPU)
    assert Scores.read(out / "scores.parquet").table.equals(before.table)
    about = next((out / "parts").glob("*.json"))
    about.write_text(json.dumps({"weights": "before", "run": str(ours)}))  # as it was told before
    with pytest.raises(DiagnosticsError, match="are both full"):
        evaluate([theirs], out, settings, CPU)
    elsewhere = tmp_path / "deep" / "below"
    elsewhere.parent.mkdir()
    elsewhere.symlink_to(out)
    monkeypatch.chdir(tmp_path / "deep")
    with pytest.raises(DiagnosticsError, match=rf"\.\./ours and {theirs} are both full"):
        evaluate([theirs], Path("below"), settings, CPU)
    monkeypatch.chdir(ours)
    again = evaluate([Path(".")], Path("../out"), settings, CPU)  # the same folder, trained anew
    assert not again.again
    assert not again.scores.table.equals(before.table)


def test_an_unknown_diagnostic_is_named_with_its_nearest(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(DiagnosticsError, match="did you mean 'mask_slope'"):
        evaluate([trained("frozen")], tmp_path, EvaluateSettings(diagnostics=("mask_slop",)), CPU)


def test_without_packets_only_runs_that_read_states_are_refused(
    trained: Trained, streets: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(streets, bare, symlinks=True, ignore=shutil.ignore_patterns("targets"))
    settings = EvaluateSettings(split="test", clips=1)
    needy = trained("factorjepa")
    made = evaluate([needy, trained("frozen")], tmp_path / "out", settings, CPU, data=bare)
    assert [run.method for run in made.scores.runs] == ["frozen"]
    assert "depth" not in made.scores.values("diagnostic")
    assert re.search(r"factorjepa targets(.|\n)*never a target", made.failed[str(needy)])
    with pytest.raises(DiagnosticsError, match=r"no run could be evaluated(.|\n)*never a target"):
        evaluate([needy], tmp_path / "out", settings, CPU, data=bare)


def test_runs_that_cannot_be_read_or_opened_are_named_and_the_others_measured(trained: Trained, tmp_path: Path) -> None:
    """Whatever is wrong with a run: no folder, a broken configuration, weights of its backbone that are gone."""
    absent, garbled, homeless = tmp_path / "absent", tmp_path / "garbled", tmp_path / "homeless"
    for folder in (garbled, homeless):
        shutil.copytree(trained("full"), folder, symlinks=True)
    (garbled / "config.yaml").write_text("method: [")
    config = (homeless / "config.yaml").read_text()
    there = re.search(r"^weights: (.*)$", config, re.MULTILINE)
    assert there is not None
    (homeless / "config.yaml").write_text(config.replace(there[1], str(tmp_path / "gone.safetensors")))
    settings = EvaluateSettings(split="test", clips=1, diagnostics=("future_l1",))
    made = evaluate([absent, garbled, homeless, trained("frozen")], tmp_path / "out", settings, CPU)
    assert [run.method for run in made.scores.runs] == ["frozen"]
    assert set(made.failed) == {str(absent), str(garbled), str(homeless)}
    assert "is not a run" in made.failed[str(absent)]
    assert "gone.safetensors" in made.failed[str(homeless)]


def test_a_corpus_that_is_not_where_its_run_says_is_asked_for(trained: Trained, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(trained("full"), moved, symlinks=True)
    config = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(re.sub(r"^data: .*$", "data: streets-of-elsewhere", config, flags=re.MULTILINE))
    settings = EvaluateSettings(split="test", clips=1, diagnostics=("future_l1",))
    with pytest.raises(CorpusError, match=r"streets-of-elsewhere: the corpus that it was trained on .* --data"):
        evaluate([moved], tmp_path / "out", settings, CPU)


@pytest.mark.parametrize(("was", "says"), [("method: full", "method: auto_rgn"), ("seed: 17", "seed: 18")])
def test_a_run_whose_configuration_was_edited_is_not_measured_under_another_name(
    was: str, says: str, trained: Trained, tmp_path: Path
) -> None:
    edited = tmp_path / "edited"
    shutil.copytree(trained("full"), edited, symlinks=True)
    config = (edited / "config.yaml").read_text()
    assert was in config
    (edited / "config.yaml").write_text(config.replace(was, says))
    settings = EvaluateSettings(split="test", clips=1, diagnostics=("future_l1",))
    made = evaluate([edited, trained("frozen")], tmp_path / "out", settings, CPU)
    assert f"it had {was}, and says {says}. Put it back" in made.failed[str(edited)]
    assert [run.method for run in made.scores.runs] == ["frozen"]


def test_scores_are_not_put_into_a_corpus_or_a_run(trained: Trained, streets: Path, tmp_path: Path) -> None:
    settings = EvaluateSettings(split="test", clips=1, diagnostics=("future_l1",))
    for folder, what in ((streets, "a corpus"), (trained("full"), "a run")):
        before = sorted(folder.iterdir())
        with pytest.raises(DiagnosticsError, match=f"is {what}; name another folder for the scores"):
            evaluate([trained("frozen")], folder, settings, CPU)
        with pytest.raises(DiagnosticsError, match=f"is {what}; name another folder for the scores"):
            scorecard(streets, [("nano", None)], folder, settings, CPU, WindowSpec())
        assert sorted(folder.iterdir()) == before


def test_runs_under_other_conditions_are_named_and_not_joined(trained: Trained, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(trained("full"), other, symlinks=True)
    config = re.sub(r"context: \d+", "context: 8", (other / "config.yaml").read_text())
    (other / "config.yaml").write_text(config)
    for path in other.glob("checkpoints/*/weights.safetensors"):  # as if it had been trained so
        write_sealed(path, read_sealed(path), config)
    settings = EvaluateSettings(split="test", clips=1, diagnostics=("future_l1",))
    made = evaluate([trained("frozen"), other], tmp_path / "out", settings, CPU)
    assert "different evaluators (packets, window)" in made.failed[str(other)]
    assert "Their windows: context 12 and 8" in made.failed[str(other)]
    assert [run.method for run in made.scores.runs] == ["frozen"]


def test_a_reason_is_told_once_with_variants_clips_and_methods() -> None:
    lack = [Missing("future_l1", variant, "no agent is seen", 3) for variant in ("agents", "interacting")]
    other = Missing("leakage", "", "the predictor has no channels", 6)
    missing = {"a": lack, "b": [*lack, other], "c": lack}
    assert told(missing, {"future_l1": "Future-frame L1"}, methods_in_all=3) == [
        "Future-frame L1 (agents, interacting): no score of 3 clips for all 3 methods: no agent is seen",
        "leakage: no score of 6 clips for b: the predictor has no channels",
    ]


def test_what_is_missing_and_the_commands_travel_with_the_scores(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EvaluateSettings(split="test", clips=1, diagnostics=("future_l1", "leakage"))
    run = tmp_path / "full"
    shutil.copytree(trained("full"), run, symlinks=True)
    monkeypatch.setattr(commands, "_line", "factorjepa evaluate x")
    (run / "commands.txt").write_text("factorjepa train a\nfactorjepa train a --resume\n")
    evaluate([run], tmp_path / "out", settings, CPU)
    monkeypatch.setattr(commands, "_line", "factorjepa evaluate y")
    evaluate([run, trained("frozen")], tmp_path / "out", settings, CPU)
    scores = Scores.read(tmp_path / "out")
    of = {info.method: info for info in scores.runs}
    assert of["full"].trained_by == ("factorjepa train a", "factorjepa train a --resume")
    assert (of["full"].evaluated_by, of["frozen"].evaluated_by) == ("factorjepa evaluate x", "factorjepa evaluate y")
    made = RunDirectory(run).updates_made()
    assert made
    assert (of["full"].updates, of["frozen"].updates) == (made, 0)
    assert of["frozen"].trained_by == ()
    assert "Channel leakage: no score of 1 clip for all 2 methods: the predictor has no channels" in scores.lacks()


def test_scores_of_another_evaluator_do_not_join(trained: Trained, tmp_path: Path) -> None:
    names = ("future_l1",)
    one = evaluate([trained("frozen")], tmp_path / "a", EvaluateSettings(split="test", diagnostics=names), CPU)
    masks = EvaluateSettings.model_validate({"split": "test", "diagnostics": names, "masks": {"realisations": 2}})
    two = evaluate([trained("full")], tmp_path / "b", masks, CPU)
    with pytest.raises(ScoresError, match="different evaluators \\(masks\\)"):
        Scores.joined([one.scores, two.scores])
    assert any(part.startswith(scores_module.ENCODER) for part in one.scores.evaluator)


def test_the_command_evaluates_and_says_what_it_found(
    command: Callable[..., Any], trained: Trained, tmp_path: Path
) -> None:
    run = trained("frozen")
    words = ("evaluate", run, "--out", tmp_path / "out", "--set", "diagnostics=[future_l1]", "--device", "cpu")
    ran = command(*words)
    assert ran.returncode == 0, ran.stderr
    assert "Future-frame L1" in ran.stdout
    assert (tmp_path / "out" / "scores.parquet").exists()
    about = json.loads(next((tmp_path / "out" / "parts").glob("*.json")).read_text())
    assert about["run"] == str(run)
    assert Scores.read(tmp_path / "out").runs[0].evaluated_by.startswith(f"factorjepa evaluate {run} --out")
    failed = command(*words[:1], tmp_path / "absent", *words[1:])
    assert failed.returncode == 1
    assert "was evaluated before" in failed.stdout
    assert "absent: is not a run" in failed.stderr


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


def test_side_by_side_gives_the_same_scores_and_leaves_a_broken_run_to_be_named(
    trained: Trained, tmp_path: Path
) -> None:
    runs = [trained("frozen"), trained("full")]
    settings = EvaluateSettings(split="test", diagnostics=("future_l1",))
    broken = tmp_path / "broken"
    shutil.copytree(runs[1], broken)
    (broken / "config.yaml").write_text((runs[1] / "config.yaml").read_text().replace("seed: ", "seed: 9"))
    for weights in broken.glob("checkpoints/*/weights.safetensors"):
        weights.write_bytes(b"no weights")
    ahead = SideBySide(2, settings, CPU, Registered(settings.diagnostics))
    beside = evaluate([*runs, broken], tmp_path / "beside", settings, CPU, ahead=ahead)
    alone = evaluate(runs, tmp_path / "alone", settings, CPU)
    assert list(beside.failed) == [str(broken)]
    assert beside.again == [], "what was measured just now is not called old"
    for one in ("frozen", "full"):
        assert beside.scores.select(method=one).values("value") == alone.scores.select(method=one).values("value")
