"""BDD100K and nuScenes, as small folders in their published layouts: from there to a corpus."""

from __future__ import annotations

import csv
import functools
import io
import json
import shutil
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from factorjepa.cli import app
from factorjepa.corpus.manifest import Manifest
from factorjepa.engines import Here
from factorjepa.errors import RegimeError
from factorjepa.footage.ingest import ingest
from factorjepa.footage.listing import list_sources, read_table
from factorjepa.footage.privacy import PrivacySettings, build
from factorjepa.footage.settings import ClipSettings, IngestSettings
from factorjepa.regime.matching import present
from factorjepa.regime.readers.native import open_native
from factorjepa.regime.readers.reference import list_bdd100k, list_nuscenes

WIDTH, HEIGHT, RATE = 160, 90, 12


@functools.cache
def street(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    rough = np.kron(random.integers(40, 200, (9, 52, 3)), np.ones((10, 10, 1), np.int64))
    return np.asarray(np.clip(rough + random.integers(-25, 25, rough.shape), 0, 255), np.uint8)


def picture(number: int, seed: int = 0) -> bytes:
    """A textured street that the camera moves along."""
    data = io.BytesIO()
    Image.fromarray(street(seed)[:, 3 * number : 3 * number + WIDTH]).save(data, "JPEG", quality=92)
    return data.getvalue()


def nuscenes(folder: Path, scenes: int = 2, seconds: int = 7) -> None:
    """Two scenes of two logs; 12 pictures a second, every sixth a key frame, the camera a little late each time."""
    tables: dict[str, list[dict[str, Any]]] = {
        "sensor": [{"token": "f", "channel": "CAM_FRONT"}, {"token": "l", "channel": "LIDAR_TOP"}],
        "calibrated_sensor": [{"token": "cf", "sensor_token": "f"}, {"token": "cl", "sensor_token": "l"}],
        "scene": [], "log": [], "sample": [], "sample_data": [],
    }  # fmt: skip
    for s in range(scenes):
        told = "Night, rain, many pedestrians" if s else "Parked cars, turn left"
        tables["scene"].append({"token": f"s{s}", "name": f"scene-{s:04d}", "log_token": f"l{s}", "description": told})
        place = ("singapore-onenorth", "boston-seaport")[s % 2]
        tables["log"].append({"token": f"l{s}", "logfile": f"n015-{s}", "location": place})
        for t in range(RATE * seconds):
            key = t % 6 == 0
            if key:
                tables["sample"].append({"token": f"k{s}/{t}", "scene_token": f"s{s}"})
            file = f"{'samples' if key else 'sweeps'}/CAM_FRONT/{s}_{t:04d}.jpg"
            at = 10**15 * (s + 1) + round(1e6 * t / RATE) + 1000 * (t % 3)
            row = {"sample_token": f"k{s}/{6 * (t // 6)}", "is_key_frame": key, "timestamp": at}
            tables["sample_data"].append({"token": f"c{s}/{t}", "calibrated_sensor_token": "cf", "filename": file,
                                          "width": WIDTH, "height": HEIGHT, **row})  # fmt: skip
            tables["sample_data"].append({"token": f"p{s}/{t}", "calibrated_sensor_token": "cl", "filename": "x.bin",
                                          "width": 0, "height": 0, **row})  # fmt: skip
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(picture(t, s))
    (folder / "v1.0-mini").mkdir()
    for name, rows in tables.items():
        (folder / "v1.0-mini" / f"{name}.json").write_text(json.dumps(rows))


@pytest.fixture
def published(tmp_path: Path) -> Path:
    nuscenes(tmp_path / "ns")
    return tmp_path / "ns"


def ingested(table: Path, out: Path) -> Manifest:
    settings = IngestSettings(clips=ClipSettings(short_side=64))
    ingest(out, list_sources([table]), settings, functools.partial(build, PrivacySettings(mode="off")), Here())
    return Manifest.read(out)


def test_nuscenes_scenes_become_videos_of_the_very_pictures_at_the_cameras_times(
    published: Path, tmp_path: Path
) -> None:
    made = list_nuscenes(published, tmp_path / "out")
    assert made.videos == 2
    with av.open(str(tmp_path / "out" / "CAM_FRONT" / "scene-0000.mkv")) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        assert [bytes(packet) for packet in packets] == [picture(t) for t in range(84)]
        times = [float((packet.pts or 0) * packet.time_base) for packet in packets]
    np.testing.assert_allclose(times, [t / RATE + 0.001 * (t % 3) for t in range(84)], atol=0.0011)


def test_nuscenes_becomes_a_corpus_with_places_logs_conditions_and_provenance(published: Path, tmp_path: Path) -> None:
    manifest = ingested(list_nuscenes(published, tmp_path / "out").table, tmp_path / "corpus")
    clips = sorted(manifest, key=lambda clip: clip.source)
    assert [clip.city for clip in clips] == ["boston-seaport", "singapore-onenorth"]
    assert clips[0].session.endswith("n015-1")
    assert {clip.capture_mode for clip in clips} == {"drive"}
    assert clips[0].attributes["illumination"] == "night"
    assert clips[0].attributes["weather"] == "rain"
    assert clips[1].attributes["illumination"] == "day"
    assert clips[0].attributes["dataset"] == "nuScenes v1.0-mini CAM_FRONT"
    assert clips[0].attributes["source_file"] == "CAM_FRONT/scene-0001.mkv"
    assert clips[0].seconds == pytest.approx(7.0, abs=0.1)
    assert present(clips) == {"capture_mode", "illumination", "weather"}  # what `regime compare` matches on


def test_scenes_of_a_part_that_was_not_downloaded_are_left_out_and_counted(published: Path, tmp_path: Path) -> None:
    (published / "sweeps" / "CAM_FRONT" / "1_0007.jpg").unlink()
    made = list_nuscenes(published, tmp_path / "out")
    assert made.videos == 1
    assert "1 scene of 2 left out" in made.notes[0]
    shutil.rmtree(published / "sweeps")
    with pytest.raises(RegimeError, match="of none of 2 scenes"):
        list_nuscenes(published, tmp_path / "out2")


def test_pictures_outside_the_dataset_and_what_is_no_picture_are_refused(published: Path, tmp_path: Path) -> None:
    path = published / "v1.0-mini" / "sample_data.json"
    whole = path.read_text()
    path.write_text(whole.replace("samples/CAM_FRONT/0_0000.jpg", "../../secret.jpg"))
    with pytest.raises(RegimeError, match="outside it"):
        list_nuscenes(published, tmp_path / "out")
    path.write_text(whole)
    (published / "samples" / "CAM_FRONT" / "0_0000.jpg").write_bytes(b"<html>not found</html>")
    with pytest.raises(RegimeError, match=r"0_0000\.jpg: is not a JPEG"):
        list_nuscenes(published, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.mkv"))
    path = published / "v1.0-mini" / "scene.json"
    path.write_text(path.read_text().replace("scene-0000", "../scene"))
    with pytest.raises(RegimeError, match="letters, digits and dashes"):
        list_nuscenes(published, tmp_path / "out")


def test_the_version_of_the_tables_and_the_camera_must_be_there(published: Path, tmp_path: Path) -> None:
    with pytest.raises(RegimeError, match="no CAM_BACK; it has: CAM_FRONT"):
        list_nuscenes(published, tmp_path / "out", camera="CAM_BACK")
    (published / "v1.0-test").mkdir()
    with pytest.raises(RegimeError, match=r"--version; there are: v1\.0-mini, v1\.0-test"):
        list_nuscenes(published, tmp_path / "out")
    assert list_nuscenes(published, tmp_path / "out", version="v1.0-mini").videos == 2


def bdd100k(folder: Path) -> None:
    names = {"train": ("0000f77c-6257be58", "0000f77c-62c2a288"), "val": ("b1c66a42-6f7d68ca",)}
    for split, stems in names.items():
        for number, stem in enumerate(stems):
            path = folder / "videos" / split / f"{stem}.mov"
            path.parent.mkdir(parents=True, exist_ok=True)
            with av.open(str(path), "w") as container:
                stream = container.add_stream("mjpeg", rate=RATE)
                stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuvj420p"
                for t in range(7 * RATE):
                    shown = np.asarray(Image.open(io.BytesIO(picture(t, 2 * number + len(split)))))
                    container.mux(stream.encode(av.VideoFrame.from_ndarray(shown)))
                container.mux(stream.encode())
    told = {"weather": "overcast", "scene": "residential", "timeofday": "dawn/dusk"}
    (folder / "labels" / "det_20").mkdir(parents=True)
    (folder / "labels" / "det_20" / "det_val.json").write_text(
        json.dumps([{"name": "b1c66a42-6f7d68ca.jpg", "attributes": told}])
    )
    (folder / "info" / "100k" / "train").mkdir(parents=True)
    for stem, where in zip(names["train"], ((40.7, -74.0), (37.8, -122.4)), strict=True):
        info = {"rideID": f"ride of {stem}", "locations": [dict(zip(("latitude", "longitude"), where, strict=True))]}
        (folder / "info" / "100k" / "train" / f"{stem}.json").write_text(json.dumps(info))


def test_bdd100k_videos_are_listed_with_conditions_places_and_rides(tmp_path: Path) -> None:
    bdd100k(tmp_path / "bdd100k")
    made = list_bdd100k(tmp_path / "bdd100k", tmp_path / "bdd100k")
    rows = {row["file"].split("/")[-1][:17]: row for row in csv.DictReader(made.table.open())}
    assert rows["0000f77c-6257be58"]["city"] == "new york"
    assert rows["0000f77c-62c2a288"]["city"] == "san francisco bay area"
    assert rows["0000f77c-6257be58"]["session"] == "ride of 0000f77c-6257be58"
    val = rows["b1c66a42-6f7d68ca"]
    assert (val["city"], val["session"], val["scene_type"], val["illumination"], val["weather"]) == (
        "unknown", "b1c66a42", "residential", "dusk", "overcast",
    )  # fmt: skip
    assert "conditions are known of 1 of 3 videos, the place of 2" in made.notes[0]
    assert len(read_table(made.table)) == 3
    manifest = ingested(made.table, tmp_path / "corpus")
    assert {clip.city for clip in manifest} == {"new york", "san francisco bay area", "unknown"}
    assert all(clip.attributes["dataset"] == "BDD100K" for clip in manifest)
    label = {"id": "7", "category": "car", "box2d": {"x1": 600, "y1": 300, "x2": 700, "y2": 400}}
    (tmp_path / "track").mkdir()
    (tmp_path / "track" / "b1c66a42-6f7d68ca.json").write_text(json.dumps([{"frameIndex": 0, "labels": [label]}]))
    native = open_native("bdd100k", tmp_path / "track", tmp_path)
    assert [clip.city for clip in manifest if native.scene(clip) is not None] == ["unknown"]


def test_a_table_that_somebody_changed_is_kept(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "a-b.mov").write_bytes(b"")
    table = list_bdd100k(tmp_path, tmp_path).table
    assert list_bdd100k(tmp_path, tmp_path).table == table
    table.write_text(table.read_text().replace("unknown", "berlin"))
    with pytest.raises(RegimeError, match="exists and says something else"):
        list_bdd100k(tmp_path, tmp_path)


def test_folders_that_are_not_the_dataset_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RegimeError, match=r"holds no videos"):
        list_bdd100k(tmp_path, tmp_path)
    with pytest.raises(RegimeError, match="there are: none"):
        list_nuscenes(tmp_path, tmp_path)
    (tmp_path / "bdd" / "videos").mkdir(parents=True)
    (tmp_path / "bdd" / "videos" / "a-b.mov").write_bytes(b"")
    with pytest.raises(RegimeError, match="is not above the videos"):
        list_bdd100k(tmp_path / "bdd", tmp_path / "elsewhere")


def test_the_verb_says_what_to_do_next(published: Path, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["regime", "reference", "nuscenes", str(published), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    assert "2 videos to ingest: factorjepa ingest" in ran.output
    assert CliRunner().invoke(app, ["regime", "reference", "kitti", str(published)]).exit_code != 0
