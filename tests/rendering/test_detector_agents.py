"""Agent detectors: the user's ONNX file, and the one that comes with the package."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import factorjepa
from factorjepa.backbones.packaged import packaged_weights
from factorjepa.config import resolve
from factorjepa.detectors.boxes import Detections
from factorjepa.errors import DetectorError
from factorjepa.pixels import Frames, resize_to_cover
from factorjepa.rendering.metrics import detection
from factorjepa.rendering.metrics.agents import Agents, AgentSettings, agent_counts, summed
from factorjepa.rendering.metrics.detection import AgentDetector, OnnxAgents
from factorjepa.rendering.metrics.true_agents import true_agents
from factorjepa.teacher.street_detector import THRESHOLD, StreetDetector
from factorjepa.teacher.street_network import STRIDE, StreetNetwork, boxes_of
from factorjepa.world import WorldSettings, clip

SEED = 424_242  # a world that has taught nothing


@pytest.fixture(scope="module")
def shipped() -> StreetDetector:
    torch.set_num_threads(1)
    return StreetDetector.load()


@pytest.fixture(scope="module")
def streets() -> tuple[Frames, list[Agents]]:
    """Frames at 128 px of eight streets, with who is seen."""
    frames, agents = [], []
    settings = resolve(WorldSettings, "dense", ["seconds=[1, 1]"], fps=2)
    for source in range(8):
        made = clip(settings, SEED, source * 5)
        shown, truths = zip(*((frame.copy(), truth) for frame, truth in made.frames_with_truth()), strict=True)
        frames += shown
        agents += true_agents(made.annotate(list(truths)), range(len(shown)))
    return np.stack(frames), agents


def f1(detector: AgentDetector, frames: Frames, agents: list[Agents]) -> float:
    counts = (agent_counts(a, f, AgentSettings()) for a, f in zip(agents, detector(frames), strict=True))
    return summed(counts).f1


@pytest.mark.parametrize(("side", "least"), [(128, 0.6), (64, 0.5)])
def test_the_shipped_detector_finds_agents_in_streets_it_has_never_seen(
    shipped: StreetDetector, streets: tuple[Frames, list[Agents]], side: int, least: float
) -> None:
    frames, agents = streets
    assert f1(shipped, resize_to_cover(frames, side, side), agents) > least


def test_whoever_is_wiped_out_is_not_found(shipped: StreetDetector, streets: tuple[Frames, list[Agents]]) -> None:
    empty = np.broadcast_to(np.median(streets[0], axis=(1, 2), keepdims=True), streets[0].shape).astype(np.uint8)
    assert sum(len(found.scores) for found in shipped(empty)) == 0


def test_frames_are_looked_at_one_by_one(shipped: StreetDetector, streets: tuple[Frames, list[Agents]]) -> None:
    frames = streets[0][:5]
    together, alone = shipped(frames), [shipped(frame[None])[0] for frame in frames]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.boxes, other.boxes, atol=1e-4)
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)


def test_boxes_of_oblong_pictures_are_shares_of_their_own_sides(
    shipped: StreetDetector, streets: tuple[Frames, list[Agents]]
) -> None:
    frame = streets[0][:1]
    wide = np.repeat(frame, 2, axis=2)  # every column twice: the same picture, drawn out
    np.testing.assert_allclose(shipped(wide)[0].boxes, shipped(frame)[0].boxes, atol=0.05)


def test_the_shipped_file_is_small_and_tells_its_threshold(shipped: StreetDetector) -> None:
    path = packaged_weights("street_detector")
    assert path is not None
    assert path.stat().st_size <= 1_200_000
    assert sum(p.numel() for p in StreetNetwork().parameters()) <= 300_000
    assert f"scores from {shipped.threshold:g}" in shipped.name
    assert "sha256" in shipped.name


def test_a_box_reaches_from_its_cells_centre() -> None:
    reach = torch.zeros(1, 4, 8, 8)
    reach[0, :, 2, 3] = torch.tensor([5.0, 6.0, 7.0, 8.0])
    x, y = 3.5 * STRIDE, 2.5 * STRIDE
    assert boxes_of(reach)[0, :, 2, 3].tolist() == [x - 5, y - 6, x + 7, y + 8]


def test_files_that_are_no_street_detector_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DetectorError, match="there is no such file"):
        StreetDetector.load(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("no weights")
    save_file({"x": torch.zeros(1)}, tmp_path / "odd.safetensors", {THRESHOLD: "0.5"})
    save_file(StreetNetwork().state_dict(), tmp_path / "silent.safetensors")
    for name in ("text", "odd", "silent"):
        with pytest.raises(DetectorError, match="is not a street detector of this version"):
            StreetDetector.load(tmp_path / f"{name}.safetensors")


def test_an_onnx_detector_counts_from_its_threshold_and_names_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boxes = np.array([[0.1, 0.1, 0.3, 0.5], [0.1, 0.1, 0.31, 0.5], [0.6, 0.1, 0.8, 0.5]])
    found = Detections(boxes, np.array([0.9, 0.8, 0.4]), np.array([2, 7, 0]))  # a car, also seen as a truck; a person
    asked: list[object] = []

    def opened(path: Path, wanted: object) -> SimpleNamespace:
        asked.append(wanted)
        return SimpleNamespace(batch=lambda frames: [found] * len(frames))

    monkeypatch.setattr(detection, "Detector", opened)
    (tmp_path / "model.onnx").write_bytes(b"x")
    detector = OnnxAgents(tmp_path / "model.onnx", threshold=0.5)
    (seen, _) = detector(np.zeros((2, 8, 8, 3), np.uint8))
    assert seen.boxes.tolist() == boxes[:1].tolist()
    assert "person" in asked[0]  # type: ignore[operator]
    assert detector.name.startswith("model.onnx (sha256 ")
    assert "scores from 0.5" in detector.name


def test_the_evaluators_teach_nobody() -> None:
    """Only what comes after the training may look through them: no teacher, no training, no diagnostic."""
    package = Path(factorjepa.__file__).parent
    offenders = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in ("rendering", "report", "study.py", "verbs")
        if "rendering" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and "rendering" in (node.module or "").split(".")
    ]
    assert offenders == []
