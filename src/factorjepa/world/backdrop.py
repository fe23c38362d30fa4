"""The static part of a frame, by casting one ray per pixel.

Between its house fronts a street is a simple solid: the ground, two upright planes with a roof line, and the two walls
of a crossing street behind a gap. Each ray finds its surface by a few divisions; all painted surfaces lie in one atlas,
each as a chain of ever smaller copies, so that one look-up per pixel draws sky, ground and houses at the right
sharpness. The same pass gives the layout map and the depth of the empty street.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from .camera import Pose, clip_polygon, fixed_pixels
from .settings import Weather
from .street import Street
from .textures import GROUND_SCALE, WALL_SCALE, Image, Light, ground_texture, sky_panorama, wall_texture

Floats = NDArray[np.float64]
Singles = NDArray[np.floating[Any]]  # float32 throughout; arithmetic with scalars hides it from the type checker
Labels = NDArray[np.uint8]

# Classes of the layout map.
SKY, BUILDING, ROAD, FOOTPATH, WATER, STRUCTURE, OBSTACLE = range(7)
LAYOUT_NAMES = ("sky", "building", "road", "footpath", "water", "structure", "obstacle")

DECK_HEIGHT, DECK_HALF, DECK_EDGE = 6.2, 3.6, 1.1
_AHEAD = 0.42  # share of the ring shown ahead of the camera beyond the half behind it
_FAR = np.float32(1e4)
_LEVEL = np.float32(-1e-6)  # direction component under which a ray counts as parallel to a plane
_ROOF_CELLS = 4  # roof line samples per metre
_LEVELS = 4  # copies of each texture, each half as large as the one before


@dataclass(frozen=True)
class Backview:
    """The empty street in one frame."""

    frame: Image
    depth: Singles  # m along the optical axis, large for sky
    ground: NDArray[np.bool_]
    layout: Labels | None


class Backdrop:
    """Draws the empty street from any camera pose."""

    def __init__(self, street: Street, light: Light, weather: Weather, rng: np.random.Generator) -> None:
        self.street, self.light = street, light
        self.atlas = _Atlas()
        self.ground = self.atlas.add(ground_texture(street, weather, light, rng), GROUND_SCALE)
        sky = sky_panorama(street, light, rng)
        self.sky = self.atlas.add(np.concatenate([sky, sky[:, :360]], axis=1), 1.0, levels=1)
        self.roofs = np.zeros((2, round(street.extent[0] * _ROOF_CELLS)), np.float32)  # [right side, left side]
        self.tones = np.zeros((2, self.roofs.shape[1], 3), np.float32)
        self.tallest = np.float32(max((b.height for b in street.buildings if b.x0 != b.x1), default=0.0))
        fronts = [self._front(number, side) for number, side in enumerate((-1.0, 1.0))]
        self.front = self.atlas.add(np.concatenate(fronts, axis=1), WALL_SCALE) if self.tallest > 0 else None
        corner = next((b for b in street.buildings if b.x0 == b.x1), None)
        self.corner_height = np.float32(corner.height if corner else 0.0)
        self.corner = self.atlas.add(wall_texture(street, corner, light), WALL_SCALE) if corner else self.ground
        grey = np.array((150, 148, 142)) * light.gain * float(rng.uniform(0.85, 1.0))
        self.deck_tone = grey if street.family.flyover else None
        self.image = self.atlas.finish()
        self._full: tuple[Singles, Singles, Image] | None = None

    def _front(self, number: int, side: float) -> Image:
        """All house fronts of one side as one texture as wide as the ring; notes the roof line."""
        shape = (round(float(self.tallest) * WALL_SCALE), round(self.street.extent[0] * WALL_SCALE), 3)
        full = np.zeros(shape, np.uint8)
        for b in self.street.buildings:
            if b.x0 == b.x1 or b.y0 * side < 0:
                continue
            left = round(b.x0 * WALL_SCALE)
            painting = wall_texture(self.street, b, self.light)[-full.shape[0] :, : full.shape[1] - left]
            above, right = full.shape[0] - painting.shape[0], left + painting.shape[1]
            full[above:, left:right] = painting
            full[:above, left:right] = painting[:1]  # or shrinking would darken the roof line
            cells = slice(round(b.x0 * _ROOF_CELLS), round(b.x1 * _ROOF_CELLS))
            self.roofs[number, cells] = b.height
            terrace = np.array((150, 144, 136)) * self.light.gain * (0.8 + 0.4 * (b.look % 97) / 97)
            self.tones[number, cells] = 0.4 * painting[: len(painting) // 2].mean(axis=(0, 1)) + 0.6 * terrace
            self.tones[number, cells.start : cells.start + 2] *= 0.8  # parapet between two roofs
        return full

    def centre(self, pose: Pose) -> float:
        """x around which the ring is unrolled for this view."""
        return float(pose.position[0] + _AHEAD * self.street.extent[0] * np.sign(pose.axes[2, 0] or 1.0))

    def unrolled(self, x: Floats, pose: Pose) -> Floats:
        """x of things on the ring, moved to the copy that this view shows."""
        period = self.street.extent[0]
        return x + period * np.rint((self.centre(pose) - x) / period)

    def fog(self, depth: Floats) -> Floats:
        return np.asarray(1.0 - np.exp(-self.light.fog * np.maximum(depth - 4.0, 0.0)))

    def view(self, pose: Pose, size: int, with_layout: bool) -> Backview:
        """Cast all rays of a frame. Rays have unit depth per unit length, so a hit's parameter is its depth.

        Values are chosen by `cv2.copyTo` under a mask: ten times as fast as `np.where` on masks like these.
        """
        dx, dy, dz = self._directions(pose, size)
        far, one, air = self._constants(size)
        cx, cy, cz = (np.float32(c) for c in pose.position)
        period, half_way = np.float32(self.street.extent[0]), np.float32(self.street.half_way)
        to_ground = -cz / np.minimum(dz, _LEVEL)
        leftward = dy > 0
        to_front = (half_way + cy - (2 * cy) * leftward) / np.maximum(np.abs(dy), -_LEVEL)
        x, z = cx + dx * to_front, cz + dz * to_front
        on_ring = x - np.floor(x * (1 / period)) * period
        cells = self.roofs.shape[1]
        cell = (on_ring * np.float32(_ROOF_CELLS) + np.float32(cells) * leftward).astype(np.int32)  # right side first
        roof = self.roofs.ravel().take(cell, mode="clip")
        open_side = (roof == 0) & (dz < _LEVEL)  # no house there: the ground (or the water) goes on
        ground = (to_ground < to_front) | open_side
        front = (z <= roof) & ~ground
        depth = np.minimum(to_ground, to_front)
        _choose(depth, to_ground, open_side)
        _choose(depth, far, ~(ground | front))
        corner = self._through_the_crossing(pose, (dx, dy, dz), x, to_ground, ground, front, depth)

        scale = _shrink(depth, pose.focal)
        u, v = np.zeros_like(depth), np.zeros_like(depth)
        sky_to, ground_from = _horizon_rows(pose, size)
        u[:sky_to], v[:sky_to] = self._sky_map(pose, size, sky_to)
        low = slice(ground_from, size)
        gx, gy = cx + dx[low] * to_ground[low], cy + dy[low] * to_ground[low]
        _choose(u[low], self.ground.u(gx - np.floor(gx * (1 / period)) * period, scale[low]), ground[low])
        _choose(v[low], self.ground.v(gy, scale[low]), ground[low])
        if self.front is not None:
            _choose(u, self.front.u(on_ring + period * leftward, scale), front)
            _choose(v, self.front.v(self.tallest - z, scale), front)
        if corner is not None:
            wall, along, height = corner
            _choose(u, self.corner.u(along, scale), wall)
            _choose(v, self.corner.v(self.corner_height - height, scale), wall)
            front |= wall
        frame = np.asarray(cv2.remap(self.image, u, v, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), np.uint8)
        if cz > 4:  # roofs, seen from above
            over = (dz < _LEVEL) & ~ground & ~front & (roof > 0) & (roof < cz)
            frame[over] = (self.tones.reshape(-1, 3).take(cell[over], axis=0) * 0.92).astype(np.uint8)
            _choose(depth, (roof - cz) / np.minimum(dz, _LEVEL), over)
            front |= over
        rest = ~(ground | front)
        rest[:sky_to] = False  # below the horizon there is no sky: these rays pass over the corner houses
        if rest.any():
            frame[rest] = self.tones.reshape(-1, 3).mean(axis=0)
            _choose(depth, np.full_like(depth, 60.0), rest)
            front |= rest
        clear = np.exp(np.float32(-self.light.fog) * np.maximum(depth - 4, 0))
        _choose(clear, one, depth >= _FAR)
        frame = np.asarray(cv2.blendLinear(frame, air, clear, 1 - clear), np.uint8)
        return Backview(frame, depth, ground, self._layout(ground, front, ground_from, gx, gy) if with_layout else None)

    def _through_the_crossing(
        self,
        pose: Pose,
        direction: tuple[Singles, Singles, Singles],
        x: Singles,
        to_ground: Singles,
        ground: NDArray[np.bool_],
        front: NDArray[np.bool_],
        depth: Singles,
    ) -> tuple[NDArray[np.bool_], Singles, Singles] | None:
        """Rays that leave the street through the gap between the corner houses meet the crossing street's walls.

        `x` is where they pass the line of the fronts. Updates ground, front and depth in place; returns which rays hit
        a wall, how far along it, and how high.
        """
        if self.street.junction is None:
            return None
        dx, dy, dz = direction
        period, half_way = np.float32(self.street.extent[0]), np.float32(self.street.half_way)
        offset = x - np.float32(self.street.junction)
        offset -= np.rint(offset / period) * period  # from the crossing that each ray passes
        behind = (np.abs(offset) < half_way) & ~ground
        if not behind.any():
            return None
        cx, cy, cz = (np.float32(c) for c in pose.position)
        rightmost = dx > 0
        to_wall = (np.abs(x - offset - cx + half_way * (2 * rightmost - np.float32(1)))) / np.maximum(
            np.abs(dx), -_LEVEL
        )
        height = cz + dz * to_wall
        along = np.abs(cy + dy * to_wall) - half_way
        floor = behind & (to_ground < to_wall)
        wall = behind & ~floor & (height <= self.corner_height)
        ground |= floor
        front &= ~behind
        _choose(depth, np.full_like(depth, _FAR), behind)
        _choose(depth, to_ground, floor)
        _choose(depth, to_wall, wall)
        return wall, along, height

    def draw_deck(self, frame: Image, pose: Pose, layout: Labels | None, ids: NDArray[np.uint16] | None) -> None:
        """The flyover deck above the median, seen from below or from above."""
        if self.deck_tone is None:
            return
        ahead = np.sign(pose.axes[2, 0] or 1.0)
        x0, x1 = pose.position[0] - 40.0 * ahead, pose.position[0] + 90.0 * ahead
        above = pose.position[2] > DECK_HEIGHT + DECK_EDGE
        z = DECK_HEIGHT + (DECK_EDGE if above else 0.0)
        across = [(-DECK_HALF, DECK_HALF, 0.85 if above else 0.62)]
        if above:  # parapets and the line between its two lanes
            across += [(-DECK_HALF, 0.35 - DECK_HALF, 1.25), (DECK_HALF - 0.35, DECK_HALF, 1.25), (-0.07, 0.07, 1.4)]
        else:  # girders
            across += [(-1.6, -1.0, 0.5), (1.0, 1.6, 0.5)]
        surfaces = [(((x0, a, z), (x1, a, z), (x1, b, z), (x0, b, z)), shade) for a, b, shade in across]
        if abs(pose.position[1]) > DECK_HALF:
            y, top = np.sign(pose.position[1]) * DECK_HALF, DECK_HEIGHT + DECK_EDGE
            surfaces.append((((x0, y, DECK_HEIGHT), (x1, y, DECK_HEIGHT), (x1, y, top), (x0, y, top)), 0.85))
        for corners, shade in surfaces:
            outline = clip_polygon(pose.view(np.array(corners)))
            if outline is None:
                continue
            pixels = fixed_pixels(outline, pose)
            cv2.fillConvexPoly(frame, pixels, (self.deck_tone * shade).tolist(), cv2.LINE_AA, 4)
            for labels, code in ((layout, STRUCTURE), (ids, 0)):
                if labels is not None:
                    cv2.fillConvexPoly(labels, pixels, code, cv2.LINE_8, 4)

    def _directions(self, pose: Pose, size: int) -> tuple[Singles, Singles, Singles]:
        """World direction of every pixel's ray, scaled to unit depth."""
        across = ((np.arange(size) + 0.5 - pose.centre) / pose.focal).astype(np.float32)
        right, down = across[None, :], across[:, None]
        axes = pose.axes.astype(np.float32)
        dx, dy, dz = (right * axes[0, k] + (down * axes[1, k] + axes[2, k]) for k in range(3))
        return dx, dy, dz

    def _sky_map(self, pose: Pose, size: int, rows: int) -> tuple[Singles, Singles]:
        """Atlas coordinates of the sky in the upper rows: two panorama pixels per degree, horizon at row 90."""
        (_, _, right_up), (_, _, down_up), (fx, fy, fz) = pose.axes.tolist()
        yaw, pitch = math.degrees(math.atan2(fy, fx)), math.degrees(math.asin(min(max(-fz, -1.0), 1.0)))
        roll = math.atan2(-right_up, -down_up)
        steps = (np.arange(size, dtype=np.float32) - np.float32(size / 2)) * np.float32(math.degrees(2 / pose.focal))
        c, s = np.float32(math.cos(roll)), np.float32(math.sin(roll))
        u0 = np.float32(self.sky.left + 540.0 - ((yaw + 180.0) % 360.0 - 180.0) * 2)
        v0 = np.float32(self.sky.top + 90.0 + pitch * 2)
        down = steps[:rows, None]
        return (u0 + c * steps)[None, :] - s * down, (v0 + s * steps)[None, :] + c * down

    def _layout(
        self, ground: NDArray[np.bool_], front: NDArray[np.bool_], ground_from: int, gx: Singles, gy: Singles
    ) -> Labels:
        street = self.street
        road = np.abs(gy) < street.half_road
        if street.junction is not None:
            offset = gx - np.float32(street.junction)
            offset -= np.rint(offset / np.float32(street.extent[0])) * np.float32(street.extent[0])
            road |= np.abs(offset) < street.half_road
        layout = np.full(ground.shape, SKY, np.uint8)
        layout[front] = BUILDING
        lower, on_ground = layout[ground_from:], ground[ground_from:]
        lower[on_ground] = np.where(road, ROAD, FOOTPATH)[on_ground]
        if street.family.water:
            lower[on_ground & (gy < -street.half_way - 0.1)] = WATER
        return layout

    def _constants(self, size: int) -> tuple[Singles, Singles, Image]:
        """Frames full of far, of one, and of air."""
        if self._full is None or len(self._full[0]) != size:
            air = np.empty((size, size, 3), np.uint8)
            air[:] = self.light.air
            self._full = (np.full((size, size), _FAR), np.ones((size, size), np.float32), air)
        return self._full


@dataclass(frozen=True)
class _Tile:
    """A texture in the atlas with its smaller copies below it.

    A copy shrunk by s (1, 1/2, 1/4, ...) of a texture H rows high starts at row 2H(1 - s): the place is linear in s, so
    no table is needed to find it.
    """

    left: int
    top: int
    width: int
    height: int
    density: float  # texture pixels per metre
    centred: bool  # v counts from the middle row

    def u(self, metres: Singles, scale: Singles) -> Singles:
        return np.float32(self.left) + np.float32(self.density) * metres * scale

    def v(self, metres: Singles, scale: Singles) -> Singles:
        base = np.float32(self.height / 2 if self.centred else 0.0)
        row = np.float32(self.density) * metres + base
        np.minimum(np.maximum(row, 0, out=row), np.float32(self.height - 1), out=row)
        return np.float32(self.top + 2 * self.height) + scale * (row - np.float32(2 * self.height))


def _horizon_rows(pose: Pose, size: int) -> tuple[int, int]:
    """Rows below which no sky, and above which no ground can be seen."""
    right, down, forward = pose.axes[:, 2].tolist()  # how much each camera axis points up
    reach, steep = size / 2 / pose.focal * abs(right), min(down, -1e-6)
    high, low = (pose.centre - pose.focal * (forward + tilt) / steep for tilt in (-reach, reach))
    return min(max(math.ceil(max(high, low)) + 2, 0), size), min(max(math.floor(min(high, low)) - 2, 0), size)


def _choose(values: Singles, others: Singles, where: NDArray[np.bool_]) -> None:
    """values[where] = others[where], in place."""
    cv2.copyTo(others, where.view(np.uint8), values)


def _shrink(depth: Singles, focal: float) -> Singles:
    """How much the texture copy for each pixel is shrunk: 1, 1/2, 1/4, 1/8, by texture pixels per frame pixel."""
    limit = 1.6 * focal / (0.5 * (GROUND_SCALE + WALL_SCALE))
    divisor = np.ones_like(depth)
    for level in range(_LEVELS - 1):
        divisor += (depth > limit * 2**level) * np.float32(2**level)
    return 1 / divisor


class _Atlas:
    """Collects textures side by side."""

    def __init__(self) -> None:
        self.columns: list[Image] = []
        self.left = 0

    def add(self, texture: Image, density: float, levels: int = _LEVELS) -> _Tile:
        height, width = texture.shape[:2]
        pad = 2
        column = np.zeros((2 * height, width + 2 * pad, 3), np.uint8)
        small, top = texture, 0
        for level in range(levels):
            if level:
                shrunk = (max(1, width >> level), max(1, height >> level))
                small = np.asarray(cv2.resize(texture, shrunk, interpolation=cv2.INTER_AREA), np.uint8)
            h, w = small.shape[:2]
            column[top : top + h, pad : pad + w] = small
            column[top : top + h, :pad] = small[:, -pad:]  # the ring closes
            column[top : top + h, pad + w : 2 * pad + w] = small[:, :pad]
            if level == levels - 1 and top + h < len(column):
                column[top + h :] = column[top + h - 1]
            top += height >> level
        tile = _Tile(self.left + pad, 0, width, height, density, density == GROUND_SCALE)
        self.columns.append(column)
        self.left += column.shape[1]
        return tile

    def finish(self) -> Image:
        height = max(len(column) for column in self.columns)
        return np.concatenate(
            [np.pad(c, ((0, height - len(c)), (0, 0), (0, 0)), mode="edge") for c in self.columns], axis=1
        )
