"""Ingest on a Ray cluster: the same corpus, also when a worker is killed in the middle."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from factorjepa.config import resolve
from factorjepa.engines import Engine, Here, engine_named
from factorjepa.errors import StorageError
from factorjepa.footage.ingest import ingest
from factorjepa.footage.listing import list_sources
from factorjepa.teacher.making import make_packets
from factorjepa.teacher.settings import TeacherSettings

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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Engine]:
    """Two workers on this machine, that find the filter of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield engine_named("ray", workers=2)
        ray.shutdown()


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def test_two_workers_of_a_cluster_make_the_same_corpus_although_one_is_killed(
    footage: Path, tmp_path: Path, cluster: Engine
) -> None:
    found = list_sources([footage])
    (tmp_path / "died").touch()  # nobody is killed here
    ingest(tmp_path / "here", found, SETTINGS, functools.partial(Mortal, tmp_path), Here())
    (tmp_path / "died").unlink()
    made = ingest(tmp_path / "there", found, SETTINGS, functools.partial(Mortal, tmp_path), cluster)
    assert (tmp_path / "died").exists()  # a worker was
    assert len(made.manifest) == 8
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_an_error_on_the_cluster_ends_the_run_as_itself(cluster: Engine) -> None:
    with pytest.raises(StorageError, match="disk is full"):
        list(cluster.run(refuses, range(3)))


def test_packets_made_on_the_cluster_are_the_same_bytes(footage: Path, tmp_path: Path, cluster: Engine) -> None:
    found = list_sources([footage])
    (tmp_path / "died").touch()
    ingest(tmp_path / "data", found[:1], SETTINGS, functools.partial(Mortal, tmp_path), Here())
    settings = resolve(TeacherSettings, None, ["size=64", "targets.grid=8"])
    make_packets(tmp_path / "data", tmp_path / "here", settings, workers=1)
    make_packets(tmp_path / "data", tmp_path / "there", settings, engine=cluster)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert len(contents(tmp_path / "there")) > 1
