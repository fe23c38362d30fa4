"""Three-axis rotary positions: tables per token grid, and the rotation itself.

Shapes: T tubelets, R rows, C columns, N = T*R*C tokens in time-major raster order, E head width, H heads.

Each of the axes (time, row, column) turns `2 * ((E // 3) // 2)` of the E dims; what is left over is not turned. Rows
and columns are interpolated to a reference grid (V-JEPA 2.1) or taken as they are (2.0); time is never scaled.
The released forms differ in how an axis' frequencies are laid over its dims: 2.1 repeats each for an adjacent pair
("interleaved", a true rotation), 2.0 tiles the list twice ("tiled", which is not one, but is what was trained).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .spec import BackboneSpec, RopeForm

_BASE = 10_000.0


def rotary_table(
    tubelets: int,
    rows: int,
    columns: int,
    head_width: int,
    form: RopeForm,
    reference: int | None,
    device: torch.device | None = None,
) -> Tensor:
    """Cosine and signed sine of every token, fp32 `[2, N, E]`; dims that no axis turns have cosine 1 and sine 0.

    The sine of even dims is negated, so that a rotation is `x * cos + swapped pairs of x * sin`.
    """
    axis_width = 2 * ((head_width // 3) // 2)
    half = axis_width // 2
    omega = _BASE ** -(torch.arange(half, dtype=torch.float32, device=device) / half)
    time = torch.arange(tubelets, dtype=torch.float32, device=device)
    row, column = _spatial(rows, reference, device), _spatial(columns, reference, device)
    positions = torch.stack(torch.meshgrid(time, row, column, indexing="ij"), dim=-1).reshape(-1, 3)
    angle_N3h = positions[:, :, None] * omega
    angle_N3w = angle_N3h.repeat_interleave(2, dim=-1) if form == "interleaved" else angle_N3h.repeat(1, 1, 2)
    angle_NE = torch.nn.functional.pad(angle_N3w.flatten(1), (0, head_width - 3 * axis_width))
    sign_E = torch.arange(head_width, device=device) % 2 * 2.0 - 1.0
    return torch.stack((angle_NE.cos(), angle_NE.sin() * sign_E))


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn `x [..., H, E]` by a table slice `[..., 1, E]`; everything stays in x's dtype (no upcast of q and k)."""
    swapped = torch.unflatten(x, -1, (-1, 2)).flip(-1).flatten(-2)
    return x * cosine + swapped * sine


def rotate_halves(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn `x [..., H, E]` where dim i is paired with dim i + E/2, as DINOv3 does; the sine of the first half is
    negated."""
    return x * cosine + x.roll(x.shape[-1] // 2, -1) * sine


class RotaryTables(nn.Module):
    """Tables of one head width, computed once per grid, in fp32 whatever the model's dtype, never in the state dict.

    The table of the spec's own grid is a buffer: a compiled graph reads it instead of computing sines in every block.
    Tables of other grids are cached; compiled code computes those in the graph, so build with `grid=` what you compile.
    Time is not scaled, so a shorter clip reads a prefix of a longer clip's table.
    """

    table: Tensor

    def __init__(self, spec: BackboneSpec, head_width: int) -> None:
        super().__init__()
        self.head_width = head_width
        self.form: RopeForm = spec.rope
        self.reference = spec.rope_reference
        self.own_grid = (spec.tubelets, *spec.grid)
        self.register_buffer("table", self._make(*self.own_grid, device=None), persistent=False)
        self._cache: dict[tuple[int, int, torch.device], Tensor] = {}

    def forward(self, tubelets: int, rows: int, columns: int, like: Tensor, index: Tensor | None = None) -> Tensor:
        """`[2, N, E]` for the whole grid, or `[2, B, n, E]` for the tokens `index [B, n]`, in like's dtype."""
        table = self._table(tubelets, rows, columns, like.device)[:, : tubelets * rows * columns].to(like.dtype)
        if index is None:
            return table
        return torch.unflatten(table.index_select(1, index.reshape(-1)), 1, index.shape)

    def _table(self, tubelets: int, rows: int, columns: int, device: torch.device) -> Tensor:
        if (rows, columns) == self.own_grid[1:] and tubelets <= self.own_grid[0]:
            if self.table.device != device:  # built on the meta device, filled by assigning weights
                self.table = self._make(*self.own_grid, device=device)
            return self.table
        if torch.compiler.is_compiling():  # a cache filled while tracing would hold that graph's memory
            return self._make(tubelets, rows, columns, device)
        key = (rows, columns, device)
        if key not in self._cache or self._cache[key].shape[1] < tubelets * rows * columns:
            self._cache[key] = self._make(tubelets, rows, columns, device)
        return self._cache[key]

    def _make(self, tubelets: int, rows: int, columns: int, device: torch.device | None) -> Tensor:
        # A table first made under inference mode could not be used in training later.
        with torch.inference_mode(False), torch.no_grad():
            return rotary_table(tubelets, rows, columns, self.head_width, self.form, self.reference, device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryTables:
        """What `.to()` and the like do. The table is made anew where they lead: in fp32, and also out of meta."""
        here = torch.device("cpu") if self.table.is_meta else self.table.device
        self.table = self._make(*self.own_grid, device=fn(torch.empty(0, device=here)).device)
        return self


def _spatial(count: int, reference: int | None, device: torch.device | None) -> Tensor:
    positions = torch.arange(count, dtype=torch.float32, device=device)
    if reference is None or count == 1:
        return positions
    return positions * ((reference - 1) / (count - 1))
