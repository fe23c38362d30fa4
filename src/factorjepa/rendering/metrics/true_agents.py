"""Agents as ground truth knows them: a reference for Agent F1 on simulated clips that no detector has a say in.

A box spans what is seen of an agent, not what is hidden: a picture can be asked for no more.

Legend: A agents of the frame, seen or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ...detectors.boxes import Detections
from ...world.taxonomy import KINDS, SUPERCLASSES
from ...world.truth import ClipTruth
from .agents import Agents

_SUPERCLASS = {name: SUPERCLASSES.index(kind.superclass) for name, kind in KINDS.items()}


def superclass_numbers(kinds: Sequence[str]) -> NDArray[np.int64]:
    """Positions in `SUPERCLASSES` of kinds of the taxonomy."""
    return np.array([_SUPERCLASS[name] for name in kinds], np.int64)


def seen_boxes(instances_HW: NDArray[np.integer], agents: int) -> NDArray[np.float64]:
    """Boxes `[A, 4]` in [0, 1] around the pixels numbered 1 ... A; NaN for who is not seen."""
    height, width = instances_HW.shape
    boxes = np.full((agents, 4), np.nan)
    for number, found in enumerate(ndimage.find_objects(instances_HW.astype(np.int32), agents)):
        if found is not None:
            rows, columns = found
            boxes[number] = columns.start / width, rows.start / height, columns.stop / width, rows.stop / height
    return boxes


def true_agents(truth: ClipTruth, frames: Sequence[int]) -> list[Agents]:
    """Whoever is seen in each of these frames of the clip, with the share of the body that is hidden."""
    superclass_A = superclass_numbers([str(kind) for kind in truth.agent_kinds])
    result = []
    for frame in frames:
        rows = truth.observations(frame)
        rows = rows[truth.visible_pixels[rows] > 0]
        agents = truth.agent[rows]
        boxes = seen_boxes(truth.instances(frame), len(truth.agent_ids))[agents]
        found = Detections(boxes, np.ones(len(rows)), superclass_A[agents])
        result.append(Agents(found, 1.0 - truth.visible_fraction[rows].astype(np.float64)))
    return result
