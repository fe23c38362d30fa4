"""Detectors of simulated agents that come with the package: one finds the teacher's regions, another judges pictures.

They have seen worlds of their own, so that nobody is measured by who taught it. Their card: docs/street_detector.md.

Legend: B pictures; S pixels a side, of the canvas; g = S / 4 cells a side; K superclasses.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..backbones.packaged import packaged_weights
from ..backbones.weights import sha256_of
from ..detectors.boxes import Detections, suppressed
from ..errors import DetectorError
from ..pixels import Frames
from .street_network import CANVAS, StreetNetwork, boxes_of

THRESHOLD = "threshold"  # key of the file's metadata: the least score
JUDGE, REGIONS = "street_detector", "street_regions"  # packaged: Agent F1 of decoded frames; the teacher's regions
_BATCH = 64  # frames at once
_SAME_AGENT = 0.5  # box IoU of two peaks on one agent, whatever their superclasses


class StreetDetector:
    """A detector of the simulated world's agents; `kinds` are positions in `SUPERCLASSES`.

    It has seen simulated streets only: of footage it says nothing that is worth anything.
    """

    def __init__(self, network: StreetNetwork, threshold: float, name: str) -> None:
        self._network, self.threshold, self.name = network.eval().requires_grad_(False), threshold, name

    @classmethod
    def load(
        cls, path: Path | None = None, device: torch.device | str = "cpu", packaged: str = JUDGE
    ) -> StreetDetector:
        """From a file that `benchmarks/train_street_detector.py` wrote; where none is named, one of the package's."""
        path = packaged_weights(packaged) if path is None else Path(path)
        if path is None or not path.is_file():
            where = "this installation carries no street detector" if path is None else f"{path}: there is no such file"
            raise DetectorError(f"{where}; name an ONNX detector instead, or train one on a source checkout")
        network = StreetNetwork()
        try:
            with safe_open(path, framework="pt") as file:
                threshold = float((file.metadata() or {})[THRESHOLD])
                network.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise DetectorError(f"{path}: is not a street detector of this version ({reason})") from None
        name = f"{path.name} (sha256 {sha256_of(path)[:8]}, scores from {threshold:g})"
        return cls(network.to(device), threshold, name)

    def __call__(self, frames: Frames) -> list[Detections]:
        parts = [self.look(frames[first : first + _BATCH]) for first in range(0, len(frames), _BATCH)]
        return [one.take(np.flatnonzero(one.scores >= self.threshold)) for part in parts for one in part]

    @torch.inference_mode()
    def look(self, frames: Frames) -> list[Detections]:
        """All peaks, whatever their scores. Oblong pictures are squeezed into the square canvas, boxes are not."""
        device = next(self._network.parameters()).device
        heat_Bgg, kinds_BKgg, reach_B4gg = self._network(canvas(frames).to(device))
        scores_Bgg = heat_Bgg.sigmoid()
        peaks_Bgg = scores_Bgg == F.max_pool2d(scores_Bgg[:, None], 3, 1, 1)[:, 0]
        boxes_B4gg, kind_Bgg = boxes_of(reach_B4gg).clamp(0, CANVAS) / CANVAS, kinds_BKgg.argmax(1)
        return [
            _agents(peaks, scores, boxes, kinds)
            for peaks, scores, boxes, kinds in zip(peaks_Bgg, scores_Bgg, boxes_B4gg, kind_Bgg, strict=True)
        ]


def canvas(frames: Frames) -> Tensor:
    """`[B, 3, S, S]` in [0, 1]."""
    side = (CANVAS, CANVAS)
    how = cv2.INTER_AREA if min(frames.shape[1:3]) > CANVAS else cv2.INTER_LINEAR
    seen = (
        frames if frames.shape[1:3] == side else np.stack([cv2.resize(one, side, interpolation=how) for one in frames])
    )
    return torch.from_numpy(np.ascontiguousarray(seen)).permute(0, 3, 1, 2).float() / 255.0


def _agents(peaks_gg: Tensor, scores_gg: Tensor, boxes_4gg: Tensor, kinds_gg: Tensor) -> Detections:
    boxes = boxes_4gg[:, peaks_gg].T.double().cpu().numpy()
    scores, kinds = scores_gg[peaks_gg].double().cpu().numpy(), kinds_gg[peaks_gg].cpu().numpy()
    solid = np.asarray((boxes[:, 2:] > boxes[:, :2]).all(axis=1))
    return suppressed(Detections(boxes, scores, kinds).take(solid), _SAME_AGENT, across=True)
