"""The street detector's network: a small anchor-free detector of agents in pictures of the simulated world.

Every cell of a grid (stride 4) says how surely an agent's centre lies in it, of which superclass the agent is, and how
far its box reaches to the left, top, right and bottom. Features meet at strides 4, 8 and 16, so that a cell sees the
agent and its surroundings.

Legend: B pictures; S pixels a side, of the canvas; g = S / 4 cells a side; K superclasses; N boxes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..world.taxonomy import SUPERCLASSES

CANVAS = 128  # px: every picture is brought to this side, so that an agent looks alike at every resolution
STRIDE = 4
_WIDTHS = (16, 32, 64, 72)  # at strides 2, 4, 8 and 16
_HEAD = 48
_UNIT = 8.0  # px: a box's reach where the network says 0


class StreetNetwork(nn.Module):
    """Pictures `[B, 3, S, S]` in [0, 1] to logits of centres, logits of superclasses and reaches in pixels."""

    def __init__(self) -> None:
        super().__init__()
        stem, near, middle, far = _WIDTHS
        self.stem = _Convolution(3, stem, stride=2)
        self.near = nn.Sequential(_Convolution(stem, near, stride=2), _Residual(near))
        self.middle = nn.Sequential(_Convolution(near, middle, stride=2), _Residual(middle))
        self.far = nn.Sequential(_Convolution(middle, far, stride=2), _Residual(far))
        self.far_to_middle = nn.Conv2d(far, middle, 1)
        self.middle_to_near = nn.Conv2d(middle, near, 1)
        self.merged = _Residual(near)
        self.head = nn.Sequential(_Convolution(near, _HEAD), nn.Conv2d(_HEAD, 1 + len(SUPERCLASSES) + 4, 1))

    def forward(self, pictures_B3SS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[B, g, g]`, `[B, K, g, g]` and `[B, 4, g, g]`."""
        near = self.near(self.stem(2.0 * pictures_B3SS - 1.0))
        middle = self.middle(near)
        middle = F.relu(middle + _twice(self.far_to_middle(self.far(middle))))
        near = self.merged(F.relu(near + _twice(self.middle_to_near(middle))))
        centre, kinds, reach = self.head(near).split((1, len(SUPERCLASSES), 4), dim=1)
        return centre[:, 0], kinds, _UNIT * reach.clamp(-4.0, 4.0).exp()


def cell_centres(cells: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Columns and rows `[g, g]` of the cells' centres, in pixels of the canvas."""
    middle = (torch.arange(cells, device=device, dtype=torch.float32) + 0.5) * STRIDE
    rows, columns = torch.meshgrid(middle, middle, indexing="ij")
    return columns, rows


def boxes_of(reach_B4gg: Tensor) -> Tensor:
    """Left, top, right and bottom `[B, 4, g, g]` in pixels of the canvas."""
    columns, rows = cell_centres(reach_B4gg.shape[-1], reach_B4gg.device)
    left, top, right, bottom = reach_B4gg.unbind(1)
    return torch.stack([columns - left, rows - top, columns + right, rows + bottom], dim=1)


class _Convolution(nn.Sequential):
    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outside), nn.ReLU())


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = _Convolution(width, width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm(self.second(self.first(x))))


def _twice(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")
