"""What a decoder may learn from: target-encoder latents of training clips with the frames they show. Nothing else.

`TargetLatents` come out of `TargetSource` alone, which is given a frozen encoder and clips of a split and remembers
what it gave out. Whatever updates a decoder asks it (`TargetSource.refuse_untrainable`): an object that it did not
give out, a changed copy too, trains nothing.

Shapes: B clips, t future tokens, D width, T future frames, H x W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakSet

import torch
from torch import Tensor

from ..corpus.loader import Batch
from ..corpus.splits import Split
from ..diagnostics.reference import Reference
from ..errors import RenderingError
from .transport import Grid


@dataclass(frozen=True, eq=False)
class TargetLatents:
    """`Y* = sg[f(x)]` of a batch, and x+."""

    tokens_BtD: Tensor
    future_BT3HW: Tensor  # 0 to 1
    last_B3HW: Tensor  # the last context frame
    grid: Grid  # of the future
    split: Split


class TargetSource:
    """Encodes windows with the frozen target encoder; what fits into `memory_gb` is kept for the next epoch."""

    def __init__(self, reference: Reference, memory_gb: float) -> None:
        self.reference, self.digest = reference, reference.digest()
        self._room = int(memory_gb * 1e9)
        self._given: WeakSet[TargetLatents] = WeakSet()
        self._kept: dict[tuple[str, float, int, bool], Tensor] = {}

    def refuse_untrainable(self, latents: object) -> None:
        """An error unless these are target latents of training clips that this source gave out."""
        if not isinstance(latents, TargetLatents):
            raise RenderingError(
                f"a decoder learns from target-encoder latents alone, not from {type(latents).__name__}: predictions "
                "of a compared method would favour that method"
            )
        if latents not in self._given:
            raise RenderingError("these latents did not come out of the frozen target encoder: they train no decoder")
        if latents.split is not Split.TRAIN:
            raise RenderingError(f"a decoder learns from training clips alone, not from {latents.split} clips")

    def latents(self, batch: Batch, mirrored: bool = False, device: torch.device | str = "cpu") -> TargetLatents:
        """Of the clips' own split. `mirrored`: left and right are exchanged before the encoder looks."""
        frames = batch.frames.flip(3) if mirrored else batch.frames
        keys = [
            (clip.clip_id, float(times[0]), frames.shape[2], mirrored)
            for clip, times in zip(batch.clips, batch.times, strict=True)
        ]
        unknown = [row for row, key in enumerate(keys) if key not in self._kept]
        made: dict[int, Tensor] = {}
        if unknown:
            video = Batch(frames[unknown], tuple(batch.clips[k] for k in unknown), batch.times[unknown]).video()
            for row, tokens in zip(unknown, self.reference.future(video).half(), strict=True):
                made[row] = tokens
                if tokens.nbytes <= self._room:
                    self._room -= tokens.nbytes
                    self._kept[keys[row]] = tokens.clone()
        tokens = torch.stack([made[row] if row in made else self._kept[key] for row, key in enumerate(keys)])
        splits = {clip.split for clip in batch.clips}
        if len(splits) != 1:
            raise RenderingError(f"a batch of one split is needed, not of {', '.join(sorted(splits))}")
        context = self.reference.context
        shown = frames.permute(0, 1, 4, 2, 3)
        whole = self.reference.grid(torch.empty(1, 3, *frames.shape[1:4], device="meta"))
        grid = (whole[0] - context // self.reference.spec.tubelet, *whole[1:])
        future, last = (part.float().to(device) / 255 for part in (shown[:, context:], shown[:, context - 1]))
        given = TargetLatents(tokens.float().to(device), future, last, grid, Split(splits.pop()))
        self._given.add(given)
        return given
