"""Spans with known faces, finders that know them, and tiny ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from factorjepa.footage.privacy.detection import Boxes
from factorjepa.footage.privacy.settings import PrivacySettings

Pixels = NDArray[np.uint8]
SIZE = (120, 160)  # height, width
SETTINGS = PrivacySettings()


def boxes(*rows: tuple[float, float, float, float, float]) -> Boxes:
    """Left, top, right, bottom, score of each."""
    table = np.array(rows, dtype=np.float64).reshape(-1, 5)
    return table[:, :4], table[:, 4]


def moving(count: int, *, missing: Sequence[int] = (), faint: Sequence[int] = (), speed: float = 2.0) -> list[Boxes]:
    """One face that goes to the right, 16 x 20 px."""
    answers = []
    for t in range(count):
        score = 0.3 if t in faint else 0.9
        face = (20 + speed * t, 40, 36 + speed * t, 60, score)
        answers.append(boxes() if t in missing else boxes(face))
    return answers


def noise(count: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (count, *SIZE, 3), dtype=np.uint8)


class Told:
    """A finder with given answers about the raw frames, and others about frames that were blurred."""

    def __init__(self, answers: list[Boxes], again: Callable[[int], list[Boxes]] | None = None) -> None:
        self._answers, self._again, self.calls = answers, again, 0

    def __call__(self, frames: Pixels) -> list[Boxes]:
        self.calls += 1
        if self.calls == 1:
            return self._answers
        return self._again(len(frames)) if self._again else [boxes() for _ in frames]


def onnx_file(path: Path, *outputs: NDArray[np.float32], names: str | None = None) -> Path:
    """A model that says the same of every picture of any size."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, values = [], []
    for k, output in enumerate(outputs):
        nodes.append(helper.make_node("Constant", [], [f"o{k}"], value=numpy_helper.from_array(output)))
        values.append(helper.make_tensor_value_info(f"o{k}", TensorProto.FLOAT, output.shape))
    picture = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, "H", "W"])
    model = helper.make_model(helper.make_graph(nodes, "told", [picture], values), ir_version=9)
    model.opset_import[0].version = 17
    if names is not None:
        helper.set_model_props(model, {"names": names})
    onnx.save(model, str(path))
    return path


def suppressed_file(path: Path, *rows: tuple[float, float, float, float, float], names: str | None = None) -> Path:
    """A detector that has suppressed its boxes itself: left, top, right, bottom in input pixels, score."""
    table = np.array([(*row, 0) for row in rows], np.float32).reshape(1, -1, 6)
    return onnx_file(path, table, names=names)
