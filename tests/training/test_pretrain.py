"""Pretraining from random weights: it learns, it resumes to the bit, and what it saves can be loaded."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from factorjepa.backbones import load
from factorjepa.backbones.spec import resolve
from factorjepa.errors import TrainingError
from factorjepa.training.optimiser import parameter_groups, rate
from factorjepa.training.pretrain import Pretraining, PretrainSettings, _Prepared, hidden_tokens, placed
from factorjepa.training.run import RunDirectory
from factorjepa.world import WorldSettings

SPEC = {
    "dim": 48, "depth": 2, "heads": 2, "mlp_hidden": 96, "taps": (0, 1), "grid": (4, 4), "predictor_dim": 48,
    "predictor_depth": 1, "predictor_heads": 2,
}  # fmt: skip
TINY = PretrainSettings(
    spec=SPEC, world=WorldSettings(regime="sparse", size=32, seconds=(6.0, 6.0)), steps=6, batch=4, sources=2,
    sources_at_start=1, warmup=2, crop=2, whole=0.5, validate_every=3, validation_sources=1, save_every=2,
)  # fmt: skip


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulated once, used by every run here: a pool is independent of who reads it."""
    return tmp_path_factory.mktemp("windows")


def train(out: Path, windows: Path, resume: bool = False, until: int | None = None) -> Pretraining:
    def progress(step: int, _: int) -> None:
        if step == until:
            raise Killed

    run = Pretraining(out, TINY, torch.device("cpu"))
    run.run(windows, 1, resume, progress)
    return run


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, windows: Path, finished: Pretraining) -> None:
    whole = finished
    with pytest.raises(Killed):
        train(tmp_path / "cut", windows, until=5)
    cut = train(tmp_path / "cut", windows, resume=True)
    for (name, a), (_, b) in zip(whole.backbone.named_parameters(), cut.backbone.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    records = [RunDirectory.existing(run.out).metrics() for run in (whole, cut)]
    losses = [[(r["step"], r["loss"]) for r in record if "loss" in r] for record in records]
    assert losses[0] == losses[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, windows: Path) -> Pretraining:
    return train(tmp_path_factory.mktemp("runs") / "run", windows)


def test_the_saved_backbone_predicts_what_the_trained_one_did(finished: Pretraining) -> None:
    run = finished
    kept = load(run.out / "weights.safetensors", resolve("nano", **SPEC), dtype=torch.float32)
    video = torch.randn(1, 3, 16, 32, 32)
    torch.testing.assert_close(kept.encoder(video), run.target(video), atol=0.02, rtol=0.02)  # half precision


def test_an_image_is_a_video_that_stands_still(finished: Pretraining) -> None:
    kept = load(finished.out / "weights.safetensors", resolve("nano", **SPEC), dtype=torch.float32)
    image = torch.randn(1, 3, 1, 32, 32)
    torch.testing.assert_close(kept.encoder(image), kept.encoder(image.expand(-1, -1, 2, -1, -1)), atol=1e-2, rtol=1e-2)


def test_windows_may_be_smaller_than_the_backbone_is_made_for(tmp_path: Path) -> None:
    wider = {**SPEC, "grid": (8, 8)}
    small = TINY.model_copy(update={"spec": wider, "half": False, "whole": 1.0, "steps": 2, "validate_every": 2})
    run = Pretraining(tmp_path / "run", small, torch.device("cpu"))
    found = run.run(tmp_path / "windows", 1, resume=False)
    assert np.isfinite(found["future_l1"])
    assert run.backbone.spec.grid == (8, 8)
    assert run.grid == (8, 4, 4)


@pytest.mark.parametrize(("size", "half"), [(20, False), (24, True)])
def test_windows_of_broken_patches_are_refused(tmp_path: Path, size: int, half: bool) -> None:
    world = TINY.world.model_copy(update={"size": size})
    with pytest.raises(TrainingError, match=f"world.size={size}: windows are whole patches of 8 pixels"):
        Pretraining(tmp_path, TINY.model_copy(update={"world": world, "half": half}), torch.device("cpu"))


def test_losses_fall_on_windows_it_sees_again(tmp_path: Path, windows: Path) -> None:
    changes = {"steps": 30, "lr": 5e-3, "save_every": 100, "validate_every": 100, "momentum": (1.0, 1.0)}
    run = Pretraining(tmp_path / "run", TINY.model_copy(update=changes), torch.device("cpu"))
    losses, update = [], run._update

    def watched(batch: _Prepared) -> dict[str, torch.Tensor]:
        parts = update(batch)
        losses.append(float(parts["future"]))
        return parts

    run._update = watched  # type: ignore[method-assign]
    run.run(windows, 1, False)
    assert np.mean(losses[-5:]) < 0.98 * np.mean(losses[:5])  # without learning it stays within half a per cent


def test_a_loss_that_is_not_finite_stops_the_run_before_it_is_saved(tmp_path: Path, windows: Path) -> None:
    settings = TINY.model_copy(update={"lr": 1e30, "clip": 1e30})
    with pytest.raises(TrainingError, match="not finite at step"):
        Pretraining(tmp_path / "run", settings, torch.device("cpu")).run(windows, 1, False)
    weights = RunDirectory.existing(tmp_path / "run").steps()
    assert not weights or all(
        tensor.isfinite().all() for tensor in RunDirectory.existing(tmp_path / "run").weights("last").values()
    )


def test_tokens_of_a_square_keep_their_places_in_the_grid() -> None:
    seen, grid = (2, 2, 2), (2, 4, 4)
    index = torch.arange(8).expand(2, -1)
    found = placed(index, seen, torch.tensor([[0, 0], [2, 1]]), grid)
    assert found[0].tolist() == [0, 1, 4, 5, 16, 17, 20, 21]
    assert found[1].tolist() == [9, 10, 13, 14, 25, 26, 29, 30]


def test_context_and_hidden_tokens_make_up_the_grid() -> None:
    context = torch.tensor([[0, 3, 5], [1, 2, 7]])
    assert hidden_tokens(context, (2, 2, 2)).tolist() == [[1, 2, 4, 6, 7], [0, 3, 4, 5, 6]]


def test_the_rate_warms_up_and_falls_to_its_floor() -> None:
    shares = [rate(step, steps=100, warmup=10, floor=0.01) for step in range(101)]
    assert shares[:10] == pytest.approx([0.1 * k for k in range(1, 11)])
    assert all(a >= b for a, b in itertools.pairwise(shares[9:]))
    assert shares[100] == pytest.approx(0.01)


def test_biases_norms_and_named_parameters_do_not_decay() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    layer.register_parameter("directions", torch.nn.Parameter(torch.randn(4, 4)))
    layer[1].weight.requires_grad_(False)
    decayed, plain = parameter_groups(layer.named_parameters(), 1.0, 0.1, undecayed=("directions",))
    assert [tuple(p.shape) for p in decayed["params"]] == [(3, 4)]
    assert sorted(tuple(p.shape) for p in plain["params"]) == [(3,), (3,), (4, 4)]
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
