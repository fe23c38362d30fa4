"""Object states `o_i` for the predictor: what the context shows of each agent, and no more than the mask leaves.

The evidence lies in cells: how much of an agent's support falls into each cell of each context frame, how far it
reaches there, and what the features say about it. `object_states` puts agents together from the cells that a context
mask leaves. What is hidden does not count: an agent hidden by now keeps its last seen state, aged, and one that was
never seen does not exist. Sums run over whole numbers, so that no order of summation, on any device, changes a bit.

Shapes: B clips, N agents (padded), P pairs (padded), E descriptor width, G geometry fields, T context frames,
C evidence cells of the whole batch, Q cells a frame, M = B * N.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from ..errors import TeacherError
from ..transfer import sent

GEOMETRY = (
    "centre_x", "centre_y", "width", "height",  # box of the visible support when last seen, in [0, 1]
    "velocity_x", "velocity_y",  # of the centre in the picture, sides per frame
    "own_velocity_x", "own_velocity_y",  # the same without the camera's motion
    "area",  # visible support when last seen, share of the picture
    "visibility",  # that area over the largest seen in the context, at most 1
    "confidence",  # mean over the regions seen
    "age",  # frames since first seen, over the context's length
    "gap",  # frames since last seen, over the context's length
    "truncated",  # 1 if the box touches the border
)  # fmt: skip


@dataclass(frozen=True)
class ObjectStates:
    """Agents and candidate pairs of a batch. Padding is zeros with `valid` False, behind the real ones."""

    descriptor_BNE: Tensor  # float32, unit length
    geometry_BNG: Tensor  # float32, fields of GEOMETRY
    valid_BN: Tensor  # bool
    slot_BN: Tensor  # int64, which agent of the packet it is: gathers per-agent targets
    pairs_BP2: Tensor  # int64, places in N: (i, j), i is the one acted upon
    pair_valid_BP: Tensor  # bool
    context: int  # frames of the context: `age` and `gap` are shares of it
    # How many of each clip's places for pairs, the first ones, may be valid: known here, so that nobody waits for a GPU
    # to say it, and nothing is computed for the padding behind them. None: all.
    pair_counts: tuple[int, ...] | None = None

    def to(self, device: torch.device) -> ObjectStates:
        """The same on another device, without waiting for it."""
        moved: dict[str, Any] = {
            name: sent(value, device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    def extrapolated_boxes(self, frames_ahead_K: Tensor) -> Tensor:
        """Where each agent would be if it went on as last seen: `[B, N, K, 4]`, centre and size of its box.

        `frames_ahead` count from the last context frame; the time since an agent was last seen is made up for.
        """
        unseen_BN1 = self.geometry_BNG[..., GEOMETRY.index("gap"), None] * self.context
        ahead_BNK1 = (frames_ahead_K + unseen_BN1)[..., None]
        centre_BNK2 = self.geometry_BNG[..., None, 0:2] + self.geometry_BNG[..., None, 4:6] * ahead_BNK1
        return torch.cat((centre_BNK2, self.geometry_BNG[..., None, 2:4].expand_as(centre_BNK2)), dim=-1)

    def without(self, slot_B: Tensor) -> ObjectStates:
        """The same scene with one agent of each clip, and its pairs, taken out; -1 takes nobody out."""
        gone_BN = self.valid_BN & (self.slot_BN == slot_B[:, None])
        first_BP, second_BP = (gone_BN.gather(1, self.pairs_BP2[..., side]) for side in (0, 1))
        return replace(
            self, valid_BN=self.valid_BN & ~gone_BN, pair_valid_BP=self.pair_valid_BP & ~first_BP & ~second_BP
        )


VELOCITY_FRAMES = 4  # velocity is the slope of the centre over the frames seen among these last ones
_FIXED_POINT = 2**20  # descriptors are summed as whole numbers of this unit, finer than half precision


@dataclass(frozen=True)
class EvidenceCells:
    """What the context of each clip of a batch shows, cell by cell. Whole numbers but for the descriptors."""

    agent_C: Tensor  # int64, b * N + slot
    frame_C: Tensor  # int64
    cell_C: Tensor  # int64, row-major in the frame's grid
    pixels_C: Tensor  # int64, of the agent's visible support in this cell
    extent_C4: Tensor  # int64, left, top, right, bottom of that support in pixels of the mask grid
    descriptor_CE: Tensor  # float16, mean projected feature of that support
    confidence_BNT: Tensor  # float32, of the agent's region in each frame
    chain_BT33: Tensor  # float32, where a static point of frame 0 lies in frame t
    side_B: Tensor  # int64, pixels of each clip's mask grid
    grid: int  # cells a side
    pair_distance: float  # between box centres, in sides of the picture
    max_neighbours: int

    @property
    def context(self) -> int:
        return self.confidence_BNT.shape[2]

    def to(self, device: torch.device | str) -> EvidenceCells:
        """The same on another device; copies from pinned memory do not wait."""
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=True) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    def where(self, keep_C: Tensor) -> EvidenceCells:
        """Without the rows that are not kept."""
        rows = keep_C.nonzero().squeeze(1)
        per_row = (name for name in vars(self) if name.split("_")[-1] in ("C", "C4", "CE"))
        return replace(self, **{name: getattr(self, name).index_select(0, rows) for name in per_row})


def visible_cells(tokens_Bn: Tensor, token_grid: tuple[int, int, int], cells: EvidenceCells) -> Tensor:
    """Kept context tokens (`backbones.masks.context_masks`) as `bool [B, T, Q]` over the evidence cells.

    A token covers whole cells: the cell grid must be a multiple of the token grid, and the tubelets span the context.
    """
    tubelets, rows, columns = token_grid
    if rows != columns or cells.grid % rows or cells.context % tubelets:
        raise TeacherError(
            f"tokens on a grid of {tubelets} x {rows} x {columns} do not cover whole cells of {cells.context} frames "
            f"of {cells.grid} x {cells.grid}: set targets.grid to {rows} or a multiple of it and make the packets again"
        )
    kept_Bn = torch.zeros(len(tokens_Bn), tubelets * rows * columns, dtype=torch.bool, device=tokens_Bn.device)
    kept_Bn.scatter_(1, tokens_Bn, True)
    kept_BTRC = kept_Bn.view(-1, tubelets, rows, columns)
    for dim, times in ((1, cells.context // tubelets), (2, cells.grid // rows), (3, cells.grid // columns)):
        kept_BTRC = kept_BTRC.repeat_interleave(times, dim)
    return kept_BTRC.flatten(2)


def object_states(cells: EvidenceCells, visible: Tensor | None = None) -> ObjectStates:
    """The agents and candidate pairs that the visible cells show.

    `visible` is `bool [B, Q]` (full-time tubes) or `[B, T, Q]`; None shows everything.
    """
    B, N, T = cells.confidence_BNT.shape
    shown = cells
    if visible is not None:
        clip_C = cells.agent_C // N
        index = (clip_C, cells.cell_C) if visible.dim() == 2 else (clip_C, cells.frame_C, cells.cell_C)
        shown = cells.where(visible[index])
    area_MT, box_MT4 = _support(shown, B * N, T)
    geometry_MG = geometry_of(
        seen_MT=area_MT > 0,
        box_MT4=box_MT4,
        area_MT=area_MT,
        confidence_MT=cells.confidence_BNT.flatten(0, 1),
        chain_BT33=cells.chain_BT33,
    )
    valid_BN = (area_MT > 0).any(1).view(B, N)
    order_BN = torch.argsort(~valid_BN, dim=1, stable=True)  # agents that are seen first, in the packet's order
    valid_BN = valid_BN.gather(1, order_BN)
    geometry_BNG = _taken(geometry_MG.view(B, N, -1), order_BN, valid_BN)
    descriptor_BNE = _taken(_descriptors(shown, B * N).view(B, N, -1), order_BN, valid_BN)
    pairs_BP2, pair_valid_BP = candidate_pairs(
        geometry_BNG[..., :2], valid_BN, cells.pair_distance, cells.max_neighbours
    )
    slot_BN = torch.where(valid_BN, order_BN, 0)
    counts = tuple(pair_valid_BP.sum(1).tolist())
    return ObjectStates(descriptor_BNE, geometry_BNG, valid_BN, slot_BN, pairs_BP2, pair_valid_BP, T, counts)


def geometry_of(seen_MT: Tensor, box_MT4: Tensor, area_MT: Tensor, confidence_MT: Tensor, chain_BT33: Tensor) -> Tensor:
    """`GEOMETRY [M, G]` of agents from what was seen of each in T frames; zeros for one that was never seen.

    The M agents are those of B clips after one another, as many of each.
    """
    T = seen_MT.shape[1]
    time_T = torch.arange(T, device=seen_MT.device)
    last_M = torch.where(seen_MT, time_T, -1).amax(1)
    first_M = torch.where(seen_MT, time_T, T).amin(1)
    at_M = last_M.clamp(min=0)[:, None]
    box_M4 = box_MT4.gather(1, at_M[..., None].expand(-1, 1, 4)).squeeze(1)
    area_M = area_MT.gather(1, at_M).squeeze(1)
    centre_MT2 = (box_MT4[..., :2] + box_MT4[..., 2:]) / 2
    recent_MT = seen_MT & (time_T > last_M[:, None] - VELOCITY_FRAMES)
    clip_M1 = torch.arange(len(chain_BT33), device=at_M.device).repeat_interleave(len(at_M) // len(chain_BT33))[:, None]
    to_last_MT33 = chain_BT33[clip_M1, at_M] @ torch.linalg.inv(chain_BT33)[clip_M1.squeeze(1)]
    still_MT2 = (to_last_MT33[..., :2, :2] @ centre_MT2[..., None]).squeeze(-1) + to_last_MT33[..., :2, 2]
    truncated_M = (box_M4[:, :2] <= 0).any(1) | (box_M4[:, 2:] >= 1).any(1)
    count_M = seen_MT.sum(1).clamp(min=1)
    fields = (
        (box_M4[:, :2] + box_M4[:, 2:]) / 2,
        box_M4[:, 2:] - box_M4[:, :2],
        _slope(centre_MT2, recent_MT),
        _slope(still_MT2, recent_MT),
        area_M,
        area_M / area_MT.amax(1).clamp(min=1e-9),
        torch.where(seen_MT, confidence_MT, 0).sum(1) / count_M,
        (T - 1 - first_M) / T,
        (T - 1 - last_M) / T,
        truncated_M.float(),
    )
    columns = [field.float() if field.dim() == 2 else field[:, None].float() for field in fields]
    geometry_MG = torch.cat(columns, dim=1)
    return torch.where(seen_MT.any(1, keepdim=True), geometry_MG, 0.0)


def candidate_pairs(centre_BN2: Tensor, valid_BN: Tensor, distance: float, neighbours: int) -> tuple[Tensor, Tensor]:
    """Directed pairs `[B, P, 2]` and their `valid [B, P]`: each agent with its nearest others within `distance`."""
    B, N = valid_BN.shape
    apart_BNN = (centre_BN2[:, :, None] - centre_BN2[:, None]).square().sum(-1).sqrt()
    possible_BNN = valid_BN[:, :, None] & valid_BN[:, None] & ~torch.eye(N, dtype=torch.bool, device=valid_BN.device)
    apart_BNN = torch.where(possible_BNN & (apart_BNN <= distance), apart_BNN, torch.inf)
    nearest = apart_BNN.sort(dim=2, stable=True)
    k = min(neighbours, N)
    first_BNk = torch.arange(N, device=valid_BN.device)[None, :, None].expand(B, N, k)
    pairs_BP2 = torch.stack((first_BNk, nearest.indices[..., :k]), dim=-1).flatten(1, 2)
    valid_BP = nearest.values[..., :k].isfinite().flatten(1)
    order_BP = torch.argsort(~valid_BP, dim=1, stable=True)[:, : max(1, int(valid_BP.sum(1).max()))]
    valid_BP = valid_BP.gather(1, order_BP)
    return _taken(pairs_BP2, order_BP, valid_BP), valid_BP


def _support(cells: EvidenceCells, M: int, T: int) -> tuple[Tensor, Tensor]:
    """Visible area `[M, T]` as a share of the picture, and its box `[M, T, 4]`; zeros where nothing is seen."""
    row_C = cells.agent_C * T + cells.frame_C
    pixels_R = row_C.new_zeros(M * T).index_add_(0, row_C, cells.pixels_C)
    far = torch.iinfo(torch.int32).max
    low_R2 = row_C.new_full((M * T, 2), far)
    low_R2.scatter_reduce_(0, row_C[:, None].expand(-1, 2), cells.extent_C4[:, :2], "amin")
    high_R2 = row_C.new_zeros(M * T, 2)
    high_R2.scatter_reduce_(0, row_C[:, None].expand(-1, 2), cells.extent_C4[:, 2:], "amax")
    side_M = cells.side_B.repeat_interleave(M // len(cells.side_B))
    area_MT = pixels_R.view(M, T) / (side_M * side_M)[:, None]
    box_R4 = torch.cat((low_R2, high_R2), dim=1)
    box_MT4 = torch.where(pixels_R[:, None] > 0, box_R4, 0).view(M, T, 4) / side_M[:, None, None]
    return area_MT, box_MT4


def _descriptors(cells: EvidenceCells, M: int) -> Tensor:
    """`[M, E]` mean projected feature of all visible support, at unit length."""
    whole_CE = (cells.descriptor_CE.float() * _FIXED_POINT).round_().double()
    total_ME = _summed(cells.pixels_C, cells.agent_C, whole_CE, M)
    return torch.nn.functional.normalize(total_ME, dim=1).float()


def _summed(weight_C: Tensor, row_C: Tensor, values_CE: Tensor, rows: int) -> Tensor:
    """Sum of weighted values by row. They are whole numbers, which doubles add up exactly, in whichever order."""
    if values_CE.device.type != "cpu":
        total_ME = values_CE.new_zeros(rows, values_CE.shape[1])
        return total_ME.index_add_(0, row_C, values_CE * weight_C[:, None])
    at = (row_C.numpy(), np.arange(len(row_C)))
    weights = csr_array((weight_C.numpy(), at), shape=(rows, len(row_C)), dtype=np.float64)
    return torch.from_numpy(weights @ values_CE.numpy())  # a third of the time of index_add_


def _slope(values_MT2: Tensor, use_MT: Tensor) -> Tensor:
    """Least-squares slope per frame `[M, 2]` over the frames in use; 0 where there are fewer than two."""
    weight_MT1 = use_MT[..., None].to(values_MT2)
    count_M1 = weight_MT1.sum(1).clamp(min=1)
    time_MT1 = torch.arange(use_MT.shape[1], device=use_MT.device).to(values_MT2)[None, :, None] * weight_MT1
    time_MT1 = (time_MT1 - time_MT1.sum(1, keepdim=True) / count_M1[:, None]) * weight_MT1
    spread_M1 = time_MT1.square().sum(1)
    slope_M2 = (time_MT1 * values_MT2).sum(1) / spread_M1.clamp(min=1e-9)
    return torch.where(spread_M1 > 0.25, slope_M2, 0.0).clamp(-1.0, 1.0)


def _taken(values: Tensor, order: Tensor, valid: Tensor) -> Tensor:
    """Rows of dimension 1 in `order`, zeros where not `valid`."""
    rows = values.gather(1, order[..., None].expand(*order.shape, values.shape[-1]))
    return torch.where(valid[..., None], rows, 0)
