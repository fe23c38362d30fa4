"""Real detectors on real footage: what they are sure of is hidden afterwards, also to another detector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factorjepa.footage.privacy import PrivacySettings, build, notices
from factorjepa.footage.privacy.detection import OnnxFinder
from factorjepa.footage.privacy.settings import DetectionSettings
from factorjepa.video import read_frames

SHARED = Path(__file__).parents[3] / ".." / "shared" / "assets"
WEIGHTS = {
    "yunet": "yunet_n_640_640.onnx",
    "scrfd": "scrfd_500m_bnkps_NONCOMMERCIAL.onnx",
    "plate": "clp_det_plate.onnx",
}


def test_faces_of_a_real_crowd_are_hidden_to_another_detector() -> None:
    for package in ("trackers", "supervision", "onnxruntime", "onnx"):
        pytest.importorskip(package)
    video, weights = (
        SHARED / "video" / "opencv4nodejs_people.mp4",
        {k: SHARED / "weights" / v for k, v in WEIGHTS.items()},
    )
    if not (video.is_file() and all(path.is_file() for path in weights.values())):
        pytest.skip("the detectors and the street video are not beside this checkout")
    frames = read_frames(video, 3.0 + np.arange(12) / 8)
    privacy = build(PrivacySettings(faces=(weights["yunet"],), plates=(weights["plate"],)))
    assert notices(privacy)[0].endswith("Apache-2.0")
    result = privacy(frames, 8.0, audit=True)
    assert result.failures == ()
    assert result.counts["face_tracks"] >= 8
    assert result.audit.startswith(b"\x89PNG")
    other = OnnxFinder(weights["scrfd"], "face", DetectionSettings())
    seen, left = (sum(int((scores >= 0.5).sum()) for _, scores in other(some[::4])) for some in (frames, result.frames))
    assert seen >= 12
    assert left <= 0.05 * seen
