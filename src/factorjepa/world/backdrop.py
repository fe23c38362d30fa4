"""The static part of a frame, by casting one ray per pixel.

Between its house fronts a street is a simple solid: the ground, two upright planes with a roof line, and the two walls
of a crossing street behind a gap. Each ray finds its surface by a few comparisons and reads its colour from
the atlas of painted surfaces. The same pass gives the layout map and the depth of the empty street.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .atlas import Atlas, Image, Singles, linear, shrink
from .camera import Pose, clip_polygon, fixed_pixels
from .settings import Weather
from .street import Street
from .textures import GROUND_SCALE, WALL_SCALE, Light, ground_texture, sky_panorama, wall_texture

Floats = NDArray[np.float64]
Labels = NDArray[np.uint8]
Mask = NDArray[np.bool_]

# Classes of the layout map.
SKY, BUILDING, ROAD, FOOTPATH, WATER, STRUCTURE, OBSTACLE = range(7)
LAYOUT_NAMES = ("sky", "building", "road", "footpath", "water", "structure", "obstacle")

DECK_HEIGHT, DECK_HALF, DECK_EDGE = 6.2, 3.6, 1.1
_AHEAD = 0.42  # share of the ring shown ahead of the camera beyond the half behind it
_LEVEL = 1e-6  # nearness under which a ray counts as parallel to a plane
_CLEAR_FROM = 1 / 4.0  # nearness from which on the air is not seen
_AIR_STEPS = 254.0 / _CLEAR_FROM  # per unit of nearness
_SKY = -1.0 / _AIR_STEPS  # its step is 0
_CLOSEST = 0.05  # m that the camera keeps from any plane
_ROOF_CELLS = 4  # roof line samples per metre


@dataclass(frozen=True)
class Backview:
    """The empty street in one frame."""

    frame: Image
    nearness: Singles  # one over the depth (m along the optical axis), negative for sky
    ground: NDArray[np.bool_]
    layout: Labels | None


class Backdrop:
    """Draws the empty street from any camera pose."""

    def __init__(self, street: Street, light: Light, weather: Weather, rng: np.random.Generator) -> None:
        self.street, self.light = street, light
        self.atlas = Atlas()
        ground = ground_texture(street, weather, light, rng)
        rows, columns = ground.shape[:2]
        self.ground = self.atlas.add(ground, unit=columns, density=GROUND_SCALE, base=rows / 2)
        sky = sky_panorama(street, light, rng)
        self.sky = self.atlas.add(np.concatenate([sky, sky[:, :360]], axis=1), unit=1.0, levels=1)
        self.roofs = np.zeros((2, round(street.extent[0] * _ROOF_CELLS)), np.float32)  # [right side, left side]
        self.tones = np.zeros((2, self.roofs.shape[1], 3), np.float32)
        self.tallest = max((b.height for b in street.buildings if b.x0 != b.x1), default=0.0)
        fronts = [self._front(number, side) for number, side in enumerate((-1.0, 1.0))]
        self.lowest = float(self.roofs.min())  # roof, 0 where a house is missing
        self.front = None
        if self.tallest > 0:
            self.front = self.atlas.add(np.concatenate(fronts, axis=1), unit=fronts[0].shape[1], density=WALL_SCALE)
        corner = next((b for b in street.buildings if b.x0 == b.x1), None)
        self.corner_height = corner.height if corner else 0.0
        self.corner = self.ground
        if corner:
            wall = wall_texture(street, corner, light)
            self.corner = self.atlas.add(wall, unit=wall.shape[1], density=WALL_SCALE)
        self.terraces = self.atlas.add(self._roof_tops(), unit=self.roofs.shape[1], levels=1)
        grey = np.array((150, 148, 142)) * light.gain * float(rng.uniform(0.85, 1.0))
        self.deck_tone = grey if street.family.flyover else None
        self.image = self.atlas.finish()
        depth = _AIR_STEPS / np.maximum(np.arange(256) - 1.0, 0.5)
        share = np.exp(-light.fog * np.maximum(depth - 4.0, 0.0))
        share[0] = 1.0
        self.clear = np.rint(255 * share).astype(np.uint8)[None]
        self.air = np.rint((1 - share[:, None, None]) * light.air).astype(np.uint8)  # [256, 1, 3], by step of nearness

    def _front(self, number: int, side: float) -> Image:
        """All house fronts of one side as one texture as wide as the ring; notes the roof line."""
        shape = (round(self.tallest * WALL_SCALE), round(self.street.extent[0] * WALL_SCALE), 3)
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
            self.tones[number, cells] = 0.4 * np.array(cv2.mean(painting[: len(painting) // 2])[:3]) + 0.6 * terrace
            self.tones[number, cells.start : cells.start + 2] *= 0.8  # parapet between two roofs
        return full

    def _roof_tops(self) -> Image:
        """Colours of the terraces along both sides, and below them (row 4 on) the colour of roofs farther back."""
        tops = np.empty((8, self.tones.shape[1] * 2, 3), np.uint8)
        tops[:4] = self.tones.reshape(1, -1, 3) * 0.92
        tops[4:] = self.tones.mean(axis=(0, 1))
        return tops

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

        Surfaces are compared by nearness, one over depth: on a plane it is linear in the pixel, a sum of a row and a
        column. Values are chosen by `cv2.copyTo` under a mask: ten times as fast as `np.where` on masks like these.
        """
        rays, (cx, cy, cz) = _Rays(pose, size), pose.position.tolist()
        period, half_way = self.street.extent[0], self.street.half_way
        left_room, right_room = max(half_way - cy, _CLOSEST), max(half_way + cy, _CLOSEST)
        east, left, to_ground = rays.along(0, 1 / period), rays.along(1, 1 / left_room), rays.along(2, -1 / cz)
        sky_to, ground_from = _horizon_rows(pose, size)
        plain = cz < self.lowest  # the eye is below all roofs, and no house is missing
        front_to, air_to = _ground_rows(left, -left_room / right_room, to_ground) if plain else (size, size)
        top, low = slice(0, front_to), slice(ground_from, size)

        nearness, ground = to_ground.copy(), np.ones(to_ground.shape, np.bool_)
        to_front = np.maximum(left[top], left[top] * np.float32(-left_room / right_room))
        reach = 1 / np.maximum(to_front, np.float32(_LEVEL), out=to_front)
        ring = linear(east[top] * reach, 1.0, cx / period)  # where rays meet the line of the fronts, in rounds
        place = ring - np.floor(ring)
        place += cv2.threshold(left[top], 0.0, 1.0, cv2.THRESH_BINARY)[1]  # along the right side, then along the left
        drop = to_ground[top] * reach  # below the eye at the front, as a share of the eye's height
        np.greater(to_ground[top], to_front, out=ground[top])
        np.maximum(to_front, to_ground[top], out=nearness[top])
        front = ~ground
        high = slice(0, sky_to if plain else size)  # rows in which rays may pass over or beside the houses
        cell = (place[high] * np.float32(self.roofs.shape[1])).astype(np.int32)
        roof = (1 - self.roofs.ravel() / np.float32(cz)).take(cell, mode="clip")  # below the eye, like `drop`
        front[high] &= drop[high] >= roof
        corner = self._through_the_crossing(pose, (east, left, to_ground), ring, ground, front, nearness)
        if self.street.family.water:  # no house there: the water goes on
            open_side = (roof == 1) & (to_ground > _LEVEL)
            ground |= open_side
            _choose(nearness, to_ground, open_side)
        hit = ground | front
        over = _over_the_roofs(roof, to_ground, hit, nearness) if cz > 4 else None
        rest = None
        if not hit[sky_to:].all():  # below the horizon there is no sky: these rays pass over the corner houses
            rest = ~hit
            rest[:sky_to] = False
            hit |= rest
            _choose(nearness, np.full_like(nearness, 1 / 60.0), rest)
        if sky_to:
            _choose(nearness[:sky_to], np.full_like(nearness[:sky_to], _SKY), ~hit[:sky_to])

        scale = shrink(nearness, 1.6 * pose.focal / (0.5 * (GROUND_SCALE + WALL_SCALE)))
        u, v = np.empty_like(nearness), np.empty_like(nearness)
        if sky_to:
            self._sky_map(pose, u[:sky_to], v[:sky_to])
        reach = 1 / np.maximum(to_ground[low], np.float32(_LEVEL))
        round_x = linear(east[low] * reach, 1.0, cx / period)
        round_x -= np.floor(round_x)
        leftward = left[low] * reach
        _choose(u[low], self.ground.u(round_x, scale[low]), ground[low])
        _choose(v[low], self.ground.v(leftward, scale[low], left_room, cy), ground[low])
        if self.front is not None:
            _choose(u[top], self.front.u(place, scale[top]), front[top])
            _choose(v[top], self.front.v(drop, scale[top], cz, self.tallest - cz), front[top])
        if corner is not None:
            area, wall, along, drop = corner
            _choose(u[area], self.corner.u(along, scale[area]), wall)
            _choose(v[area], self.corner.v(drop, scale[area], cz, self.corner_height - cz), wall)
        for which, row in ((over, 1.0), (rest, 5.0)):
            if which is not None:
                _choose(u, self.terraces.u(place), which)
                _choose(v, np.full_like(v, row), which)
        frame = np.asarray(cv2.remap(self.image, u, v, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), np.uint8)
        self._in_the_air(frame[:air_to], nearness[:air_to])
        layout = None
        if with_layout:
            layout = self._layout(ground, hit, ground_from, round_x * period, leftward * left_room + cy)
        return Backview(frame, nearness, ground, layout)

    def _in_the_air(self, frame: Image, nearness: Singles) -> None:
        """What lies farther away fades into the air; the sky is painted as it looks. Changes the frame.

        In 256 steps of nearness, of which several fall on one pixel where it changes fast.
        """
        step = cv2.convertScaleAbs(nearness, alpha=_AIR_STEPS, beta=1.0)
        share = cv2.cvtColor(cv2.LUT(step, self.clear), cv2.COLOR_GRAY2RGB)
        cv2.multiply(frame, share, frame, 1 / 255)
        cv2.add(frame, cv2.applyColorMap(step, self.air), frame)

    def _through_the_crossing(
        self,
        pose: Pose,
        rays: tuple[Singles, Singles, Singles],
        ring: Singles,
        ground: Mask,
        front: Mask,
        nearness: Singles,
    ) -> tuple[tuple[slice, slice], Mask, Singles, Singles] | None:
        """Rays that leave the street through the gap between the corner houses meet the crossing street's walls.

        `ring` is where they pass the line of the fronts, in rounds. Updates ground, front and nearness in place;
        returns the part of the frame that sees the gap, and of it which rays hit a wall, how far along, and how far
        below the eye (as a share of the eye's height).
        """
        if self.street.junction is None:
            return None
        period, half_way = self.street.extent[0], self.street.half_way
        cx, cy, cz = pose.position.tolist()
        offset = ring - np.float32(self.street.junction / period)
        offset -= np.rint(offset)  # from the crossing that each ray passes
        behind = (np.abs(offset) < np.float32(half_way / period)) > ground
        x, y, width, height = cv2.boundingRect(behind.view(np.uint8))
        if not width:
            return None
        area = (slice(y, y + height), slice(x, x + width))
        behind, (east, left, to_ground) = behind[area], (field[area] for field in rays)
        ahead = ring[area] - offset[area] - np.float32(cx / period)
        ahead += np.copysign(np.float32(half_way / period), east)
        to_wall = np.maximum(np.abs(east) / np.maximum(np.abs(ahead), np.float32(_LEVEL)), np.float32(_LEVEL))
        reach = 1 / to_wall
        drop = to_ground * reach
        # `left` is the direction to the left over the room there.
        along = np.abs(linear(left * reach, max(half_way - cy, _CLOSEST), cy)) - np.float32(half_way)
        along *= np.float32(WALL_SCALE / self.corner.width)
        along -= np.floor(along)  # one house after another
        floor = behind & (to_ground > to_wall)
        wall = (behind & (drop >= 1 - self.corner_height / cz)) > floor
        ground[area] |= floor
        front[area] &= ~behind
        front[area] |= wall
        _choose(nearness[area], to_ground, floor)
        _choose(nearness[area], to_wall, wall)
        return area, wall, along, drop

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
            pixels = fixed_pixels(outline, pose.focal, pose.centre)
            cv2.fillConvexPoly(frame, pixels, (self.deck_tone * shade).tolist(), cv2.LINE_AA, 4)
            for labels, code in ((layout, STRUCTURE), (ids, 0)):
                if labels is not None:
                    cv2.fillConvexPoly(labels, pixels, code, cv2.LINE_8, 4)

    def _sky_map(self, pose: Pose, u: Singles, v: Singles) -> None:
        """Writes atlas coordinates of the sky in the upper rows: two panorama pixels per degree, horizon at row 90."""
        (_, _, right_up), (_, _, down_up), (fx, fy, fz) = pose.axes.tolist()
        yaw, pitch = math.degrees(math.atan2(fy, fx)), math.degrees(math.asin(min(max(-fz, -1.0), 1.0)))
        roll = math.atan2(-right_up, -down_up)
        step = math.degrees(2 / pose.focal)
        u0 = self.sky.left + 540.0 - ((yaw + 180.0) % 360.0 - 180.0) * 2
        v0 = self.sky.top + 90.0 + pitch * 2
        c, s = step * math.cos(roll), step * math.sin(roll)
        columns, down = (pixels[: len(u)] for pixels in _pixels(u.shape[1]))
        cv2.addWeighted(columns, c, down, -s, u0, u)
        cv2.addWeighted(columns, s, down, c, v0, v)

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


class _Rays:
    """World directions of all pixels' rays, scaled to unit depth."""

    def __init__(self, pose: Pose, size: int) -> None:
        self.columns, self.rows = _pixels(size)
        self.axes, self.focal = pose.axes.tolist(), pose.focal

    def along(self, axis: int, factor: float) -> Singles:
        """`[H, W]` component along one world axis, times a factor."""
        right, down, forward = (row[axis] * factor for row in self.axes)
        return np.asarray(cv2.addWeighted(self.columns, right / self.focal, self.rows, down / self.focal, forward))


@functools.lru_cache(maxsize=4)
def _pixels(size: int) -> tuple[Singles, Singles]:
    """`[H, W]` columns and rows of pixels, counted from the middle of the frame."""
    middles = np.arange(size, dtype=np.float32) + np.float32(0.5 - size / 2)
    return np.tile(middles, (size, 1)), np.tile(middles[:, None], size)


def _horizon_rows(pose: Pose, size: int) -> tuple[int, int]:
    """Rows below which no sky, and above which no ground can be seen."""
    right, down, forward = pose.axes[:, 2].tolist()  # how much each camera axis points up
    reach, steep = size / 2 / pose.focal * abs(right), min(down, -1e-6)
    high, low = (pose.centre - pose.focal * (forward + tilt) / steep for tilt in (-reach, reach))
    return min(max(math.ceil(max(high, low)) + 2, 0), size), min(max(math.floor(min(high, low)) - 2, 0), size)


def _over_the_roofs(roof: Singles, to_ground: Singles, hit: Mask, nearness: Singles) -> Mask | None:
    """Rays that meet a roof from above. Updates hit and nearness in place.

    `roof` is how far below the eye the roof of the house is, as a share of the eye's height; 1 where there is no house.
    """
    over = ((roof < 1) & (roof > 0) & (to_ground > _LEVEL)) > hit
    if not over.any():
        return None
    _choose(nearness, to_ground / np.maximum(roof, np.float32(_LEVEL)), over)
    hit |= over
    return over


def _ground_rows(left: Singles, mirror: float, to_ground: Singles) -> tuple[int, int]:
    """Rows from which on there is only ground, and from which on it is too near to fade.

    Fields that are linear in the pixel are largest and smallest at the ends of a row.
    """
    one, other = left[:, 0], left[:, -1]
    most = np.maximum(np.maximum(one, other), np.minimum(one, other) * np.float32(mirror))
    least = np.minimum(to_ground[:, 0], to_ground[:, -1])
    mixed, fades = np.flatnonzero(least <= most), np.flatnonzero(least < _CLEAR_FROM)
    return int(mixed[-1]) + 1 if mixed.size else 0, int(fades[-1]) + 1 if fades.size else 0


def _choose(values: Singles, others: Singles, where: NDArray[np.bool_]) -> None:
    """values[where] = others[where], in place."""
    cv2.copyTo(others, where.view(np.uint8), values)
