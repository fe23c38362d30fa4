"""Ground truth of a batch's windows: who is seen, where, and who acts upon whom. Simulated audit clips only.

Shapes: T frames, s pixels a side of the truth's maps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..teacher.annotations import MIN_VISIBLE, true_interactions
from ..video import frame_index
from ..world import ClipTruth
from .scene import Scene


def truth_of(scene: Scene, b: int) -> ClipTruth:
    assert scene.known.truths is not None, "only parts with truth are asked for it"
    return scene.known.truths[b]


def true_frames(scene: Scene, b: int) -> list[int]:
    """Numbers of the window's frames in the clip's ground truth."""
    truth = truth_of(scene, b)
    numbers: list[int] = np.minimum(frame_index(scene.times_BT[b], truth.fps), truth.frames - 1).tolist()
    return numbers


def interacting_agents(scene: Scene, b: int) -> set[int]:
    """Ids of the agents that react to another, or are reacted to, within the window."""
    pairs = true_interactions(truth_of(scene, b), *window_span(scene, b))
    return {agent for pair in pairs for agent in pair}


def window_span(scene: Scene, b: int) -> tuple[float, float]:
    """Seconds of the clip at which the window begins and ends."""
    times = scene.times_BT[b]
    return float(times[0]), float(2 * times[-1] - times[-2])


def agent_masks(scene: Scene, b: int, ids: set[int] | None = None) -> NDArray[np.bool_]:
    """`[T, s, s]` where an agent (or one of these) is seen."""
    truth = truth_of(scene, b)
    wanted = np.ones(len(truth.agent_ids), bool) if ids is None else np.isin(truth.agent_ids, list(ids))
    table = np.concatenate(([False], wanted))
    return np.stack([table[truth.instances(number)] for number in true_frames(scene, b)])


def seen_agents(scene: Scene, b: int) -> dict[int, int]:
    """Ids of the agents of which enough is seen in the last context frame, with their visible pixels."""
    truth = truth_of(scene, b)
    rows = truth.observations(true_frames(scene, b)[scene.context - 1])
    rows = rows[(truth.visible_fraction[rows] >= MIN_VISIBLE) & (truth.visible_pixels[rows] > 0)]
    ids, pixels = truth.agent_ids[truth.agent[rows]], truth.visible_pixels[rows]
    return dict(zip(ids.tolist(), pixels.tolist(), strict=True))
