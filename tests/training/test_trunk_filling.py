"""The trunk cache filled before training: the records that training would have kept, whoever makes them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from factorjepa.backbones import build
from factorjepa.backbones.checkpoint import save
from factorjepa.corpus.manifest import Manifest
from factorjepa.corpus.splits import Split
from factorjepa.engines import Here
from factorjepa.errors import TrainingError
from factorjepa.storage import only_writer
from factorjepa.training import trunk_filling
from factorjepa.training.engine import Engine
from factorjepa.training.run import RunDirectory
from factorjepa.training.settings import TrainSettings
from factorjepa.training.trunk_filling import fill_trunk, make_shard

from .conftest import SPEC

Make = Callable[..., TrainSettings]
CPU = torch.device("cpu")


@pytest.fixture
def cached(settings: Make, tmp_path: Path) -> Make:
    return lambda **changes: settings(**{"trunk_cache": str(tmp_path / "trunk"), "method": "factorjepa_raw", **changes})


@pytest.fixture(autouse=True)
def small_jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Several shards of a small corpus."""
    monkeypatch.setattr(trunk_filling, "MOST", 7)
    yield
    trunk_filling._workshop.cache_clear()


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def losses(out: Path) -> list[float]:
    return [record["loss"] for record in RunDirectory.existing(out).metrics() if "loss" in record]


def test_a_run_finds_every_record_and_trains_as_one_that_made_them(cached: Make, tmp_path: Path) -> None:
    itself = Engine(cached(trunk_cache=str(tmp_path / "itself")), CPU)
    itself.run(tmp_path / "a", resume=False)
    seen: list[tuple[int, int]] = []
    trunk = fill_trunk(Engine(cached(), CPU), Here(), lambda *done: seen.append(done))
    assert seen[-1] == (len(trunk.clip_ids), len(trunk.clip_ids))
    before = contents(tmp_path / "trunk")
    assert len(before) > 4
    following = Engine(cached(), CPU)
    assert following.trunk is not None
    assert following.trunk.bytes_to_come() == 0
    following.run(tmp_path / "b", resume=False)
    assert losses(tmp_path / "b") == losses(tmp_path / "a")
    assert contents(tmp_path / "trunk") == before


def test_what_was_interrupted_is_finished_to_the_same_bytes(cached: Make, tmp_path: Path) -> None:
    def dying(order: Any) -> None:
        if order.shards[0][1] == 2:
            raise KeyboardInterrupt
        make_shard(order)

    fill_trunk(Engine(cached(trunk_cache=str(tmp_path / "straight")), CPU), Here())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trunk_filling, "make_shard", dying)
        with pytest.raises(KeyboardInterrupt):
            fill_trunk(Engine(cached(), CPU), Here())
    there = contents(tmp_path / "trunk")
    assert 1 < len(there) < len(contents(tmp_path / "straight"))
    (tmp_path / "trunk" / "rank-0" / "context-00000.safetensors").unlink()
    fill_trunk(Engine(cached(), CPU), Here())
    assert contents(tmp_path / "trunk") == contents(tmp_path / "straight")


def test_a_corpus_that_has_grown_gets_the_records_that_it_lacks(cached: Make, tiny: Path, tmp_path: Path) -> None:
    corpus = Path(shutil.copytree(tiny / "corpus", tmp_path / "corpus"))
    whole = list(Manifest.read(corpus))
    new = [number for number, clip in enumerate(whole) if clip.split == Split.TRAIN][2:8:3]
    Manifest([clip for number, clip in enumerate(whole) if number not in new]).write(corpus)
    fill_trunk(Engine(cached(data=str(corpus)), CPU), Here())
    before = contents(tmp_path / "trunk")
    Manifest(whole).write(corpus)
    trunk_filling._workshop.cache_clear()
    grown = Engine(cached(data=str(corpus)), CPU)
    assert grown.trunk is not None
    assert grown.trunk.bytes_to_come() == len(new) * sum(grown.trunk.bytes_per_clip.values())
    fill_trunk(grown, Here())
    after = contents(tmp_path / "trunk")
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 2  # a shard of each kind
    following = Engine(cached(data=str(corpus)), CPU)
    assert following.trunk is not None
    assert following.trunk.bytes_to_come() == 0
    whole[0] = replace(whole[0], t_start=whole[0].t_start + 0.1)
    Manifest(whole).write(corpus)
    with pytest.raises(TrainingError, match=r"was made of another corpus: clip '.*' is another one now"):
        Engine(cached(data=str(corpus)), CPU)


def test_a_worker_with_other_weights_is_refused(cached: Make, tmp_path: Path) -> None:
    save(build("nano", **SPEC), tmp_path / "weights.safetensors")
    run = Engine(cached(weights=str(tmp_path / "weights.safetensors")), CPU)
    other = build("nano", **SPEC)
    with torch.no_grad():
        next(other.encoder.blocks[0].parameters()).add_(1.0)
    save(other, tmp_path / "weights.safetensors")
    with pytest.raises(TrainingError, match="holds the trunk of other runs: weights is"):
        fill_trunk(run, Here())


def test_beside_somebody_who_fills_it_nothing_is_begun(cached: Make, tmp_path: Path) -> None:
    fill_trunk(Engine(cached(), CPU), Here())
    with only_writer(tmp_path / "trunk" / "rank-0", "filling"), pytest.raises(TrainingError, match="another process"):
        fill_trunk(Engine(cached(), CPU), Here())
