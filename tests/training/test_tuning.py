"""What validation chooses, and that the chosen run becomes one of the study's."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from factorjepa.config import resolve
from factorjepa.errors import TrainingError
from factorjepa.study import StudySettings
from factorjepa.training.settings import TrainSettings
from factorjepa.training.several import Job
from factorjepa.training.tuning import (
    CHOSEN,
    JUDGED_BY,
    Candidate,
    Choice,
    Tried,
    adopt,
    choose,
    read_tried,
    write_tried,
)


def tried(folder: Path, errors: dict[float, list[float]]) -> list[Candidate]:
    """Runs of learning rates with these validation errors after an update or more; all begin at 0.5."""
    found = []
    for number, (rate, values) in enumerate(errors.items()):
        out = folder / str(number)
        out.mkdir(parents=True)
        lines = [json.dumps({"step": step, JUDGED_BY: value}) for step, value in enumerate([0.5, *values])]
        (out / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        found.append(Candidate({"lr": rate}, Job(resolve(TrainSettings, "nano", data="-", lr=rate), out)))
    return found


def test_the_lowest_validation_error_of_a_run_counts_and_not_its_last(tmp_path: Path) -> None:
    choice = choose(tried(tmp_path, {1e-4: [0.45], 1e-3: [0.3, 0.9], 1e-2: [0.6, 0.4]}))
    assert choice.candidate.values == {"lr": 1e-3}
    assert choice.errors == (0.45, 0.3, 0.4)
    assert not choice.edge


def test_a_choice_at_the_end_of_what_was_tried_says_so_and_broken_runs_are_not_chosen(tmp_path: Path) -> None:
    choice = choose(tried(tmp_path, {1e-4: [0.4], 1e-3: [0.5], 1e-2: [math.nan]}))
    assert choice.candidate.values == {"lr": 1e-4}
    assert choice.edge == ("lr",)


def test_equally_good_values_are_counted_and_are_no_end_of_what_was_tried(tmp_path: Path) -> None:
    choice = choose(tried(tmp_path, {1e-4: [0.4, 0.5], 1e-3: [0.4, 0.6], 1e-2: [0.45]}))
    assert (choice.candidate.values, choice.tied, choice.edge) == ({"lr": 1e-4}, 2, ())
    assert choice.improves


def test_a_run_is_judged_by_what_it_learned_and_not_by_its_start(tmp_path: Path) -> None:
    """Its first validation is before the first update, and no checkpoint that it could choose."""
    choice = choose(tried(tmp_path, {1e-2: [0.9], 1e-3: [0.6], 1e-4: [0.7]}))
    assert choice.candidate.values == {"lr": 1e-3}
    assert choice.errors == (0.9, 0.6, 0.7)
    assert not choice.improves


def test_nothing_is_chosen_where_nothing_was_measured(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no value that was tried"):
        choose(tried(tmp_path, {1e-4: [], 1e-3: [math.nan]}))


def test_what_was_tried_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_tried(tmp_path) == []
    candidates = tried(tmp_path, {1e-4: [0.4], 1e-3: [0.5]})
    candidates[1] = Candidate({"lr": {"a": 1, "b": 2}}, candidates[1].job)  # commas in a value
    write_tried(tmp_path, {"full": choose(candidates)})
    other = Tried("nano", "full", {"lr": "{'a': 1, 'b': 2}"}, 0.5, False)
    assert read_tried(tmp_path) == [Tried("nano", "full", {"lr": "0.0001"}, 0.4, True), other]
    table = (tmp_path / CHOSEN).read_text()
    (tmp_path / CHOSEN).write_text(table.replace("backbone,", "").replace("nano,", ""))
    assert [one.backbone for one in read_tried(tmp_path)] == ["", ""], "as tables were before"
    (tmp_path / CHOSEN).write_text("a,b\n1,2\n")
    with pytest.raises(TrainingError, match=CHOSEN):
        read_tried(tmp_path)


def test_the_chosen_run_is_adopted_once_and_a_finished_one_is_left_alone(tmp_path: Path) -> None:
    (candidate, _) = tried(tmp_path / "tuning", {1e-4: [0.4], 1e-3: [0.5]})
    (candidate.job.out / "checkpoints" / "step-000001").mkdir(parents=True)
    (candidate.job.out / "best").symlink_to("checkpoints/step-000001")
    out = tmp_path / "runs" / "full-17"
    out.mkdir(parents=True)  # begun, and without a checkpoint
    adopt(candidate.job.out, out)
    assert (out / "best").resolve() == out / "checkpoints" / "step-000001"
    assert (out / "metrics.jsonl").read_text() == (candidate.job.out / "metrics.jsonl").read_text()
    (out / "mine").touch()
    adopt(candidate.job.out, out)
    assert (out / "mine").exists()


def test_every_method_that_trains_tries_the_same_values_and_the_first_seed_of_the_study_is_one_of_them() -> None:
    study = resolve(
        StudySettings, "demo", ["tuning={lr: [0.001, 0.01], warmup: [1, 2]}"], methods=("frozen", "full", "lora")
    )
    found = study.candidates(Path("data"), Path("tuning"))
    assert list(found) == ["full", "lora"]
    assert [dict(one.values) for one in found["full"]] == [dict(one.values) for one in found["lora"]]
    assert len(found["full"]) == 4
    chosen = study.with_chosen({name: several[3].values for name, several in found.items()})
    jobs = {job.out.name: job.settings for job in chosen.jobs(Path("data"), Path("runs"))}
    assert jobs["full-17"] == found["full"][3].job.settings, "so its run can be adopted"
    assert (jobs["lora-29"].lr, jobs["lora-29"].warmup) == (0.01, 2)


def test_a_method_that_has_nothing_of_what_is_tuned_is_not_tuned() -> None:
    study = resolve(StudySettings, "demo", ["tuning={branch_rate: [1, 4]}"], methods=("auto_rgn", "factorjepa"))
    assert list(study.candidates(Path("data"), Path("tuning"))) == ["factorjepa"]


def test_a_method_does_not_try_values_of_what_it_does_not_have(tmp_path: Path) -> None:
    study = resolve(
        StudySettings, "demo", ["tuning={lr: [0.001, 0.01], branch_rate: [1, 4]}"], methods=("auto_rgn", "factorjepa")
    )
    found = study.candidates(Path("data"), tmp_path)
    assert [dict(one.values) for one in found["auto_rgn"]] == [{"lr": 0.001}, {"lr": 0.01}]
    assert len(found["factorjepa"]) == 4
    choices = {
        name: Choice(several[0], tuple(several), tuple(0.5 for _ in several), ()) for name, several in found.items()
    }
    write_tried(tmp_path, choices)
    read = read_tried(tmp_path)
    assert [dict(one.values) for one in read if one.method == "auto_rgn"] == [{"lr": "0.001"}, {"lr": "0.01"}]
    assert {one.values["branch_rate"] for one in read if one.method == "factorjepa"} == {"1.0", "4.0"}
