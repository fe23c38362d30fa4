"""Runs side by side: one protocol, and nothing lost when they are told to stop."""

from __future__ import annotations

import functools
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from factorjepa.config import resolve
from factorjepa.errors import TrainingError
from factorjepa.study import StudySettings
from factorjepa.training import several
from factorjepa.training.run import RunDirectory
from factorjepa.training.settings import TrainSettings
from factorjepa.training.several import Job, side_by_side, train_all
from factorjepa.verbs.beside import RUNS_PART, beside_the_teacher

from .standins import crowded, saves

Make = Callable[..., TrainSettings]
CPU = torch.device("cpu")


def test_a_run_that_is_told_to_stop_saves_first_and_goes_on_later(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(settings(method="auto_rgn", updates=4, save_every=4), tmp_path / "run")
    stop = multiprocessing.get_context("spawn").Event()
    stop.set()
    monkeypatch.setattr(several, "_stop", stop)
    several._train(job, "cpu")
    assert RunDirectory(job.out).steps()[-1] == 1
    stop.clear()
    train_all([job], CPU, workers=1)
    assert job.done


def test_a_run_knows_in_which_go_it_was_trained(settings: Make, tmp_path: Path) -> None:
    jobs = [Job(settings(method="auto_rgn", updates=1), tmp_path / name) for name in ("a", "b")]
    later = Job(settings(method="auto_rgn", updates=1), tmp_path / "c")
    train_all(jobs, CPU, workers=1)
    train_all([later], CPU, workers=1)
    first, second, third = (RunDirectory(job.out).trained_on() for job in (*jobs, later))
    assert first == second != third
    assert ", 1 at a time, since 20" in first
    train_all(jobs := [Job(job.settings, tmp_path / f"{job.out.name}-2") for job in jobs], CPU, workers=2)
    assert all(", 2 at a time, since 20" in RunDirectory(job.out).trained_on() for job in jobs)


def test_runs_of_a_study_do_not_go_on_with_other_clips_in_an_update(settings: Make, tmp_path: Path) -> None:
    job = Job(settings(method="auto_rgn", updates=1, batch=2), tmp_path / "run")
    train_all([job], CPU, workers=1)
    train_all([Job(job.settings.model_copy(update={"keep": 5}), job.out)], CPU, workers=1)  # not of what comes out
    with pytest.raises(TrainingError, match="batch: 2; now there is batch: 3"):
        train_all([Job(job.settings.model_copy(update={"batch": 3}), job.out)], CPU, workers=1)


def test_a_run_goes_on_beside_its_corpus_wherever_both_are(tiny: Path, settings: Make, tmp_path: Path) -> None:
    job = Job(settings(method="auto_rgn", updates=2, save_every=1), tmp_path / "run", ("data",))
    stop = several.Engine(job.settings, CPU)
    stop.stop()
    stop.run(job.out, resume=False)
    assert RunDirectory(job.out).steps() == [0, 1]
    moved, renamed = (shutil.copytree(tiny / "corpus", tmp_path / name) for name in ("moved/corpus", "renamed"))
    with pytest.raises(TrainingError, match=r"data: \S+/renamed"):
        train_all([Job(settings(**_like(job), data=str(renamed)), job.out, ("data",))], CPU, workers=1)
    train_all([Job(settings(**_like(job), data=str(moved)), job.out, ("data",))], CPU, workers=1)
    assert job.done
    assert f"data: {moved}" in RunDirectory(job.out).config


def _like(job: Job) -> dict[str, Any]:
    return job.settings.model_dump(exclude={"data"}, exclude_unset=True)


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that a signal interrupts, as the command line sees to."""
    before = signal.signal(signal.SIGTERM, _interrupted)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("method", ["auto_rgn", "frozen"])
def test_a_signal_lets_the_run_of_this_process_save_and_ends_those_after_it(
    method: str, settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a frozen one, which is validated and has no update to stop at."""
    own = {"updates": 3, "save_every": 3}
    jobs = [Job(settings(method=name, **own), tmp_path / number) for number, name in (("1", method), ("2", "auto_rgn"))]
    validate = several.Engine._validate

    def interrupted(engine: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        validate(engine)

    monkeypatch.setattr(several.Engine, "_validate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_all(jobs, CPU, workers=1)
    monkeypatch.undo()
    assert RunDirectory(jobs[0].out).steps()[-1] == (0 if method == "frozen" else 1)
    assert not jobs[1].out.exists()
    train_all(jobs, CPU, workers=1)
    assert all(job.done for job in jobs)


def _train_beside(job: Job, settings: StudySettings, out: Path) -> None:
    train_all([job], CPU, workers=1)


def test_runs_beside_the_teacher_are_handed_on_saved(settings: Make, tmp_path: Path) -> None:
    job = Job(settings(method="auto_rgn", updates=400, save_every=400), tmp_path / "run")
    study = resolve(StudySettings, "demo")
    with beside_the_teacher(study, tmp_path / "study", {RUNS_PART: functools.partial(_train_beside, job)}):
        while several._updates_made(job.out) < 2:
            time.sleep(0.05)
    made = RunDirectory(job.out).steps()[-1]
    assert 2 <= made < 400
    assert made == several._updates_made(job.out)  # nothing that was done is lost
    assert "Traceback" not in (tmp_path / "study" / "beside" / "runs_without_packets.log").read_text()


def test_finished_runs_of_other_settings_are_refused_and_those_from_before_a_setting_existed_have_its_default(
    settings: Make, tmp_path: Path
) -> None:
    job = Job(settings(method="auto_rgn", updates=1), tmp_path / "run")
    train_all([job], CPU, workers=1)
    with pytest.raises(TrainingError, match="lr"):
        train_all([Job(settings(method="auto_rgn", updates=1, lr=0.5), tmp_path / "run")], CPU, workers=1)
    config = tmp_path / "run" / "config.yaml"
    older = [line for line in config.read_text().splitlines() if not line.startswith(("branch_rate", "frozen_bits"))]
    config.write_text("\n".join(older))
    train_all([job], CPU, workers=1)  # finished: it is left as it is
    with pytest.raises(TrainingError, match=r"branch_rate: 1\.0.*now there is branch_rate: 4\.0"):
        train_all([Job(settings(method="auto_rgn", updates=1, branch_rate=4), tmp_path / "run")], CPU, workers=1)


def test_a_run_without_room_beside_the_others_does_not_end_them(settings: Make, tmp_path: Path) -> None:
    jobs = [Job(settings(method="auto_rgn", updates=1), tmp_path / name) for name in ("large", "small", "other")]
    assert side_by_side(jobs, CPU, 2, lambda: None, crowded) == jobs[:1]
    assert {path.name for path in tmp_path.glob("*.done")} == {"small.done", "other.done"}


def test_a_run_without_room_is_finished_after_the_others_with_fewer_at_a_time(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Job(settings(method="auto_rgn", updates=1), tmp_path / name) for name in ("large", "small")]
    rounds: list[tuple[int, list[str]]] = []

    def beside(left: list[Job], device: torch.device, workers: int, tell: Callable[[], None]) -> list[Job]:
        rounds.append((workers, [job.out.name for job in left]))
        return [job for job in left if job.out.name == "large"]

    monkeypatch.setattr(several, "side_by_side", beside)
    monkeypatch.setattr(several, "_train", lambda job, device, go: rounds.append((1, [job.out.name])))
    train_all(jobs, CPU, workers=4)
    assert rounds == [(4, ["large", "small"]), (2, ["large"]), (1, ["large"])]

    def hopeless(job: Job, device: str, go: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(several, "_train", hopeless)
    with pytest.raises(TrainingError, match=r"even alone \(CUDA out of memory\)\. Lower batch"):
        train_all(jobs, CPU, workers=1)


class _Failing:
    """An engine whose kernels say only that they failed."""

    def __init__(self, settings: TrainSettings, device: torch.device) -> None:
        self.stop = lambda: None

    def run(self, *asked: object) -> None:
        raise RuntimeError("Expected mha_graph.execute(...).is_good() to be true")


class _FailingAtOnce:
    """Another, of which nothing can be made: Auto-RGN's probe of the gradients fails."""

    def __init__(self, settings: TrainSettings, device: torch.device) -> None:
        raise RuntimeError("Expected mha_graph.execute(...).is_good() to be true")


@pytest.mark.parametrize("engine", [_Failing, _FailingAtOnce])
@pytest.mark.parametrize(
    ("free", "beside", "kind"),
    [(0.01, True, torch.OutOfMemoryError), (0.5, True, RuntimeError), (0.01, False, RuntimeError),
     (None, True, RuntimeError)],
)  # fmt: skip
def test_what_fails_beside_others_on_a_full_gpu_is_tried_again_with_more_room(
    free: float | None, beside: bool, kind: type[Exception], engine: type, settings: Make, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def left(device: torch.device) -> tuple[int, int]:
        if free is None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return int(free * 1e9), int(1e9)

    monkeypatch.setattr(several, "Engine", engine)
    monkeypatch.setattr(several, "_stop", threading.Event() if beside else None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", left)
    with pytest.raises(RuntimeError, match="mha_graph") as told:
        several._train(Job(settings(method="auto_rgn"), tmp_path / "run"), "cuda")
    assert type(told.value) is kind


def test_a_true_fault_on_a_full_gpu_is_told_as_it_is_once_the_run_is_alone(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several, "Engine", _Failing)
    monkeypatch.setattr(several, "side_by_side", lambda left, *others: left)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, int(1e9)))
    with pytest.raises(RuntimeError, match=r"^Expected mha_graph"):
        train_all([Job(settings(method="auto_rgn"), tmp_path / "run")], torch.device("cuda"), workers=2)


def test_a_signal_to_all_processes_lets_the_slowest_save(settings: Make, tmp_path: Path) -> None:
    jobs = [Job(settings(method="auto_rgn"), tmp_path / name) for name in ("quick", "slow")]

    def tell() -> None:
        if all((job.out / "began").exists() for job in jobs):
            for child in multiprocessing.active_children():
                if child.pid is not None and not (tmp_path / str(child.pid)).exists():
                    (tmp_path / str(child.pid)).touch()
                    os.kill(child.pid, signal.SIGTERM)

    with pytest.raises(TrainingError, match="all runs are saved"):
        side_by_side(jobs, CPU, 2, tell, saves)
    assert all((job.out / "saved").exists() for job in jobs)
