"""Ingest on a Ray cluster: the same corpus, also when a worker is killed in the middle."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from factorjepa.cli import app
from factorjepa.config import resolve
from factorjepa.corpus.manifest import Manifest
from factorjepa.engines import Engine, Here, engine_named
from factorjepa.errors import StorageError
from factorjepa.footage import writing
from factorjepa.footage.ingest import ingest
from factorjepa.footage.listing import Listed, list_sources
from factorjepa.training.engine import Engine as Trainer
from factorjepa.training.settings import TrainSettings
from factorjepa.training.trunk_filling import fill_trunk

from .filters import Mortal, Signing, refuses
from .videos import SETTINGS, encode, seconds, street

ray = pytest.importorskip("ray", reason="the extra `cluster` (ray) is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # ray's own


@pytest.fixture(scope="module")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("footage")
    for number in range(3):
        encode(folder / "Pune" / "walk" / f"{number}.mp4", street(number, seconds(7 if number else 14)))
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[Engine]:
    """Two workers on this machine, that find the filter of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield engine_named("ray", workers=2)
        ray.shutdown()


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """This process shares the cores with the cluster, and threads that wait for each other crawl."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.fixture(scope="module")
def listed(footage: Path) -> list[Listed]:
    splits = ("train", "train", "validation")
    return [replace(one, split=split) for one, split in zip(list_sources([footage]), splits, strict=True)]


@pytest.fixture(scope="module")
def here(listed: list[Listed], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus as this process makes it, with nobody killed."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "died").touch()
    ingest(folder / "corpus", listed, SETTINGS, functools.partial(Mortal, folder), Here())
    return folder / "corpus"


def test_two_workers_of_a_cluster_make_the_same_corpus_although_one_is_killed(
    listed: list[Listed], here: Path, tmp_path: Path, cluster: Engine
) -> None:
    made = ingest(tmp_path / "there", listed, SETTINGS, functools.partial(Mortal, tmp_path), cluster)
    assert (tmp_path / "died").exists()  # a worker was
    assert len(made.manifest) == 4
    assert contents(tmp_path / "there") == contents(here)


def test_a_worker_of_the_cluster_shares_one_long_file_out_among_processes_of_its_own(
    listed: list[Listed], tmp_path: Path, cluster: Engine
) -> None:
    writing._builds.clear()  # a filter of another test says the same of itself
    for name, engine in (("here", Here()), ("there", cluster)):
        (tmp_path / "pids" / name).mkdir(parents=True)
        ingest(tmp_path / name, listed[:1], SETTINGS, functools.partial(Signing, tmp_path / "pids" / name), engine)
    assert len(list((tmp_path / "pids" / "there").iterdir())) == 2
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert len(Manifest.read(tmp_path / "there")) == 2


def test_an_error_on_the_cluster_ends_the_run_as_itself(cluster: Engine) -> None:
    with pytest.raises(StorageError, match="disk is full"):
        list(cluster.run(refuses, range(3)))


def command(*words: object) -> str:
    """A verb in this process, which is connected to the cluster."""
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


TARGETS = ("size=64", "targets.grid=8")


@pytest.fixture(scope="module")
def packets(here: Path) -> Path:
    """Made by this machine alone."""
    command("targets", here, *TARGETS, "--workers", 1)
    return here / "targets"


def test_packets_made_on_the_cluster_are_the_same_bytes(
    here: Path, packets: Path, tmp_path: Path, cluster: Engine
) -> None:
    command("targets", here, *TARGETS, "--out", tmp_path, "--engine", "ray", "--workers", 2)
    assert contents(tmp_path) == contents(packets)
    assert len(contents(tmp_path)) > 1


def test_trunk_records_made_on_the_cluster_are_the_same_bytes(
    here: Path, packets: Path, tmp_path: Path, cluster: Engine
) -> None:
    words = ("--method", "factorjepa_raw", "--device", "cpu", "size=32", "batch=2", "dictionary_clips=2")
    trunk = tmp_path / "here"
    changes = {"method": "factorjepa_raw", "size": 32, "batch": 2, "dictionary_clips": 2, "trunk_cache": str(trunk)}
    fill_trunk(Trainer(resolve(TrainSettings, "nano", data=str(here), **changes), torch.device("cpu")), Here())
    said = command("trunk", here, *words, "--out", tmp_path / "there", "--engine", "ray", "--workers", 2)
    assert "4 clips in" in said
    assert contents(tmp_path / "there") == contents(trunk)
    assert len(contents(trunk)) > 1
