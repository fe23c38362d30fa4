"""The manifest: exact round trip, every problem named at once, proportional and nested subsets."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factorjepa.corpus.manifest import MANIFEST, Clip, Manifest
from factorjepa.corpus.splits import Split
from factorjepa.errors import CorpusError, StorageError

from .clips import four_splits, make_clip


def test_clips_and_typed_attributes_come_back_equal(tmp_path: Path) -> None:
    clips = [
        make_clip(0, attributes={"scene_type": "market", "agents": 31, "density": 0.5, "night": False}),
        make_clip(1, attributes={"scene_type": "junction", "density": float("inf"), "night": True}),
        make_clip(2, Split.AUDIT),
    ]
    Manifest(clips).write(tmp_path)
    back = Manifest.read(tmp_path)
    assert list(back) == clips
    assert [type(value) for value in back[0].attributes.values()] == [int, float, bool, str]
    assert back[2].attributes == {}
    assert isinstance(back[2].split, Split)
    assert pq.read_table(tmp_path / MANIFEST)["agents"].to_pylist() == [31, None, None]


def test_an_empty_manifest_round_trips(tmp_path: Path) -> None:
    Manifest([]).write(tmp_path)
    assert len(Manifest.read(tmp_path)) == 0


def test_a_folder_without_a_manifest_is_not_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"holds no manifest\.parquet"):
        Manifest.read(tmp_path)
    with pytest.raises(CorpusError, match="typo: there is no such folder"):
        Manifest.read(tmp_path / "typo")


@pytest.mark.parametrize("data", [b"", b"not parquet at all", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_damaged_file_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(data)
    with pytest.raises(CorpusError, match=r"manifest\.parquet: cannot be read as Parquet"):
        Manifest.read(tmp_path)


def test_missing_and_mistyped_columns_are_all_named(tmp_path: Path) -> None:
    Manifest([make_clip(0), make_clip(1)]).write(tmp_path)
    table = pq.read_table(tmp_path / MANIFEST).drop_columns(["city", "fps"])
    table = table.set_column(table.column_names.index("shot"), "shot", pa.array(["one", "two"]))
    table = table.set_column(table.column_names.index("width"), "width", pa.array([48, None]))
    table = table.append_column("boxes", pa.array([[1], [2]]))
    pq.write_table(table, tmp_path / MANIFEST)
    with pytest.raises(CorpusError) as refused:
        Manifest.read(tmp_path)
    message = str(refused.value)
    assert message.startswith(f"Found 5 errors in {tmp_path / MANIFEST}:")
    for part in (
        "column 'city' is missing (expected string)",
        "column 'fps' is missing (expected double)",
        "column 'shot' is string, not int64",
        "column 'boxes' is list<element: int64>, not a string, whole number, float or boolean",
        "column 'width' is null in 1 rows, first row 1",
    ):
        assert part in message


def test_tables_from_other_writers_are_read(tmp_path: Path) -> None:
    """pandas writes categories, large strings and 32-bit numbers."""
    clips = [replace(make_clip(n), attributes={"weather": "rain", "agents": n}) for n in range(3)]
    Manifest(clips).write(tmp_path)
    table = pq.read_table(tmp_path / MANIFEST)
    for name in ("city", "split", "weather"):
        table = table.set_column(table.column_names.index(name), name, table[name].dictionary_encode())
    for name, kind in (
        ("path", pa.large_string()),
        ("fps", pa.float32()),
        ("agents", pa.int32()),
        ("t_end", pa.int64()),
    ):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    pq.write_table(table, tmp_path / MANIFEST)
    assert list(Manifest.read(tmp_path)) == clips


BROKEN = {
    "capture_mode 'boat' is none of drive, walk, aerial": {"capture_mode": "boat"},
    "split 'holdout' is none of train, validation, test, audit": {"split": "holdout"},
    "path '/etc/passwd' leaves the corpus folder": {"path": "/etc/passwd"},
    "path 'clips/../../x.mp4' leaves the corpus folder": {"path": "clips/../../x.mp4"},
    r"path 'C:\\x.mp4' leaves the corpus folder": {"path": "C:\\x.mp4"},
    "t_start 2 and t_end 2 do not enclose a stretch of time": {"t_end": 2.0},
    "t_start 2 and t_end nan do not enclose": {"t_end": float("nan")},
    "fps 0 is not a frame rate": {"fps": 0.0},
    "size 0x32 is not a picture size": {"width": 0},
    "clip_id 'navapur/s01/v01#1.0' is used by rows 1, 4; it must be unique": {"clip_id": "navapur/s01/v01#1.0"},
    "path 'clips/navapur/s01/v01/1-0' is used by rows 1, 4": {"path": "clips//navapur/s01/./v01/1-0.mkv"},
    "source 'navapur/s01/v01' is in 2 splits (test, train)": {"source": "navapur/s01/v01", "split": Split.TEST},
    "source 'navapur/s01/v01' is in 2 cities (navapur, pune)": {"source": "navapur/s01/v01", "city": "pune"},
    "city 'navapur' is partly audit": {"split": Split.AUDIT},
    "attribute 'city' has the name of a fixed column": {"attributes": {"city": "x"}},
    "attribute 'tags' of clip 'navapur/s01/v04#1.0' is a list": {"attributes": {"tags": [1]}},
    "attribute 'agents' mixes types: int in clip 'navapur/s01/v00#1.0', float": {"attributes": {"agents": 2.5}},
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_row_is_refused_with_its_problem(message: str) -> None:
    clips = [make_clip(0, attributes={"agents": 3}), *(make_clip(n) for n in range(1, 4))]
    with pytest.raises(CorpusError) as refused:
        Manifest([*clips, replace(make_clip(4), **BROKEN[message])])  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_a_file_with_broken_rows_lists_all_problems_and_the_first_rows(tmp_path: Path) -> None:
    Manifest(make_clip(n) for n in range(12)).write(tmp_path)
    table = pq.read_table(tmp_path / MANIFEST)
    table = table.set_column(table.column_names.index("path"), "path", pa.array([f"../{n}.mp4" for n in range(12)]))
    table = table.set_column(table.column_names.index("split"), "split", pa.array(["train"] * 11 + ["dev"]))
    pq.write_table(table, tmp_path / MANIFEST)
    with pytest.raises(CorpusError) as refused:
        Manifest.read(tmp_path)
    lines = str(refused.value).splitlines()
    assert lines[0] == f"Found 4 errors in {tmp_path / MANIFEST}:"
    assert lines[1] == "  row 11 (clip 'navapur/s01/v11#1.0'): split 'dev' is none of train, validation, test, audit"
    assert lines[2] == "  row 0 (clip 'navapur/s01/v00#1.0'): path '../0.mp4' leaves the corpus folder"
    assert lines[4].endswith("path '../2.mp4' leaves the corpus folder (and 9 more rows)")


def test_an_unwritable_folder_is_explained_and_the_old_manifest_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Manifest([make_clip(0)]).write(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="disk is full"):
        Manifest([make_clip(1)]).write(tmp_path)
    assert [clip.clip_id for clip in Manifest.read(tmp_path)] == ["navapur/s01/v00#1.0"]
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]


def test_select_by_split_city_and_mode() -> None:
    manifest = Manifest(four_splits())
    assert {clip.split for clip in manifest.select(split="test")} == {Split.TEST}
    assert manifest.select(city="sagarpur") == manifest.select(split=Split.AUDIT)
    assert len(manifest.select(split="train", city=["navapur"], capture_mode="walk")) == 2
    with pytest.raises(CorpusError, match="no split 'dev': choose train, validation, test, audit"):
        manifest.select(split="dev")


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=9))
    return Manifest(
        make_clip(0, clip_id=f"{s}#{n}", source=f"{s}", city=f"city{s // 3}", path=f"{s}-{n}.mp4", capture_mode=mode)
        for s, size in enumerate(sizes)
        for mode in [("drive", "walk", "aerial")[s % 3]]
        for n in range(size)
    )


def stratum(clip: Clip) -> tuple[str, str]:
    return clip.city, clip.capture_mode


@given(manifests(), st.integers(0, 2**31), st.data())
def test_subsets_are_proportional_and_nested(manifest: Manifest, seed: int, data: st.DataObject) -> None:
    large = data.draw(st.integers(1, len(manifest)))
    small = data.draw(st.integers(1, large))
    subset = manifest.subset(large, seed)
    assert len(subset) == large
    sizes, taken = Counter(map(stratum, manifest)), Counter(map(stratum, subset))
    for key, size in sizes.items():
        assert abs(taken[key] - large * size / len(manifest)) < 1
    assert set(manifest.subset(small, seed)) <= set(subset) <= set(manifest)
    assert manifest.subset(large, seed) == subset


def test_a_subset_does_not_depend_on_the_order_of_rows() -> None:
    clips = [make_clip(n) for n in range(30)]
    forward, backward = Manifest(clips).subset(9, 4), Manifest(reversed(clips)).subset(9, 4)
    assert set(forward) == set(backward)
    assert set(forward) != set(Manifest(clips).subset(9, 5))


@pytest.mark.parametrize("n", [0, -1, 13])
def test_an_impossible_subset_is_refused(n: int) -> None:
    with pytest.raises(CorpusError, match=f"cannot take a subset of {n} clips: there are 12"):
        Manifest(four_splits()).subset(n, seed=0)
