"""Frames with their ground truth: backdrop, shadows, bodies from far to near, weather."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ..seeding import stream
from .backdrop import DECK_HEIGHT, OBSTACLE, Backdrop, Backview
from .camera import NEAR, CameraPath, Pose
from .dynamics import RATE, wrap
from .motion import Trajectory
from .population import STATIC, Population
from .settings import Weather
from .sprites import NO_STYLE, BodyPlace, Style, draw_near, height_of, palette_of, picture_of, view_bins
from .street import Street
from .taxonomy import KIND_NAMES, KINDS
from .textures import Light

cv2.setNumThreads(1)  # one process per core; also the same result everywhere

Image = NDArray[np.uint8]
Floats = NDArray[np.float64]
_FARTHEST = 60.0
_SMALLEST = 0.033  # of the frame's height: a smaller body is not drawn
_FOG_STEPS = 12


@dataclass(frozen=True)
class Seen:
    """One agent in one frame. Masks are crops of the frame at `corner` (row, column)."""

    row: int  # entity row
    lap: int  # how often it went around the ring: together with `row` its identity
    corner: tuple[int, int]
    amodal: NDArray[np.bool_]
    depth: float


@dataclass(frozen=True)
class Truth:
    """Ground truth of one frame."""

    instances: NDArray[np.uint16]  # [H, W] index into `seen` plus one, 0: no agent
    layout: NDArray[np.uint8]  # [H, W] classes of the empty street
    seen: list[Seen]
    position: NDArray[np.float64]  # camera position and axes
    axes: NDArray[np.float64]


@dataclass(frozen=True)
class _Bodies:
    """Bodies in view, far to near. `points` has all rows of the population, everything else only these."""

    rows: NDArray[np.intp]
    laps: NDArray[np.int64]
    points: Floats
    pixels: Floats
    depth: Floats
    scale: Floats  # pixels per metre
    views: NDArray[np.intp]  # [K, 6] view bins, walking phase, fog step
    outside: NDArray[np.bool_]  # beyond the house fronts, on the crossing street
    near: NDArray[np.bool_]  # so close that perspective inside the body shows
    heading: Floats  # [K, 2]
    pose: Pose


class Renderer:
    """Draws one clip's frames at any time."""

    def __init__(
        self,
        street: Street,
        population: Population,
        light: Light,
        weather: Weather,
        backdrop: Backdrop,
        size: int,
        address: tuple[int | str, ...],
    ) -> None:
        self.street, self.population, self.light, self.weather = street, population, light, weather
        self.backdrop, self.size, self.address = backdrop, size, address
        obstacles = iter(street.obstacles)
        self.models = [
            next(obstacles).model if kind == STATIC else KIND_NAMES[kind] if kind >= 0 else ""
            for kind in population.kind
        ]
        for row, model in enumerate(self.models):
            if model == "pedestrian" and population.look[row] % 5 < 2:
                self.models[row] = "sari_pedestrian"
        accents, gain = street.city.accents, light.gain.tolist()
        self.styles = [
            Style(model, palette_of(model.removeprefix("sari_"), int(look), accents), (gain[0], gain[1], gain[2]), light.night)
            if model
            else NO_STYLE
            for model, look in zip(self.models, population.look, strict=True)
        ]
        self.heights = np.array([height_of(model) if model else 0.0 for model in self.models]) * population.stature
        self.drawn = np.array([bool(model) for model in self.models])
        self.spans = np.maximum(2.0 * population.crowd.half_length, 2.0)
        self.fog_mix = [_fog_matrix(step / _FOG_STEPS, light.air) for step in range(_FOG_STEPS + 1)]
        self.walks = np.array([bool(m) and m in KINDS and not KINDS[m].wheels or m == "sari_pedestrian" for m in self.models])

    def render(
        self, trajectory: Trajectory, path: CameraPath, time: float, truth: bool = False
    ) -> tuple[Image, Truth | None]:
        """The frame at `time` seconds of the clip; with `truth` also what is in it."""
        size, position = self.size, time * RATE
        pose = path.pose(position, size)
        low = min(int(position), len(trajectory) - 1)
        high, share = min(low + 1, len(trajectory) - 1), position - int(position)
        x, y, hx, hy = (
            getattr(trajectory, name)[low] * (1 - share) + getattr(trajectory, name)[high] * share
            for name in ("x", "y", "hx", "hy")
        )
        ids = np.zeros((size, size), np.uint16) if truth else None
        back = self.backdrop.view(pose, size, truth)
        bodies = self._in_view(pose, x, y, hx, hy, trajectory.present[low], time)
        self._shadows(back, pose, bodies, hx, hy)
        from_above = pose.position[2] > DECK_HEIGHT
        if not from_above:
            self.backdrop.draw_deck(back.frame, pose, back.layout, None)
        canvas = cv2.cvtColor(back.frame, cv2.COLOR_RGB2RGBA)
        seen: list[Seen] = []
        self._blend(canvas, bodies, back, ids, seen)
        if self.weather == "rain":
            self._rain(canvas, time)
        frame = np.asarray(cv2.cvtColor(canvas, cv2.COLOR_RGBA2RGB), np.uint8)
        if from_above:
            self.backdrop.draw_deck(frame, pose, back.layout, ids)
        if ids is None or back.layout is None:
            return frame, None
        return frame, Truth(ids, back.layout, seen, pose.position, pose.axes)

    def _in_view(
        self, pose: Pose, x: Floats, y: Floats, hx: Floats, hy: Floats, present: NDArray[np.bool_], time: float
    ) -> _Bodies:
        """What to draw, from far to near, with the place and the view of each."""
        laps = np.rint((self.backdrop.centre(pose) - x) / self.street.extent[0]).astype(np.int64)
        points = np.stack([x + laps * self.street.extent[0], wrap(y, self.street.extent[1]), np.zeros_like(x)], axis=1)
        pixels, depth = pose.project(points)
        scale = pose.focal / np.maximum(depth, NEAR)
        tall, wide = self.heights * scale, self.spans * scale
        inside = self.drawn & present & (depth > NEAR + 0.2) & (depth < _FARTHEST) & (tall > _SMALLEST * self.size)
        inside &= (np.abs(pixels[:, 0] - self.size / 2) < self.size / 2 + wide) & (pixels[:, 1] > -0.3 * tall - wide)
        rows = np.flatnonzero(inside & (pixels[:, 1] - tall < self.size + wide))
        rows = rows[np.argsort(-depth[rows], kind="stable")]

        dx, dy, dz = (pose.position - points[rows]).T
        hx, hy = hx[rows], hy[rows]
        ground = np.sqrt(dx * dx + dy * dy)
        views = np.empty((rows.size, 6), np.intp)
        views[:, :4] = view_bins(
            np.arctan2(dy * hx - dx * hy, dx * hx + dy * hy),
            np.arctan2(dz - 0.35 * self.heights[rows], np.maximum(ground, 0.3)),
            np.sqrt(ground * ground + dz * dz),
            tall[rows],
        )
        stride = time * np.maximum(3.0, 3.2 * self.population.crowd.speed[rows]) + self.population.look[rows] % 4
        views[:, 4] = np.where(self.walks[rows], np.array([0, 1, 0, 3])[stride.astype(np.intp) % 4], 0)
        views[:, 5] = np.rint(self.backdrop.fog(depth[rows]) * _FOG_STEPS)
        outside = np.abs(points[rows, 1]) > self.street.half_way + 0.3
        distance = np.sqrt(ground * ground + dz * dz)
        near = (distance < 1.3 * self.spans[rows] + 1.0) | (tall[rows] > 0.45 * self.size)
        heading = np.stack([hx, hy], axis=1)
        scale = scale[rows] * self.population.stature[rows]
        return _Bodies(rows, laps[rows], points, pixels[rows], depth[rows], scale, views, outside, near, heading, pose)

    def _shadows(self, back: Backview, pose: Pose, bodies: _Bodies, hx: Floats, hy: Floats) -> None:
        """Footprints and their cast on the ground, darkened once however many overlap."""
        rows = bodies.rows[bodies.scale * self.heights[bodies.rows] > 2 * _SMALLEST * self.size]
        if rows.size == 0:
            return
        points = bodies.points
        crowd = self.population.crowd
        a, b = 0.95 * crowd.half_length[rows], 0.95 * crowd.half_width[rows]
        ux, uy = hx[rows], hy[rows]
        cast = np.minimum(self.heights[rows], 3.0)[:, None] * np.array(self.light.sun)
        base = points[rows, :2]
        ring = [(1, 1), (1, -1), (-1, -1), (-1, 1)]
        ahead, left = np.stack([ux, uy], axis=1), np.stack([-uy, ux], axis=1)
        foot = np.stack([base + (s * a)[:, None] * ahead + (t * b)[:, None] * left for s, t in ring], axis=1)
        # The cast covers the ground between the two corners that are outermost across the light, and their shadows.
        across = foot[:, :, 1] * self.light.sun[0] - foot[:, :, 0] * self.light.sun[1]
        each = np.arange(rows.size)
        edge = np.stack([foot[each, across.argmin(axis=1)], foot[each, across.argmax(axis=1)]], axis=1)
        outline = np.concatenate([foot, edge, edge[:, ::-1] + cast[:, None, :]], axis=1)
        corners = np.concatenate([outline, np.zeros((*outline.shape[:2], 1))], axis=2)
        pixels, depth = pose.project(corners)
        mask = np.zeros(back.frame.shape[:2], np.uint8)
        fixed = np.rint(pixels * 16).clip(-30000, 30000).astype(np.int32)
        for k in np.flatnonzero(depth.min(axis=1) > NEAR).tolist():
            cv2.fillConvexPoly(mask, fixed[k, :4], 1, cv2.LINE_8, 4)
            cv2.fillConvexPoly(mask, fixed[k, 4:], 1, cv2.LINE_8, 4)
        dark = cv2.convertScaleAbs(back.frame, alpha=1.0 - self.light.shadow)
        cv2.copyTo(dark, mask & back.ground, back.frame)

    def _blend(
        self, canvas: Image, bodies: _Bodies, back: Backview, ids: NDArray[np.uint16] | None, seen: list[Seen]
    ) -> None:
        """Lay bodies over the RGBA canvas from far to near; with `ids`, note who covers which pixel."""
        size = self.size
        affine = np.zeros((2, 3))
        rows, scales, places = bodies.rows.tolist(), bodies.scale.tolist(), bodies.pixels.tolist()
        near, outside, views = bodies.near.tolist(), bodies.outside.tolist(), bodies.views.tolist()
        for k, row in enumerate(rows):
            *view, phase, fog = views[k]
            if near[k]:
                self._blend_near(canvas, bodies, k, phase, back, ids, seen)
                continue
            picture = picture_of(self.styles[row], phase, *view)
            factor = scales[k] / picture.scale
            height, width = picture.pixels.shape[:2]
            left, top = places[k][0] - picture.anchor[0] * factor, places[k][1] - picture.anchor[1] * factor
            x0, y0 = max(0, int(left)), max(0, int(top))
            x1, y1 = min(size, int(left + width * factor) + 2), min(size, int(top + height * factor) + 2)
            if x1 <= x0 or y1 <= y0:
                continue
            affine[0, 0] = affine[1, 1] = factor
            affine[0, 2], affine[1, 2] = left - x0, top - y0
            patch = cv2.warpAffine(picture.pixels, affine, (x1 - x0, y1 - y0), flags=cv2.INTER_LINEAR)
            if fog:
                patch = cv2.transform(patch, self.fog_mix[fog])
            if outside[k]:  # on the crossing street: the corner houses may stand before it
                patch *= (back.depth[y0:y1, x0:x1] > bodies.depth[k])[:, :, None]
            alpha = cv2.extractChannel(patch, 3)
            part = canvas[y0:y1, x0:x1]
            through = cv2.cvtColor(cv2.bitwise_not(alpha), cv2.COLOR_GRAY2RGBA)
            cv2.add(cv2.multiply(part, through, scale=1 / 255), patch, dst=part)
            if ids is not None:
                self._note(bodies, k, (y0, x0), alpha > 127, back, ids, seen)

    def _blend_near(
        self,
        canvas: Image,
        bodies: _Bodies,
        k: int,
        phase: int,
        back: Backview,
        ids: NDArray[np.uint16] | None,
        seen: list[Seen],
    ) -> None:
        row = int(bodies.rows[k])
        mask = None if ids is None else np.zeros(canvas.shape[:2], np.uint8)
        heading = (float(bodies.heading[k, 0]), float(bodies.heading[k, 1]))
        place = BodyPlace(bodies.pose, bodies.points[row], heading, float(self.population.stature[row]))
        draw_near(canvas, mask, self.styles[row], phase, place)
        if mask is not None and ids is not None:
            left, top, width, height = cv2.boundingRect(mask)
            self._note(bodies, k, (top, left), mask[top : top + height, left : left + width] > 0, back, ids, seen)

    def _note(
        self,
        bodies: _Bodies,
        k: int,
        corner: tuple[int, int],
        solid: NDArray[np.bool_],
        back: Backview,
        ids: NDArray[np.uint16],
        seen: list[Seen],
    ) -> None:
        """Record who covers these pixels: an agent, or an obstacle of the layout."""
        row, (top, left) = int(bodies.rows[k]), corner
        area = (slice(top, top + solid.shape[0]), slice(left, left + solid.shape[1]))
        if self.population.kind[row] == STATIC:
            ids[area][solid] = 0
            assert back.layout is not None
            back.layout[area][solid] = OBSTACLE
        elif solid.any():
            seen.append(Seen(row, int(bodies.laps[k]), corner, solid, float(bodies.depth[k])))
            ids[area][solid] = len(seen)

    def _rain(self, canvas: Image, time: float) -> None:
        rng = stream(*self.address, "rain", round(time * 1000))
        count = self.size // 3
        starts = rng.integers(0, self.size, size=(count, 2))
        length = max(3, self.size // 16)
        streaks = np.zeros(canvas.shape[:2], np.uint8)
        for x, y in starts.tolist():
            cv2.line(streaks, (x, y), (x + 1, y + length), 34, 1)
        cv2.add(canvas, cv2.cvtColor(streaks, cv2.COLOR_GRAY2RGBA), dst=canvas)


def _fog_matrix(share: float, air: NDArray[np.float32]) -> Floats:
    """Mixes air into premultiplied RGBA: colour * (1 - share) + air * share * opacity."""
    mix = np.diag([1.0 - share, 1.0 - share, 1.0 - share, 1.0])
    mix[:3, 3] = air * share / 255.0
    return mix
