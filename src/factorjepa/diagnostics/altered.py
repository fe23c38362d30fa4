"""Edited clips as views: the generator's edits of a batch, and the evidence about agents that they leave.

Object states of an edited clip come from the evidence outside the edit: what lies under it was seen in pixels that are
no longer there (decision D7).

Shapes: B clips, T frames, s mask grid, Q evidence cells a frame, C rows of evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from ..pixels import Frames
from ..teacher.states import EvidenceCells
from .flow import own_motion
from .interventions import EditKind, Masks, box_masks, edit, salient_boxes
from .scene import Scene
from .truth import agent_masks, seen_agents
from .views import View

Source = Literal["flow", "truth", "held"]
"""A box around what moves; the support of a true agent, wherever it goes; the same, held where the context ends."""

_COVERED = 0.5  # share of a cell under an edit from which on its evidence is gone
_MARGIN = 0.015  # sides around an agent's true support


@dataclass(frozen=True)
class Edited(View):
    """Each clip with one region edited; a clip without such a region stays as it is (`there` says which)."""

    kind: EditKind
    region: int = 0  # the strongest first
    source: Source = "flow"

    def there(self, scene: Scene) -> NDArray[np.bool_]:
        """`[B]` whether the clip has this region."""
        return np.array([masks is not None for masks in _supports(scene, self.source, self.region)])

    def frames(self, scene: Scene) -> Frames:
        return np.stack([frames for frames, _ in self._edits(scene)])

    def evidence(self, scene: Scene, cells: EvidenceCells) -> EvidenceCells:
        return hidden_evidence(scene, cells, [touched for _, touched in self._edits(scene)])

    def _edits(self, scene: Scene) -> list[tuple[Frames, Masks]]:
        shift, found = scene.settings.interventions.shift, []
        for frames, masks in zip(scene.frames_BTHW3, _supports(scene, self.source, self.region), strict=True):
            if masks is None:
                found.append((frames, np.zeros(frames.shape[:3], bool)))
            else:
                found.append(edit(frames, masks, self.kind, scene.context, shift))
        return found


def hidden_evidence(scene: Scene, cells: EvidenceCells, masks: Sequence[Masks]) -> EvidenceCells:
    """Evidence without the cells that lie under `masks [T, s, s]`, of any s, one for each clip."""
    grid = cells.grid
    share = np.stack([
        [cv2.resize(frame.astype(np.float32), (grid, grid), interpolation=cv2.INTER_AREA) for frame in one]
        for one in (mask[: scene.context] for mask in masks)
    ])  # fmt: skip
    left_BTQ = torch.from_numpy(share.reshape(len(scene), scene.context, grid * grid) < _COVERED)
    clip_C = cells.agent_C // cells.confidence_BNT.shape[1]
    return cells.where(left_BTQ[clip_C, cells.frame_C, cells.cell_C])


def _supports(scene: Scene, source: Source, region: int) -> list[Masks | None]:
    """`[T, H, W]` of each clip's region; None where it has fewer. Flow regions look at the context alone."""
    _, T, H, W, _ = scene.frames_BTHW3.shape
    if source != "flow":
        followed = scene.kept(("true region", region), lambda: [_agent(scene, b, region) for b in range(len(scene))])
        return followed if source == "truth" else [_held(masks, scene.context) for masks in followed]

    def boxes() -> list[list[tuple[float, float, float, float]]]:
        motion = own_motion(scene, 0, scene.context - 1)
        return [salient_boxes(one, scene.settings.interventions) for one in motion]

    found = scene.kept("salient boxes", boxes)
    return [box_masks(of_clip[region], T, H, W) if region < len(of_clip) else None for of_clip in found]


def _agent(scene: Scene, b: int, rank: int) -> Masks | None:
    """The true support of the agent that is seen `rank`-th largest at the context's end, with a margin."""
    seen = seen_agents(scene, b)
    if rank >= len(seen):
        return None
    agent = sorted(seen, key=lambda one: (-seen[one], one))[rank]
    _, _, H, W, _ = scene.frames_BTHW3.shape
    reach = np.ones((2 * max(1, round(_MARGIN * W)) + 1,) * 2, np.uint8)
    masks = agent_masks(scene, b, {agent}).astype(np.float32)
    sized = [cv2.resize(mask, (W, H), interpolation=cv2.INTER_AREA) > 0.25 for mask in masks]
    return np.stack([cv2.dilate(mask.astype(np.uint8), reach) > 0 for mask in sized])


def _held(masks: Masks | None, context: int) -> Masks | None:
    """The same support in the context; after it, where it was last."""
    if masks is None:
        return None
    return np.concatenate([masks[:context], np.repeat(masks[context - 1 : context], len(masks) - context, axis=0)])
