"""Decoder training: on target-encoder latents of training clips alone, chosen on validation clips alone."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import Batch, EvaluationLoader, Loader
from factorjepa.corpus.splits import Split
from factorjepa.diagnostics.asks import Predicted
from factorjepa.errors import RenderingError, TrainingError
from factorjepa.rendering.decoder import StoredDecoder, load_decoder, refuse_other_latents
from factorjepa.rendering.latents import TargetLatents
from factorjepa.rendering.settings import DecodeSettings
from factorjepa.rendering.training import DecoderTraining
from factorjepa.verbs.decode import decode_app

CPU = torch.device("cpu")
Decoding = Callable[..., DecodeSettings]


@pytest.fixture
def training(decoding: Decoding) -> DecoderTraining:
    return DecoderTraining(decoding(), CPU)


def batch_of(streets: Path, training: DecoderTraining) -> Batch:
    return next(iter(Loader(Corpus.open(streets).training(), training.settings.window(32), 4, 0)))


@pytest.fixture
def latents(training: DecoderTraining, streets: Path) -> TargetLatents:
    return training.source.latents(batch_of(streets, training))


def test_no_prediction_can_enter_training(
    training: DecoderTraining, latents: TargetLatents, decoding: Decoding, streets: Path
) -> None:
    before = {name: tensor.clone() for name, tensor in training.decoder.state_dict().items()}
    for wrong in (latents.tokens_BtD, Predicted(latents.tokens_BtD), (latents.tokens_BtD, latents.future_BT3HW)):
        with pytest.raises(
            RenderingError, match=r"target-encoder latents alone, not from .*: predictions of a compared"
        ):
            training.update(wrong)  # type: ignore[arg-type]
    for copy in (
        dataclasses.replace(latents),
        dataclasses.replace(latents, tokens_BtD=torch.randn_like(latents.tokens_BtD)),
        DecoderTraining(decoding(), CPU).source.latents(batch_of(streets, training)),
    ):
        with pytest.raises(RenderingError, match="did not come out of the frozen target encoder"):
            training.update(copy)
    held_out = Corpus.open(streets).validation()
    batch = next(iter(EvaluationLoader(held_out, training.settings.window(32), 2)))
    with pytest.raises(RenderingError, match="training clips alone, not from validation"):
        training.update(training.source.latents(batch))
    assert all(torch.equal(before[name], tensor) for name, tensor in training.decoder.state_dict().items())
    assert training.step == 0


def test_training_is_given_no_run_from_which_a_prediction_could_come() -> None:
    asked = {*inspect.signature(DecoderTraining).parameters, *inspect.signature(DecoderTraining.run).parameters}
    assert asked == {"settings", "device", "self", "out", "resume", "progress", "beside"}
    assert not {"run", "runs", "method"} & set(DecodeSettings.model_fields)


def test_latents_carry_the_split_of_their_clips_and_the_frames_they_show(
    training: DecoderTraining, latents: TargetLatents, streets: Path
) -> None:
    assert latents.split is Split.TRAIN
    assert latents.future_BT3HW.shape == (4, 4, 3, 32, 32)
    assert latents.grid == (2, 4, 4)
    held_out = Corpus.open(streets).validation()
    batch = next(iter(EvaluationLoader(held_out, training.settings.window(32), 2)))
    found = training.source.latents(batch)
    assert found.split is Split.VALIDATION
    torch.testing.assert_close(found.future_BT3HW[0, 0], batch.frames[0, 12].permute(2, 0, 1) / 255)
    torch.testing.assert_close(found.last_B3HW[0], batch.frames[0, 11].permute(2, 0, 1) / 255)
    wanted = training.source.reference.future(batch.video())
    torch.testing.assert_close(found.tokens_BtD, wanted, atol=2e-3, rtol=0)  # kept in half precision
    again = training.source.latents(batch)
    assert torch.equal(again.tokens_BtD, found.tokens_BtD)
    flipped = training.source.latents(batch, mirrored=True)
    assert torch.equal(flipped.future_BT3HW, found.future_BT3HW.flip(-1))
    assert not torch.equal(flipped.tokens_BtD, found.tokens_BtD)


def test_the_world_models_encoder_is_not_touched(training: DecoderTraining, latents: TargetLatents) -> None:
    before = training.source.reference.digest()
    training.update(latents)
    assert training.source.reference.digest() == before
    assert all(p.grad is None and not p.requires_grad for p in training.source.reference.encoder.parameters())


def test_it_learns(decoding: Decoding, streets: Path) -> None:
    training = DecoderTraining(decoding(updates=60, lr=5e-3, losses={"structure": 0.0}), CPU)
    latents = training.source.latents(batch_of(streets, training))
    losses = [training.update(latents)["loss"].item() for _ in range(60)]
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_a_stopped_and_resumed_decoder_is_the_same(decoding: Decoding, tmp_path: Path) -> None:
    whole = DecoderTraining(decoding(), CPU).run(tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop(step: int, steps: int) -> None:
        if step == 3:
            raise Stop

    with pytest.raises(Stop):
        DecoderTraining(decoding(), CPU).run(tmp_path / "cut", progress=stop)
    with pytest.raises(TrainingError, match="--resume"):
        DecoderTraining(decoding(), CPU).run(tmp_path / "cut")
    parts = DecoderTraining(decoding(), CPU).run(tmp_path / "cut", resume=True)
    one, other = (load_decoder(made.path, "file").decoder.state_dict() for made in (whole, parts))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert whole.validation == parts.validation


def test_the_chosen_checkpoint_is_the_best_on_validation(decoder_folder: Path, stored: StoredDecoder) -> None:
    records = [json.loads(line) for line in (decoder_folder / "metrics.jsonl").read_text().splitlines()]
    losses = {r["step"]: r["validation/loss"] for r in records if "validation/loss" in r}
    assert stored.contract["chosen"]["step"] == min(losses, key=lambda step: losses[step])
    assert stored.contract["criterion"].startswith("lowest L_decode on validation clips")


def test_the_contract_says_what_was_executed(stored: StoredDecoder) -> None:
    contract = stored.contract
    assert contract["objective"] == {
        "pixel": 1.0, "perceptual": "disabled", "structure": 0.2, "motion": "disabled", "regularisation": "disabled",
    }  # fmt: skip
    assert contract["latents"].startswith("target encoder of file, frames 13 to 16 of 16 at 4 fps")
    assert contract["update scope"]["frozen"] == {}
    assert "data" not in contract["settings"]
    assert contract["output"] == "4 RGB frames at 4 fps, clipped to 0-1"


def test_a_decoder_of_another_encoder_is_refused(stored: StoredDecoder) -> None:
    with pytest.raises(RenderingError, match=r"d: was trained on the target encoder .* train a decoder"):
        refuse_other_latents(stored, "d", "nano", "fedcba9876543210")
    refuse_other_latents(stored, "d", "file", stored.decoder.latents.encoder)


def test_files_that_are_no_decoder_are_refused(decoder_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RenderingError, match="there is no decoder"):
        load_decoder(tmp_path, "file")
    whole = (decoder_folder / "decoder.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RenderingError, match="is not a decoder"):
        load_decoder(tmp_path / "cut.safetensors", "file")
    with pytest.raises(RenderingError, match=r"no decoder comes with the package for 'vjepa2_1_vit_giant_384': train"):
        load_decoder(None, "vjepa2_1_vit_giant_384")
    with safe_open(decoder_folder / "decoder.safetensors", framework="pt") as opened:
        assert json.loads(opened.metadata()["factorjepa decoder"])["decoder"]["kind"] == "mini"


def test_settings_that_cannot_work_are_refused_before_anything_is_read(decoding: Decoding) -> None:
    with pytest.raises(ValueError, match="leaves no future"):
        decoding(context=16)
    with pytest.raises(ValueError, match="needs the weights of LPIPS"):
        decoding(losses={"perceptual": 1.0})
    with pytest.raises(RenderingError, match="whole tubelets of 2"):
        DecoderTraining(decoding(context=11), CPU)


def test_the_verb_trains_and_says_what_is_disabled(decoding: Decoding, tmp_path: Path) -> None:
    values = decoding()
    words = ["train", values.data, "--out", str(tmp_path / "d"), f"weights={values.weights}", "arch=file", "sizes=[32]",
             "updates=2", "validate_every=2", "batch=4",
             "decoder={width: 24, depth: 1, heads: 2, channels: 8, widths: [8, 8, 8, 8]}"]  # fmt: skip
    ran = CliRunner().invoke(decode_app, words, catch_exceptions=False)
    assert "decoder.safetensors: chosen at update 2" in ran.output
    assert "disabled terms of the objective: perceptual, motion, regularisation" in ran.stderr
    with pytest.raises(TrainingError, match="--resume"):
        CliRunner().invoke(decode_app, words, catch_exceptions=False)
