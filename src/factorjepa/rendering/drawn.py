"""What a decoder draws of a batch, and what frozen evaluators see in it. Each is computed once, whoever asks.

Frames are rounded to bytes, as a video holds them: the observed future, the oracle's and every method's alike.

Shapes: B clips, T future frames, H x W pixels, t future tokens, D width, s side of the flow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..backbones.masks import Grid
from ..detectors.boxes import Detections
from ..diagnostics.asks import Ask, Subject
from ..diagnostics.evaluation import ABSENT
from ..diagnostics.scene import Scene
from ..diagnostics.views import ORIGINAL
from ..pixels import Frames
from .decoder import StoredDecoder
from .metrics.detection import AgentDetector
from .metrics.lpips import Lpips
from .metrics.motion import ESTIMATOR, future_flow, to_bytes

LPIPS, DETECTOR = "LPIPS", "agent detector"  # parts of the identity


@dataclass(frozen=True, eq=False)
class Studio:
    """The frozen things that every source of latents shares: the decoder and the evaluators of its pictures."""

    stored: StoredDecoder
    lpips: Lpips | None = None
    detector: AgentDetector | None = None

    def draw(self, tokens_BtD: Tensor, grid: Grid) -> Frames:
        """`uint8 [B, T, H, W, 3]` of future tokens."""
        return as_bytes(self.stored.decoder.render(tokens_BtD, grid))

    def identity(self) -> dict[str, str]:
        """What decoded scores depend on besides the evaluator."""
        return {
            "decoder": f"{self.stored.name}, {self.stored.digest}",
            LPIPS: self.lpips.name if self.lpips else ABSENT,
            "flow": ESTIMATOR,
            DETECTOR: self.detector.name if self.detector else ABSENT,
        }


class Drawn:
    """Future frames of a batch from one source, with the motion and the agents found in them."""

    def __init__(self, frames_BTHW3: Frames, last_BHW3: Frames, detector: AgentDetector | None) -> None:
        self.frames_BTHW3, self._last_BHW3, self._detector = frames_BTHW3, last_BHW3, detector

    @property
    def pixels_BT3HW(self) -> Tensor:
        return torch.from_numpy(self.frames_BTHW3).permute(0, 1, 4, 2, 3).float() / 255

    @property
    def last_B3HW(self) -> Tensor:
        """The last context frame."""
        return torch.from_numpy(self._last_BHW3).permute(0, 3, 1, 2).float() / 255

    @cached_property
    def flow_BTss2(self) -> NDArray[np.float32]:
        """From the last context frame to each."""
        return future_flow(self.last_B3HW, self.pixels_BT3HW)

    @cached_property
    def agents_BT(self) -> list[list[Detections]]:
        """Of every clip and frame; needs a detector."""
        assert self._detector is not None, "who asks for agents has looked whether there is a detector"
        B, T = self.frames_BTHW3.shape[:2]
        found = self._detector(self.frames_BTHW3.reshape(B * T, *self.frames_BTHW3.shape[2:]))
        return [found[clip * T : (clip + 1) * T] for clip in range(B)]


@dataclass(frozen=True)
class Rendered(Ask[Drawn]):
    """A method's future from the whole context, drawn."""

    studio: Studio

    def answer(self, subject: Subject, scene: Scene) -> Drawn:
        predicted = subject.predict(scene, ORIGINAL, None).tokens_BtD
        return drawn_of(scene, self.studio, self.studio.draw(predicted, future_grid(scene)))


def as_bytes(pixels_BT3HW: Tensor) -> Frames:
    """`uint8 [B, T, H, W, 3]`."""
    return np.stack([to_bytes(frames) for frames in pixels_BT3HW])


def observed(scene: Scene, studio: Studio) -> Drawn:
    """X: the future as it came."""
    return _kept(scene, studio, "observed", lambda: scene.frames_BTHW3[:, scene.context :])


def oracle(scene: Scene, studio: Studio) -> Drawn:
    """O: the decoder's picture of the target latents."""
    return _kept(scene, studio, "oracle", lambda: studio.draw(scene.target(), future_grid(scene)))


def copied(scene: Scene, studio: Studio) -> Drawn:
    """The last seen frame as the forecast: what who foresees nothing draws, without a decoder's loss."""

    def again() -> Frames:
        future = scene.frames_BTHW3.shape[1] - scene.context
        return np.repeat(scene.frames_BTHW3[:, scene.context - 1][:, None], future, axis=1)

    return _kept(scene, studio, "copied", again)


def drawn_of(scene: Scene, studio: Studio, frames_BTHW3: Frames) -> Drawn:
    return Drawn(frames_BTHW3, scene.frames_BTHW3[:, scene.context - 1], studio.detector)


def future_grid(scene: Scene) -> Grid:
    """Tubelets, rows and columns of the future's tokens."""
    whole, context = scene.grid, scene.context_grid
    return whole[0] - context[0], *whole[1:]


def _kept(scene: Scene, studio: Studio, what: str, make: Callable[[], Frames]) -> Drawn:
    return scene.kept(("drawn", what, studio), lambda: drawn_of(scene, studio, make()))
