"""Face and plate detectors: each layout is recognised by its outputs and read as it was trained."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from factorjepa.detectors import detector as module
from factorjepa.detectors.boxes import box_iou
from factorjepa.detectors.detector import ANY, Detector
from factorjepa.errors import DetectorError
from factorjepa.video import read_frames

SHARED = Path(__file__).parents[2] / ".." / "shared" / "assets"
CELLS = {8: 144, 16: 36, 32: 9}  # of a 96 pixel input
PICTURE = np.full((96, 96, 3), (10, 20, 200), np.uint8)

Outputs = list[NDArray[np.float32]]


class Session:
    """Answers like an onnxruntime session, with given outputs whatever the picture."""

    def __init__(self, outputs: Outputs, batch: int | str = 1, size: int | str = 96) -> None:
        self.outputs, self.shape = outputs, [batch, 3, size, size]
        self.seen: list[NDArray[np.float32]] = []

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="images", shape=self.shape)]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="output", shape=list(one.shape)) for one in self.outputs]

    def get_modelmeta(self) -> Any:
        return SimpleNamespace(custom_metadata_map={})

    def run(self, names: None, feed: dict[str, NDArray[np.float32]]) -> Outputs:
        self.seen.append(feed["images"])
        count = len(feed["images"])
        return [np.repeat(one, count, axis=0) if one.ndim > 2 else one for one in self.outputs]


def opened(monkeypatch: pytest.MonkeyPatch, outputs: Outputs, **shape: Any) -> tuple[Detector, Session]:
    session = Session(outputs, **shape)
    monkeypatch.setattr(module, "open_session", lambda path, device: session)
    return Detector(Path("model.onnx"), None, ANY), session


def scrfd() -> Outputs:
    scores, boxes, points = ([np.zeros((1, 2 * n, w), np.float32) for n in CELLS.values()] for w in (1, 4, 10))
    row = 2 * (12 * 3 + 2) + 1  # stride 8, row 3, column 2, second anchor: at (16, 24)
    scores[0][0, row], boxes[0][0, row] = 0.9, (1, 2, 3, 1)
    return [*scores, *boxes, *points]


def yunet() -> Outputs:
    one, other, boxes, points = ([np.zeros((1, n, w), np.float32) for n in CELLS.values()] for w in (1, 1, 4, 10))
    row = 6 * 2 + 3  # stride 16, row 2, column 3
    one[1][0, row], other[1][0, row] = 0.9, 0.4
    boxes[1][0, row] = (0.5, 0.25, np.log(2), np.log(1))
    return [*one, *other, *boxes, *points]


def centerface() -> Outputs:
    heat, scale, offset, points = (np.zeros((1, w, 24, 24), np.float32) for w in (1, 2, 2, 10))
    heat[0, 0, 5, 7] = 0.8
    scale[0, :, 5, 7] = np.log(6), np.log(4)  # high, wide
    offset[0, :, 5, 7] = 0.25, -0.25
    return [heat, scale, offset, points]


def retina(points: int) -> Outputs:
    rows = 2 * sum(CELLS.values())
    boxes, scores, marks = (np.zeros((1, rows, w), np.float32) for w in (4, 2, points))
    row = 2 * (144 + 6 * 1 + 2)  # stride 16, row 1, column 2, smaller prior: around (40, 24)
    scores[0, row], boxes[0, row] = (0.3, 0.7), (1, 0, 0, 5 * np.log(0.5))
    return [boxes, scores, marks]


def yolov5() -> Outputs:
    raw = np.zeros((1, 3 * sum(CELLS.values()), 6), np.float32)
    raw[0, 100] = (40, 30, 20, 10, 0.9, 0.8)
    return [raw]


@pytest.mark.parametrize(
    ("layout", "outputs", "box", "score", "corner"),
    [
        ("scrfd", scrfd(), (8, 8, 40, 32), 0.9, (-0.918, -0.840, 0.566)),
        ("yunet", yunet(), (40, 28, 72, 44), 0.6, (200, 20, 10)),
        ("centerface", centerface(), (21, 11, 37, 35), 0.8, (10, 20, 200)),
        ("retinaface", retina(10), (14.4, 8, 78.4, 40), 0.7, (96, -97, -113)),
        ("retinaplate", retina(8), (1.6, 0, 96, 48), 0.7, (96, -97, -113)),
        ("yolov5", yolov5(), (30, 25, 50, 35), 0.72, (10 / 255, 20 / 255, 200 / 255)),
    ],
)
def test_a_layout_is_recognised_and_decoded(
    monkeypatch: pytest.MonkeyPatch, layout: str, outputs: Outputs, box: Any, score: float, corner: Any
) -> None:
    detector, session = opened(monkeypatch, outputs)
    found = detector(PICTURE)
    assert detector.layout == layout
    np.testing.assert_allclose(found.boxes * 96, [box], atol=1e-3)
    np.testing.assert_allclose(found.scores, [score], atol=1e-6)
    np.testing.assert_allclose(session.seen[-1][0, :, 0, 0], corner, atol=1e-3)


def test_several_pictures_go_in_one_run_where_the_model_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = np.stack([PICTURE] * 3)
    many, session = opened(monkeypatch, scrfd(), batch="N")
    assert [len(found.boxes) for found in many.batch(pictures)] == [1, 1, 1]
    assert session.seen[-1].shape == (3, 3, 96, 96)
    one, session = opened(monkeypatch, scrfd())
    assert [len(found.boxes) for found in one.batch(pictures)] == [1, 1, 1]
    assert session.seen[-1].shape == (1, 3, 96, 96)


def test_a_wide_picture_keeps_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """192 x 96 in a square of 96: boxes come back in shares of the picture's own sides."""
    detector, session = opened(monkeypatch, yolov5())
    found = detector(np.full((96, 192, 3), 50, np.uint8))
    np.testing.assert_allclose(found.boxes * (192, 96, 192, 96), [(60, 50, 100, 70)], atol=1e-6)
    assert (session.seen[-1][0, :, 48:] * 255).round().tolist() == np.full((3, 48, 96), 114).tolist()


@pytest.mark.parametrize(("place", "value"), [(0, np.nan), (4, np.nan), (2, np.inf)])
def test_numbers_that_are_not_finite_are_an_error_and_not_no_face(
    monkeypatch: pytest.MonkeyPatch, place: int, value: float
) -> None:
    raw = yolov5()
    raw[0][0, 100, place] = value
    detector, _ = opened(monkeypatch, raw)
    with pytest.raises(DetectorError, match="not finite"):
        detector(PICTURE)


def test_a_model_of_any_size_sees_the_picture_as_large_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(scrfd(), size="S")
    monkeypatch.setattr(module, "open_session", lambda path, device: session)
    monkeypatch.setattr(module, "_DEFAULT_SIDE", 192)  # the empty picture is half of it, 96 as the outputs say
    detector = Detector(Path("model.onnx"), None, ANY, side=1280, enlarged=1.0)
    assert detector.input_size(450, 800) == (480, 800)
    assert detector.input_size(1080, 1920) == (736, 1280)
    assert Detector(Path("model.onnx"), None, ANY, side=1280, enlarged=2.0).input_size(450, 800) == (736, 1280)


def test_real_face_detectors_agree_on_a_real_street() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    files = ("scrfd_500m_bnkps_NONCOMMERCIAL.onnx", "yunet_n_640_640.onnx", "centerface.onnx")
    video = SHARED / "video" / "opencv4nodejs_people.mp4"
    if not (video.is_file() and all((SHARED / "weights" / name).is_file() for name in files)):
        pytest.skip("the face detectors and the street video are not beside this checkout")
    frame = read_frames(video, np.array([3.0]))[0]
    found = {}
    for name in files:
        detector = Detector(SHARED / "weights" / name, None, ANY, side=800)
        here = detector(frame)
        found[detector.layout] = here.boxes[here.scores >= 0.5]
    assert set(found) == {"scrfd", "yunet", "centerface"}
    for layout, boxes in found.items():
        others = np.concatenate([other for name, other in found.items() if name != layout])
        assert len(boxes) >= 5
        assert (box_iou(boxes, others).max(axis=1) > 0.4).mean() > 0.7
