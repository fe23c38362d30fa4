"""A study on a corpus that is there: it makes the packets that its methods read, and simulates nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from factorjepa.config import resolve
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.splits import Split
from factorjepa.errors import TrainingError
from factorjepa.scores import Scores
from factorjepa.study import StudySettings
from factorjepa.teacher.cache import PacketCache
from factorjepa.training.run import RunDirectory
from factorjepa.training.settings import TrainSettings
from factorjepa.verbs.study import run_study

Make = Callable[..., TrainSettings]


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes would take longer to start than to work."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})


def test_misaligned_targets_train_in_a_study_on_packets_of_a_second_window(
    tiny: Path, settings: Make, tmp_path: Path
) -> None:
    corpus = shutil.copytree(tiny / "corpus", tmp_path / "corpus")
    own = settings(updates=1)
    training = own.model_dump(exclude={"data", "method", "seed"}, exclude_unset=True)
    asked = resolve(
        StudySettings, None, data=str(corpus), methods=("misaligned_targets",), seeds=(17,), training=training,
        split="validation", windows=False, side_by_side=1,
    )  # fmt: skip
    run_study(asked, tmp_path / "study", until="train")
    assert [path.name for path in (tmp_path / "study").glob("[!.]*")] == ["runs"], "nothing was simulated"
    assert RunDirectory(tmp_path / "study" / "runs" / "misaligned_targets-17").steps()[-1] == 1
    cache = PacketCache.open(corpus / "targets")
    assert [split for split in Split if cache.has(split, 1)] == [Split.TRAIN]
    clips = Corpus.open(corpus).training()
    first, second = (cache.packets(clips, window) for window in (0, 1))
    moved = [not np.array_equal(first.of(clip).times, second.of(clip).times) for clip in clips]
    assert np.mean(moved) > 0.8, "another moment of most clips; a drawn window may be the same"


def test_a_study_that_was_moved_goes_on_where_it_was(
    settings: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs name the corpus as somebody typed it, from a folder that is not the one they are asked for from now."""
    chosen = settings(updates=1, validate_every=1, save_every=1)
    training = chosen.model_dump(exclude={"data", "method", "seed"}, exclude_unset=True)
    asked = resolve(
        StudySettings, None, methods=("auto_rgn", "frozen"), seeds=(17,), training=training, clips=24,
        clips_per_source=1, shares=(0.5, 0.25, 0.25), street=("size=32", "fps=8.0", "seconds=[6,6.5]"), windows=False,
        side_by_side=1, decoder="none", examples=0, beside_teacher=0, teacher_device="cpu",
    )  # fmt: skip
    (tmp_path / "before").mkdir()
    monkeypatch.chdir(tmp_path / "before")
    run_study(asked, Path("study"), until="train")
    trained = RunDirectory(Path("study/runs/auto_rgn-17")).metrics()
    (tmp_path / "before" / "study").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    run_study(asked, Path("moved"), until="evaluate")
    assert RunDirectory(Path("moved/runs/auto_rgn-17")).metrics() == trained
    assert Scores.read(Path("moved/scores")).values("method") == ["auto_rgn", "frozen"]
    elsewhere = asked.model_copy(update={"data": str(shutil.copytree("moved/dense", "other"))})
    with pytest.raises(TrainingError, match="data: study/dense; now there is data: "):
        run_study(elsewhere, Path("moved"), until="train")


def test_runs_of_other_streets_of_the_same_name_are_refused(settings: Make, tmp_path: Path) -> None:
    """Every study calls its streets `dense`: where they lie does not tell whose they are."""
    chosen = settings(updates=1, validate_every=1, save_every=1)
    training = chosen.model_dump(exclude={"data", "method", "seed"}, exclude_unset=True)
    asked = resolve(
        StudySettings, None, methods=("frozen",), seeds=(17,), training=training, clips=24, clips_per_source=1,
        shares=(0.5, 0.25, 0.25), street=("size=32", "fps=8.0", "seconds=[6,6]"), windows=False, side_by_side=1,
        decoder="none", examples=0, beside_teacher=0, teacher_device="cpu",
    )  # fmt: skip
    run_study(asked, tmp_path / "one", until="train")
    other = asked.model_copy(update={"world_seed": asked.world_seed + 1})
    run_study(other, tmp_path / "other", until="strata")
    shutil.copytree(tmp_path / "one" / "runs", tmp_path / "other" / "runs")
    with pytest.raises(TrainingError, match="was trained on another corpus, or on this one before it changed"):
        run_study(other, tmp_path / "other", until="evaluate")
    assert not (tmp_path / "other" / "scores").exists()
