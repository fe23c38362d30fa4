"""The check of the teacher against native annotations."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.errors import FactorJEPAError, RegimeError
from factorjepa.regime.check import Agreement, Check, agreements, as_seen, check_corpus, cropped, paired
from factorjepa.regime.readers.native import open_native
from factorjepa.regime.scene import Scene
from factorjepa.regime.settings import Thresholds

from .clips import clip
from .scenes import Agent, scene

T = Thresholds()


def crowd(frames: int, fps: float, growing: bool = True) -> list[Agent]:
    """One agent more each second."""
    return [
        Agent(t, (5 + 12 * k, 40, 15 + 12 * k, 60), track=k)
        for t in range(frames) for k in range(1 + int(t / fps) if growing else 3)
    ]  # fmt: skip


def agreement(teacher: Scene, native: Scene, start: float) -> list[Agreement]:
    return agreements([paired(teacher, native, start, T)])


def test_a_teacher_that_sees_what_is_marked_agrees_at_another_rate_and_offset() -> None:
    native = scene(crowd(60, 10.0), 60, fps=10.0)
    teacher = scene([a for a in crowd(24, 4.0) if a.frame >= 8], 24, fps=4.0)
    part = teacher.with_slots(np.where(np.arange(24) >= 8, np.arange(24) - 8, -1), np.arange(16) / 4)
    found = {one.measure: one for one in agreement(part, native, 2.0)}
    assert found["count"].rank_correlation == pytest.approx(1.0)
    assert found["count"].teacher == pytest.approx(found["count"].native)
    assert found["count"].frames == 16


def test_a_constant_says_nothing_about_ranks() -> None:
    native, teacher = scene(crowd(20, 4.0), 20), scene(crowd(20, 4.0, growing=False), 20)
    assert np.isnan(agreement(teacher, native, 0.0)[0].rank_correlation)


def test_annotations_of_another_moment_say_nothing() -> None:
    assert agreement(scene(crowd(8, 4.0), 8), scene(crowd(8, 4.0), 8), 100.0) == []


def test_one_annotated_frame_is_not_compared_with_two_of_the_teacher() -> None:
    often, once = scene(crowd(40, 40.0), 40, fps=40.0), scene(crowd(2, 1.0), 2, fps=1.0)
    assert agreement(often, once, 0.0)[0].frames == 1


def test_who_is_outside_the_teachers_square_is_nobody() -> None:
    wide = scene([Agent(0, (0, 0, 30, 30)), Agent(0, (40, 0, 60, 30)), Agent(0, (150, 0, 190, 50))], size=(200, 100))
    inside = cropped(wide, 50, 0, 100)
    assert inside.box_O4.tolist() == [[0, 0, 10, 30]]
    assert inside.cover.union(np.ones(1, bool)).tolist() == [300]


def test_a_teacher_without_classes_is_compared_with_everybody_who_is_marked() -> None:
    unknown = scene([Agent(0, (5, 5, 25, 25)), Agent(0, (50, 50, 70, 70), superclass=-1)])
    blind = dataclasses.replace(unknown, superclass_O=None)
    both = {one.measure: one for one in agreement(blind, unknown, 0.0)}
    assert (both["count"].teacher, both["count"].native) == (2, 2)
    assert "heterogeneity" not in both
    told = {one.measure: one for one in agreement(unknown, unknown, 0.0)}
    assert told["count"].native == 1  # as the statistics do: who is unresolved is excluded


class Teacher:
    """Sees three agents for two seconds."""

    kind, name = "teacher", "made up"
    unavailable: tuple[str, ...] = ()

    def scene(self, clip: Clip) -> Scene:
        return scene(crowd(8, 4.0, growing=False), 8)


def corpus(*files: str, size: tuple[int, int] = (64, 64)) -> Manifest:
    return Manifest([clip(number, size=size, source_file=file) for number, file in enumerate(files)])


def mot(folder: Path, name: str, info: str = "[Sequence]\nframeRate=4\nimWidth=100\nimHeight=100\n") -> None:
    (folder / name / "gt").mkdir(parents=True)
    rows = [f"{t + 1},{k},{5 + 12 * k},40,10,20,1,1,1.0" for t in range(8) for k in range(4)]
    (folder / name / "gt" / "gt.txt").write_text("\n".join(rows))
    (folder / name / "seqinfo.ini").write_text(info)


def checked(layout: str, labels: Path | None, manifest: Manifest, **options: object) -> Check:
    native = open_native(layout, labels, Path(), **options)  # type: ignore[arg-type]
    return check_corpus(manifest, Teacher(), native, T)


def test_clips_find_their_mot_sequence_by_the_name_of_their_file(tmp_path: Path) -> None:
    mot(tmp_path, "MOT17-02")
    found = checked("mot", tmp_path, corpus("a/MOT17-02.mp4", "a/MOT17-04.mp4"))
    assert (len(found.clips), found.unmarked) == (1, 1)
    count = found.pooled()[0]
    assert (count.measure, count.teacher, count.native, count.frames) == ("count", 3, 4, 8)
    written = (found.write(tmp_path / "out") / "agreement.csv").read_text().splitlines()
    assert written[0].startswith("clip_id,measure,teacher,native")
    assert written[1] == "all,count,3,4,,,8,1"


def test_what_a_mot_sequence_does_not_say_must_be_given(tmp_path: Path) -> None:
    mot(tmp_path, "x")
    (tmp_path / "x" / "seqinfo.ini").unlink()
    with pytest.raises(RegimeError, match=r"no seqinfo\.ini"):
        checked("mot", tmp_path, corpus("x.mp4"))
    assert checked("mot", tmp_path, corpus("x.mp4"), fps=4.0, size=(100, 100)).pooled()[0].native == 4
    with pytest.raises(RegimeError, match="another shape"):
        checked("mot", tmp_path, corpus("x.mp4"), fps=4.0, size=(1920, 1080))


def test_coco_videos_are_found_by_name(tmp_path: Path) -> None:
    labels = {
        "categories": [{"id": 1, "name": "person"}], "videos": [{"id": 5, "name": "street.mp4"}],
        "images": [{"id": t, "width": 100, "height": 100, "video_id": 5, "frame_id": t} for t in range(8)],
        "annotations": [{"image_id": t, "category_id": 1, "bbox": [30, 30, 20, 20]} for t in range(8)],
    }  # fmt: skip
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(labels))
    found = checked("coco", path, corpus("street.mp4"), fps=4.0)
    assert found.pooled()[0].native == 1
    with pytest.raises(RegimeError, match="--fps"):
        checked("coco", path, corpus("street.mp4"))


def test_bdd100k_labels_are_found_by_name_and_of_the_whole_wide_picture(tmp_path: Path) -> None:
    box = {"x1": 600, "y1": 300, "x2": 700, "y2": 400}
    side = {"x1": 0, "y1": 300, "x2": 100, "y2": 400}
    labels = [{"id": str(k), "category": "car", "box2d": b} for k, b in enumerate((box, side))]
    rows = [{"frameIndex": t, "labels": labels} for t in range(10)]
    (tmp_path / "b1c66a42-6f7d68ca.json").write_text(json.dumps(rows))
    found = checked("bdd100k", tmp_path, corpus("videos/b1c66a42-6f7d68ca.mov", size=(428, 240)))
    assert found.pooled()[0].native == 1  # who is beside the centre square is not the teacher's to see


@pytest.mark.parametrize(
    ("layout", "labels", "said"),
    [("mot", "nowhere", "no such file"), ("yolo", ".", "choose one of mot, coco"), ("mot", None, "needs --labels"),
     ("bdd100k", ".", r"holds no \.json"), ("mot", ".", "no moment of any clip is annotated"),
     ("nuscenes", ".", "no such file; a nuScenes table")],
)  # fmt: skip
def test_labels_that_cannot_serve_are_said(tmp_path: Path, layout: str, labels: str | None, said: str) -> None:
    with pytest.raises(RegimeError, match=said):
        checked(layout, None if labels is None else tmp_path / labels, corpus("x.mp4"))


@pytest.mark.parametrize(
    "text", ["1,1,0,0,10,10,1,1", "nan,1,0,0,10,10,1,1,1", "1,1,0,0,inf,10,1,1,1", "0,1,0,0,10,10,1,1,1",
             "1e18,1,0,0,10,10,1,1,1", "99999999,1,0,0,10,10,1,1,1", "\x00\x01", "frame,id"],
)  # fmt: skip
def test_damaged_and_hostile_mot_files_are_errors_that_name_them(tmp_path: Path, text: str) -> None:
    mot(tmp_path, "x")
    path = tmp_path / "x" / "gt" / "gt.txt"
    path.write_text(text)
    with pytest.raises(FactorJEPAError, match=r"gt\.txt"):
        checked("mot", tmp_path, corpus("x.mp4"))


@pytest.mark.parametrize("text", ["", "[Sequence]\nframeRate=0\nimWidth=1\nimHeight=1", "[Sequence]\nimWidth=9"])
def test_damaged_sequence_information_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    mot(tmp_path, "x", text)
    with pytest.raises(RegimeError, match=r"seqinfo\.ini"):
        checked("mot", tmp_path, corpus("x.mp4"))


def test_a_clip_of_another_shape_is_refused() -> None:
    with pytest.raises(RegimeError, match="another shape"):
        as_seen(scene([Agent(0, (0, 0, 9, 9))], size=(160, 90)), clip(0, size=(64, 64)))
