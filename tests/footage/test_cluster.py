"""Ingest on a Ray cluster: the same corpus, also when a worker is killed in the middle."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from pathlib import Path

import pytest

from factorjepa.engines import Here, engine_named
from factorjepa.errors import StorageError
from factorjepa.footage.ingest import ingest
from factorjepa.footage.listing import list_sources

from .filters import Mortal
from .videos import SETTINGS, encode, seconds, street

ray = pytest.importorskip("ray", reason="the extra `cluster` (ray) is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # ray's own


def refuses(job: int) -> int:
    if job == 1:
        raise StorageError("the disk is full")
    return job


@pytest.fixture(scope="module")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("footage")
    for number in range(4):
        encode(folder / "Pune" / "walk" / f"{number}.mp4", street(number, seconds(14)))
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def test_two_workers_of_a_cluster_make_the_same_corpus_although_one_is_killed(
    footage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list_sources([footage])
    (tmp_path / "died").touch()  # nobody is killed here
    ingest(tmp_path / "here", found, SETTINGS, functools.partial(Mortal, tmp_path), Here())
    (tmp_path / "died").unlink()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers find the filter of this test
    engine = engine_named("ray", workers=2)
    try:
        made = ingest(tmp_path / "there", found, SETTINGS, functools.partial(Mortal, tmp_path), engine)
        with pytest.raises(StorageError, match="disk is full"):
            list(engine.run(refuses, range(3)))
    finally:
        ray.shutdown()
    assert (tmp_path / "died").exists()  # a worker was
    assert len(made.manifest) == 8
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
