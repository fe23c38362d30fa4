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
from factorjepa.study import StudySettings
from factorjepa.teacher.cache import PacketCache
from factorjepa.training.run import RunDirectory
from factorjepa.training.settings import TrainSettings
from factorjepa.verbs.study import run_study


def test_misaligned_targets_train_in_a_study_on_packets_of_a_second_window(
    tiny: Path, settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Worker processes would take longer to start than to work.
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
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
