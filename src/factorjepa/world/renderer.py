"""Frames with their ground truth: backdrop, shadows, bodies from far to near, weather."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from ..seeding import stream
from .backdrop import DECK_HEIGHT, OBSTACLE, Backdrop, Backview
from .camera import NEAR, CameraPath, Pose, rotated
from .closeups import Face, Lens, Stands, close_ups, draw_faces
from .crowd import RATE, wrap
from .motion import Trajectory
from .population import STATIC, Population
from .settings import Weather
from .sprites import (
    NO_STYLE,
    Gain,
    Sprite,
    Style,
    height_of,
    palette_of,
    pictures_of,
    view_bins,
    view_codes,
)
from .street import Street
from .taxonomy import KIND_NAMES, KINDS
from .textures import Light

cv2.setNumThreads(1)  # one process per core; also the same result everywhere

Image = NDArray[np.uint8]
Floats = NDArray[np.float64]
_FARTHEST = 60.0
_SMALLEST = 0.04  # of the frame's height: a smaller body is not drawn
_FOG_STEPS = 12
_UNSEEN_FOG = 0.06  # less air than this is not mixed in
_TOGETHER = 64  # frames whose geometry is worked out at once
_SAMPLING = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
_CLEAR = (0, 0, 0, 255)  # a pixel of a picture that shows only background


@dataclass(frozen=True)
class Seen:
    """One agent in one frame. Masks are crops of the frame at `corner` (row, column)."""

    row: int  # entity row
    lap: int  # how often it went around the ring: together with `row` its identity
    corner: tuple[int, int]
    amodal: NDArray[np.bool_]
    depth: float
    x: float  # along the unrolled ring


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
    """Bodies in view of one frame, far to near."""

    rows: NDArray[np.intp]
    laps: NDArray[np.int64]
    points: Floats
    depth: Floats
    looks: list[Sprite | list[Face]]  # as lit; or the faces of one so close that perspective inside it shows
    affine: Floats  # [K, 2, 3] from its box in the frame to the picture
    boxes: NDArray[np.intp]  # [K, 4] left, top, right and bottom of the picture in the frame
    outside: NDArray[np.bool_]  # beyond the house fronts, on the crossing street
    shadow: NDArray[np.int32]  # [K, 8, 2] outlines
    casts: NDArray[np.bool_]  # a shadow that can be seen
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
        gain: Gain = (float(light.gain[0]), float(light.gain[1]), float(light.gain[2]))
        night, self.tint = (gain, (1.0, 1.0, 1.0)) if light.night else (None, gain)
        self.styles = [
            Style(model, palette_of(_kind_name(model), int(look), street.city.accents), night) if model else NO_STYLE
            for model, look in zip(self.models, population.look, strict=True)
        ]
        self.heights = np.array([height_of(model) if model else 0.0 for model in self.models]) * population.stature
        self.drawn = np.array([bool(model) for model in self.models])
        self.spans = np.maximum(2.0 * population.crowd.half_length, 2.0)
        self.slim = 2.0 * population.crowd.half_length < 1.3 * self.heights
        self.mixes = [_mix_matrix(self.tint, step / _FOG_STEPS, light.air) for step in range(_FOG_STEPS + 1)]
        self.tinted: dict[tuple[int, int], tuple[Sprite, Sprite]] = {}
        self.always_mixed = min(self.tint) < 0.95
        self.walks = np.array(
            [(bool(m) and m in KINDS and not KINDS[m].wheels) or m == "sari_pedestrian" for m in self.models]
        )

    def render(
        self, trajectory: Trajectory, path: CameraPath, times: Sequence[float] | Floats, truth: bool = False
    ) -> Iterator[tuple[Image, Truth | None]]:
        """The frames at `times` (seconds of the clip); with `truth` also what is in each."""
        for start in range(0, len(times), _TOGETHER):
            some = [float(time) for time in times[start : start + _TOGETHER]]
            for time, bodies in zip(some, self._in_view(trajectory, path, some), strict=True):
                yield self._frame(bodies, time, truth)

    def _frame(self, bodies: _Bodies, time: float, truth: bool) -> tuple[Image, Truth | None]:
        size, pose = self.size, bodies.pose
        ids = np.zeros((size, size), np.uint16) if truth else None
        back = self.backdrop.view(pose, size, truth)
        self._shadows(back, bodies)
        from_above = pose.position[2] > DECK_HEIGHT
        if not from_above:
            self.backdrop.draw_deck(back.frame, pose, back.layout, None)
        canvas = np.asarray(cv2.cvtColor(back.frame, cv2.COLOR_RGB2RGBA), np.uint8)
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

    def _in_view(self, trajectory: Trajectory, path: CameraPath, times: list[float]) -> Iterator[_Bodies]:
        """What to draw in each frame, from far to near, with the place and the view of each body. Arrays `[T, N]`."""
        size, crowd, street = self.size, self.population.crowd, self.street
        steps = np.array(times) * RATE
        low = np.minimum(steps.astype(int), len(trajectory) - 1)
        high, share = np.minimum(low + 1, len(trajectory) - 1), (steps - low)[:, None]
        x, y, hx, hy = (
            getattr(trajectory, name)[low] * (1 - share) + getattr(trajectory, name)[high] * share
            for name in ("x", "y", "hx", "hy")
        )
        poses = [path.pose(float(step), size) for step in steps]
        eyes, axes = np.stack([pose.position for pose in poses]), np.stack([pose.axes for pose in poses])
        centres = np.array([[self.backdrop.centre(pose)] for pose in poses])
        laps = np.rint((centres - x) / street.extent[0]).astype(np.int64)
        points = np.stack([x + laps * street.extent[0], wrap(y, street.extent[1]), np.zeros_like(x)], axis=2)
        towards = eyes[:, None, :] - points
        seen = -rotated(towards, axes[:, None])
        depth, focal = seen[:, :, 2], poses[0].focal
        scale = focal / np.maximum(depth, NEAR)
        pixels = seen[:, :, :2] * scale[:, :, None] + poses[0].centre
        tall, wide = self.heights * scale, self.spans * scale
        inside = (
            self.drawn
            & trajectory.present[low]
            & (depth > NEAR + 0.2)
            & (depth < _FARTHEST)
            & (tall > _SMALLEST * size)
        )
        inside &= (np.abs(pixels[:, :, 0] - size / 2) < size / 2 + wide) & (pixels[:, :, 1] > -0.3 * tall - wide)
        inside &= pixels[:, :, 1] - tall < size + wide

        which = np.flatnonzero(inside)
        frame = which // len(self.models)
        which = which[np.lexsort((-depth.take(which), frame))]  # in the order of frames already: only depth moves them
        row, tall_px = which % len(self.models), tall.take(which)
        place = points.reshape(-1, 3).take(which, axis=0)
        dx, dy, dz = towards.reshape(-1, 3).take(which, axis=0).T
        cos, sin = hx.take(which), hy.take(which)
        ground = np.sqrt(dx * dx + dy * dy)
        distance = np.sqrt(ground * ground + dz * dz)
        bins = view_bins(
            np.arctan2(dy * cos - dx * sin, dx * cos + dy * sin),
            np.arctan2(dz - 0.35 * self.heights[row], np.maximum(ground, 0.3)),
            distance,
            tall_px,
            self.slim[row],
        )
        stride = np.array(times)[frame] * np.maximum(3.0, 3.2 * crowd.speed[row]) + self.population.look[row] % 4
        phases = np.where(self.walks[row], np.array([0, 1, 0, 3])[stride.astype(np.intp) % 4], 0)
        stands = Stands(place, np.stack([cos, sin], axis=1), eyes[frame], axes[frame])
        lens = Lens(focal, poses[0].centre, size, self.tint)
        near = (distance < 0.8 * self.spans[row] + 0.8) | (tall_px > 0.5 * size)
        looks: list[Sprite | list[Face]] = [[]] * row.size
        close, away = np.flatnonzero(near), np.flatnonzero(~near)
        wearing = [
            (self.styles[r], phase) for r, phase in zip(row[close].tolist(), phases[close].tolist(), strict=True)
        ]
        for k, faces in enumerate(close_ups(wearing, self.population.stature[row[close]], stands.take(close), lens)):
            looks[close[k]] = faces
        pictures = pictures_of(self.styles, row[away], view_codes(bins, phases)[away])
        fog = self.backdrop.fog(depth.take(which[away]))
        airs = np.where(fog < _UNSEEN_FOG, 0, np.rint(fog * _FOG_STEPS)).astype(np.intp).tolist()
        for k, picture, air in zip(away.tolist(), pictures, airs, strict=True):
            looks[k] = self._tinted(picture, air) if air or self.always_mixed else picture
        zoom = scale.take(which) * self.population.stature[row]
        affine, boxes = self._places(pictures, away, pixels.reshape(-1, 2).take(which, axis=0), zoom)
        shadow = self._shadow_outlines(stands, row, lens)
        columns = {
            "rows": row,
            "laps": laps.take(which),
            "points": place,
            "depth": depth.take(which),
            "looks": looks,
            "affine": affine,
            "boxes": boxes,
            "outside": np.abs(place[:, 1]) > street.half_way + 0.3,
            "shadow": shadow,
            "casts": (tall_px > 2 * _SMALLEST * size) & (shadow[:, 0, 0] > -30000),
        }
        ends = np.searchsorted(frame, np.arange(len(times) + 1)).tolist()
        for k, pose in enumerate(poses):
            yield _Bodies(pose=pose, **{name: column[ends[k] : ends[k + 1]] for name, column in columns.items()})

    def _tinted(self, picture: Sprite, air: int) -> Sprite:
        """A picture in the scene's light, behind this step of air; three in four are asked for again within a clip."""
        key = (id(picture), air)
        known = self.tinted.get(key)
        if known is None:
            pixels = np.asarray(cv2.transform(picture.pixels, self.mixes[air]), np.uint8)
            known = self.tinted[key] = (Sprite(pixels, picture.frame), picture)  # with its picture, or the id may recur
        return known[0]

    def _places(
        self, pictures: list[Sprite], away: NDArray[np.intp], pixels: Floats, scale: Floats
    ) -> tuple[Floats, NDArray[np.intp]]:
        """How each picture is looked up, and the box that it covers; `away` are the bodies that have one."""
        affine, boxes = np.zeros((len(scale), 2, 3)), np.zeros((len(scale), 4), np.intp)
        if pictures:
            anchor_x, anchor_y, zoom, width, height = np.array([picture.frame for picture in pictures]).T
            factor = scale[away] / zoom
            left, top = pixels[away, 0] - anchor_x * factor, pixels[away, 1] - anchor_y * factor
            x0, y0 = np.maximum(left.astype(np.intp), 0), np.maximum(top.astype(np.intp), 0)
            x1 = np.minimum((left + width * factor).astype(np.intp) + 2, self.size)
            y1 = np.minimum((top + height * factor).astype(np.intp) + 2, self.size)
            boxes[away] = np.stack([x0, y0, x1, y1], axis=1)
            affine[away, 0, 0] = affine[away, 1, 1] = 1 / factor
            affine[away, 0, 2], affine[away, 1, 2] = (x0 - left) / factor, (y0 - top) / factor
        return affine, boxes

    def _shadow_outlines(self, stands: Stands, row: NDArray[np.intp], lens: Lens) -> NDArray[np.int32]:
        """`[K, 8, 2]` in sixteenths of a pixel: footprint, and the ground that the light does not reach."""
        crowd, sun = self.population.crowd, np.array(self.light.sun)
        ahead, left = stands.heading, np.stack([-stands.heading[:, 1], stands.heading[:, 0]], axis=1)
        ahead, left = ahead * (0.95 * crowd.half_length[row])[:, None], left * (0.95 * crowd.half_width[row])[:, None]
        base = stands.origin[:, :2]
        foot = np.stack([base + ahead + left, base + ahead - left, base - ahead - left, base - ahead + left], axis=1)
        # The cast lies between the two corners that are outermost across the light, and their shadows.
        across = foot[:, :, 1] * sun[0] - foot[:, :, 0] * sun[1]
        each = np.arange(row.size)
        edge = np.stack([foot[each, across.argmin(axis=1)], foot[each, across.argmax(axis=1)]], axis=1)
        cast = (np.minimum(self.heights[row], 3.0)[:, None] * sun)[:, None, :]
        outline = np.concatenate([foot, edge, edge[:, ::-1] + cast], axis=1)
        relative = np.concatenate([outline, np.zeros((*outline.shape[:2], 1))], axis=2) - stands.eye[:, None, :]
        seen = rotated(relative, stands.axes[:, None])
        pixels = seen[:, :, :2] * (lens.focal / np.maximum(seen[:, :, 2:], NEAR)) + lens.centre
        fixed = np.rint(pixels * 16).clip(-30000, 30000).astype(np.int32)
        fixed[seen[:, :, 2].min(axis=1) <= NEAR] = -30000  # partly behind the camera: leave it out
        return np.asarray(fixed)

    def _shadows(self, back: Backview, bodies: _Bodies) -> None:
        """Darken the ground once, however many shadows overlap."""
        mask = np.zeros(back.frame.shape[:2], np.uint8)
        for outline in bodies.shadow[bodies.casts].reshape(-1, 4, 2):
            cv2.fillConvexPoly(mask, outline, 1, cv2.LINE_8, 4)
        dark = cv2.convertScaleAbs(back.frame, alpha=1.0 - self.light.shadow)
        cv2.copyTo(dark, mask & back.ground, back.frame)

    def _blend(
        self, canvas: Image, bodies: _Bodies, back: Backview, ids: NDArray[np.uint16] | None, seen: list[Seen]
    ) -> None:
        """Lay bodies over the RGBA canvas from far to near; with `ids`, note who covers which pixel."""
        each = zip(bodies.looks, bodies.affine, bodies.boxes.tolist(), strict=True)
        outside = bodies.outside.tolist() if bodies.outside.any() else None
        for k, (look, affine, (x0, y0, x1, y1)) in enumerate(each):
            if isinstance(look, list):
                self._blend_near(canvas, bodies, k, look, back, ids, seen)
                continue
            if x1 <= x0 or y1 <= y0:
                continue
            patch = cv2.warpAffine(
                look.pixels, affine, (x1 - x0, y1 - y0), None, _SAMPLING, cv2.BORDER_CONSTANT, _CLEAR
            )
            through = cv2.extractChannel(patch, 3)
            whole = through < 128 if ids is not None else None
            if outside and outside[k]:  # on the crossing street: the corner houses may stand before it
                patch[back.nearness[y0:y1, x0:x1] > 1.0 / bodies.depth[k]] = _CLEAR
                through = cv2.extractChannel(patch, 3)
            part = canvas[y0:y1, x0:x1]
            cv2.multiply(part, cv2.cvtColor(through, cv2.COLOR_GRAY2RGBA), part, 1 / 255)
            cv2.add(part, patch, part)
            if ids is not None and whole is not None:
                self._note(bodies, k, (y0, x0), whole, through < 128, back, ids, seen)

    def _blend_near(
        self,
        canvas: Image,
        bodies: _Bodies,
        k: int,
        faces: list[Face],
        back: Backview,
        ids: NDArray[np.uint16] | None,
        seen: list[Seen],
    ) -> None:
        mask = None if ids is None else np.zeros(canvas.shape[:2], np.uint8)
        draw_faces(canvas, mask, faces)
        if mask is not None and ids is not None:
            left, top, width, height = cv2.boundingRect(mask)
            solid = mask[top : top + height, left : left + width] > 0
            self._note(bodies, k, (top, left), solid, solid, back, ids, seen)

    def _note(
        self,
        bodies: _Bodies,
        k: int,
        corner: tuple[int, int],
        whole: NDArray[np.bool_],
        solid: NDArray[np.bool_],
        back: Backview,
        ids: NDArray[np.uint16],
        seen: list[Seen],
    ) -> None:
        """Record who covers the `solid` pixels, an agent or an obstacle of the layout; `whole` is all of its body."""
        row, (top, left) = int(bodies.rows[k]), corner
        area = (slice(top, top + solid.shape[0]), slice(left, left + solid.shape[1]))
        if self.population.kind[row] == STATIC:
            ids[area][solid] = 0
            assert back.layout is not None
            back.layout[area][solid] = OBSTACLE
        elif cv2.countNonZero(whole.view(np.uint8)):
            seen.append(
                Seen(row, int(bodies.laps[k]), corner, whole, float(bodies.depth[k]), float(bodies.points[k, 0]))
            )
            ids[area][solid] = len(seen)

    @functools.cached_property
    def streaks(self) -> Image:
        """Rain on twice the frame's size, the same every frame's size further."""
        rng, size = stream(*self.address, "rain"), self.size
        starts = rng.integers(0, size, size=(size // 3, 1, 2))
        fall = np.array([[0, 0], [1, max(3, size // 16)]])
        once = np.zeros((2 * size, 2 * size), np.uint8)
        cv2.polylines(once, list((starts + fall).astype(np.int32)), False, 34)
        once[:size, :size] = np.maximum(once[:size, :size], once[size:, :size])  # what falls out comes in again
        once[:size, :size] = np.maximum(once[:size, :size], once[:size, size:])
        return np.asarray(cv2.cvtColor(np.tile(once[:size, :size], (2, 2)), cv2.COLOR_GRAY2RGBA), np.uint8)

    def _rain(self, canvas: Image, time: float) -> None:
        """Drops are too fast to be followed from frame to frame: each shows the streaks somewhere else."""
        moment = round(time * 1000)
        x, y = moment * 7919 % self.size, moment * 104729 % self.size
        cv2.add(canvas, self.streaks[y : y + self.size, x : x + self.size], canvas)


def _kind_name(model: str) -> str:
    """The kind whose colours a model wears."""
    return model.removeprefix("sari_").removeprefix("parked_")


def _mix_matrix(tint: Gain, fog: float, air: NDArray[np.float32]) -> Floats:
    """Tints a picture (colour, background share) and mixes in air: colour * tint * (1 - fog) + air * fog * opacity."""
    mix = np.zeros((4, 5))
    mix[[0, 1, 2], [0, 1, 2]] = np.array(tint) * (1.0 - fog)
    mix[:3, 3], mix[:3, 4] = -air * fog / 255.0, air * fog
    mix[3, 3] = 1.0
    return mix
