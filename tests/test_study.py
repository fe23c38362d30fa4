"""What a study makes, for whom, and on which corpus."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from factorjepa.adaptation import METHODS
from factorjepa.backbones.packaged import packaged_weights
from factorjepa.config import preset_folder, resolve
from factorjepa.errors import BackboneError, TrainingError
from factorjepa.study import StudySettings


def study(*overrides: str, preset: str = "demo") -> StudySettings:
    return resolve(StudySettings, preset, overrides)


def test_a_second_window_of_training_clips_is_looked_at_when_and_only_when_targets_are_misaligned() -> None:
    assert study().looked_at() == {0: ["train", "validation", "test"]}
    found = study("methods=[frozen,shuffled_targets,misaligned_targets]", "split=audit").looked_at()
    assert found == {0: ["train", "validation", "audit"], 1: ["train"]}


def test_every_window_that_training_or_measuring_shows_is_looked_at() -> None:
    other = study("methods=[factorjepa,misaligned_targets]", "training.replication=2").looked_at()
    assert other == {0: ["train", "validation", "test"], 2: ["train", "validation"], 3: ["train"]}
    tuned = study("methods=[factorjepa,misaligned_targets]", "tuned={factorjepa: {replication: 1}}").looked_at()
    assert tuned[1] == ["train", "validation"], "what one method needs is not what the other has"
    assert study("measuring=[replication=1]").looked_at()[1] == ["train", "validation", "test"]


def test_the_ablations_are_all_there_on_the_corpus_and_under_the_protocol_of_the_study() -> None:
    mine, theirs = study(preset="ablations"), study(preset="study")
    assert {name for name, method in METHODS.items() if method.family == "ablation"} < set(mine.methods)
    assert {"frozen", "factorjepa_raw", "factorjepa"} < set(mine.methods)
    apart = {"methods", "tuning", "training", "decoder", "decoding", "decoded", "decoded_clips"}
    assert mine.model_dump(exclude=apart) == theirs.model_dump(exclude=apart)
    assert mine.training["lr"] in theirs.tuning["lr"]  # one of those tried, for all: they are compared with FactorJEPA
    assert {name: value for name, value in mine.training.items() if name != "lr"} == theirs.training


def test_both_scales_are_trained_under_one_protocol() -> None:
    nano, small = (yaml.safe_load((preset_folder() / f"{name}.yaml").read_text()) for name in ("nano", "small"))
    assert {name for name in nano if nano[name] != small[name]} == {
        "arch", "predictor", "trainable_blocks", "lora_rank", "lora_alpha",
    }  # fmt: skip


def test_weights_are_missed_or_refused_before_the_study_begins() -> None:
    with pytest.raises(TrainingError, match="pretrain runs/small arch=small"):
        study("preset=small").check()
    with pytest.raises(BackboneError, match="says that it is 'nano'"):
        study("preset=small", f"training.weights={packaged_weights('nano')}").check()


def test_a_corpus_that_is_there_stands_in_for_a_simulated_one(tmp_path: Path) -> None:
    assert study().corpus(tmp_path) == tmp_path / "dense"
    assert study("data=study/dense").corpus(tmp_path) == Path("study/dense")
