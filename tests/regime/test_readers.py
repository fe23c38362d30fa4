"""Published layouts, as small files made like them; MOT also on real sequences where they are at hand."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from factorjepa.errors import RegimeError
from factorjepa.regime.axes import NAMES, frame_measures
from factorjepa.regime.readers.bdd100k import read_attributes, read_video
from factorjepa.regime.readers.coco import read_coco
from factorjepa.regime.readers.mot import read_mot
from factorjepa.regime.readers.native import open_native
from factorjepa.regime.readers.nuscenes import read_filmed, read_nuscenes, rotation
from factorjepa.regime.settings import Thresholds
from factorjepa.world.taxonomy import SUPERCLASSES

T = Thresholds()
MOT17 = Path(__file__).parents[2] / ".." / "shared" / "assets" / "mot17"


def classes(superclass_O: np.ndarray | None) -> list[str]:
    assert superclass_O is not None
    return [SUPERCLASSES[k].value if k >= 0 else "unresolved" for k in superclass_O]


def test_mot_rows_become_agents_and_occluders_do_not(tmp_path: Path) -> None:
    path = tmp_path / "gt.txt"
    path.write_text(
        "1,1,100,100,50,100,1,1,1.0\n1,2,300,100,80,60,0,3,0.5\n2,1,110,100,50,100,1,1,1.0\n2,3,0,0,40,40,0,9,1\n"
        "3,4,500,100,50,90,1,2,1.0\n"
    )
    found = read_mot(path, 960, 540, 30.0)
    assert found.frames == 3
    assert found.frame_O.tolist() == [0, 0, 1, 2]
    assert classes(found.superclass_O) == ["pedestrian", "light passenger vehicle", "pedestrian", "unresolved"]
    counts = frame_measures(found, T)[:, NAMES.index("count")]
    assert counts.tolist() == [2, 1, 0]  # a person on a vehicle maps to no one class


@pytest.mark.skipif(not MOT17.is_dir(), reason="no MOT17 sample beside the checkout")
def test_real_mot_sequences_are_crowds_of_pedestrians() -> None:
    crowd, street = (read_mot(MOT17 / f"mot17_{name}_gt.txt", 960, 540, 30.0).every(8) for name in ("04", "10"))
    measured = np.nanmean(frame_measures(crowd, T), axis=0)
    assert measured[NAMES.index("count")] > 50
    assert 0 < measured[NAMES.index("occupancy")] < 1
    assert np.nanmean(frame_measures(street, T)[:, NAMES.index("heterogeneity")]) == 0


def coco() -> dict[str, Any]:
    return {
        "categories": [{"id": 1, "name": "person"}, {"id": 3, "name": "car"}, {"id": 62, "name": "chair"}],
        "images": [{"id": 10, "width": 640, "height": 480, "file_name": "a.jpg"},
                   {"id": 11, "width": 640, "height": 480, "video_id": 5, "frame_id": 4},
                   {"id": 12, "width": 640, "height": 480, "video_id": 5, "frame_id": 0}],
        "annotations": [{"image_id": 10, "category_id": 1, "bbox": [10, 20, 30, 40]},
                        {"image_id": 10, "category_id": 62, "bbox": [10, 20, 30, 40]},
                        {"image_id": 10, "category_id": 1, "bbox": [0, 0, 600, 40], "iscrowd": 1},
                        {"image_id": 11, "category_id": 3, "bbox": [50, 60, 70, 80], "track_id": 9},
                        {"image_id": 12, "category_id": 3, "bbox": [40, 60, 70, 80], "track_id": 9}],
    }  # fmt: skip


def test_coco_pictures_and_videos_are_scenes(tmp_path: Path) -> None:
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(coco()))
    found = read_coco(path, fps=8.0)
    assert set(found) == {"a.jpg", "video 5"}
    assert found["a.jpg"].box_O4.tolist() == [[10, 20, 40, 60]]
    video = found["video 5"]
    assert video.times_T.tolist() == [0.0, 0.5]
    assert video.box_O4[:, 0].tolist() == [40, 50]
    assert video.track_O.tolist() == [9, 9]


def test_bdd100k_tracks_and_attributes(tmp_path: Path) -> None:
    def frame(index: int, *labels: dict[str, Any]) -> dict[str, Any]:
        return {"videoName": "v", "name": f"v-{index:07d}.jpg", "frameIndex": index, "labels": list(labels)}

    def label(name: str, category: str, left: float, **attributes: bool) -> dict[str, Any]:
        box = {"x1": left, "y1": 100.0, "x2": left + 100, "y2": 200.0}
        return {"id": name, "category": category, "box2d": box, "attributes": attributes}

    rows = [frame(1, label("7", "car", 210)), frame(0, label("7", "car", 200), label("8", "rider", 400),
            label("9", "pedestrian", 600, crowd=True))]  # fmt: skip
    (tmp_path / "b1c66a42.json").write_text(json.dumps(rows))
    found = read_video(tmp_path / "b1c66a42.json")
    assert (found.width, found.height) == (1280, 720)
    assert found.times_T.tolist() == [0.0, 0.2]
    assert classes(found.superclass_O) == ["light passenger vehicle", "unresolved", "light passenger vehicle"]
    assert found.track_O[0] == found.track_O[2]
    labels = tmp_path / "images.json"
    told = {"weather": "rainy", "scene": "city street", "timeofday": "undefined"}
    labels.write_text(json.dumps([{"name": "b1c66a42.jpg", "attributes": told}]))
    assert read_attributes(labels) == {"b1c66a42": {"scene_type": "commercial", "weather": "rain"}}


def nuscenes(folder: Path) -> None:
    """One scene, two key frames; the camera looks along the vehicle's x, 1.5 m above the ground."""
    still = {"rotation": [1.0, 0.0, 0.0, 0.0], "translation": [0.0, 0.0, 0.0]}
    ahead = {"rotation": [0.5, -0.5, 0.5, -0.5], "translation": [0.0, 0.0, 1.5]}
    camera = [[1000.0, 0.0, 800.0], [0.0, 1000.0, 450.0], [0.0, 0.0, 1.0]]
    seen = {"is_key_frame": True, "calibrated_sensor_token": "c", "width": 1600, "height": 900}
    box = {"size": [2.0, 4.0, 1.5], "rotation": [1.0, 0.0, 0.0, 0.0]}
    tables: dict[str, list[dict[str, Any]]] = {
        "scene": [{"token": "s", "name": "scene-0001", "log_token": "l"}],
        "log": [{"token": "l", "logfile": "n015-2018", "location": "boston-seaport"}],
        "sample": [{"token": f"k{t}", "scene_token": "s", "timestamp": 500_000 * t} for t in (1, 0)],
        "sensor": [{"token": "f", "channel": "CAM_FRONT"}, {"token": "b", "channel": "CAM_BACK"}],
        "calibrated_sensor": [{"token": "c", "sensor_token": "f", "camera_intrinsic": camera, **ahead},
                              {"token": "d", "sensor_token": "b", "camera_intrinsic": camera, **ahead}],
        "ego_pose": [{"token": f"e{t}", **still, "translation": [10.0 * t, 0.0, 0.0]} for t in (0, 1)],
        "sample_data": [{"token": f"p{t}", "sample_token": f"k{t}", "ego_pose_token": f"e{t}",
                         "timestamp": 500_000 * t, "filename": f"samples/CAM_FRONT/{t}.jpg", **seen} for t in (0, 1)],
        "category": [{"token": "car", "name": "vehicle.car"}, {"token": "adult", "name": "human.pedestrian.adult"},
                     {"token": "cone", "name": "movable_object.trafficcone"}],
        "instance": [{"token": "i0", "category_token": "car"}, {"token": "i1", "category_token": "adult"},
                     {"token": "i2", "category_token": "cone"}],
        "sample_annotation": [
            {"token": "a0", "sample_token": "k0", "instance_token": "i0", "translation": [22.0, 0.0, 1.5], **box},
            {"token": "a1", "sample_token": "k0", "instance_token": "i1", "translation": [-20.0, 0.0, 1.5], **box},
            {"token": "a2", "sample_token": "k0", "instance_token": "i2", "translation": [22.0, 3.0, 1.5], **box},
            {"token": "a3", "sample_token": "k1", "instance_token": "i0", "translation": [22.0, 0.0, 1.5], **box},
        ],
    }  # fmt: skip
    for name, rows in tables.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))


def test_nuscenes_boxes_are_projected_into_the_front_camera(tmp_path: Path) -> None:
    nuscenes(tmp_path)
    (found,) = read_nuscenes(tmp_path)
    assert (found.name, found.log, found.location) == ("scene-0001", "n015-2018", "boston-seaport")
    assert found.scene.times_T.tolist() == [0.0, 0.5]
    assert classes(found.scene.superclass_O) == ["light passenger vehicle"] * 2  # behind, and a cone: left out
    # The car's near face is 20 m away (then 10 m): 2 m wide and 1.5 m high about the optical axis.
    np.testing.assert_allclose(found.scene.box_O4[0], [800 - 50, 450 - 37.5, 800 + 50, 450 + 37.5])
    np.testing.assert_allclose(found.scene.box_O4[1], [800 - 100, 450 - 75, 800 + 100, 450 + 75])


def test_a_quaternion_turns_as_it_should() -> None:
    quarter = rotation([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])
    np.testing.assert_allclose(quarter @ [1, 0, 0], [0, 1, 0], atol=1e-12)


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0, 0.0], [float("inf"), 0.0, 0.0, 0.0], [float("nan"), 1.0, 0.0, 0.0]])
def test_what_turns_nowhere_is_no_rotation(values: list[float]) -> None:
    with pytest.raises(ValueError, match="is no rotation"):
        rotation(values)


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegimeError, match=r"holds no \.json"):
        open_native("bdd100k", tmp_path, tmp_path)
    (tmp_path / "x.json").write_text("[{]")
    with pytest.raises(RegimeError, match="cannot be read as BDD100K"):
        read_video(tmp_path / "x.json")
    (tmp_path / "y.json").write_text(json.dumps({"images": []}))
    with pytest.raises(RegimeError, match="no 'categories'"):
        read_coco(tmp_path / "y.json")
    with pytest.raises(RegimeError, match="no such file"):
        read_nuscenes(tmp_path)


def test_no_reader_is_reached_by_a_statistic() -> None:
    """Native labels never enter a primary statistic."""
    package = Path(__file__).parents[2] / "src" / "factorjepa"
    users = [
        path for path in package.rglob("*.py")
        if "readers" not in path.parts and re.search(r"^\s*from \S*readers", path.read_text(), re.MULTILINE)
    ]  # fmt: skip
    # classes.py takes COCO's names and reads no annotation; the verbs `check` and `reference` are no statistic.
    assert {path.relative_to(package).as_posix() for path in users} <= {"regime/classes.py", "verbs/regime.py"}
    assert "read_" not in (package / "regime" / "classes.py").read_text()
    verb = (package / "verbs" / "regime.py").read_text()
    for name in ("measure", "compare"):
        body = verb[verb.index(f"def {name}(") : verb.index("@regime_app", verb.index(f"def {name}("))]
        assert "readers" not in body
        assert "native" not in body
    checking = re.compile(r"^\s*from \S*\bcheck import", re.MULTILINE)
    checkers = {path.relative_to(package).as_posix() for path in package.rglob("*.py")
                if checking.search(path.read_text())}  # fmt: skip
    assert checkers <= {"regime/readers/native.py", "verbs/regime.py"}


@st.composite
def spoilt(draw: st.DrawFn, whole: Any) -> Any:
    """The same JSON with one value, anywhere, replaced by something hostile, or taken away."""
    junk: list[Any] = [None, [], {}, "", "x", -1, 0, 1e308, 10**30, float("nan"), float("inf"), True, [[]], [None] * 3]
    if draw(st.booleans()) and isinstance(whole, dict | list) and whole:
        keys = list(whole) if isinstance(whole, dict) else range(len(whole))
        key = draw(st.sampled_from(list(keys)))
        inner = draw(spoilt(whole[key]))
        if isinstance(whole, dict):
            return {k: v for k, v in whole.items() if k != key} | ({} if draw(st.booleans()) else {key: inner})
        return [*whole[:key], inner, *whole[key + 1 :]]
    return draw(st.sampled_from(junk))


HOSTILE = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def said_or_read(read: Callable[[], object]) -> None:
    with contextlib.suppress(RegimeError):
        read()


@HOSTILE
@given(st.data())
def test_hostile_coco_and_bdd_files_are_read_or_refused_in_words(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(data.draw(spoilt(coco()))))
    said_or_read(lambda: read_coco(path, 8.0))
    label = {"id": "7", "category": "car", "box2d": {"x1": 1, "y1": 1, "x2": 9, "y2": 9}, "attributes": {}}
    path.write_text(json.dumps(data.draw(spoilt([{"frameIndex": 0, "name": "a", "labels": [label]}]))))
    said_or_read(lambda: read_video(path))
    said_or_read(lambda: read_attributes(path))


@HOSTILE
@given(st.data())
def test_hostile_nuscenes_tables_are_read_or_refused_in_words(tmp_path: Path, data: st.DataObject) -> None:
    nuscenes(tmp_path)
    path = tmp_path / f"{data.draw(st.sampled_from(sorted(p.stem for p in tmp_path.glob('*.json'))))}.json"
    path.write_text(json.dumps(data.draw(spoilt(json.loads(path.read_text())))))
    said_or_read(lambda: read_nuscenes(tmp_path))
    said_or_read(lambda: read_filmed(tmp_path))


def test_a_file_cut_short_or_nested_without_end_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in (json.dumps(coco())[:200], "[" * 200_000, "\x00"):
        path.write_text(text)
        with pytest.raises(RegimeError, match=r"x\.json: cannot be read"):
            read_coco(path)
