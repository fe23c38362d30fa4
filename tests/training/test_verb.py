"""The verb `train`: what it says when it is done, and what it refuses before it begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factorjepa.config import dump
from factorjepa.training.run import METRICS, RunDirectory
from factorjepa.training.settings import TrainSettings

Make = Callable[..., TrainSettings]
Ask = Callable[..., Any]


@pytest.fixture
def ask(settings: Make, command: Callable[..., Any], tmp_path: Path) -> Ask:
    """`train` with settings of the tiny corpus: exit status and what was said."""

    def asked(*words: str, out: str = "run", **changes: Any) -> Any:
        chosen = settings(**changes)
        (tmp_path / "run.yaml").write_text(dump(chosen))
        return command(
            "train", chosen.data, "--out", str(tmp_path / out), "--preset", str(tmp_path / "run.yaml"), *words
        )

    return asked


def test_it_says_where_it_began_and_whether_that_was_better(ask: Ask, tmp_path: Path) -> None:
    told = ask(method="auto_rgn", updates=2)
    before = RunDirectory(tmp_path / "run").error_before()
    assert before is not None
    assert f"({before:.4f} before training)" in told.stdout
    worse = ask(method="auto_rgn", updates=1, lr=50.0, final_lr=50.0, warmup=0, out="burnt")
    assert "none is better than the start of training" in " ".join(worse.stdout.split())
    frozen = ask(method="frozen", out="frozen")
    assert "best checkpoint at step 0" in frozen.stdout
    assert "before training" not in frozen.stdout


def test_a_run_without_a_record_of_its_start_says_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text(json.dumps({"step": 5, "val/future_l1": 0.4}) + "\n")
    assert RunDirectory(tmp_path).error_before() is None


def test_settings_that_a_method_has_nothing_to_do_with_are_refused_by_name_and_presets_may_have_them(ask: Ask) -> None:
    refused = ask("branch_rate=4", method="auto_rgn", updates=1)
    assert refused.returncode == 1
    assert "method 'auto_rgn' has nothing that branch_rate would change" in " ".join(refused.stderr.split())
    assert ask(method="auto_rgn", updates=1, branch_rate=4.0).returncode == 0
    assert ask("branch_rate=4", method="auto_rgn_look", updates=1, out="look").returncode == 0
    assert "or give it a branch: predictor.recalled=true" in refused.stderr
    assert ask("branch_rate=4", "predictor.recalled=true", method="auto_rgn", updates=1, out="taken").returncode == 0
    without_room = ask("branch_rate=4", method="lora", updates=1, out="lora").stderr
    assert "leave it out" in without_room
    assert "recalled" not in without_room
    assert "gates are of methods that read agents" in ask("gate_rate=2", method="auto_rgn_look", out="gates").stderr


def test_a_file_in_the_runs_place_is_left_alone(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("precious")
    for out in ("notes", "notes/run"):
        told = ask(method="auto_rgn", updates=1, out=out)
        assert told.returncode == 1
        assert "notes: is a file, where a folder has to be" in told.stderr.replace("\n", "")
    assert (tmp_path / "notes").read_text() == "precious"


def test_going_on_with_other_clips_a_pass_says_which_batch_it_takes(ask: Ask) -> None:
    assert ask(method="auto_rgn", updates=1, batch=2).returncode == 0
    refused = ask("--resume", "batch=3")
    assert refused.returncode == 1
    assert "Set batch so that 1 process times batch is 2 again" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--device", "tpu"), "there is no device 'tpu': choose cpu or cuda"),
     (("--device", "meta"), "there is no device 'meta'"),
     (("--method", "auto_rgn", "method=full"), "method=full: --method auto_rgn says otherwise"),
     (("data=elsewhere",), "the corpus is the first argument"),
     (("windows=nowhere",), "nowhere: no such folder of decoded windows"),
     (("context=11", "arch=nano"), "a context of 11 frames is not whole tubelets of 2"),
     (("context=16", "arch=nano"), "leave no context or no future")],
)  # fmt: skip
def test_what_would_be_ignored_or_fail_later_is_refused(words: tuple[str, ...], said: str, ask: Ask) -> None:
    refused = ask(*words, updates=1)
    assert refused.returncode == 1
    assert said in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def test_what_is_said_twice_and_alike_is_no_contradiction(ask: Ask) -> None:
    assert ask("--seed", "3", "seed=3", method="full", updates=1).returncode == 0


def test_a_run_goes_on_without_the_windows_that_were_decoded_for_it(ask: Ask, tmp_path: Path) -> None:
    """They are a cache: clips are decoded where it is gone."""
    (tmp_path / "decoded").mkdir()
    assert ask(f"windows={tmp_path / 'decoded'}", method="full", updates=2).returncode == 0
    (tmp_path / "decoded").rmdir()
    assert ask("--resume").returncode == 0
