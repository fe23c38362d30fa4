"""A run's folder: checkpoints are whole or absent, the record fits the last one, nobody overwrites anybody."""

from __future__ import annotations

import contextlib
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from factorjepa import commands
from factorjepa.backbones import load
from factorjepa.backbones.weights import verify
from factorjepa.errors import BackboneError, StorageError, TrainingError
from factorjepa.training.restore import best_step
from factorjepa.training.run import BEST, CHECKPOINTS, RunDirectory

CONFIG = "method: full\nlr: 0.1\n"


def begun(folder: Path, config: str = CONFIG, resume: bool = False):  # type: ignore[no-untyped-def]
    return RunDirectory.begin(folder, config, {"torch": "2"}, resume)


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Within: larger files are refused, as by a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    weights = {"a": torch.randn(3, 4), "b": torch.arange(5.0)}
    with begun(tmp_path / "run") as run:
        run.save(7, weights, {"step": 7, "rng": torch.arange(3)})
    read, state = RunDirectory.existing(tmp_path / "run").load(7)
    assert all(torch.equal(read[name], weights[name]) for name in weights)
    assert state["step"] == 7
    assert torch.equal(state["rng"], torch.arange(3))


@pytest.mark.parametrize("large", ["weights", "state"])
def test_a_checkpoint_that_does_not_fit_is_said_and_leaves_nothing(tmp_path: Path, large: str) -> None:
    sizes = {"weights": 10, "state": 10, large: 1 << 18}
    with begun(tmp_path / "run") as run, files_up_to(1 << 16):
        run.save(1, {"a": torch.zeros(10)}, {"m": torch.zeros(10)})
        with pytest.raises(StorageError, match=r"step-000002: the disk is full .* free some space"):
            run.save(2, {"a": torch.zeros(sizes["weights"])}, {"m": torch.zeros(sizes["state"])})
        assert run.steps() == [1]
        assert [path.name for path in (run.folder / CHECKPOINTS).iterdir()] == ["step-000001"]


def test_a_record_that_does_not_fit_is_said(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run, files_up_to(1 << 16):
        with pytest.raises(StorageError, match=r"metrics.jsonl: the disk is full"):
            run.log({"step": 1, "words": "x" * (1 << 17)})
        run.forget_after(0)
        assert run.metrics() == []


def test_a_half_written_checkpoint_is_not_seen_and_is_cleared_away(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        run.save(5, {"a": torch.zeros(1)}, {})
    half = tmp_path / "run" / CHECKPOINTS / ".step-000010.partial"
    half.mkdir()
    (half / "weights.safetensors").write_bytes(b"half")
    with begun(tmp_path / "run", resume=True) as run:
        assert run.steps() == [5]
        assert not half.exists()


def test_the_commands_that_began_and_resumed_it_are_kept_and_those_of_a_false_start_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in ("factorjepa train a lr=-1", "factorjepa train a"):
        monkeypatch.setattr(commands, "_line", line)
        with begun(tmp_path / "run") as run:
            pass
    run.save(5, {"a": torch.zeros(1)}, {})
    monkeypatch.setattr(commands, "_line", "factorjepa train a --resume")
    with begun(tmp_path / "run", resume=True):
        pass
    assert commands.recorded(tmp_path / "run") == ["factorjepa train a", "factorjepa train a --resume"]


def test_best_points_to_a_checkpoint_that_pruning_keeps(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        for step in (1, 2, 3, 4):
            run.save(step, {"a": torch.full((1,), float(step))}, {})
            if step == 2:
                run.mark_best(step)
            run.prune(keep=1)
        assert run.steps() == [2, 4]
        assert run.best == 2
        assert run.weights()["a"].item() == 2.0
        assert run.weights("last")["a"].item() == 4.0
        with pytest.raises(TrainingError, match="no checkpoint of step 3; there are 2, 4"):
            run.weights("3")


def test_the_record_is_cut_back_to_where_the_run_goes_on(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        for step in range(1, 6):
            run.log({"step": step, "loss": step / 10})
        with open(run.folder / "metrics.jsonl", "a") as opened:
            opened.write('{"step": 6, "lo')  # a kill in the middle of a line
        run.forget_after(3)
        assert [record["step"] for record in run.metrics()] == [1, 2, 3]


def test_a_started_run_is_not_started_again(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        run.save(0, {"a": torch.zeros(1)}, {})
    with pytest.raises(TrainingError, match="--resume"), begun(tmp_path / "run"):
        pass


def test_a_run_that_never_reached_a_checkpoint_may_begin_anew(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        run.log({"step": 0, "loss": 1.0})
    with begun(tmp_path / "run", CONFIG.replace("0.1", "0.2")) as run:
        assert run.config == CONFIG.replace("0.1", "0.2")
        assert run.metrics() == []


def test_a_run_is_not_resumed_with_other_settings(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        run.save(0, {"a": torch.zeros(1)}, {})
    other = begun(tmp_path / "run", CONFIG.replace("0.1", "0.2"), resume=True)
    with pytest.raises(TrainingError, match=r"another configuration: lr: 0\.1; now there is lr: 0\.2"), other:
        pass


def test_a_configuration_that_was_edited_is_not_gone_on_with(tmp_path: Path) -> None:
    """Whoever resumes without settings takes those of the file."""
    with begun(tmp_path / "run", CONFIG + "data: here\nworkers: 1\n") as run:
        run.save(1, {"a": torch.zeros(1)}, {})
    for edited in (CONFIG.replace("0.1", "5.0"), CONFIG.replace("full", "lora")):
        text = edited + "data: here\nworkers: 1\n"
        (run.folder / "config.yaml").write_text(text)
        with pytest.raises(TrainingError, match=r"was changed after .* it had .*, and says .*\. Put it back"):
            run.refuse_altered(())
        with (
            pytest.raises(TrainingError, match="was changed after the run was trained"),
            begun(run.folder, text, resume=True),
        ):
            pass
    (run.folder / "config.yaml").write_text("method: full\ndata: here\nworkers: 1\n")  # lr is its default then
    with pytest.raises(TrainingError, match=r"it had lr: 0\.1, and says lr: 0\.02"):
        run.refuse_altered((), {"lr": 0.02})
    run.refuse_altered((), {"lr": 0.1})
    (run.folder / "config.yaml").write_text(CONFIG + "data: there\nworkers: 4\n")  # moved, and another machine
    run.refuse_altered(("workers",))
    (run.folder / CHECKPOINTS / "step-000001" / "weights.safetensors").write_bytes(b"damaged")
    run.refuse_altered(("workers",))  # whoever reads the weights says so


def test_checkpoints_know_what_the_run_was_begun_with_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        (run.folder / "config.yaml").write_text(CONFIG.replace("0.1", "5.0"))
        run.save(1, {"a": torch.zeros(1)}, {})
        with pytest.raises(TrainingError, match="was changed after the run was trained"):
            run.refuse_altered(())
        (run.folder / "config.yaml").unlink()
        run.save(2, {"a": torch.zeros(1)}, {})
        assert run.steps() == [1, 2]


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(TrainingError, match="not empty"), begun(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_do_not_share_a_run(tmp_path: Path) -> None:
    second = begun(tmp_path / "run", resume=True)
    with begun(tmp_path / "run"), pytest.raises(StorageError, match="another process is training"), second:
        pass


def test_a_damaged_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        folder = run.save(3, {"a": torch.zeros(1)}, {})
        (folder / "state.pt").write_bytes(b"junk")
        with pytest.raises(TrainingError, match="delete this checkpoint"):
            run.load(3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_altered_bytes_of_weights_are_noticed(dtype: torch.dtype, tmp_path: Path) -> None:
    weights = {"a": torch.randn(3, 2).to(dtype), "step": torch.tensor(7), "none": torch.zeros(0)}
    with begun(tmp_path / "run") as run:
        path = run.save(3, weights, {}) / "weights.safetensors"
        found = run.load(3)[0]
        assert found.keys() == weights.keys()
        assert all(found[name].equal(tensor) for name, tensor in weights.items())
        assert path.stat().st_mode == path.with_name("state.pt").stat().st_mode  # others may read both, or neither
        stored = bytearray(path.read_bytes())
        stored[-9] ^= 1
        path.write_bytes(stored)
        with pytest.raises(TrainingError, match=r"weights\.safetensors have changed .* delete this checkpoint"):
            run.load(3)
        with pytest.raises(TrainingError, match="have changed"):
            run.weights("last")


def test_where_the_best_checkpoint_was_deleted_no_other_stands_in_for_it_unasked(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        for step in (1, 2):
            run.save(step, {"a": torch.full((1,), float(step))}, {})
        run.mark_best(1)
        assert best_step(run) == 1
        shutil.rmtree(tmp_path / "run" / CHECKPOINTS / "step-000001")
        with pytest.raises(TrainingError, match="checkpoint that validation chose was deleted"):
            best_step(run)
        assert run.weights("last")["a"].tolist() == [2.0]
        with pytest.raises(TrainingError, match="its best checkpoint was deleted"):  # whoever asks for no other
            run.weights()
        (tmp_path / "run" / BEST).unlink()
        assert best_step(run) == 2


def test_checkpoints_of_before_the_seal_are_read(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as run:
        folder = run.save(3, {"a": torch.ones(2)}, {})
        save_file({"a": torch.zeros(2)}, folder / "weights.safetensors")
        assert run.load(3)[0]["a"].tolist() == [0, 0]


def test_a_checkpoint_given_as_weights_says_which_run_to_name(tmp_path: Path) -> None:
    with begun(tmp_path) as run:
        file = run.save(1, {"predictor.early.weight": torch.ones(2)}, {}) / "weights.safetensors"
    for read in (verify, lambda path: load(path, "nano")):
        with pytest.raises(BackboneError, match=r"a checkpoint of a run of factorjepa.* `factorjepa evaluate RUN"):
            read(file)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="is not a run"):
        RunDirectory.existing(tmp_path)


def test_a_folder_of_runs_is_told_from_what_is_no_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with begun(tmp_path / "runs" / name):
            pass
    with pytest.raises(TrainingError, match=r"a folder of runs: name these, for example .*runs/\*$"):
        RunDirectory.existing(tmp_path / "runs")
