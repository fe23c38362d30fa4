"""Python that README and guide show runs as it stands there, on a corpus as small as it takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import factorjepa.config
import factorjepa.world.windows
from factorjepa.corpus.simulated import planned, simulate_corpus
from factorjepa.corpus.splits import Split
from factorjepa.teacher.making import make_packets
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.training.engine import Engine
from factorjepa.training.settings import TrainSettings
from factorjepa.world import WorldSettings
from factorjepa.world.windows import Window, stream_windows

from .pages import PAGES, ROOT, python

QUICK = {"updates": 1, "batch": 2, "dictionary_clips": 4, "validation_clips": 2, "probe_batches": 1}
NEED_FILES = ("yunet.onnx", "IN1K-vit", "vjepa2_1_vitg")  # weights that a user brings
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the pages' reader stands: a corpus `out` with packets, and the runs of two methods."""
    folder = tmp_path_factory.mktemp("reader")
    world = WorldSettings(size=48, fps=8.0, seconds=(6.0, 6.5))
    simulate_corpus(folder / "out", planned(world, 7, 24, 1, (0.6, 0.2, 0.2)), workers=1)
    splits = [Split.TRAIN, Split.VALIDATION, Split.AUDIT]
    make_packets(folder / "out", folder / "out" / "targets", TeacherSettings(), splits, workers=1)
    for name, method in (("frozen", "frozen"), ("a", "auto_rgn")):
        settings = factorjepa.config.resolve(TrainSettings, "nano", data=str(folder / "out"), method=method, **QUICK)
        Engine(settings, CPU).run(folder / "runs" / name, resume=False)
    return folder


@pytest.mark.parametrize(
    "page", ["README.md", "docs/guide/data.md", "docs/guide/training.md", "docs/guide/evaluation.md"]
)
def test_python_on_a_page_runs(page: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    resolve = factorjepa.config.resolve

    def quick(model: Any, *given: Any, **values: Any) -> Any:
        return resolve(model, *given, **values, **(QUICK if model is TrainSettings else {}))

    def few(settings: WorldSettings, seed: int, sources: Sequence[int], workers: int) -> Iterator[Window]:
        return stream_windows(settings, seed, sources[:2], workers=0)

    monkeypatch.setattr(factorjepa.config, "resolve", quick)
    monkeypatch.setattr(factorjepa.world.windows, "stream_windows", few)
    square = np.zeros((2, 8, 8), np.float32)
    known: dict[str, Any] = {
        "frames": np.zeros((16, 64, 64, 3), np.uint8), "clip_id": "a clip", "error_hrc": square, "cosine_hrc": square,
        "other_hrc": square,
    }  # fmt: skip
    ran = 0
    for code in python(ROOT / page):
        if not any(file in code for file in NEED_FILES):
            exec(compile(code, page, "exec"), known)
            ran += 1
    assert ran >= 2


@pytest.mark.parametrize("page", [page for page in PAGES if python(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_imports_that_a_page_shows_find_what_they_name(page: Path) -> None:
    for code in python(page):
        shown = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(shown, []), page.name, "exec"), {})
