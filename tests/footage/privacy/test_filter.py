"""The whole filter: what it blurs, what it withholds, what it says of itself. Whatever fails comes back black."""

from __future__ import annotations

import pickle
from hashlib import sha256
from pathlib import Path

import cv2
import numpy as np
import pytest

from factorjepa.config import resolve
from factorjepa.errors import ConfigError
from factorjepa.footage.configuration import IngestConfiguration
from factorjepa.footage.privacy import PrivacySettings, build, notices
from factorjepa.footage.privacy.detection import Boxes, Finder, Together
from factorjepa.footage.privacy.filter import Redaction
from factorjepa.footage.privacy.interface import Filtered
from factorjepa.footage.privacy.licences import KNOWN, Model
from factorjepa.footage.privacy.settings import BlurSettings, DetectionSettings

from .scenes import SETTINGS, Pixels, Told, boxes, moving, noise, onnx_file, suppressed_file

pytest.importorskip("trackers")
pytest.importorskip("supervision")

NOTHING = [boxes() for _ in range(20)]


def filtered(face: Finder, audit: bool = False, plate: Finder | None = None, frames: Pixels | None = None) -> Filtered:
    finders = {"face": face, "plate": plate or Told(NOTHING)}
    return Redaction(finders, SETTINGS, {})(noise(20) if frames is None else frames, 10.0, audit=audit)


def test_a_face_is_blurred_in_every_frame_and_the_rest_is_left() -> None:
    raw = noise(20)
    result = filtered(Told(moving(20, missing=(6, 7, 8))))
    assert result.failures == ()
    for t in range(20):
        left = 20 + 2 * t
        assert result.frames[t, 40:60, left : left + 16].std() < 0.5 * raw[t, 40:60, left : left + 16].std()
        assert (result.frames[t, 90:] == raw[t, 90:]).all()
    assert result.counts["face_tracks"] == 1
    assert result.counts["face_boxes"] == 17
    assert result.counts["filled_boxes"] == 3
    assert result.counts["blurred_pixels"] > 20 * 16 * 20


def test_plates_are_blurred_too() -> None:
    raw = noise(20)
    result = filtered(Told(NOTHING), plate=Told(moving(20)))
    assert result.counts["plate_tracks"] == 1
    assert result.frames[3, 40:60, 26:42].std() < 0.5 * raw[3, 40:60, 26:42].std()


def test_the_frames_that_went_in_are_not_changed() -> None:
    raw = noise(20)
    filtered(Told(moving(20)), frames=raw)
    assert (raw == noise(20)).all()


class Broken:
    def __call__(self, frames: Pixels) -> list[Boxes]:
        raise RuntimeError("out of order")


@pytest.mark.parametrize("kind", ["face", "plate"])
def test_a_detector_that_fails_withholds_the_span(kind: str) -> None:
    result = filtered(Broken()) if kind == "face" else filtered(Told(NOTHING), plate=Broken())
    assert result.failures == (f"the {kind} detector failed: RuntimeError: out of order",)
    assert not result.frames.any()
    assert result.frames.shape == noise(20).shape


def test_a_detector_that_leaves_frames_out_withholds_the_span() -> None:
    result = filtered(Told(moving(19)))
    assert result.failures == ("the face detector failed: DetectorError: it answered for 19 of 20 frames",)
    assert not result.frames.any()


def test_a_detector_that_fails_on_blurred_frames_withholds_the_span() -> None:
    def again(count: int) -> list[Boxes]:
        raise RuntimeError("tired")

    result = filtered(Told(moving(20), again))
    assert result.failures == ("privacy failed: RuntimeError: tired",)
    assert not result.frames.any()


def test_boxes_that_are_no_numbers_withhold_the_span() -> None:
    answers = moving(20)
    answers[3] = boxes((np.nan, 40, 36, 60, 0.9))
    result = filtered(Told(answers))
    assert result.failures
    assert not result.frames.any()


def test_a_failed_check_withholds_the_span_but_not_the_counts() -> None:
    scattered = [(10 + 25 * (t % 5), 10 + 25 * (t // 5)) for t in range(20)]
    result = filtered(Told([boxes((x, y, x + 10, y + 10, 0.9)) for x, y in scattered]))
    assert any(words.startswith("face detections are unmatched: 20 of 20") for words in result.failures)
    assert not result.frames.any()
    assert result.counts["face_boxes"] == 20


def test_what_is_found_only_after_blurring_is_blurred_as_well() -> None:
    """A detector may overlook a face beside a larger one until that is gone."""
    hidden = boxes((110, 20, 130, 44, 0.8))
    raw = noise(20)

    class Second(Told):
        def __call__(self, frames: Pixels) -> list[Boxes]:
            first = super().__call__(frames)
            still_sharp = [frame[20:44, 110:130].std() > 40 for frame in frames]
            return first if self.calls == 1 else [hidden if sharp else boxes() for sharp in still_sharp]

    result = filtered(Second(moving(20)), frames=raw)
    assert result.failures == ()
    assert (result.frames[:, 20:44, 110:130].std(axis=(1, 2, 3)) < 40).all()


def test_what_cannot_be_hidden_withholds_the_span() -> None:
    result = filtered(Told(moving(20), lambda count: [boxes((30, 45, 40, 55, 0.9)) for _ in range(count)]))
    assert any("still found after blurring" in words for words in result.failures)
    assert not result.frames.any()


def striped(count: int) -> Pixels:
    """A face that moves and a faint one that stays, in magenta and green lines: grey when blurred."""
    raw = np.full((count, 120, 160, 3), 128, np.uint8)
    lines = np.where(np.arange(16)[:, None] % 2, (255, 0, 255), (0, 255, 0)).astype(np.uint8)
    for t in range(count):
        raw[t, 40:60, 20 + 2 * t : 36 + 2 * t] = lines
        raw[t, 80:100, 100:116] = lines
    return raw


def shows_lines(sheet: bytes) -> bool:
    blue, green, red = np.moveaxis(cv2.imdecode(np.frombuffer(sheet, np.uint8), cv2.IMREAD_COLOR).astype(int), 2, 0)
    return bool((np.minimum(red, blue) - green > 100).any())


@pytest.mark.parametrize("failing", [False, True])
def test_the_contact_sheet_shows_no_raw_face(failing: bool) -> None:
    answers = [
        boxes((20 + 2 * t, 40, 36 + 2 * t, 60, 0.9), (100, 80, 116, 100, 0.3)) for t in range(20)
    ]  # the second is never sure enough to be blurred in the corpus
    again = [boxes((30, 45, 40, 55, 0.9)) for _ in range(5)]
    result = filtered(
        Told(answers, lambda count: again if failing else NOTHING[:count]), audit=True, frames=striped(20)
    )
    assert bool(result.failures) == failing
    assert result.counts["face_candidates"] == 20
    assert not shows_lines(result.audit)


def test_the_contact_sheet_would_show_what_is_not_known() -> None:
    """The test above can fail."""
    assert shows_lines(filtered(Told(NOTHING), audit=True, frames=striped(20)).audit)


def models(tmp_path: Path) -> PrivacySettings:
    face = suppressed_file(tmp_path / "face.onnx", (64, 64, 128, 160, 0.9))
    plate = suppressed_file(tmp_path / "plate.onnx", (200, 200, 260, 220, 0.1), names="{0: 'car', 1: 'licence plate'}")
    return PrivacySettings.model_validate({"faces": face, "plates": plate})


def test_models_are_opened_used_and_recorded(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    privacy = build(models(tmp_path))
    told = privacy.statement
    assert told["privacy"] == "on"
    assert "licence unknown: check before use" in told["faces"]
    assert "sha256" in told["plates"]
    assert [words.split()[0] for words in notices(privacy)] == ["faces:", "plates:", "detectors"]
    again = pickle.loads(pickle.dumps(privacy))
    assert again.statement == told
    result = again(noise(4), 10.0)
    assert result.counts["face_boxes"] == 4
    # This model says the same of blurred frames: that the face is still there.
    assert result.failures == ("faces are still found after blurring: 1 in 1 region (checks.max_redetected 0.05)",)


def test_a_statement_changes_with_what_decides_the_pixels(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    settings = models(tmp_path)
    before = build(settings).statement
    assert build(settings).statement == before
    wider = settings.model_copy(update={"blur": BlurSettings(margin=0.3)})
    assert build(wider).statement != before
    suppressed_file(tmp_path / "face.onnx", (64, 64, 128, 160, 0.8))
    assert build(settings).statement != before


@pytest.mark.parametrize("kind", ["face", "plate"])
def test_a_missing_model_stops_with_advice(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("onnx")
    settings = models(tmp_path).model_copy(update={f"{kind}s": ()})
    with pytest.raises(ConfigError, match=rf"no {kind} detector is given.*--{kind}s MODEL\.onnx.*--privacy off"):
        build(settings)
    with pytest.raises(ConfigError, match=r"no such file.*--privacy off"):
        build(settings.model_copy(update={f"{kind}s": (tmp_path / "absent.onnx",)}))


def test_a_detector_of_something_else_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    cars = suppressed_file(tmp_path / "cars.onnx", (0, 0, 9, 9, 0.9), names="{0: 'car', 1: 'bus'}")
    with pytest.raises(ConfigError, match=r"none of its classes \(car, bus\) is called a plate"):
        build(models(tmp_path).model_copy(update={"plates": (cars,)}))


@pytest.mark.parametrize(("kind", "name"), [("face", "pothole"), ("plate", "pothole"), ("face", "road surface")])
def test_the_name_of_a_single_class_counts_too(tmp_path: Path, kind: str, name: str) -> None:
    pytest.importorskip("onnx")
    other = suppressed_file(tmp_path / "other.onnx", (0, 0, 9, 9, 0.9), names=f"{{0: '{name}'}}")
    settings = models(tmp_path).model_copy(update={f"{kind}s": (other,)})
    with pytest.raises(ConfigError, match=rf"none of its classes \({name}\) is called a {kind}"):
        build(settings)
    meant = DetectionSettings(classes=(name,))
    assert build(settings.model_copy(update={f"{kind}_detection": meant})).statement["privacy"] == "on"


@pytest.mark.parametrize("name", ["License-Plate", "number_plates", "LicensePlate", "Vehicle registration plate"])
def test_a_single_class_called_a_plate_is_taken_whatever_its_number(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnx")
    plate = suppressed_file(tmp_path / "named.onnx", (64, 64, 128, 80, 0.9), names=f"{{1: '{name}'}}")
    privacy = build(models(tmp_path).model_copy(update={"plates": (plate,)}))
    assert privacy(noise(4), 10.0).counts["plate_boxes"] == 4


@pytest.mark.parametrize(("kind", "other"), [("face", "plate"), ("plate", "face")])
def test_a_model_known_to_find_something_else_is_refused(
    tmp_path: Path, kind: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    model = suppressed_file(tmp_path / "known.onnx", (0, 0, 9, 9, 0.9))
    monkeypatch.setitem(KNOWN, sha256(model.read_bytes()).hexdigest(), Model("Nosy", other, "MIT", "a test"))
    with pytest.raises(ConfigError, match=rf"is Nosy, a {other} detector; give a {kind} detector"):
        build(models(tmp_path).model_copy(update={f"{kind}s": (model,)}))


@pytest.mark.parametrize(("kind", "layout"), [("face", "retinaplate"), ("plate", "retinaface")])
@pytest.mark.parametrize("said", [False, True])
def test_a_layout_of_the_other_kind_is_refused(tmp_path: Path, kind: str, layout: str, said: bool) -> None:
    pytest.importorskip("onnx")
    landmarks = 8 if layout == "retinaplate" else 10
    cells = sum(2 * (320 // stride) ** 2 for stride in (8, 16, 32))
    outputs = [np.zeros((1, cells, width), np.float32) for width in (4, 2, landmarks)]
    model = onnx_file(tmp_path / "retina.onnx", *outputs)
    update = {f"{kind}s": (model,)} | (
        {f"{kind}_detection": DetectionSettings.model_validate({"layout": layout})} if said else {}
    )
    with pytest.raises(ConfigError, match=rf"laid out as {layout}'s.*give a {kind} detector"):
        build(models(tmp_path).model_copy(update=update))


@pytest.mark.parametrize("kind", ["faces", "plates"])
def test_off_with_a_detector_is_a_contradiction(kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"mode is off, and detectors are given \({kind}\)"):
        resolve(IngestConfiguration, None, ["privacy.mode=off", f"privacy.{kind}=[x.onnx]"])


def test_what_either_of_two_detectors_finds_is_blurred_and_what_both_find_counts_once() -> None:
    raw = noise(20)
    left, both = (20, 20, 36, 40, 0.9), (100, 60, 120, 84, 0.6)
    first = Told([boxes(left, both) for _ in range(20)])
    second = Told([boxes((102, 61, 121, 85, 0.8), (60, 90, 72, 105, 0.7)) for _ in range(20)])
    result = filtered(Together([first, second]), frames=raw)
    assert result.failures == ()
    assert result.counts["face_tracks"] == 3
    for x, y, right, bottom in ((20, 20, 36, 40), (100, 60, 120, 84), (60, 90, 72, 105)):
        assert result.frames[7, y:bottom, x:right].std() < 0.5 * raw[7, y:bottom, x:right].std()


def test_one_of_two_detectors_failing_withholds_the_span() -> None:
    result = filtered(Together([Told(moving(20)), Broken()]))
    assert result.failures == ("the face detector failed: RuntimeError: out of order",)
    assert not result.frames.any()


def test_several_models_are_stated_each_with_its_licence(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    settings = models(tmp_path)
    other = suppressed_file(tmp_path / "other.onnx", (8, 8, 40, 40, 0.7))
    privacy = build(settings.model_copy(update={"faces": (*settings.faces, other)}))
    assert privacy.statement["faces"].count("sha256") == privacy.statement["faces"].count("licence unknown") == 2
    assert privacy(noise(4), 10.0).counts["face_boxes"] == 8


@pytest.mark.parametrize(("written", "meant"), [("off", "off"), ("on", "on"), ("'off'", "off"), ("false", "off")])
def test_yaml_may_say_off_and_on_without_quotes(tmp_path: Path, written: str, meant: str) -> None:
    (tmp_path / "ingest.yaml").write_text(f"privacy:\n  mode: {written}\n")
    assert resolve(IngestConfiguration, tmp_path / "ingest.yaml").privacy.mode == meant
    assert resolve(IngestConfiguration, None, [f"privacy.mode={written}"]).privacy.mode == meant


def test_anything_else_for_the_mode_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"privacy\.mode: input should be 'on' or 'off'"):
        resolve(IngestConfiguration, None, ["privacy.mode=0"])


def test_cuda_asked_for_in_so_many_words_is_had_or_refused(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    settings = models(tmp_path)
    with pytest.raises(ConfigError, match=r"has no CUDA; pip install onnxruntime-gpu.*the device cpu"):
        build(settings.model_copy(update={"device": "cuda"}))
    fallen = build(settings)
    assert fallen.statement["device"] == "cpu"
    assert "run on the CPU; onnxruntime-gpu" in notices(fallen)[-1]


def test_off_leaves_frames_alone_and_says_so() -> None:
    privacy = build(PrivacySettings(mode="off"))
    raw = noise(3)
    assert privacy(raw, 10.0).frames is raw
    assert privacy.statement["privacy"].startswith("off")
    assert notices(privacy) == ["privacy: off: faces and registration plates were left as they are"]
