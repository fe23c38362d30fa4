"""Ground truth of one clip: what is where, how much of it is seen, who reacts to whom. Stored beside the clip.

Masks are run lengths (background first, row-major). One file holds flat tables: agents, observations (one per agent and
frame), run-length streams with offsets, camera poses, layout maps and interactions.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import WorldError
from ..runlengths import decode_mask
from .backdrop import LAYOUT_NAMES
from .interactions import Interaction

FORMAT = 1


@dataclass(frozen=True)
class ClipTruth:
    """Everything known about a clip. `observation` arrays share their first axis."""

    size: int
    fps: float
    frames: int
    focal: float
    attributes: dict[str, Any]
    agent_ids: NDArray[np.int32]  # [A]
    agent_kinds: NDArray[np.str_]  # [A] names of the taxonomy
    agent_lengths: NDArray[np.float32]  # [A] body length, m
    camera_position: NDArray[np.float32]  # [F, 3]
    camera_axes: NDArray[np.float32]  # [F, 3, 3] right, down, forward
    frame: NDArray[np.int32]  # [O]
    agent: NDArray[np.int32]  # [O] index into agent_ids
    box: NDArray[np.int16]  # [O, 4] amodal box inside the frame: left, top, right, bottom
    visible_pixels: NDArray[np.int32]  # [O]
    amodal_pixels: NDArray[np.int32]  # [O]
    truncated: NDArray[np.bool_]  # [O] touches the frame's border
    depth: NDArray[np.float32]  # [O] m
    position: NDArray[np.float32]  # [O, 2] world, m
    velocity: NDArray[np.float32]  # [O, 2] world, m/s
    image_velocity: NDArray[np.float32]  # [O, 2] px/s of the point where it stands, camera motion included
    camera_velocity: NDArray[np.float32]  # [O, 2] px/s that the same point would show if it did not move
    amodal_runs: NDArray[np.uint32]
    amodal_offsets: NDArray[np.int64]  # [O + 1]
    instance_runs: NDArray[np.uint32]
    instance_values: NDArray[np.int32]  # observation's agent index plus one, 0: nobody
    instance_offsets: NDArray[np.int64]  # [F + 1]
    layout_runs: NDArray[np.uint32]
    layout_values: NDArray[np.uint8]
    layout_offsets: NDArray[np.int64]  # [F + 1]
    interactions: tuple[Interaction, ...]  # agents by id
    alone: NDArray[np.float32]  # [anchors, A] displacement in body lengths one second ahead without neighbours

    @property
    def visible_fraction(self) -> NDArray[np.float32]:
        """[O] visible share of the part inside the frame."""
        return (self.visible_pixels / np.maximum(self.amodal_pixels, 1)).astype(np.float32)

    @property
    def layout_names(self) -> tuple[str, ...]:
        return LAYOUT_NAMES

    def observations(self, frame: int) -> NDArray[np.intp]:
        """Rows of the observation table that belong to one frame."""
        return np.arange(*np.searchsorted(self.frame, [frame, frame + 1]))

    def amodal_mask(self, observation: int) -> NDArray[np.bool_]:
        """The whole body inside the frame, hidden or not: `[H, W]`."""
        left, top, right, bottom = (int(v) for v in self.box[observation])
        mask = np.zeros((self.size, self.size), dtype=bool)
        runs = self.amodal_runs[self.amodal_offsets[observation] : self.amodal_offsets[observation + 1]]
        mask[top:bottom, left:right] = decode_mask(runs, (bottom - top, right - left))
        return mask

    def visible_mask(self, observation: int) -> NDArray[np.bool_]:
        return np.asarray(self.instances(int(self.frame[observation])) == self.agent[observation] + 1)

    def instances(self, frame: int) -> NDArray[np.int32]:
        """`[H, W]` agent index plus one, 0 where no agent is seen."""
        a, b = self.instance_offsets[frame : frame + 2]
        return np.repeat(self.instance_values[a:b], self.instance_runs[a:b]).reshape(self.size, self.size)

    def layout(self, frame: int) -> NDArray[np.uint8]:
        """`[H, W]` indices into `layout_names`; agents are not part of the layout."""
        a, b = self.layout_offsets[frame : frame + 2]
        return np.repeat(self.layout_values[a:b], self.layout_runs[a:b]).reshape(self.size, self.size)

    def to_bytes(self) -> bytes:
        arrays: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name == "interactions":
                arrays[name] = json.dumps(
                    [[i.agent, i.other, i.start, i.end, i.kind, round(i.effect, 3)] for i in value]
                )
            elif name == "attributes":
                arrays[name] = json.dumps(value)
            elif isinstance(value, np.ndarray) and value.dtype in (np.uint32, np.int64):
                arrays[name] = _narrow(value)
            else:
                arrays[name] = value
        buffer = io.BytesIO()
        np.savez_compressed(buffer, format=FORMAT, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "ground truth") -> ClipTruth:
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                written = int(stored["format"])
                values = cls._unpacked({field: stored[field] for field in cls.__dataclass_fields__})
        except Exception as error:  # damage surfaces anywhere inside zipfile, zlib, numpy's header parser and json
            raise WorldError(f"{name}: damaged or not a ground-truth file ({error}); simulate it again") from None
        if written != FORMAT:
            raise WorldError(f"{name}: written in format {written}, this version reads {FORMAT}; simulate it again")
        return cls(**values)

    @staticmethod
    def _unpacked(values: dict[str, Any]) -> dict[str, Any]:
        values["interactions"] = tuple(Interaction(*one) for one in json.loads(str(values["interactions"])))
        values["attributes"] = json.loads(str(values["attributes"]))
        for key in ("amodal_runs", "instance_runs", "layout_runs"):
            values[key] = values[key].astype(np.uint32)
        for key in ("amodal_offsets", "instance_offsets", "layout_offsets"):
            values[key] = np.cumsum(np.concatenate([[0], values[key]]), dtype=np.int64)
        for key in ("size", "frames"):
            values[key] = int(values[key])
        for key in ("fps", "focal"):
            values[key] = float(values[key])
        return values


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Offsets as counts, everything in the smallest unsigned type: a third of the bytes after compression."""
    if values.dtype == np.int64:
        values = np.diff(values)
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
