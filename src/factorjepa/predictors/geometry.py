"""Where tokens lie relative to agents, and agents relative to each other.

Shapes: B clips, N agents, P pairs, t target tokens. Lengths are in sides of the picture, times in frames.
Everything here is fp32: coordinates rounded to bf16 would be off by a token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..teacher.states import GEOMETRY, ObjectStates

Grid = tuple[int, int, int]  # tubelets, rows, columns

RELATIVE = (
    "ahead_x", "ahead_y",  # offset from the constant-velocity box, in half boxes (a half token added), within 3
    "ahead_near", "ahead_core", "ahead_inside", "ahead_far",  # bells of three widths, and the box itself, softly
    "now_x", "now_y", "now_near", "now_far",  # the same from where the agent is now: it may stop
)  # fmt: skip
RELATION = (
    "offset_x", "offset_y", "velocity_x", "velocity_y",  # of j as i sees it
    "distance", "time_to_closest", "closest",  # when and how near the two pass if both go on
    "gap", "closest_gap",  # the same between bodies
    "larger", "ahead",  # j's size against i's; how far j is in front of i
    "meeting",  # in (0, 1): the bodies touch, and soon
)  # fmt: skip

_REACH = 0.25  # Panel B: pairs lie within a quarter of the picture; the unit of distance between agents
_STANDSTILL = 1e-5  # squared relative speed below which closest approach is now
_SCALE = {
    "centre_x": 2.0, "centre_y": 2.0, "width": 4.0, "height": 4.0, "velocity_x": 32.0, "velocity_y": 32.0,
    "own_velocity_x": 32.0, "own_velocity_y": 32.0, "area": 16.0,
}  # fmt: skip


def scaled_geometry(geometry_BNG: Tensor) -> Tensor:
    """Fields of GEOMETRY brought to the order of 1, so that a fresh layer hears them all."""
    scale = tuple(_SCALE.get(name, 1.0) for name in GEOMETRY)
    shift = tuple(-1.0 if name.startswith("centre") else 0.0 for name in GEOMETRY)
    return geometry_BNG * constant(scale, geometry_BNG) + constant(shift, geometry_BNG)


def constant(values: tuple[float, ...], like: Tensor) -> Tensor:
    """A vector of known numbers, brought to like's device once: each time anew, the host would wait for the GPU."""
    if torch.compiler.is_compiling():  # a graph holds its constants itself
        return like.new_tensor(values)
    key = (values, like.dtype, like.device)
    if key not in _CONSTANTS:
        with torch.inference_mode(False):  # first made under inference mode, it could not be used in training later
            made = torch.tensor(values, dtype=like.dtype, device=like.device)
        if type(made) is not Tensor:  # of a mode that computes no numbers: nobody else could use it
            return made
        _CONSTANTS[key] = made
    return _CONSTANTS[key]


_CONSTANTS: dict[tuple[tuple[float, ...], torch.dtype, torch.device], Tensor] = {}


def token_places(index: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Tubelet `[B, t]` and centre `[B, t, 2]` (x, y in [0, 1]) of tokens of the grid."""
    _, rows, columns = grid
    centre = torch.stack(((index % columns + 0.5) / columns, (index // columns % rows + 0.5) / rows), dim=-1)
    return index // (rows * columns), centre


def frames_after(tubelet: Tensor, frames_per_tubelet: int, context: int) -> Tensor:
    """Middle of a tubelet in frames after the last context frame (1.5 and 3.5 for the two future ones of 16 frames)."""
    return tubelet * float(frames_per_tubelet) + ((frames_per_tubelet - 1) / 2 - (context - 1))


def relative_geometry(
    states: ObjectStates, target_index: Tensor, grid: Grid, frames_per_tubelet: int
) -> tuple[Tensor, Tensor]:
    """Fields of RELATIVE `[B, N, t, 10]`, and closeness in (0, 1] `[B, N, t]`: 1 in the middle of an agent's box."""
    tubelet_Bt, token_Bt2 = token_places(target_index, grid)
    ahead_B1t1 = frames_after(tubelet_Bt, frames_per_tubelet, states.context)[:, None, :, None]
    # Constant velocity is linear in time: two boxes say where all the others are.
    now_BN14, next_BN14 = states.extrapolated_boxes(constant((0.0, 1.0), ahead_B1t1)).chunk(2, dim=2)
    reach_BN12 = now_BN14[..., 2:] / 2 + constant((0.5 / grid[2], 0.5 / grid[1]), now_BN14)
    from_now = (token_Bt2[:, None] - now_BN14[..., :2]) / reach_BN12
    from_ahead = from_now - (next_BN14 - now_BN14)[..., :2] * ahead_B1t1 / reach_BN12
    square_ahead, square_now = (offset.square().sum(-1, keepdim=True) for offset in (from_ahead, from_now))
    near_ahead, near_now = torch.exp(-0.5 * square_ahead), torch.exp(-0.5 * square_now)
    fields = torch.cat(
        (
            from_ahead.clamp(-3, 3),
            near_ahead,
            torch.exp(-2 * square_ahead),
            torch.sigmoid(6 * (1.1 - from_ahead.abs().amax(-1, keepdim=True))),
            torch.exp(-0.1 * square_ahead),
            from_now.clamp(-3, 3),
            near_now,
            torch.exp(-0.1 * square_now),
        ),
        dim=-1,
    )
    return fields, torch.maximum(near_ahead, 0.7 * near_now).squeeze(-1)


def pair_relations(
    states: ObjectStates, select_i_BPN: Tensor, select_j_BPN: Tensor, grid: Grid, frames_per_tubelet: int
) -> Tensor:
    """Fields of RELATION `[B, P, 12]`; `select` are one-hot rows that pick i and j.

    The unit of time is the future that is predicted: what happens after it is out of reach.
    """
    horizon = float(grid[0] * frames_per_tubelet - states.context)
    boxes_BN4 = states.extrapolated_boxes(states.geometry_BNG.new_zeros(1)).squeeze(2)
    velocity_BN2 = states.geometry_BNG[..., 4:6]
    radius_BN1 = boxes_BN4[..., 2:].mean(-1, keepdim=True) / 2 + 0.25 / max(grid[1:])
    agents_BN5 = torch.cat((boxes_BN4[..., :2], velocity_BN2, radius_BN1), dim=-1)
    # Not a matrix product: TF32 would round positions.
    i_BP5, j_BP5 = ((select[..., None] * agents_BN5[:, None]).sum(2) for select in (select_i_BPN, select_j_BPN))
    offset, velocity = (j_BP5 - i_BP5)[..., :2], (j_BP5 - i_BP5)[..., 2:4]
    radius_i, radius_j = i_BP5[..., 4:], j_BP5[..., 4:]
    # A padded pair may be one agent with itself: the norm's gradient is 0 there, not NaN.
    distance = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
    approach = -(offset * velocity).sum(-1, keepdim=True)
    time = (approach / (velocity.square().sum(-1, keepdim=True) + _STANDSTILL)).clamp(-horizon / 2, 2 * horizon)
    closest = torch.linalg.vector_norm(
        offset + velocity * time.clamp(0, 1.5 * horizon), dim=-1, keepdim=True
    )  # not before now, and not after what can be predicted
    both = radius_i + radius_j
    own_velocity = i_BP5[..., 2:4]
    heading = own_velocity / (torch.linalg.vector_norm(own_velocity, dim=-1, keepdim=True) + _STANDSTILL**0.5)
    meeting = (
        torch.sigmoid(3 * (1.5 - closest / both.clamp(min=1e-6)))
        * torch.sigmoid(1.25 * horizon - time)
        * torch.sigmoid(2 * time + 1)
    )
    return torch.cat(
        (
            offset / _REACH,
            velocity * (horizon / _REACH),
            distance / _REACH,
            time / horizon,
            2 * closest / _REACH,
            2 * (distance - both) / _REACH,
            2 * (closest - both) / _REACH,
            (radius_j - radius_i) / both.clamp(min=1e-6),
            (offset * heading).sum(-1, keepdim=True) / _REACH,
            meeting,
        ),
        dim=-1,
    )
