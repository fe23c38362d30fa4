"""Mean and deviation of the targets over training clips: factor losses compare standardised targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..corpus.access import TrainingClips
from ..errors import TeacherError
from .cache import Packets

_SMALLEST = 1e-3  # a target that hardly varies is not blown up


@dataclass(frozen=True)
class TargetScale:
    """Of one factor, per component, `[W]` each."""

    mean_W: Tensor
    deviation_W: Tensor

    def standardised(self, target_BW: Tensor) -> Tensor:
        return (target_BW - self.mean_W.to(target_BW)) / self.deviation_W.to(target_BW)

    def to(self, device: torch.device) -> TargetScale:
        return TargetScale(self.mean_W.to(device), self.deviation_W.to(device))


def target_scales(packets: Packets[TrainingClips]) -> dict[str, TargetScale]:
    """Scales of `layout`, `agents` and `interactions` over the retained targets of training clips, and of no others."""
    if not isinstance(packets.clips, TrainingClips):
        raise TeacherError(
            f"targets are standardised over training clips, not over {packets.clips.split} clips: pass the packets of "
            "Corpus.training()"
        )
    tau, width = packets.settings.targets.exclude_below, packets.settings.targets.width
    scales = {}
    for column, name in enumerate(("layout", "agents", "interactions")):
        count, total, squares = 0, np.zeros(width), np.zeros(width)
        for index in range(len(packets)):
            packet = packets[index]
            omega = float(packet.reliability[column])
            if omega > 0 and omega >= getattr(tau, name):
                target = getattr(packet, name).astype(np.float64)
                count, total, squares = count + 1, total + target, squares + target**2
        if count == 0:
            scales[name] = TargetScale(torch.zeros(width), torch.ones(width))
            continue
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, _SMALLEST**2))
        scales[name] = TargetScale(torch.from_numpy(mean).float(), torch.from_numpy(deviation).float())
    return scales
