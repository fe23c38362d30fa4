"""What probes of the factors are asked for: the teacher's targets, or what is true. One vector per clip and factor.

Teacher-relative numbers say how much a model agrees with the pseudo-labels that some methods were trained on. On
simulated audit clips the same is asked against ground truth, which none has seen.

Shapes: B clips, W target width, s pixels a side of the truth's maps.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ..predictors import PerFactor
from ..world.interactions import KINDS_OF_INTERACTION
from .scene import Scene
from .truth import agent_masks, interacting_agents, true_frames, truth_of, window_span

FACTORS = PerFactor._fields  # layout, agents, interactions
Array = NDArray[np.float64]

_GRID = 4  # cells a side of the true summaries


def teacher_targets(scene: Scene) -> dict[str, tuple[Array, NDArray[np.bool_]]]:
    """T_k `[B, W]` and which of them the teacher stands by (`retained`)."""
    teacher = scene.known.teacher
    assert teacher is not None, "only parts with packets are asked for them"
    kept = teacher.retained_B3.numpy()
    return {
        name: (getattr(teacher, f"{name}_BW").double().numpy(), kept[:, number]) for number, name in enumerate(FACTORS)
    }


def true_targets(scene: Scene) -> dict[str, tuple[Array, NDArray[np.bool_]]]:
    """Summaries of the window from ground truth, in the same form; all of them are certain."""

    def make() -> dict[str, tuple[Array, NDArray[np.bool_]]]:
        certain, clips = np.ones(len(scene), bool), range(len(scene))
        summaries = {"layout": _layout, "agents": _agents, "interactions": _interactions}
        return {name: (np.stack([summary(scene, b) for b in clips]), certain) for name, summary in summaries.items()}

    return scene.kept("true targets", make)


def _layout(scene: Scene, b: int) -> Array:
    """Share of each kind of ground in each cell, mean over the window."""
    truth, kinds = truth_of(scene, b), len(truth_of(scene, b).layout_names)
    maps = [truth.layout(number) for number in true_frames(scene, b)]
    return np.concatenate([_cells(np.mean([one == kind for one in maps], axis=0)) for kind in range(kinds)])


def _agents(scene: Scene, b: int) -> Array:
    """In each cell: how much of it shows agents, how many there are, and their mean velocity; mean over the window."""
    truth = truth_of(scene, b)
    occupancy = _cells(agent_masks(scene, b).mean(0))
    table = np.zeros((_GRID * _GRID, 3))
    numbers = true_frames(scene, b)
    for number in numbers:
        rows = truth.observations(number)
        rows = rows[truth.visible_pixels[rows] > 0]
        box = truth.box[rows].astype(np.float64)
        place = np.clip((box[:, :2] + box[:, 2:]) / 2 / truth.size * _GRID, 0, _GRID - 1).astype(int)
        values = np.concatenate([np.ones((len(rows), 1)), truth.image_velocity[rows] / truth.size], axis=1)
        np.add.at(table, place[:, 1] * _GRID + place[:, 0], values)
    table[:, 1:] /= np.maximum(table[:, :1], 1)
    table[:, 0] /= len(numbers)
    return np.concatenate([occupancy, table.ravel()])


def _interactions(scene: Scene, b: int) -> Array:
    """Who depends on whom: how many, by kind, with how much effect, and where those agents are seen."""
    start, end = window_span(scene, b)
    running = [one for one in truth_of(scene, b).interactions if one.start < end and one.end > start]
    kinds = [[one.effect for one in running if one.kind == kind] for kind in KINDS_OF_INTERACTION]
    where = _cells(agent_masks(scene, b, interacting_agents(scene, b)).mean(0))
    return np.array([*map(len, kinds), *map(sum, kinds), *where], np.float64)


def _cells(share_ss: NDArray[np.floating]) -> Array:
    """Means of a map over the cells, `[cells]`."""
    small = cv2.resize(share_ss.astype(np.float32), (_GRID, _GRID), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.float64).ravel()
