"""The static part of a frame: sky, ground, house fronts and the flyover deck, by plane homographies.

Every surface is a painted plane. The house fronts of one side share a plane, so a whole side is one long texture. Planes
that run into the distance are drawn in bands, each from a texture shrunk beforehand to about the size it is seen at.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .camera import NEAR, Pose, clip_polygon, fixed_pixels
from .settings import Weather
from .street import DEPTH, Building, Street
from .textures import GROUND_SCALE, WALL_SCALE, Image, Light, ground_texture, sky_panorama, wall_texture

Floats = NDArray[np.float64]
Labels = NDArray[np.uint8]

# Classes of the layout map.
SKY, BUILDING, ROAD, FOOTPATH, WATER, STRUCTURE, OBSTACLE = range(7)
LAYOUT_NAMES = ("sky", "building", "road", "footpath", "water", "structure", "obstacle")

DECK_HEIGHT, DECK_HALF, DECK_EDGE = 6.2, 3.6, 1.1
_AHEAD = 0.42  # share of the ring shown ahead of the camera beyond the half behind it
# Bands of a house front: until this distance along the street, the texture is shrunk by these powers of two.
_FRONT_BANDS = ((7.0, 0, 0), (15.0, 1, 1), (32.0, 3, 2), (80.0, 5, 3))


@dataclass(frozen=True)
class _Front:
    """All house fronts on one side of the street."""

    side: float
    textures: tuple[Image, ...]  # one per band, the whole ring wide
    height: float


class Backdrop:
    """Draws the empty street from any camera pose."""

    def __init__(self, street: Street, light: Light, weather: Weather, rng: np.random.Generator) -> None:
        self.street, self.light = street, light
        self.ground = [ground_texture(street, weather, light, rng)]
        for _ in range(4):
            self.ground.append(cv2.resize(self.ground[-1], None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA))
        panorama = sky_panorama(street, light, rng)
        self.sky = np.concatenate([panorama, panorama, panorama], axis=1)
        paintings = [wall_texture(street, building, light) for building in street.buildings]
        along = [k for k, b in enumerate(street.buildings) if b.x0 != b.x1]
        self.houses = [street.buildings[k] for k in along]
        self.fronts = [self._front(side, [(street.buildings[k], paintings[k]) for k in along]) for side in (1.0, -1.0)]
        self.tones = np.array([paintings[k][: len(paintings[k]) // 2].mean(axis=(0, 1)) for k in along])
        self.corner_walls = [(b, paintings[k]) for k, b in enumerate(street.buildings) if b.x0 == b.x1]
        grey = np.array((150, 148, 142)) * light.gain * float(rng.uniform(0.85, 1.0))
        self.deck_tone = grey if street.family.flyover else None

    def _front(self, side: float, painted: list[tuple[Building, Image]]) -> _Front | None:
        mine = [(b, image) for b, image in painted if b.y0 * side > 0]
        if not mine:
            return None
        height = max(b.height for b, _ in mine)
        full = np.zeros((round(height * WALL_SCALE), round(self.street.extent[0] * WALL_SCALE), 3), np.uint8)
        for b, image in mine:
            left = round(b.x0 * WALL_SCALE)
            fitted = image[-full.shape[0] :, : full.shape[1] - left]
            above = full.shape[0] - fitted.shape[0]
            full[above:, left : left + fitted.shape[1]] = fitted
            full[:above, left : left + fitted.shape[1]] = fitted[:1]  # or shrinking would darken the roof line
        textures = tuple(
            cv2.resize(full, (full.shape[1] >> across, full.shape[0] >> up), interpolation=cv2.INTER_AREA)
            for _, across, up in _FRONT_BANDS
        )
        return _Front(side, textures, height)

    def centre(self, pose: Pose) -> float:
        """x around which the ring is unrolled for this view."""
        return float(pose.position[0] + _AHEAD * self.street.extent[0] * np.sign(pose.axes[2, 0] or 1.0))

    def unrolled(self, x: Floats, pose: Pose) -> Floats:
        """x of things on the ring, moved to the copy that this view shows."""
        period = self.street.extent[0]
        return x + period * np.rint((self.centre(pose) - x) / period)

    def fog(self, depth: Floats) -> Floats:
        return np.asarray(1.0 - np.exp(-self.light.fog * np.maximum(depth - 4.0, 0.0)))

    def draw_ground(self, pose: Pose, size: int, layout: Labels | None) -> Image:
        """Sky and ground; fills `layout` with sky, road, footpath and water."""
        horizon = _horizon(pose, size)
        first = int(np.clip(np.floor(horizon.min()), 0, size))
        frame = self._sky(pose, size, int(np.clip(np.ceil(horizon.max()) + 1, 0, size)))
        steps = (1.5 * 2.0 ** np.arange(len(self.ground) - 1)) * pose.focal / GROUND_SCALE
        rows = [size, *self._rows_at(pose, size, steps), first]
        to_image = pose.plane(np.zeros(3), np.array([1.0, 0, 0]), np.array([0, 1.0, 0]))
        for level, (low, high) in enumerate(zip(rows[1:], rows[:-1], strict=True)):
            if high <= low:
                continue
            scale, texture = GROUND_SCALE / 2**level, self.ground[level]
            h = to_image @ np.array([[1 / scale, 0, 0], [0, 1 / scale, -texture.shape[0] / 2 / scale], [0, 0, 1.0]])
            h[1] -= low * h[2]
            band = cv2.warpPerspective(
                texture, h, (size, high - low), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP
            )
            if low < horizon.max():
                below = np.arange(low, high)[:, None] > horizon[None, :]
                cv2.copyTo(band, below.astype(np.uint8), frame[low:high])
            else:
                frame[low:high] = band
        self._ground_fog(frame, pose, horizon, size)
        if layout is not None:
            self._ground_layout(layout, pose, horizon)
        return frame

    def draw_buildings(self, frame: Image, pose: Pose, layout: Labels | None) -> None:
        self._sides_and_roofs(frame, pose, layout)
        for wall, painting in self.corner_walls:
            self._corner_wall(frame, pose, wall, painting, layout)
        for front in self.fronts:
            if front is not None:
                self._house_fronts(frame, pose, front, layout)

    def draw_deck(self, frame: Image, pose: Pose, layout: Labels | None, ids: NDArray[np.uint16] | None) -> None:
        """The flyover deck above the median, seen from below or from above."""
        if self.deck_tone is None:
            return
        ahead = np.sign(pose.axes[2, 0] or 1.0)
        x0, x1 = pose.position[0] - 40.0 * ahead, pose.position[0] + 90.0 * ahead
        above = pose.position[2] > DECK_HEIGHT + DECK_EDGE
        z = DECK_HEIGHT + (DECK_EDGE if above else 0.0)
        surfaces = [(((x0, -DECK_HALF, z), (x1, -DECK_HALF, z), (x1, DECK_HALF, z), (x0, DECK_HALF, z)), 1.05 if above else 0.62)]
        if abs(pose.position[1]) > DECK_HALF:
            y, top = np.sign(pose.position[1]) * DECK_HALF, DECK_HEIGHT + DECK_EDGE
            surfaces.append((((x0, y, DECK_HEIGHT), (x1, y, DECK_HEIGHT), (x1, y, top), (x0, y, top)), 0.85))
        for corners, shade in surfaces:
            outline = clip_polygon(pose.view(np.array(corners)))
            if outline is None:
                continue
            pixels = fixed_pixels(outline, pose)
            cv2.fillConvexPoly(frame, pixels, tuple(map(float, self.deck_tone * shade)), cv2.LINE_AA, 4)
            for labels, code in ((layout, STRUCTURE), (ids, 0)):
                if labels is not None:
                    cv2.fillConvexPoly(labels, pixels, code, cv2.LINE_8, 4)

    def _sky(self, pose: Pose, size: int, rows: int) -> Image:
        frame = np.empty((size, size, 3), np.uint8)
        if rows == 0:
            return frame
        yaw = float(np.arctan2(pose.axes[2, 1], pose.axes[2, 0]))
        pitch = float(np.arcsin(np.clip(-pose.axes[2, 2], -1, 1)))
        roll = float(np.arctan2(-pose.axes[0, 2], -pose.axes[1, 2]))
        per_pixel = 2 * 57.29578 / pose.focal  # panorama pixels per frame pixel
        c, s, middle = np.cos(roll) * per_pixel, np.sin(roll) * per_pixel, size / 2
        u0, v0 = 1080.0 - yaw * 57.29578 * 2, 90.0 + min(pitch, 1.2) * 57.29578 * 2
        affine = np.array([[c, -s, u0 - c * middle + s * middle], [s, c, v0 - s * middle - c * middle]])
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        frame[:rows] = cv2.warpAffine(self.sky, affine, (size, rows), flags=flags, borderMode=cv2.BORDER_REPLICATE)
        return frame

    def _rows_at(self, pose: Pose, size: int, distances: Floats) -> list[int]:
        """Rows where the ground straight ahead lies at these distances, for distances in ascending order."""
        flat = pose.axes[2, :2] / max(1e-6, float(np.hypot(*pose.axes[2, :2])))
        points = np.zeros((len(distances), 3))
        points[:, :2] = pose.position[:2] + distances[:, None] * flat
        pixels, depth = pose.project(points)
        rows = np.where(depth > NEAR, np.clip(np.rint(pixels[:, 1]), 0, size), size)
        return [int(row) for row in np.minimum.accumulate(rows)]

    def _ground_fog(self, frame: Image, pose: Pose, horizon: Floats, size: int) -> None:
        """Air over the ground, row by row (roll is small enough to ignore here)."""
        rows = np.arange(size)
        slope = pose.axes[2, 2] - (rows - pose.centre) / pose.focal * -pose.axes[1, 2]  # upward part of the ray
        distance = pose.position[2] / np.maximum(-slope, 1e-3)
        amount = np.where(rows > horizon.mean() - 1, self.fog(distance), 0.0).astype(np.float32)
        misty = np.flatnonzero(amount > 0.02)
        if misty.size:
            part, share = frame[misty[0] : misty[-1] + 1], amount[misty[0] : misty[-1] + 1, None, None]
            part[:] = part * (1 - share) + self.light.air * share

    def _ground_layout(self, layout: Labels, pose: Pose, horizon: Floats) -> None:
        street = self.street
        x0, x1 = self.centre(pose) - street.extent[0], self.centre(pose) + street.extent[0]
        layout[:] = np.where(np.arange(layout.shape[0])[:, None] > horizon[None, :], FOOTPATH, SKY)
        strips = [((x0, x1), (-street.half_road, street.half_road), ROAD)]
        if street.family.water:
            strips.append(((x0, x1), (-street.extent[1], -street.half_way - 0.1), WATER))
        if street.junction is not None:
            middle = float(self.unrolled(np.array(street.junction), pose))
            half = street.extent[1] / 2
            strips.append(((middle - street.half_road, middle + street.half_road), (-half, half), ROAD))
        for (a, b), (c, d), code in strips:
            outline = clip_polygon(pose.view(np.array([(a, c, 0.0), (b, c, 0.0), (b, d, 0.0), (a, d, 0.0)])))
            if outline is not None:
                cv2.fillConvexPoly(layout, fixed_pixels(outline, pose), code, cv2.LINE_8, 4)

    def _sides_and_roofs(self, frame: Image, pose: Pose, layout: Labels | None) -> None:
        """What shows of a house besides its front: the flank above a lower neighbour, the roof from above."""
        if not self.houses:
            return
        x0, x1 = np.array([b.x0 for b in self.houses]), np.array([b.x1 for b in self.houses])
        shift = self.unrolled((x0 + x1) / 2, pose) - (x0 + x1) / 2
        middle, camera_x = (x0 + x1) / 2 + shift, pose.position[0]
        forward = np.sign(pose.axes[2, 0] or 1.0)
        for k in np.argsort(-np.abs(middle - camera_x)):
            if (middle[k] - camera_x) * forward < -8.0:
                continue
            house, haze = self.houses[k], float(self.fog(np.abs(middle[k] - camera_x)))
            tone = self.tones[k] * (1 - haze) * 0.8 + self.light.air * haze
            y, back, top = house.y0, house.y0 + np.sign(house.y0) * DEPTH, house.height
            near = (x0 if camera_x < middle[k] else x1)[k] + shift[k]
            surfaces = [((near, y, 0.0), (near, back, 0.0), (near, back, top), (near, y, top))]
            if pose.position[2] > top:
                a, b = x0[k] + shift[k], x1[k] + shift[k]
                surfaces.append(((a, y, top), (b, y, top), (b, back, top), (a, back, top)))
            for corners, shade in zip(surfaces, (0.85, 1.15), strict=False):
                outline = clip_polygon(pose.view(np.array(corners)))
                if outline is not None:
                    pixels = fixed_pixels(outline, pose)
                    cv2.fillConvexPoly(frame, pixels, tuple(map(float, tone * shade)), cv2.LINE_AA, 4)
                    if layout is not None:
                        cv2.fillConvexPoly(layout, pixels, BUILDING, cv2.LINE_8, 4)

    def _house_fronts(self, frame: Image, pose: Pose, front: _Front, layout: Labels | None) -> None:
        """One side of the street, band by band from the distance to the camera."""
        size, forward = frame.shape[0], np.sign(pose.axes[2, 0] or 1.0)
        y = front.side * self.street.half_way
        if (y - pose.position[1]) * front.side <= 0:
            return
        mask = self._front_mask(size, pose, front)
        starts = [-12.0, *(end for end, _, _ in _FRONT_BANDS[:-1])]
        for index in range(len(_FRONT_BANDS) - 1, -1, -1):
            texture = front.textures[index]
            a, b = (float(pose.position[0] + forward * d) for d in (starts[index], _FRONT_BANDS[index][0]))
            corners = np.array([(a, y, 0.0), (b, y, 0.0), (b, y, front.height), (a, y, front.height)])
            outline = clip_polygon(pose.view(corners))
            if outline is None:
                continue
            box = _box(outline, pose, size)
            if box is None:
                continue
            left, top, right, bottom = box
            across, down = texture.shape[1] / self.street.extent[0], texture.shape[0] / front.height
            h = pose.plane(np.array([0.0, y, front.height]), np.array([1 / across, 0, 0]), np.array([0, 0, -1 / down]))
            h[0] -= left * h[2]
            h[1] -= top * h[2]
            patch = cv2.warpPerspective(
                texture, h, (right - left, bottom - top), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP
            )
            part = mask[top:bottom, left:right]
            if index > 0:
                band = np.zeros_like(part)
                cv2.fillConvexPoly(band, fixed_pixels(outline, pose) - np.array([left * 16, top * 16], np.int32), 1, cv2.LINE_8, 4)
                part = part & band
                haze = float(self.fog(np.array(0.5 * (starts[index] + min(_FRONT_BANDS[index][0], 60.0)))))
                patch = cv2.addWeighted(patch, 1 - haze, np.broadcast_to(self.light.air * haze, patch.shape).astype(np.uint8), 1.0, 0.0)
            cv2.copyTo(patch, part, frame[top:bottom, left:right])
        if layout is not None:
            layout[mask > 0] = BUILDING

    def _front_mask(self, size: int, pose: Pose, front: _Front) -> Labels:
        """Where the houses of one side stand: their outlines, so that the sky shows above low ones."""
        mask = np.zeros((size, size), np.uint8)
        mine = [b for b in self.houses if b.y0 * front.side > 0]
        x0, x1 = np.array([b.x0 for b in mine]), np.array([b.x1 for b in mine])
        shift = self.unrolled((x0 + x1) / 2, pose) - (x0 + x1) / 2
        y, tall = np.full(len(mine), mine[0].y0), np.array([b.height for b in mine])
        corners = np.stack(
            [np.stack([x + shift, y, z], axis=1) for x, z in ((x0, 0 * tall), (x1, 0 * tall), (x1, tall), (x0, tall))], axis=1
        )
        seen = pose.view(corners)
        for k in np.flatnonzero(seen[:, :, 2].max(axis=1) > NEAR):
            outline = clip_polygon(seen[k])
            if outline is not None:
                cv2.fillConvexPoly(mask, fixed_pixels(outline, pose), 1, cv2.LINE_8, 4)
        return mask

    def _corner_wall(self, frame: Image, pose: Pose, wall: Building, painting: Image, layout: Labels | None) -> None:
        """A wall along the crossing street, seen only from the crossing's side."""
        x = float(self.unrolled(np.array(wall.x0), pose))
        middle = float(self.unrolled(np.array(self.street.junction), pose))
        if (pose.position[0] - x) * (middle - x) <= 0:
            return
        corners = np.array([(x, wall.y0, 0.0), (x, wall.y1, 0.0), (x, wall.y1, wall.height), (x, wall.y0, wall.height)])
        seen = pose.view(corners)
        outline = clip_polygon(seen)
        box = None if outline is None else _box(outline, pose, frame.shape[0])
        if outline is None or box is None:
            return
        left, top, right, bottom = box
        shrink = max(1, min(painting.shape[1] // max(1, right - left), painting.shape[0] // max(1, bottom - top)))
        texture = cv2.resize(painting, None, fx=1 / shrink, fy=1 / shrink, interpolation=cv2.INTER_AREA) if shrink > 1 else painting
        height, width = texture.shape[:2]
        h = pose.plane(corners[3], (corners[1] - corners[0]) / width, (corners[0] - corners[3]) / height)
        h[0] -= left * h[2]
        h[1] -= top * h[2]
        patch = cv2.warpPerspective(texture, h, (right - left, bottom - top), borderMode=cv2.BORDER_REPLICATE)
        haze = float(self.fog(seen[:, 2].clip(NEAR).mean()))
        patch = cv2.addWeighted(patch, 1 - haze, np.broadcast_to(self.light.air * haze, patch.shape).astype(np.uint8), 1.0, 0.0)
        mask = np.zeros(patch.shape[:2], np.uint8)
        cv2.fillConvexPoly(mask, fixed_pixels(outline, pose) - np.array([left * 16, top * 16], np.int32), 1, cv2.LINE_8, 4)
        cv2.copyTo(patch, mask, frame[top:bottom, left:right])
        if layout is not None:
            layout[top:bottom, left:right][mask > 0] = BUILDING


def _box(outline: Floats, pose: Pose, size: int) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom of the part of the frame that an outline covers; None outside the frame."""
    points = outline[:, :2] / outline[:, 2:] * pose.focal + pose.centre
    left, top = (max(0, int(c)) for c in np.floor(points.min(axis=0)))
    right, bottom = (min(size, int(c) + 1) for c in np.ceil(points.max(axis=0)))
    return (left, top, right, bottom) if right > left and bottom > top else None


def _horizon(pose: Pose, size: int) -> Floats:
    """Row of the horizon in every column."""
    right, down, forward = pose.axes[:, 2]  # how much each camera axis points up
    u = (np.arange(size) - pose.centre) / pose.focal
    return np.asarray(pose.centre - pose.focal * (forward + right * u) / min(down, -1e-6))
