"""Frame-order sensitivity: how much worse the prediction becomes when the context is out of order (appendix D)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from ..scores import CHANCE, DiagnosticInfo
from .asks import PLAIN, Answers, Ask, Predict
from .diagnostic import Diagnostic, Part
from .reordered import REVERSED, RIFFLED
from .scene import Scene


class FrameOrder(Diagnostic):
    """eq. s_n^order. Both predictions are compared with the future of the clip as it was."""

    info = DiagnosticInfo(
        name="frame_order",
        title="Frame-order sensitivity",
        formula="Future-frame L1 with the context riffled (frames 0, 6, 1, 7, ...) less the same in order",
        direction="higher",
        unit="per token dimension, clip",
        status="secondary",
        evaluator="frozen pretrained encoder; fixed permutation of the context's frames",
        provenance="the evidence about agents is permuted with the frames; the target is the clip's own in both",
    )

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return (PLAIN, Predict(RIFFLED), Predict(REVERSED)) if part.role == "measure" else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        def error(ask: Predict) -> Tensor:
            tokens_BtD = answers[ask].tokens_BtD
            return (tokens_BtD - scene.target().to(tokens_BtD)).abs().mean((1, 2)).double()

        in_order_B = error(PLAIN)
        self.put(scene.clips, "pooled", error(Predict(RIFFLED)) - in_order_B)
        self.put(scene.clips, CHANCE, [0.0] * len(scene))
        self.put(scene.clips, "reversed", error(Predict(REVERSED)) - in_order_B)
