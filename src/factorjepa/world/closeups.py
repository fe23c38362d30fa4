"""Bodies close to the camera, drawn face by face: no view of them would be used twice, and perspective is strong.

The faces of all close bodies in a run of frames are worked out at once; arrays of one body are mostly call overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .camera import NEAR, clip_polygon, dot3, fixed_pixels, rotated
from .sprites import Floats, Gain, Image, Style, geometry, shade

_SMOOTHED = 6  # px across from which on the edges of a face are smoothed: that costs more than filling


@dataclass(frozen=True)
class Lens:
    """What all frames of a clip share."""

    focal: float
    centre: float
    size: int
    tint: Gain


@dataclass(frozen=True)
class Stands:
    """Where K bodies stand, and the camera that sees each."""

    origin: Floats  # [K, 3]
    heading: Floats  # [K, 2]
    eye: Floats  # [K, 3]
    axes: Floats  # [K, 3, 3]

    def take(self, rows: NDArray[np.intp]) -> Stands:
        return Stands(self.origin[rows], self.heading[rows], self.eye[rows], self.axes[rows])


@dataclass(frozen=True, slots=True)
class Face:
    """A polygon in sixteenths of a pixel, or a disc: its centre and half axes."""

    polygon: NDArray[np.int32] | None
    disc: tuple[tuple[int, int], tuple[int, int]] | None
    colour: list[float]
    edge: int


def close_ups(wearing: Sequence[tuple[Style, int]], stature: Floats, stands: Stands, lens: Lens) -> list[list[Face]]:
    """The faces of bodies, each far to near, by style and walking phase, size factor and place."""
    if not wearing:
        return []
    shapes = [geometry(style.model, phase) for style, phase in wearing]
    counts, points, middles, normals, flat, radii, materials = (
        np.concatenate([getattr(shape, name) for shape in shapes])
        for name in ("counts", "points", "middles", "normals", "flat", "radii", "materials")
    )
    body = np.repeat(np.arange(len(shapes)), [len(shape.counts) for shape in shapes])
    # In the bodies' own frames: only the camera has to be turned.
    cos, sin, axes = stands.heading[:, 0, None], stands.heading[:, 1, None], stands.axes
    camera = np.stack(
        [axes[..., 0] * cos + axes[..., 1] * sin, axes[..., 1] * cos - axes[..., 0] * sin, axes[..., 2]], axis=-1
    )
    ahead, left, up = ((stands.eye - stands.origin) / stature[:, None]).T
    eye = np.stack([ahead * cos[:, 0] + left * sin[:, 0], left * cos[:, 0] - ahead * sin[:, 0], up], axis=-1)
    light = -0.45 * camera[:, 0] - 0.48 * camera[:, 2] + (0.0, 0.0, 0.75)
    offset = middles - eye[body]
    far = dot3(offset, camera[body, 2])

    # Half of the faces look away: they are left out before their corners are worked out.
    facing = ~flat | (dot3(offset, normals) < 0)
    order = np.lexsort((-far, body))
    order = order[facing[order]]
    points = points[_ranges((np.cumsum(counts) - counts)[order], counts[order])]
    counts, body, materials, flat = counts[order], body[order], materials[order], flat[order]
    normals, radii = normals[order], radii[order]
    starts, vertex_body = np.cumsum(counts) - counts, np.repeat(body, counts)
    seen = rotated(points - eye[vertex_body], camera[vertex_body]) * stature[vertex_body, None]
    shades = shade(flat, dot3(normals, light[body]))
    painted = np.stack([style.colours for style, _ in wearing])[body, materials]
    colours = np.minimum(painted * shades[:, None], 255.0) * lens.tint

    zoom = lens.focal * 16 / np.maximum(seen[:, 2], NEAR)
    fixed = np.rint(seen[:, :2] * zoom[:, None] + lens.centre * 16).astype(np.int32)
    nearest, farthest = np.minimum.reduceat(seen[:, 2], starts), np.maximum.reduceat(seen[:, 2], starts)
    lowest, highest = np.minimum.reduceat(fixed, starts), np.maximum.reduceat(fixed, starts)
    round_ = radii[:, 0] > 0
    half_axes = np.rint(radii * (stature[body] * zoom[starts])[:, None]).astype(np.int32)
    reach = 2 * half_axes.max(axis=1, keepdims=True)  # discs are wider than their one point
    outside = ((highest + reach < 0) | (lowest - reach > 16 * lens.size)).any(axis=1) & (nearest >= NEAR)
    extent = (highest - lowest).max(axis=1) // 16
    drawn = np.flatnonzero((farthest > NEAR) & ~outside & (round_ | (extent >= 1)))
    edges = np.where(round_ | (extent >= _SMOOTHED), cv2.LINE_AA, cv2.LINE_8)

    result: list[list[Face]] = [[] for _ in shapes]
    columns = (body, starts, counts, colours, edges, round_, half_axes, nearest < NEAR)
    for owner, start, count, colour, edge, is_disc, disc_axes, cut in zip(
        *(c[drawn].tolist() for c in columns), strict=True
    ):
        if is_disc:
            x, y = fixed[start].tolist()
            result[owner].append(Face(None, ((x, y), tuple(disc_axes)), colour, edge))
            continue
        polygon: NDArray[np.int32] | None = fixed[start : start + count]
        if cut:
            outline = clip_polygon(seen[start : start + count])
            polygon = None if outline is None else fixed_pixels(outline, lens.focal, lens.centre)
        if polygon is not None:
            result[owner].append(Face(polygon, None, colour, edge))
    return result


def _ranges(starts: NDArray[np.intp], counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """starts[0], starts[0] + 1, ... (counts[0] of them), starts[1], ..."""
    return np.arange(counts.sum()) + np.repeat(starts - np.cumsum(counts) + counts, counts)


def draw_faces(frame: Image, mask: Image | None, faces: Sequence[Face]) -> None:
    """Draw a body on the frame; `mask` is set to 1 where the body is."""
    for face in faces:
        if face.polygon is not None:
            cv2.fillConvexPoly(frame, face.polygon, face.colour, face.edge, 4)
            if mask is not None:
                cv2.fillConvexPoly(mask, face.polygon, 1, cv2.LINE_8, 4)
        elif face.disc is not None:
            centre, axes = face.disc
            cv2.ellipse(frame, centre, axes, 0, 0, 360, face.colour, -1, face.edge, 4)
            if mask is not None:
                cv2.ellipse(mask, centre, axes, 0, 0, 360, 1, -1, cv2.LINE_8, 4)
