"""The one loop: every method trains and is measured; runs resume to the bit; what is wrong is said."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from factorjepa.adaptation import METHODS
from factorjepa.backbones.encoder import gather_tokens
from factorjepa.config import dump
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import Batch
from factorjepa.errors import TeacherError, TrainingError
from factorjepa.objective import normalised_targets
from factorjepa.training.batches import validation_batches
from factorjepa.training.engine import Engine
from factorjepa.training.run import RunDirectory
from factorjepa.training.settings import TrainSettings
from factorjepa.training.update import Outcome
from factorjepa.training.validation import states_of

Make = Callable[..., TrainSettings]
CPU = torch.device("cpu")
TRAINED = [m.name for m in METHODS.values() if m.family != "ablation" and m.trains]
SPECIAL = [
    "no_visibility_path",
    "no_interaction_path",
    "shuffled_targets",
    "slots",
    "residual_path",
    "pair_motion",
    "future_places",
]


def train(settings: TrainSettings, out: Path, resume: bool = False, until: int | None = None) -> Engine:
    engine = Engine(settings, CPU)

    def progress(step: int, _: int, __: str) -> None:
        if step == until:
            engine.stop()

    engine.run(out, resume, progress)
    return engine


def losses(out: Path) -> list[tuple[int, float]]:
    return [(r["step"], r["loss"]) for r in RunDirectory.existing(out).metrics() if "loss" in r]


@pytest.mark.parametrize("name", TRAINED + SPECIAL)
def test_every_method_trains_what_it_says_and_measures_itself(name: str, settings: Make, tmp_path: Path) -> None:
    engine = Engine(settings(method=name), CPU)
    before = {key: tensor.clone() for key, tensor in engine.learner.weights().items()}
    finished = engine.run(tmp_path / "run", False)
    after = engine.learner.weights()
    assert set(before) == set(after)
    moved = [key for key in before if not torch.equal(before[key], after[key])]
    assert moved, "nothing trained"
    if engine.method.encoder != "frozen":
        assert any(key.startswith("encoder.") for key in moved)
    frozen = {f"encoder.{k}" for k, p in engine.learner.encoder.named_parameters()} - after.keys()
    assert (engine.method.encoder == "all") == (not frozen)
    assert 0 < finished.validation.future_l1 < 2
    assert len(losses(tmp_path / "run")) == 2


def test_frozen_is_measured_without_an_update(settings: Make, tmp_path: Path) -> None:
    finished = Engine(settings(method="frozen"), CPU).run(tmp_path / "run", False)
    assert (finished.step, finished.best) == (0, 0)
    assert finished.validation.future_l1 == pytest.approx(finished.validation.own_l1)


@pytest.mark.parametrize("name", ["factorjepa", "lora", "auto_rgn"])
def test_a_stopped_and_resumed_run_has_the_same_losses_and_weights(name: str, settings: Make, tmp_path: Path) -> None:
    chosen = settings(method=name, updates=6, save_every=3)
    whole = train(chosen, tmp_path / "whole")
    train(chosen, tmp_path / "cut", until=4)
    assert [step for step, _ in losses(tmp_path / "cut")] == [1, 2, 3, 4]
    cut = train(chosen, tmp_path / "cut", resume=True)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    for key, tensor in whole.learner.weights().items():
        assert torch.equal(tensor, cut.learner.weights()[key]), key
    for key, tensor in whole.learner.target.owned_state().items():
        assert torch.equal(tensor, cut.learner.target.owned_state()[key]), key


COMMAND = "import torch; torch.set_num_threads(1); from factorjepa.cli import main; main()"


def started(config: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    data = next(line for line in config.read_text().splitlines() if line.startswith("data:")).removeprefix("data: ")
    arguments = ["train", data, "--out", str(out), "--preset", str(config), *more]
    return subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], text=True, stderr=subprocess.PIPE)


def wait_for_steps(out: Path, steps: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (out / "metrics.jsonl").exists() and len(losses(out)) >= steps:
            return
        time.sleep(0.02)
    raise AssertionError(f"ended early: {process.stderr.read() if process.stderr else ''}")


def test_a_run_killed_at_any_moment_goes_on_to_the_same_losses(settings: Make, tmp_path: Path) -> None:
    chosen = settings(method="factorjepa_raw", updates=9, save_every=2, validate_every=9, validation_clips=1)
    config = tmp_path / "run.yaml"
    config.write_text(dump(chosen))
    train(chosen, tmp_path / "whole")
    for steps in (3, 6):
        more = ["--resume"] if (tmp_path / "cut" / "config.yaml").exists() else []
        process = started(config, tmp_path / "cut", *more)
        wait_for_steps(tmp_path / "cut", steps, process)
        process.kill()
        process.wait()
    assert losses(tmp_path / "cut") != losses(tmp_path / "whole")
    train(chosen, tmp_path / "cut", resume=True)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")


def test_sigterm_saves_and_exits(settings: Make, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        dump(settings(method="full", updates=500, save_every=500, validate_every=500, validation_clips=1))
    )
    process = started(config, tmp_path / "run")
    wait_for_steps(tmp_path / "run", 2, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    saved = RunDirectory.existing(tmp_path / "run").steps()[-1]
    assert saved == losses(tmp_path / "run")[-1][0] >= 2


def test_perturbing_future_frames_leaves_predictions_unchanged_to_the_bit(settings: Make) -> None:
    engine = Engine(settings(method="factorjepa_both", predictor={"carried": True, "recalled": True}), CPU)
    with torch.no_grad():  # outputs that start at zero would hide what they read
        for parameter in engine.learner.predictor.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    batch = next(iter(engine.evaluation))
    assert engine.validation_packets is not None
    targets = engine.validation_packets.for_batch(batch)
    video = batch.video()
    changed = video.clone()
    changed[:, :, engine.settings.context :] = torch.randn_like(changed[:, :, engine.settings.context :])
    states = states_of(engine.learner, targets, None, video)
    engine.learner.eval()
    with torch.no_grad():
        first, second = (engine.learner.predict(clip, None, states).tokens_BtD for clip in (video, changed))
        assert not torch.equal(engine.learner.future(video), engine.learner.future(changed))
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", ["auto_rgn", "lora"])
def test_the_future_is_what_the_whole_clip_s_tokens_say_of_it(name: str, settings: Make) -> None:
    """The last block computes no others; adapters in it are of the tokens that there are."""
    engine = Engine(settings(method=name), CPU)
    learner = engine.learner
    learner.enter(0)
    learner.eval()
    video = next(iter(validation_batches(engine.evaluation, None)))[0].video()
    with torch.no_grad():
        tokens = learner.tokens(video, learner.target)
        rows = gather_tokens(tokens, learner._split(video).target.expand(len(video), -1))
        torch.testing.assert_close(learner.future(video), normalised_targets(rows), rtol=1e-4, atol=1e-4)


def test_wise_ft_lies_between_the_pretrained_and_the_tuned_encoder(settings: Make, tmp_path: Path) -> None:
    tuned = train(settings(method="full"), tmp_path / "full")
    half = Engine(settings(method="wise_0.5", base=str(tmp_path / "full")), CPU)
    pretrained = Engine(settings(method="full"), CPU)
    best = RunDirectory.existing(tmp_path / "full").weights()
    for key, tensor in half.learner.weights().items():
        start, end = pretrained.learner.weights()[key], best[key]
        expected = start.lerp(end, 0.5) if key.startswith("encoder.") else end
        torch.testing.assert_close(tensor, expected)
    video = torch.randn(1, 3, 16, 32, 32)
    torch.testing.assert_close(half.learner.reference(video), pretrained.learner.encoder(video))
    assert half.run(tmp_path / "wise", False).step == 0
    assert tuned.step == 2


def test_recomputed_activations_give_the_same_losses(settings: Make, tmp_path: Path) -> None:
    for name, recompute in (("kept", False), ("again", True)):
        engine = train(settings(method="factorjepa_raw", recompute=recompute), tmp_path / name)
        assert engine.learner.encoder.recompute == recompute
    kept, again = ([loss for _, loss in losses(tmp_path / name)] for name in ("kept", "again"))
    assert again == pytest.approx(kept, rel=1e-5)


def test_wise_ft_needs_a_finished_run(settings: Make) -> None:
    with pytest.raises(TrainingError, match="base=RUN"):
        Engine(settings(method="wise_0.5"), CPU)
    with pytest.raises(TrainingError, match="leave out base"):
        Engine(settings(method="full", base="somewhere"), CPU)


def test_a_term_that_is_not_finite_is_named_and_changes_nothing(settings: Make, tmp_path: Path) -> None:
    engine = Engine(settings(method="factorjepa", updates=4, losses={"factor": 1e38}), CPU)
    before = {key: tensor.clone() for key, tensor in engine.learner.weights().items()}
    with pytest.raises(TrainingError, match=r"step 1: .* (is|are) not finite"):
        engine.run(tmp_path / "run", False)
    assert all(torch.equal(before[key], tensor) for key, tensor in engine.learner.weights().items())
    assert RunDirectory.existing(tmp_path / "run").steps() == [0]


class TestAhead:
    """On a GPU the host is an update ahead of what is known; here it only acts as if."""

    @pytest.mark.parametrize("until", [None, 4])
    def test_it_logs_and_saves_the_same(self, until: int | None, settings: Make, tmp_path: Path) -> None:
        chosen = settings(method="factorjepa", updates=6, save_every=3, validate_every=2)
        train(chosen, tmp_path / "plain", until=until)
        engine = Engine(chosen, CPU)
        engine.ahead = True
        seen: list[int] = []

        def progress(step: int, _: int, __: str) -> None:
            seen.append(step)
            if step == until:
                engine.stop()

        engine.run(tmp_path / "ahead", False, progress)
        assert seen == [step for step, _ in losses(tmp_path / "ahead")]
        plain, ahead = (RunDirectory.existing(tmp_path / name) for name in ("plain", "ahead"))
        assert losses(ahead.folder) == losses(plain.folder)
        assert ahead.steps() == plain.steps()
        for key, tensor in plain.weights("last").items():
            assert torch.equal(tensor, ahead.weights("last")[key]), key

    def test_nothing_is_saved_of_an_update_that_was_not_finite(
        self, settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = Engine(settings(method="factorjepa_raw", updates=6, save_every=2, validate_every=6), CPU)
        engine.ahead, known = True, Outcome.record

        def late(outcome: Outcome) -> dict[str, float]:
            if outcome.step == 3 and engine.step > 3:  # another one is on its way
                raise TrainingError("step 3: loss is not finite")
            return known(outcome)

        monkeypatch.setattr(Outcome, "record", late)
        with pytest.raises(TrainingError, match="step 3"):
            engine.run(tmp_path / "run", False)
        assert RunDirectory.existing(tmp_path / "run").steps()[-1] == 2
        assert [step for step, _ in losses(tmp_path / "run")] == [1, 2]

    def test_time_is_what_the_gpu_took_and_waiting_what_it_waited(self, settings: Make) -> None:
        engine = Engine(settings(method="auto_rgn"), CPU)
        clips = engine.settings.batch * engine.settings.accumulate
        engine._waited = 0.9
        plain, ahead, starved = (engine._pace(1.0, one) for one in (None, 0.97, 0.2))
        assert (plain["seconds"], plain["wait"]) == pytest.approx((0.1, 0.9))
        assert (ahead["seconds"], ahead["wait"]) == pytest.approx((0.97, 0.03))  # the host waited while the GPU worked
        assert (starved["seconds"], starved["wait"]) == pytest.approx((0.2, 0.8))
        assert plain["clips_per_s"] == ahead["clips_per_s"] == starved["clips_per_s"] == pytest.approx(clips)

    def test_an_update_that_fails_does_not_hide_what_the_one_before_did(
        self, settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = Engine(settings(method="factorjepa_raw", updates=6, save_every=6, validate_every=6), CPU)
        engine.ahead, make = True, engine._update

        def breaking(passes: list[tuple[Batch, int]]) -> Outcome:
            if engine.step == 2:
                raise RuntimeError("no memory is left")
            return make(passes)

        monkeypatch.setattr(engine, "_update", breaking)
        with pytest.raises(RuntimeError, match="no memory"):
            engine.run(tmp_path / "run", False)
        assert [step for step, _ in losses(tmp_path / "run")] == [1, 2]


def test_misaligned_targets_ask_for_packets_of_another_window(settings: Make) -> None:
    with pytest.raises(TeacherError, match="replication 1"):
        Engine(settings(method="misaligned_targets"), CPU)


def test_training_never_opens_test_or_audit_clips(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("training asked for evaluation clips")

    monkeypatch.setattr(Corpus, "evaluation", refuse)
    monkeypatch.setattr(Corpus, "audit", refuse)
    train(settings(method="factorjepa"), tmp_path / "run")


def test_the_record_says_what_happened(settings: Make, tmp_path: Path) -> None:
    train(settings(method="factorjepa", updates=4), tmp_path / "run")
    records = RunDirectory.existing(tmp_path / "run").metrics()
    update = next(record for record in records if "loss" in record)
    wanted = {"jepa", "factor", "visibility", "separation", "sparsity", "lr", "gradient", "coverage", "target_weight",
              "gate_max", "share_layout", "wait"}  # fmt: skip
    assert wanted <= update.keys()
    assert [record["step"] for record in records if "val/future_l1" in record] == [0, 2, 4]
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["torch"].startswith(torch.__version__.split("+")[0])


@pytest.mark.parametrize("method", ["factorjepa", "auto_rgn_views"])
def test_packets_whose_context_reaches_into_the_future_are_refused(method: str, settings: Make) -> None:
    """Their evidence would show frames that are to be predicted."""
    with pytest.raises(TeacherError, match=r"12 of them context; the runs see .* 8 of them context"):
        Engine(settings(method=method, context=8), CPU)
    assert Engine(settings(method="auto_rgn", context=8), CPU).packets is None
