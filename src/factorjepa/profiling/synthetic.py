"""Clips that nobody filmed, with packets that no teacher made: for time and memory their content does not matter.

What does matter is how many agents and pairs there are. A clip shows `agents` agents whose boxes go straight ahead, and
each is paired with its `neighbours` nearest others; a mask then hides some of them, as in training.

Shapes: B clips, N agents, T frames, E descriptor width, C evidence cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..seeding import stream
from ..teacher.batch import TargetBatch
from ..teacher.scales import TargetScale
from ..teacher.states import EvidenceCells
from ..training.batches import Scales, TrainingBatch
from ..training.settings import TrainSettings

TARGET_WIDTH, DESCRIPTOR_WIDTH = 256, 64  # as the teacher's settings have them
_ANYWHERE = 2.0  # sides of the picture: everyone is near enough to be a neighbour


@dataclass(frozen=True)
class Scenery:
    """What the clips of a profile show."""

    agents: int = 16
    neighbours: int = 6  # pairs per agent

    @property
    def pairs(self) -> int:
        return self.agents * min(self.neighbours, max(0, self.agents - 1))


def scales(device: torch.device) -> Scales:
    names = ("layout", "agents", "interactions")
    return {name: TargetScale(torch.zeros(TARGET_WIDTH), torch.ones(TARGET_WIDTH)).to(device) for name in names}


def training_batches(
    settings: TrainSettings, grid: int, scenery: Scenery, count: int, viewed: float = 0.0
) -> list[TrainingBatch]:
    """`count` passes of different clips, bytes as a loader with workers hands them over; of `viewed` of the clips it is
    said that they are shown in a factor view, and the frozen-trunk cache does not know those."""
    batches, size = [], settings.size
    shape = (settings.batch, settings.frames, size, size, 3)
    video = torch.from_numpy(stream("profile pixels").integers(0, 256, shape, np.uint8))  # those of one serve all
    if torch.cuda.is_available():
        video = video.pin_memory()
    for number in range(count):
        ids = tuple(f"synthetic {number * settings.batch + row}" for row in range(settings.batch))
        first, last = (int(viewed * settings.batch * passes) for passes in (number, number + 1))
        targets = target_batch(settings.batch, grid, settings.frames, settings.context, scenery, number)
        batches.append(TrainingBatch(video, ids, targets, epoch=0, together=ids, viewed=tuple(range(last - first))))
    return batches


def target_batch(batch: int, grid: int, frames: int, context: int, scenery: Scenery, seed: int = 0) -> TargetBatch:
    """Packets of a batch, already collated. `grid` is the number of cells a side."""
    random = stream("profile packets", seed)
    N = max(1, scenery.agents)

    def uniform(*shape: int) -> Tensor:
        return torch.from_numpy(random.random(shape, np.float32))

    return TargetBatch(
        layout_BW=uniform(batch, TARGET_WIDTH),
        agents_BW=uniform(batch, TARGET_WIDTH),
        interactions_BW=uniform(batch, TARGET_WIDTH),
        reliability_B3=torch.ones(batch, 3),
        retained_B3=torch.ones(batch, 3, dtype=torch.bool),
        visibility_BN=uniform(batch, N),
        visibility_reliability_BN=torch.ones(batch, N),
        visibility_retained_BN=torch.ones(batch, N, dtype=torch.bool),
        visibility_BNT=torch.ones(batch, N, frames),
        visibility_known_BNT=torch.ones(batch, N, frames, dtype=torch.bool),
        places_BNT2=uniform(batch, N, frames, 2),
        places_known_BNT=torch.ones(batch, N, frames, dtype=torch.bool),
        cells=evidence(batch, grid, context, scenery, random),
    )


def evidence(batch: int, grid: int, context: int, scenery: Scenery, random: np.random.Generator) -> EvidenceCells:
    """Cells under the boxes of moving agents, in every context frame."""
    N = max(1, scenery.agents)
    side = 16 * grid  # pixels of the mask grid
    rows: list[tuple[int, int, int, int, int, int, int, int]] = []
    for agent in range(batch * N if scenery.agents else 0):
        half = random.uniform(0.04, 0.12, 2) * side / 2
        start = random.uniform(0.15, 0.85, 2) * side
        velocity = random.uniform(-0.01, 0.01, 2) * side
        for frame in range(context):
            centre = start + frame * velocity
            low = np.clip(np.rint(centre - half), 0, side - 1).astype(int)
            high = np.clip(np.rint(centre + half), low + 1, side).astype(int)
            for row in range(low[1] // 16, (high[1] - 1) // 16 + 1):
                for column in range(low[0] // 16, (high[0] - 1) // 16 + 1):
                    left, top = max(low[0], 16 * column), max(low[1], 16 * row)
                    right, bottom = min(high[0], 16 * column + 16), min(high[1], 16 * row + 16)
                    pixels = (right - left) * (bottom - top)
                    rows.append((agent, frame, row * grid + column, pixels, left, top, right, bottom))
    columns = torch.tensor(rows, dtype=torch.int64).reshape(-1, 8)
    descriptors = random.standard_normal((len(rows), DESCRIPTOR_WIDTH), np.float32)
    return EvidenceCells(
        agent_C=columns[:, 0].contiguous(),
        frame_C=columns[:, 1].contiguous(),
        cell_C=columns[:, 2].contiguous(),
        pixels_C=columns[:, 3].contiguous(),
        extent_C4=columns[:, 4:].contiguous(),
        descriptor_CE=torch.from_numpy(descriptors).half(),
        confidence_BNT=torch.ones(batch, N, context),
        chain_BT33=torch.eye(3).expand(batch, context, 3, 3).contiguous(),
        side_B=torch.full((batch,), side),
        grid=grid,
        pair_distance=_ANYWHERE,
        max_neighbours=scenery.neighbours,
    )
