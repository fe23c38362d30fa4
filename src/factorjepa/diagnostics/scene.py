"""A batch of clips with everything about it that no method decides. Made once, asked by every run.

Shapes: B clips, T frames, H x W pixels, t target tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from ..backbones.masks import SMALL_BLOCKS, Grid, context_masks
from ..corpus.loader import Batch
from ..corpus.manifest import Clip
from ..pixels import normalise
from ..teacher.batch import TargetBatch
from ..teacher.packet import Packet
from ..world import ClipTruth, SimulatedClip
from .reference import Reference
from .settings import EvaluateSettings
from .views import ORIGINAL, View

T = TypeVar("T")


@dataclass(frozen=True)
class Known:
    """What is known about a batch besides its pixels.

    `teacher` holds evidence, which object states come from, and factor targets. Of evaluated clips, targets are read
    by the structure diagnostics (leakage, depth) alone, and their numbers are called teacher-relative.
    """

    teacher: TargetBatch | None = None
    packets: Sequence[Packet] | None = None
    truths: Sequence[ClipTruth] | None = None  # of simulated audit clips
    worlds: Sequence[SimulatedClip] | None = None  # where these can be simulated again


class Scene:
    """Pixels, frozen targets of every view asked for, masks. Everything costly is kept."""

    def __init__(self, batch: Batch, known: Known, reference: Reference, settings: EvaluateSettings) -> None:
        self.clips: tuple[Clip, ...] = batch.clips
        self.times_BT = batch.times.numpy()
        self.frames_BTHW3 = batch.frames.numpy()
        self.known, self.reference, self.settings = known, reference, settings
        self._targets: dict[tuple[View, int], Tensor] = {}
        self._kept: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self.clips)

    def video(self, view: View = ORIGINAL) -> Tensor:
        """`float32 [B, 3, T, H, W]`, as the networks see it."""
        return torch.from_numpy(np.stack([normalise(frames) for frames in view.frames(self)]))

    def target(self, view: View = ORIGINAL, early: int = 0) -> Tensor:
        """`Y*` of a view by the frozen encoder, `[B, t, D]` on the CPU; computed once.

        `early` counts tubelets of the context that are included.
        """
        if (view, early) not in self._targets:
            self._targets[view, early] = self.reference.future(self.video(view), early)
        return self._targets[view, early]

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, made once for all runs: flow, regions, labels. Small things only."""
        if key not in self._kept:
            self._kept[key] = make()
        return cast(T, self._kept[key])

    @property
    def grid(self) -> Grid:
        """Tubelets, rows and columns of the whole clip's tokens."""
        return self.reference.grid(self._like)

    @property
    def context_grid(self) -> Grid:
        return self.reference.context_grid(self._like)

    @property
    def context(self) -> int:
        """Frames."""
        return self.reference.context

    def visible(self, hidden: float, realisation: int) -> Tensor | None:
        """Context tokens `[B, n]` left when a share of the positions is hidden; the same for every method."""
        if hidden == 0.0:
            return None
        _, rows, columns = self.context_grid
        kept = max(1, round((1.0 - hidden) * rows * columns))
        addressed = [f"{clip.clip_id}@evaluation {realisation}" for clip in self.clips]
        return context_masks(SMALL_BLOCKS, 0, addressed, self.context_grid, kept=kept)

    def nbytes(self) -> int:
        """What it holds by now."""
        kept = sum(getattr(value, "nbytes", 0) for value in self._kept.values())
        return self.frames_BTHW3.nbytes + kept + sum(target.nbytes for target in self._targets.values())

    @property
    def _like(self) -> Tensor:
        B, T, H, W, _ = self.frames_BTHW3.shape
        return torch.empty(B, 3, T, H, W, device="meta")
