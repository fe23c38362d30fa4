"""A user's detector: layouts recognised, boxes decoded, wrong files explained."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from factorjepa.detectors import detector as module
from factorjepa.detectors.boxes import Detections, suppressed
from factorjepa.detectors.detector import Detector
from factorjepa.detectors.session import open_session
from factorjepa.detectors.tiles import detect_tiled
from factorjepa.errors import DetectorError
from factorjepa.video import read_frames

SHARED = Path(__file__).parents[2] / ".." / "shared"
CELLS = 12 * 12 + 6 * 6 + 3 * 3  # of a 96 pixel input


class Session:
    """Answers like an onnxruntime session, with a given output whatever the picture."""

    def __init__(self, output: NDArray[np.float32], names: str | None = None) -> None:
        self.output, self.names = output, names
        self.seen: NDArray[np.float32] = np.empty(0, np.float32)

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="images", shape=[1, 3, 96, 96])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="output", shape=list(self.output.shape))]

    def get_modelmeta(self) -> Any:
        return SimpleNamespace(custom_metadata_map={} if self.names is None else {"names": self.names})

    def run(self, names: None, feed: dict[str, NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        self.seen = feed["images"]
        return [self.output]


def opened(
    monkeypatch: pytest.MonkeyPatch,
    output: NDArray[np.float32],
    wanted: tuple[str, ...] = ("person",),
    names: str | None = None,
) -> tuple[Detector, Session]:
    session = Session(output, names)
    monkeypatch.setattr(module, "open_session", lambda path, device: session)
    return Detector(Path("model.onnx"), wanted), session


PICTURE = np.full((32, 32, 3), (10, 20, 200), np.uint8)


def test_yolox_is_decoded_by_its_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.zeros((1, CELLS, 85), np.float32)
    raw[0, 12 * 3 + 2, :6] = (0.5, 0.25, np.log(2), np.log(3), 0.9, 0.4)  # row 3, column 2 at stride 8
    raw[0, 144 + 36 + 1, [0, 1, 4, 5]] = (0.5, 0.5, 1.0, 1.0)  # row 0, column 1 at stride 32
    raw[0, 5, [4, 7]] = 1.0  # a car, which is not wanted
    detector, session = opened(monkeypatch, raw)
    found = detector(PICTURE)
    assert detector.layout == "yolox"
    np.testing.assert_allclose(found.boxes * 96, [[32, 0, 64, 32], [12, 14, 28, 38]], atol=1e-6)
    np.testing.assert_allclose(found.scores, [1.0, 0.6], atol=1e-6)
    assert session.seen[0, :, 0, 0].tolist() == [200, 20, 10]  # BGR in 0..255


def test_yolov8_is_decoded_and_sees_rgb(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.zeros((1, 84, CELLS), np.float32)
    raw[0, [0, 1, 2, 3, 4], 7] = (32, 16, 8, 16, 0.7)
    detector, session = opened(monkeypatch, raw)
    found = detector(PICTURE)
    assert detector.layout == "yolov8"
    np.testing.assert_allclose(found.boxes * 96, [[28, 8, 36, 24]], atol=1e-6)
    np.testing.assert_allclose(session.seen[0, :, 0, 0] * 255, [10, 20, 200], rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 5, 6), (5, 6)])
def test_boxes_that_were_suppressed_already_are_taken(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    raw = np.zeros((5, 6), np.float32)
    raw[0], raw[1] = (8, 8, 24, 40, 0.8, 0), (30, 30, 50, 60, 0.9, 2)
    detector, _ = opened(monkeypatch, raw.reshape(shape), ("person", "car"))
    found = detector(PICTURE)
    assert found.kinds.tolist() == [2, 0]
    np.testing.assert_allclose(found.boxes[1] * 96, [8, 8, 24, 40], atol=1e-6)


def test_a_models_own_class_names_count(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.zeros((1, 6, CELLS), np.float32)
    raw[0, :, 7] = (32, 16, 8, 16, 0.0, 0.7)
    names = "{0: 'cart', 1: 'rickshaw'}"
    assert len(opened(monkeypatch, raw, ("rickshaw",), names)[0](PICTURE).boxes) == 1
    assert len(opened(monkeypatch, raw, ("cart",), names)[0](PICTURE).boxes) == 0
    with pytest.raises(DetectorError, match="no class 'rikshaw' \\(did you mean 'rickshaw'\\?\\)"):
        opened(monkeypatch, raw, ("rikshaw",), names)
    assert opened(monkeypatch, raw)[0].kinds is None  # two nameless classes: all are agents


def test_an_output_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DetectorError, match="no detector's output known here"):
        opened(monkeypatch, np.zeros((1, 1000), np.float32).reshape(1, 10, 100))


def test_files_that_are_no_detector_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(DetectorError, match="no such file"):
        Detector(tmp_path / "absent.onnx", ("person",))
    text = tmp_path / "text.onnx"
    text.write_text("hello")
    with pytest.raises(DetectorError, match="onnxruntime cannot open it"):
        Detector(text, ("person",))


def test_suppression_is_within_a_class() -> None:
    boxes = np.array([[0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.5, 0.5], [0.1, 0.12, 0.5, 0.5]])
    found = suppressed(Detections(boxes, np.array([0.5, 0.9, 0.7]), np.array([0, 0, 1])))
    assert found.scores.tolist() == [0.9, 0.7]


def test_tiles_put_boxes_where_they_are_and_drop_what_they_cut() -> None:
    class Reds:
        """Finds the box of all red pixels."""

        def __call__(self, picture: NDArray[np.uint8]) -> Detections:
            rows, columns = np.nonzero(picture[..., 0] > 128)
            box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] if rows.size else []
            boxes = np.array(box, dtype=np.float64).reshape(-1, 4) / picture.shape[0]
            return Detections(boxes, np.ones(len(boxes)), np.zeros(len(boxes), np.int64))

    for left, top in ((10, 10), (70, 75), (48, 20), (35, 35)):
        picture = np.zeros((100, 100, 3), np.uint8)
        picture[top : top + 20, left : left + 12] = 255
        found = detect_tiled(Reds(), picture)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.boxes, [np.array([left, top, left + 12, top + 20]) / 100], atol=1e-9)


def test_people_on_a_real_street_are_found() -> None:
    pytest.importorskip("onnxruntime")
    model, video = (SHARED / "assets" / name for name in ("weights/yolox_nano.onnx", "video/opencv_vtest.avi"))
    if not (model.is_file() and video.is_file()):
        pytest.skip("the detector's weights and the street video are not beside this checkout")
    frame = read_frames(video, np.array([10.0]))[0][:, 96 : 96 + 576]
    detector = Detector(model, ("person",))
    assert detector.layout == "yolox"
    whole, tiled = detector(frame), detect_tiled(detector, frame)
    assert (whole.scores > 0.55).sum() >= 3
    assert (tiled.scores > 0.55).sum() > (whole.scores > 0.55).sum()  # small people need the enlarged parts
    sizes = whole.boxes[whole.scores > 0.55, 2:] - whole.boxes[whole.scores > 0.55, :2]
    assert (sizes[:, 1] > sizes[:, 0]).all()  # people stand


def test_a_face_detector_is_refused_by_its_outputs() -> None:
    pytest.importorskip("onnxruntime")
    model = SHARED / "assets" / "weights" / "yunet_n_640_640.onnx"
    if not model.is_file():
        pytest.skip("the face detector is not beside this checkout")
    with pytest.raises(DetectorError, match="no detector's output known here"):
        Detector(model, ("person",))


class FakeRuntime:
    """onnxruntime with CUDA on board, which starts or does not."""

    class SessionOptions:
        pass

    def __init__(self, starts: bool) -> None:
        self.asked: list[str] = []
        self._starts = starts

    def get_available_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def InferenceSession(self, model: str, options: object, providers: list[str]) -> Any:
        self.asked = providers
        return SimpleNamespace(
            get_providers=lambda: providers if self._starts else providers[-1:],
            get_inputs=lambda: [SimpleNamespace(shape=[1, 3, 96, 96])],
        )


@pytest.mark.parametrize(("device", "first"), [("cuda", "CUDAExecutionProvider"), ("cpu", "CPUExecutionProvider")])
def test_a_session_is_opened_on_the_device_that_is_meant(
    device: Any, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeRuntime(starts=True)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)  # type: ignore[arg-type]
    (tmp_path / "model.onnx").touch()
    open_session(tmp_path / "model.onnx", device)
    assert runtime.asked[0] == first


def test_cuda_that_does_not_start_is_not_replaced_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", FakeRuntime(starts=False))  # type: ignore[arg-type]
    (tmp_path / "model.onnx").touch()
    with pytest.raises(DetectorError, match="cannot start it"):
        open_session(tmp_path / "model.onnx", "cuda")
