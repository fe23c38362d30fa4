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
_FRONT_BANDS = ((7.0, 0, 0), (15.0, 1, 1), (80.0, 4, 3))
_FRONT_BANDS_AERIAL = ((18.0, 0, 0), (80.0, 1, 1))


@dataclass(frozen=True)
class _Front:
    """All house fronts on one side of the street."""

    side: float
    textures: tuple[Image, ...]  # one per band, the whole ring wide
    height: float


@dataclass(frozen=True)
class _Boxes:
    """The houses along the street as arrays; an end is exposed where the neighbour is lower or missing."""

    x0: Floats
    x1: Floats
    y: Floats
    top: Floats
    left_exposed: NDArray[np.bool_]
    right_exposed: NDArray[np.bool_]

    @classmethod
    def of(cls, houses: list[Building]) -> _Boxes:
        def exposed(house: Building, end: float, other_end: str) -> bool:
            beside = [h for h in houses if h.y0 == house.y0 and abs(getattr(h, other_end) - end) < 0.1]
            return not beside or beside[0].height < house.height

        return cls(
            *(np.array([getattr(h, name) for h in houses]) for name in ("x0", "x1", "y0", "height")),
            np.array([exposed(h, h.x0, "x1") for h in houses], dtype=bool),
            np.array([exposed(h, h.x1, "x0") for h in houses], dtype=bool),
        )


def _quads(corners: list[tuple[Floats, Floats, Floats]]) -> Floats:
    """Four corners given as coordinate columns to `[K, 4, 3]`."""
    return np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)


class Backdrop:
    """Draws the empty street from any camera pose."""

    def __init__(self, street: Street, light: Light, weather: Weather, aerial: bool, rng: np.random.Generator) -> None:
        self.street, self.light = street, light
        self.bands = _FRONT_BANDS_AERIAL if aerial else _FRONT_BANDS
        self.ground = [ground_texture(street, weather, light, rng)]
        for _ in range(2):
            self.ground.append(cv2.resize(self.ground[-1], None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA))
        panorama = sky_panorama(street, light, rng)
        self.sky = np.concatenate([panorama, panorama, panorama], axis=1)
        paintings = [wall_texture(street, building, light) for building in street.buildings]
        along = [k for k, b in enumerate(street.buildings) if b.x0 != b.x1]
        self.houses = [street.buildings[k] for k in along]
        self.fronts = [self._front(side, [(street.buildings[k], paintings[k]) for k in along]) for side in (1.0, -1.0)]
        self.tones = np.array([paintings[k][: len(paintings[k]) // 2].mean(axis=(0, 1)) for k in along])
        self.boxes = _Boxes.of(self.houses)
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
        textures, start = [], 0.0
        for end, across, up in self.bands:
            small = cv2.resize(full, (full.shape[1] >> across, full.shape[0] >> up), interpolation=cv2.INTER_AREA)
            haze = float(self.fog(np.array((start + min(end, 60.0)) / 2)))
            textures.append((small * (1 - haze) + self.light.air * haze).astype(np.uint8))
            start = end
        return _Front(side, tuple(textures), height)

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
        steps = (2.0 * 4.0 ** np.arange(len(self.ground) - 1)) * pose.focal / GROUND_SCALE
        rows = [size, *self._rows_at(pose, size, steps), first]
        to_image = pose.plane(np.zeros(3), np.array([1.0, 0, 0]), np.array([0, 1.0, 0]))
        for level, (low, high) in enumerate(zip(rows[1:], rows[:-1], strict=True)):
            if high <= low:
                continue
            scale, texture = GROUND_SCALE / 4**level, self.ground[level]
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
        misty = np.flatnonzero(amount > 0.04)
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
        box, period = self.boxes, self.street.extent[0]
        middle = (box.x0 + box.x1) / 2
        shift = self.unrolled(middle, pose) - middle
        away = np.abs(middle + shift - pose.position[0])
        nearer_end = pose.position[0] < middle + shift
        near = np.where(nearer_end, box.x0, box.x1) + shift
        back, ground = box.y + np.sign(box.y) * DEPTH, np.zeros_like(near)
        flank = _quads([(near, box.y, ground), (near, back, ground), (near, back, box.top), (near, box.y, box.top)])
        a, b = box.x0 + shift, box.x1 + shift
        roof = _quads([(a, box.y, box.top), (b, box.y, box.top), (b, back, box.top), (a, back, box.top)])
        seen = pose.view(np.stack([flank, roof], axis=1))
        haze = self.fog(away)[:, None]
        tones = self.tones * 0.8 * (1 - haze) + self.light.air * haze
        in_front = seen[..., 2].max(axis=(1, 2)) > NEAR
        exposed = in_front & np.where(nearer_end, box.left_exposed, box.right_exposed) & (away < period / 2)
        from_above = in_front & (pose.position[2] > box.top)
        for k in np.argsort(-away).tolist():
            for visible, part, shade in ((exposed[k], 0, 0.85), (from_above[k], 1, 1.15)):
                outline = clip_polygon(seen[k, part]) if visible else None
                if outline is not None:
                    pixels = fixed_pixels(outline, pose)
                    cv2.fillConvexPoly(frame, pixels, (tones[k] * shade).tolist(), cv2.LINE_8, 4)
                    if layout is not None:
                        cv2.fillConvexPoly(layout, pixels, BUILDING, cv2.LINE_8, 4)

    def _house_fronts(self, frame: Image, pose: Pose, front: _Front, layout: Labels | None) -> None:
        """One side of the street. A band of distances covers a range of columns: the planes stand upright."""
        size, forward = frame.shape[0], np.sign(pose.axes[2, 0] or 1.0)
        y, (x, eye_y) = front.side * self.street.half_way, pose.position[:2]
        if (y - eye_y) * front.side <= 0:
            return
        mask = self._front_mask(size, pose, front)
        left, top, width, height = cv2.boundingRect(mask)
        if width == 0:
            return
        ends = np.zeros((len(self.bands), 3))
        ends[:, 0], ends[:, 1], ends[:, 2] = x + forward * np.array([band[0] for band in self.bands]), y, pose.position[2]
        pixels, depth = pose.project(ends)
        towards = front.side * forward  # the left side of the view recedes to the right, and the other way around
        limit = left if towards > 0 else left + width
        for texture, u, d in zip(front.textures, pixels[:, 0], depth, strict=True):
            stop = int(np.clip(round(u), left, left + width)) if d > NEAR else limit
            if texture is front.textures[-1]:
                stop = left + width if towards > 0 else left
            a, b = (limit, stop) if towards > 0 else (stop, limit)
            limit = stop
            if b <= a:
                continue
            across, down = texture.shape[1] / self.street.extent[0], texture.shape[0] / front.height
            h = pose.plane(np.array([0.0, y, front.height]), np.array([1 / across, 0, 0]), np.array([0, 0, -1 / down]))
            h[0] -= a * h[2]
            h[1] -= top * h[2]
            patch = cv2.warpPerspective(texture, h, (b - a, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
            cv2.copyTo(patch, mask[top : top + height, a:b], frame[top : top + height, a:b])
        if layout is not None:
            layout[mask > 0] = BUILDING

    def _front_mask(self, size: int, pose: Pose, front: _Front) -> Labels:
        """Where the houses of one side stand: their outlines, so that the sky shows above low ones."""
        mask = np.zeros((size, size), np.uint8)
        box, mine = self.boxes, self.boxes.y * front.side > 0
        x0, x1, top = box.x0[mine], box.x1[mine], box.top[mine]
        shift = self.unrolled((x0 + x1) / 2, pose) - (x0 + x1) / 2
        y, ground = box.y[mine], np.zeros_like(top)
        seen = pose.view(_quads([(x0 + shift, y, ground), (x1 + shift, y, ground), (x1 + shift, y, top), (x0 + shift, y, top)]))
        nearest, farthest = seen[..., 2].min(axis=1), seen[..., 2].max(axis=1)
        points = seen[..., :2] / np.maximum(seen[..., 2:], NEAR) * pose.focal + pose.centre
        fixed = np.rint(points * 16).clip(-500_000, 500_000).astype(np.int32)
        for k in np.flatnonzero(farthest > NEAR).tolist():
            if nearest[k] >= NEAR:
                cv2.fillConvexPoly(mask, fixed[k], 1, cv2.LINE_8, 4)
            elif (outline := clip_polygon(seen[k])) is not None:
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
