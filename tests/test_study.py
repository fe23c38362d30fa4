"""What a study makes, for whom, and on which corpus."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from corpus.clips import make_clip
from factorjepa.adaptation import METHODS, method_named
from factorjepa.backbones.packaged import packaged_weights
from factorjepa.config import preset_folder, resolve
from factorjepa.corpus.manifest import Manifest
from factorjepa.corpus.splits import Split
from factorjepa.errors import BackboneError, ConfigError, FactorJEPAError, StorageError, TrainingError
from factorjepa.storage import only_writer
from factorjepa.study import STAGES, StudySettings
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.verbs.beside import RUNS_PART, beside_the_teacher
from factorjepa.verbs.study import _beside, run_study


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


@pytest.mark.parametrize(
    ("preset", "place", "own"),
    [("ablations", "", {"lr", "branch_rate"}), ("chosen", "_both_chosen", {"lr", "branch_rate"})],
)
def test_the_ablations_are_all_there_on_the_corpus_and_under_the_protocol_of_the_study(
    preset: str, place: str, own: set[str]
) -> None:
    mine, theirs = study(preset=preset), study(preset="study")
    ablations = {name for name, method in METHODS.items() if method.family == "ablation"}
    elsewhere = {f"{name}_chosen" for name in ("factorjepa_di", "factorjepa_int", "agent_motion", "future_places")}
    assert {name for name in ablations - elsewhere if name.endswith("_both_chosen") == bool(place)} < set(mine.methods)
    assert (elsewhere <= set(mine.methods)) == bool(place)
    assert {"frozen", f"factorjepa_raw{place}", f"factorjepa{place}"} < set(mine.methods)
    apart = {"methods", "tuned", "tuning", "training", "decoder", "decoding", "decoded", "decoded_clips"}
    assert mine.model_dump(exclude=apart) == theirs.model_dump(exclude=apart)
    # One of those tried, for all: they are compared with FactorJEPA.
    assert all(mine.training[name] in theirs.tuning[name] for name in own)
    methods = {name: method_named(name) for name in mine.methods}
    controls = {name for name, one in methods.items() if one.family == "control" and one.has_branches}
    whole = {name for name, one in methods.items() if one.encoder == "all" and one.trains}
    variants = {name for name in methods if "@" in name}
    assert set(mine.tuned) == (controls | whole | variants if place else set())
    for name in controls & mine.tuned.keys() - variants:
        assert all(value in theirs.tuning[key] for key, value in mine.tuned[name].items())
    assert {name: value for name, value in mine.training.items() if name not in own} == theirs.training


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


@pytest.mark.parametrize("window", ["size=96", "context=8", "fps=2", "frames=24"])
def test_the_packaged_decoder_draws_only_windows_that_it_has_met(window: str) -> None:
    assert study("decoder=auto", "training.size=128", preset="demo").draws() == "packaged"
    assert study("decoder=auto", f"training.{window}", preset="demo").draws() == "train"


def test_a_corpus_that_is_there_stands_in_for_a_simulated_one(tmp_path: Path) -> None:
    assert study().corpus(tmp_path) == tmp_path / "dense"
    assert study("data=study/dense").corpus(tmp_path) == Path("study/dense")


def test_a_corpus_without_clips_to_test_on_or_that_is_read_only_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = [*4 * [Split.TRAIN], Split.VALIDATION]  # as many as a pass of the demo takes
    Manifest([make_clip(number, split) for number, split in enumerate(splits)]).write(tmp_path)
    with pytest.raises(ConfigError, match="has no test clips; give it more sources"):
        study(f"data={tmp_path}").check()
    study(f"data={tmp_path}", "split=validation").check()
    with pytest.raises(ConfigError, match="its validation clips come from one source"):
        run_study(study(f"data={tmp_path}", "split=validation"), tmp_path / "out")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(ConfigError, match="is read-only, and packets and strata go into it; take a copy"):
        study(f"data={tmp_path}", "split=validation").check()


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("tuning={seed: [1, 2]}", "seed is the study's own"),
        ("training.method=full", "method is the study's own"),
        ("tuning={lr: [1e-3, 0.001]}", "more than once"),
        ("tuned={lora: {lrr: 4}}", "did you mean 'lr'"),
        ("tuned={lora: {method: full}}", "method is the study's own"),
        ("training.data=elsewhere", "data is the study's own: set data"),
        ("training.targets=elsewhere", "targets is the study's own: leave it out; packets lie in the corpus"),
        ("tuned={full: {targets: elsewhere}}", "targets is the study's own"),
        ("training.base=elsewhere", "base is the study's own"),
        ("training.windows=elsewhere", "windows is the study's own"),
        ("tuned={full: {size: 96}}", "full: size is of all runs of a study"),
        ("training.size=70", "70x70 pixels are not whole patches"),
        ("training.parallel=fsdp", "and there is one"),
        ("training.context=9", "9 frames is not whole tubelets of 2"),
        ("tuned={full: {predictor: {recalled: maybe}}}", "recalled is true or false, got 'maybe'"),
        ("tuned={full: {predictor: {carried: true}}}", "carried: a predictor without agents"),
        ("training.predictor={recalled: true}", "recalled is a new branch, which this method does not train"),
        ("training.losses={facto: 1}", "did you mean 'factor'"),
        ("tuning={losses: [{facto: 1}, {facto: 2}]}", "did you mean 'factor'"),
        ("training.trainable_blocks=99", "99 trainable blocks of an encoder with 8"),
        ("training.trunk_cache=trunk", "'frozen' makes no update: there is no trunk to keep"),
        ("training.batch=5000", "batch=5000 is more than the [0-9]+ clips that there are to train on"),
        ("training.clips=5000", "clips=5000 is more than the [0-9]+ clips that there are to train on"),
        ("lpips=nowhere.pth", "lpips: there is no file nowhere.pth"),
        ("detector=nowhere.onnx", "detector: there is no file"),
    ],
)
def test_what_a_later_stage_would_refuse_is_refused_at_once(word: str, complaint: str) -> None:
    with pytest.raises(FactorJEPAError, match=complaint):
        study("methods=[frozen,full]", word).check()


def test_options_of_one_method_are_added_to_those_of_all() -> None:
    """As on the command line, where predictor.recalled=true leaves the preset's ranks alone."""
    back = "{predictor: {recalled: true}, losses: {visibility: 0}}"
    tuned = f"tuned={{factorjepa: {{losses: {{factor: 0.3}}}}, factorjepa@back: {back}}}"
    made = study("methods=[factorjepa,factorjepa@back]", "seeds=[1]", tuned, "tuning={branch_rate: [1, 4]}")
    plain, looks = (job.settings for job in made.jobs(Path(), Path()))
    assert looks.predictor == {**plain.predictor, "recalled": True}
    assert "ranks" in looks.predictor
    assert plain.losses["factor"] == looks.losses["factor"] == 0.3
    assert (plain.losses["visibility"], looks.losses["visibility"]) == (0.05, 0)


def test_the_rate_of_branches_is_tried_by_what_looks_back_and_has_no_other_branch() -> None:
    tuned = "tuned={auto_rgn@back: {predictor: {recalled: true}}}"
    made = study("methods=[auto_rgn,auto_rgn@back]", tuned, "tuning={lr: [1e-4, 1e-3], branch_rate: [1, 4]}")
    assert {name: len(tried) for name, tried in made.candidates(Path(), Path()).items()} == {
        "auto_rgn": 2, "auto_rgn@back": 4,
    }  # fmt: skip


def test_packets_that_the_runs_could_not_read_are_refused_at_once() -> None:
    study("methods=[frozen,full]", "teacher=[targets.grid=6]").check()  # nobody reads them
    with pytest.raises(TrainingError, match="packets have a grid of 6 cells, 64 px give 8 tokens a side"):
        study("methods=[frozen,factorjepa]", "teacher=[targets.grid=6]").check()


def test_a_preset_of_runs_that_read_other_packets_is_refused_at_once(tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text((preset_folder() / "nano.yaml").read_text(encoding="utf-8") + "\ntargets: elsewhere\n")
    with pytest.raises(ConfigError, match="targets is the study's own"):
        study("methods=[frozen,full]", f"preset={preset}").check()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU may multiply in eight bits")
def test_eight_bits_that_this_machine_lacks_are_refused_at_once() -> None:
    with pytest.raises(TrainingError, match="set frozen_bits=16"):
        study("methods=[frozen,full]", "training.frozen_bits=8").check()


def test_values_to_try_are_read_as_the_setting_reads_them() -> None:
    tried = study("methods=[full]", "tuning={lr: [1e-4, 1e-3]}").candidates(Path("data"), Path("tuning"))
    assert [one.values for one in tried["full"]] == [{"lr": 1e-4}, {"lr": 1e-3}]


def test_only_what_wanted_stages_need_is_made_beside_the_teacher() -> None:
    both = study("methods=[frozen,factorjepa]", "beside_teacher=1", "decoder=train")
    assert set(_beside(both, ("targets", "train", "decode"))) == {"runs without packets", "decoder"}
    assert set(_beside(both, ("targets", "train"))) == {"runs without packets"}
    assert not _beside(both, ("targets", "strata"))
    assert not _beside(study("methods=[factorjepa]", "beside_teacher=1", "decoder=train", "decoded=[full]"), STAGES)
    assert not _beside(study("methods=[frozen,factorjepa]", "decoder=train"), STAGES)


def test_streets_that_nothing_could_be_concluded_from_are_refused_before_they_are_simulated(tmp_path: Path) -> None:
    few = study("clips=40", "clips_per_source=5", "shares=[0.8, 0.1, 0.1]")
    with pytest.raises(ConfigError, match=r"fewer than two sources.*clips=\d+ gives them two"):
        run_study(few, tmp_path / "study")
    assert not (tmp_path / "study").exists()
    with pytest.raises(ConfigError) as told:
        few.check_plan()
    enough = str(told.value).partition("clips=")[2].partition(" ")[0]
    study(f"clips={enough}", "clips_per_source=5", "shares=[0.8, 0.1, 0.1]").check_plan()
    for preset in ("demo", "study"):
        study(preset=preset).check_plan()


@pytest.mark.parametrize("compared", [True, False])
@pytest.mark.parametrize(("shares", "split"), [("[0.9, 0.1, 0.0]", "test"), ("[0.9, 0.0, 0.1]", "validation")])
def test_a_split_without_a_share_is_not_given_clips_by_more_of_them(shares: str, split: str, compared: bool) -> None:
    with pytest.raises(ConfigError, match=rf"no {split} clips .*Give {split} a share: shares=.*") as told:
        study("clips=100", f"shares={shares}").check_plan(compared)
    assert "clips=100 gives" not in str(told.value)


@pytest.mark.parametrize(
    ("setting", "said"),
    [("decoded=[]", "decoded: names no method whose futures are drawn; decoder=none draws none"),
     ("methods=[]", "methods: names none: a study needs at least one"), ("seeds=[]", "seeds: names none")],
)  # fmt: skip
def test_lists_of_nobody_are_refused_in_words(setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        study(setting)


def test_a_corpus_that_is_there_is_not_dealt_again() -> None:
    with pytest.raises(ConfigError, match="dealt_as: the streets of data=CORPUS have their splits already"):
        study("data=somewhere", "dealt_as=500").check()


def test_a_split_that_is_needed_twice_is_told_once() -> None:
    with pytest.raises(ConfigError, match="leave no validation clips"):
        study("clips=100", "shares=[0.9, 0.0, 0.1]", "split=validation").check_plan()


def test_streets_that_leave_a_split_empty_are_refused_wherever_the_study_stops(tmp_path: Path) -> None:
    few = study("clips=30", "clips_per_source=5", "shares=[0.8, 0.1, 0.1]")
    with pytest.raises(ConfigError, match=r"no test clips to measure on. clips=\d+ gives every split some"):
        run_study(few, tmp_path / "study", "train")
    assert not (tmp_path / "study").exists()
    with pytest.raises(ConfigError) as told:
        few.check_plan(compared=False)
    enough = str(told.value).partition("clips=")[2].partition(" ")[0]
    study(f"clips={enough}", "clips_per_source=5", "shares=[0.8, 0.1, 0.1]").check_plan(compared=False)


def test_a_folder_takes_one_study_at_a_time(tmp_path: Path) -> None:
    with only_writer(tmp_path, "testing"), pytest.raises(StorageError, match="putting a study into it"):
        run_study(study(), tmp_path)


def for_ever(settings: StudySettings, out: Path) -> None:
    (out / "began").touch()
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        (out / "saved").touch()
        raise


def test_runs_do_not_keep_the_study_waiting_when_the_teacher_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with beside_the_teacher(resolve(StudySettings, "demo"), tmp_path, {RUNS_PART: for_ever}):
        while not (tmp_path / "began").exists():
            time.sleep(0.05)
    assert (tmp_path / "saved").exists()
    said = " ".join(capsys.readouterr().err.split())
    assert "saved, and going on beside the others" in said
    assert "a later stage goes on" not in said
    assert "Traceback" not in (tmp_path / "beside" / "runs_without_packets.log").read_text()


def failing(settings: StudySettings, out: Path) -> None:
    (out / "began").touch()
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        raise OSError("the disk is full") from None


def test_runs_that_cannot_be_saved_are_not_said_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with beside_the_teacher(resolve(StudySettings, "demo"), tmp_path, {RUNS_PART: failing}):
        while not (tmp_path / "began").exists():
            time.sleep(0.05)
    said = " ".join(capsys.readouterr().err.split())
    assert "not finished" in said
    assert "going on beside the others" not in said


WAITING = """
import sys, time
from pathlib import Path
from factorjepa.config import resolve
from factorjepa.study import StudySettings
from factorjepa.verbs.beside import beside_the_teacher

def for_ever(settings, out):
    (out / "began").touch()
    time.sleep(600)

if __name__ == "__main__":
    with beside_the_teacher(resolve(StudySettings, "demo"), Path(sys.argv[1]), {"sleeper": for_ever}):
        pass
"""


def test_an_interrupt_while_the_study_waits_for_what_runs_beside_ends_that_too(tmp_path: Path) -> None:
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    study = subprocess.Popen([sys.executable, script, tmp_path], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "began").exists():
        assert study.poll() is None
        time.sleep(0.05)
    study.send_signal(signal.SIGINT)
    _, errors = study.communicate(timeout=60)  # it ends, and so does the process that holds the same pipe
    assert "waiting for what runs beside the teacher: sleeper" in errors
    assert "KeyboardInterrupt" in errors


def test_a_variant_has_its_method_s_own_settings_but_for_what_it_changes(tmp_path: Path) -> None:
    tuned = {"auto_rgn": {"lr": 0.002, "warmup": 5}, "auto_rgn@long": {"updates": 50, "warmup": 7}, "lora": {"lr": 1}}
    study = StudySettings(methods=("auto_rgn", "auto_rgn@long"), seeds=(17,), tuned=tuned)
    jobs = {job.settings.method: job for job in study.jobs(tmp_path, tmp_path)}
    usual, longer = (jobs[name].settings for name in study.methods)
    assert (longer.lr, longer.warmup, longer.updates) == (usual.lr, 7, 50)
    assert (usual.lr, usual.warmup) == (0.002, 5)
    assert jobs["auto_rgn@long"].out.name == "auto_rgn@long-17"
    assert study.unused() == ["lora"]


def test_tuning_leaves_a_variant_what_makes_it_one(tmp_path: Path) -> None:
    tuned, tuning = {"factorjepa@slow": {"branch_rate": 1}}, {"branch_rate": (2, 4), "lr": (0.1, 0.2)}
    study = StudySettings(methods=("factorjepa", "factorjepa@slow"), seeds=(17,), tuned=tuned, tuning=tuning)
    tried = study.candidates(tmp_path, tmp_path)
    assert len(tried["factorjepa"]) == 4
    assert [one.values for one in tried["factorjepa@slow"]] == [{"lr": 0.1}, {"lr": 0.2}]
    assert {one.job.settings.branch_rate for one in tried["factorjepa@slow"]} == {1}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["methods=[auto_rgn,auto_rgn@long]"], "auto_rgn@long has the settings of auto_rgn"),
        (["methods=[frozen,frozen@again]"], "frozen@again has the settings of frozen"),
        (["methods=[auto_rgn@long]", "decoded=[auto_rgn@lon]"], "auto_rgn@lon is not among"),
    ],
)
def test_variants_that_are_none_are_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        study(*words).check()


def test_studies_that_share_a_folder_train_common_methods_alike() -> None:
    def jobs(preset: str) -> dict[str, dict[str, object]]:
        made = study(preset=preset)
        return {job.out.name: job.settings.model_dump() for job in made.jobs(Path("data"), Path("runs"), None)}

    chosen, ablations = jobs("chosen"), jobs("ablations")
    common = chosen.keys() & ablations.keys()
    assert {"frozen-17", "factorjepa_chosen-43"} < common
    assert all(chosen[name] == ablations[name] for name in common)


def test_the_teacher_looks_at_the_window_and_context_of_the_runs() -> None:
    made = study("training={context: 8, fps: 2}", "teacher=[targets.grid=8]")
    taught = resolve(TeacherSettings, None, made.teaching())
    assert (taught.frames, taught.fps, taught.context, taught.targets.grid) == (16, 2.0, 8, 8)
    with pytest.raises(ConfigError, match=r"teacher: context=4 is not what the runs see \(12\)"):
        study("teacher=[context=4]").check()
