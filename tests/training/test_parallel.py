"""Two processes are one: the same loss, the same weights, the same run, however its clips are shared out."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from factorjepa.config import dump
from factorjepa.errors import CorpusError, TrainingError
from factorjepa.training.engine import Engine
from factorjepa.training.parallel import Processes
from factorjepa.training.run import RunDirectory
from factorjepa.training.settings import TrainSettings

from .test_engine import wait_for_steps

CPU = torch.device("cpu")
PLAIN = {"seconds", "wait", "clips_per_s", "processes"}  # what is measured by the clock, and who measured

# name: settings. One process takes 4 clips a pass; two take 2 each.
JOBS: dict[str, dict[str, Any]] = {
    "factorjepa": {"method": "factorjepa", "accumulate": 2},
    "auto_rgn": {"method": "auto_rgn"},
    "continual": {"method": "continual"},
    "fsdp": {"method": "factorjepa", "parallel": "fsdp"},
}
MOVED = {"method": "factorjepa_raw"}  # begun by one process, finished by two that share the weights
# Adam divides a gradient by its own size: with some seeds one lies so near zero that its rounding shows.
SEED = 43
WORKER = Path(__file__).with_name("spawned.py")


def started(*command: str) -> list[subprocess.Popen[str]]:
    """Two connected processes, as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip


def finished(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    ended = [process.communicate(timeout=300) for process in processes]
    return [(process.returncode, *said) for process, said in zip(processes, ended, strict=True)]


@pytest.fixture(scope="module")
def shared(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have run every job, each in its folder."""
    folder = tmp_path_factory.mktemp("shared")
    for name, changes in JOBS.items():
        (folder / f"{name}.yaml").write_text(dump(_settings(tiny, batch=2, **changes)))
    begun = Engine(_settings(tiny, **MOVED), CPU)
    begun.run(folder / "moved", False, lambda *_: begun.stop())
    assert begun.step == 1
    (folder / "moved.yaml").write_text(dump(_settings(tiny, batch=2, parallel="fsdp", **MOVED)))
    for code, _, said in finished(started(str(WORKER), str(folder), *JOBS, "moved")):
        assert code == 0, said
    return folder


def _settings(tiny: Path, **changes: Any) -> TrainSettings:
    return TrainSettings(
        **{
            "data": str(tiny / "corpus"), "arch": "file", "weights": str(tiny / "weights.safetensors"), "size": 32,
            "updates": 3, "batch": 4, "lr": 1e-3, "warmup": 1, "momentum": 0.9, "masks": "spread", "lora_rank": 4,
            "trainable_blocks": 2, "validate_every": 3, "save_every": 3, "probe_batches": 1, "dictionary_clips": 6,
            "validation_clips": 3, "log_to": (), "seed": SEED, **changes,
        }
    )  # fmt: skip


@pytest.mark.parametrize("name", [*JOBS, "moved"])
def test_two_processes_have_the_losses_and_weights_of_one(name: str, shared: Path, tiny: Path, tmp_path: Path) -> None:
    alone = {**JOBS.get(name, MOVED), "parallel": "auto"}
    Engine(_settings(tiny, **alone), CPU).run(tmp_path / "one", False)
    one, two = RunDirectory.existing(tmp_path / "one"), RunDirectory.existing(shared / name)
    assert (one.steps()[-1], two.steps()[-1], one.best, two.best) == (3, 3, one.best, one.best)
    for first, second in zip(one.metrics(), two.metrics(), strict=True):
        assert first.keys() == second.keys()
        for key in first.keys() - PLAIN:
            assert second[key] == pytest.approx(first[key], rel=1e-4, abs=1e-5), (first["step"], key)
    (weights, state), (others, other_state) = one.load(3), two.load(3)
    assert weights.keys() == others.keys()
    for key, tensor in weights.items():
        torch.testing.assert_close(others[key], tensor, rtol=1e-5, atol=1e-5, msg=key)
    assert state["learner"]["chosen"] == other_state["learner"]["chosen"]
    for key, tensor in state["learner"]["target"].items():
        torch.testing.assert_close(other_state["learner"]["target"][key], tensor, rtol=1e-5, atol=1e-5, msg=key)
    assert state["loader"] == other_state["loader"]


def test_a_run_does_not_go_on_with_another_number_of_clips_in_a_pass(tiny: Path, tmp_path: Path) -> None:
    begun = Engine(_settings(tiny), CPU)
    begun.run(tmp_path / "run", False, lambda *_: begun.stop())
    with pytest.raises(CorpusError, match="clips of a step was 4 and is 2"):
        Engine(_settings(tiny, batch=2), CPU).run(tmp_path / "run", True)


def test_a_signal_that_comes_while_processes_agree_is_not_lost(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(_settings(tiny), CPU)

    def agree(flag: bool) -> bool:
        engine.stop()  # as a handler would, after the flag was read
        return flag

    monkeypatch.setattr(engine.processes, "any", agree)
    finished = engine.run(tmp_path / "run", False)
    assert (finished.step, finished.stopped) == (2, True)


def test_processes_that_are_ahead_hear_of_a_stop_an_update_later_and_do_not_wait_for_it(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(_settings(tiny), CPU)
    engine.ahead = True
    assert not engine._agreed_to_stop()
    engine.stop()
    assert engine._agreed_to_stop(), "one process need not ask"
    engine._stopped, told = False, [0.0, 1.0, 1.0]  # by another process, in the second update
    monkeypatch.setattr(engine.processes, "world", 2)
    monkeypatch.setattr(engine.processes, "sum", lambda mine: mine + told.pop(0))
    assert [engine._agreed_to_stop() for _ in range(3)] == [False, False, True]


def test_a_signal_to_one_process_stops_all_after_the_same_update_and_one_goes_on(tiny: Path, tmp_path: Path) -> None:
    chosen = _settings(
        tiny, method="full", updates=500, validate_every=500, save_every=500, batch=2, validation_clips=1
    )
    (tmp_path / "run.yaml").write_text(dump(chosen))
    command = ("-m", "factorjepa", "train", chosen.data, "--out", str(tmp_path / "run"), "--device", "cpu")
    processes = started(*command, "--preset", str(tmp_path / "run.yaml"))
    wait_for_steps(tmp_path / "run", 2, processes[0])
    processes[1].send_signal(signal.SIGTERM)
    (first, said, errors), (second, *silent) = finished(processes)
    assert (first, second) == (143, 143), errors
    assert "add --resume" in said
    assert "L1" not in silent[0]
    run = RunDirectory.existing(tmp_path / "run")
    saved = run.steps()[-1]
    assert saved == run.metrics()[-1]["step"] >= 2
    assert json.loads((run.folder / "environment.json").read_text())["processes"] == "2 (ddp)"
    alone = Engine(chosen.model_copy(update={"batch": 4}), CPU)
    alone.run(tmp_path / "run", True, lambda *_: alone.stop())
    assert alone.step == saved + 1


def test_a_killed_process_ends_the_others_with_advice(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(dump(_settings(tiny, method="full", updates=5000, batch=2, validation_clips=1)))
    command = ("-m", "factorjepa", "train", str(tiny / "corpus"), "--out", str(tmp_path / "run"), "--device", "cpu")
    processes = started(*command, "--preset", str(tmp_path / "run.yaml"))
    wait_for_steps(tmp_path / "run", 1, processes[0])
    processes[1].kill()
    (code, _, said), _ = finished(processes)
    assert code == 1
    assert "another process of this run has ended" in said
    assert "--resume" in said


def test_passes_of_an_update_are_one_large_batch_where_the_loss_is_a_mean_over_clips(
    tiny: Path, tmp_path: Path
) -> None:
    """Not where it is a ratio over the batch: L_factor and L_V weigh by reliability within a pass, L_sep correlates."""
    found = {}
    for batch, accumulate in ((4, 1), (2, 2)):
        engine = Engine(_settings(tiny, method="full", updates=2, batch=batch, accumulate=accumulate), CPU)
        engine.run(tmp_path / str(batch), False)
        found[batch] = [r["loss"] for r in RunDirectory.existing(tmp_path / str(batch)).metrics() if "loss" in r]
    assert found[2] == pytest.approx(found[4], rel=1e-5)


def test_what_cannot_be_laid_out_says_what_to_do(tiny: Path) -> None:
    with pytest.raises(TrainingError, match="torchrun"):
        Engine(_settings(tiny, parallel="fsdp"), CPU)
    two = Processes()
    two.world = 2
    with pytest.raises(TrainingError, match="parallel=auto"):
        two.lay_out("single")
    with pytest.raises(TrainingError, match=r"1 process x batch=100: set batch to \d+ or less"):
        Engine(_settings(tiny, batch=100), CPU)
    with pytest.raises(TrainingError, match=r"'factr' .did you mean 'factor'"):
        Engine(_settings(tiny, losses={"factr": 1}), CPU)
