"""The context in another order: its pixels and, with them, the evidence about agents.

Shapes: B clips, T frames, C rows of evidence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from ..pixels import Frames
from ..teacher.states import EvidenceCells
from .scene import Scene
from .views import View

Order = Literal["reversed", "riffled"]


@dataclass(frozen=True)
class Reordered(View):
    """The context's frames in a fixed order; the future is as it was.

    `riffled` deals the second half of the context between the frames of the first: 0, 6, 1, 7, ... of twelve.
    """

    order: Order

    def frames(self, scene: Scene) -> Frames:
        shown = self.of(scene.context) + list(range(scene.context, scene.frames_BTHW3.shape[1]))
        return scene.frames_BTHW3[:, shown]

    def evidence(self, scene: Scene, cells: EvidenceCells) -> EvidenceCells:
        return shown_evidence(cells, self.of(scene.context))

    def of(self, context: int) -> list[int]:
        """Which frame is shown when."""
        if self.order == "reversed":
            return list(range(context))[::-1]
        half = -(-context // 2)
        return [frame for pair in zip(range(half), range(half, 2 * half), strict=True) for frame in pair
                if frame < context]  # fmt: skip


REVERSED, RIFFLED = Reordered("reversed"), Reordered("riffled")


def shown_evidence(cells: EvidenceCells, frames: Sequence[int]) -> EvidenceCells:
    """The evidence of some context frames, as if they had been filmed one after the other in this order."""
    place_T = np.full(cells.context, -1)
    place_T[list(frames)] = np.arange(len(frames))
    place_C = torch.from_numpy(place_T).to(cells.frame_C)[cells.frame_C]
    kept = dataclasses.replace(cells, frame_C=place_C).where(place_C >= 0)
    index = torch.tensor(list(frames), device=cells.frame_C.device)
    return dataclasses.replace(
        kept,
        confidence_BNT=cells.confidence_BNT.index_select(2, index),
        chain_BT33=cells.chain_BT33.index_select(1, index),
    )
