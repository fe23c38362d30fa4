"""Pictures of bodies: drawn once per view, painted per individual, kept in a cache.

A view of a shape (azimuth, elevation, distance and walking phase, each in bins) is rasterised as a map of face numbers.
A palette turns that map into colour, so that a hundred scooters share one drawing. Discs and polygons are drawn far to
near; edges are smoothed by drawing at two or three times the size.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from . import bodies, furniture  # noqa: F401  (they register their shapes)
from .camera import dot3
from .shapes import MATERIALS, PAINTS, SHAPES
from .taxonomy import KINDS, Superclass

Floats = NDArray[np.float64]
Palette = tuple[tuple[int, int, int], ...]
Gain = tuple[float, float, float]  # per channel
Image = NDArray[np.uint8]
AZIMUTHS = 32
_ELEVATION_STEP = math.radians(8)
_LEVELS = (12, 24, 48, 96, 192)  # heights in pixels that are drawn; the next larger one is shrunk to fit
_DISTANCES = (3.0, 4.0, 5.5, 7.5, 11.0, 18.0, 40.0)  # m at which perspective inside a body is drawn


_MATERIAL_NAMES = (*PAINTS, *MATERIALS)
_MATERIAL_COLOURS = np.array([(0, 0, 0)] * len(PAINTS) + list(MATERIALS.values()), np.float64)
_LAMPS = [_MATERIAL_NAMES.index(name) for name in ("light", "tail")]
_GLASS = _MATERIAL_NAMES.index("glass")


@dataclass(frozen=True)
class Drawing:
    """One view of a shape: face numbers `[H, W]` (0: nothing), and where the ground point lies."""

    faces: NDArray[np.uint8]
    materials: NDArray[np.intp]  # of the faces drawn, far to near
    shades: Floats  # [F, 1]
    anchor: tuple[float, float]  # pixel of the body's origin on the ground, at final size
    scale: float  # pixels per metre at the body's distance, at final size
    supersample: int


@dataclass(frozen=True, slots=True)
class Sprite:
    """A picture `[H, W, 4]`: premultiplied colour, and the share of the background that shows through."""

    pixels: Image
    frame: tuple[float, float, float, int, int]  # pixel of the ground point (x, y), pixels per metre, width, height


def view_bins(
    azimuth: Floats, elevation: Floats, distance: Floats, height_px: Floats, slim: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """`[N, 4]` bins of views: azimuth of the camera seen from the heading, elevation, distance, size level.

    Small pictures share coarser bins, most of all those of upright bodies (`slim`): nobody sees the difference, and the
    cache stays small.
    """
    level = np.minimum(np.searchsorted(_LEVELS, height_px), len(_LEVELS) - 1)
    coarse = np.where(level <= 2, 2, 1)
    coarser = np.where(slim & (level <= 1), 4, coarse)
    a = np.rint(azimuth / (2 * math.pi) * AZIMUTHS / coarser).astype(np.intp) * coarser % AZIMUTHS
    e = np.rint(elevation / _ELEVATION_STEP / coarse).astype(np.intp) * coarse
    d = np.searchsorted(_DISTANCES, distance / 1.15)
    d = np.maximum(d, np.array([6, 6, 5, 3, 0])[level])
    return np.stack([a, np.clip(e, 0, 11), np.minimum(d, len(_DISTANCES) - 1), level], axis=1)


@dataclass(frozen=True)
class Style:
    """A model in two paints; numbered, because it is looked up for every body drawn.

    Pictures are painted in plain light and tinted when they are blended, so that all scenes share them. Only the
    night's gain is painted in: lamps must outshine it.
    """

    model: str
    palette: Palette
    night: Gain | None = None

    @functools.cached_property
    def colours(self) -> Floats:
        """`[M, 3]` by material, before shading."""
        colours = _MATERIAL_COLOURS.copy()
        colours[: len(PAINTS)] = self.palette
        if self.night is not None:
            colours[_LAMPS] *= 3.0
            if self.model in ("bus", "minibus"):
                colours[_GLASS] *= 1.8
            colours *= self.night
        return colours

    @functools.cached_property
    def number(self) -> int:
        return _STYLE_NUMBERS.setdefault((self.model, self.palette, self.night), len(_STYLE_NUMBERS))


_STYLE_NUMBERS: dict[tuple[object, ...], int] = {}
_PICTURES: dict[int, Sprite] = {}
_MOST_PICTURES = 40_000
NO_STYLE = Style("", ())


def view_codes(views: NDArray[np.intp], phases: NDArray[np.intp]) -> NDArray[np.intp]:
    """One number per view (`[N, 4]` bins) and walking phase; smaller than VIEW_CODES."""
    azimuth, elevation, distance, level = views.T
    return np.asarray((((phases * AZIMUTHS + azimuth) * 16 + elevation) * 8 + distance) * 8 + level)


VIEW_CODES = 4 * AZIMUTHS * 16 * 8 * 8


def pictures_of(styles: Sequence[Style], rows: NDArray[np.intp], codes: NDArray[np.intp]) -> list[Sprite]:
    """The painted pictures of bodies (`rows` of `styles`) in their views."""
    numbers = np.array([style.number for style in styles])
    keys = (numbers[rows] * VIEW_CODES + codes).tolist()
    return [_PICTURES.get(key) or _make(styles[rows[k]], int(codes[k]), key) for k, key in enumerate(keys)]


def _make(style: Style, code: int, key: int) -> Sprite:
    if len(_PICTURES) >= _MOST_PICTURES:
        _PICTURES.clear()
    rest, level = divmod(code, 8)
    rest, distance = divmod(rest, 8)
    rest, elevation = divmod(rest, 16)
    phase, azimuth = divmod(rest, AZIMUTHS)
    picture = _PICTURES[key] = _paint(style, _draw(style.model, phase, (azimuth, elevation, distance, level)))
    return picture


def _paint(style: Style, drawing: Drawing) -> Sprite:
    table = np.zeros((1, 256, 4), np.uint8)
    faces = table[0, 1 : len(drawing.shades) + 1]
    faces[:, :3] = np.minimum(style.colours[drawing.materials] * drawing.shades, 255.0)
    faces[:, 3] = 255
    # Four channels travel as one 32-bit word: one look-up per pixel instead of four.
    large = cv2.LUT(drawing.faces, table.view(np.int32)[:, :, 0]).view(np.uint8).reshape(*drawing.faces.shape, 4)
    size = (drawing.faces.shape[1] // drawing.supersample, drawing.faces.shape[0] // drawing.supersample)
    pixels = np.asarray(cv2.resize(large, size, interpolation=cv2.INTER_AREA), np.uint8)
    pixels[:, :, 3] ^= 255
    return Sprite(pixels, (*drawing.anchor, drawing.scale, *size))


@functools.lru_cache(maxsize=8000)
def _draw(model: str, phase: int, view: tuple[int, int, int, int]) -> Drawing:
    azimuth_bin, elevation_bin, distance_bin, level = view
    if level == 0:  # the next larger one, which is seen from as far away, shrunk to half
        large = _draw(model, phase, (azimuth_bin, elevation_bin, distance_bin, 1))
        x, y = large.anchor
        return replace(large, anchor=(x / 2, y / 2), scale=large.scale / 2, supersample=2 * large.supersample)
    fine = 3 if level < 2 else 2
    grain = 2 * fine if level == 1 else fine  # of the canvas
    shape = geometry(model, phase)
    azimuth, elevation = azimuth_bin / AZIMUTHS * 2 * math.pi, elevation_bin * _ELEVATION_STEP
    ca, sa, ce, se = math.cos(azimuth), math.sin(azimuth), math.cos(elevation), math.sin(elevation)
    towards, right, up = np.array([ca * ce, sa * ce, se]), np.array([-sa, ca, 0.0]), np.array([-ca * se, -sa * se, ce])
    distance = max(_DISTANCES[distance_bin], 0.75 * shape.reach + 1.2)  # never inside the body
    eye = towards * distance + (0.0, 0.0, 0.35 * shape.height)
    scale = _LEVELS[level] / max(shape.height, 0.5)

    relative = np.concatenate([shape.points, [(0.0, 0.0, 0.0)]]) - eye
    depth = np.maximum(-dot3(relative, towards), 0.15)
    zoom = scale * distance * fine / depth
    u, v = dot3(relative, right) * zoom, -dot3(relative, up) * zoom
    ru, rv = shape.radii[:, 0] * zoom[shape.starts], shape.radii[:, 1] * zoom[shape.starts]
    low_u = min(u[:-1].min(), (u[shape.starts] - ru).min()) - fine
    low_v = min(v[:-1].min(), (v[shape.starts] - rv).min()) - fine
    width = (int(max(u[:-1].max(), (u[shape.starts] + ru).max()) - low_u) // grain + 2) * grain
    height = (int(max(v[:-1].max(), (v[shape.starts] + rv).max()) - low_v) // grain + 2) * grain
    canvas = np.zeros((height, width), np.uint8)

    light = -0.45 * right + 0.48 * towards + (0.0, 0.0, 0.75)
    shades = shade(shape.flat, dot3(shape.normals, light))
    facing = ~shape.flat | (dot3(eye - shape.middles, shape.normals) > 0)
    far = np.add.reduceat(depth[:-1], shape.starts) / shape.counts
    visible = np.flatnonzero(facing)
    visible = visible[np.argsort(-far[visible], kind="stable")]
    fixed = np.rint(np.stack([u - low_u, v - low_v], axis=1) * 16).astype(np.int32)
    axes = np.maximum(np.rint(np.stack([ru, rv], axis=1) * 16).astype(int), 16)
    columns = (shape.starts, shape.starts + shape.counts, shape.radii[:, 0] > 0, axes)
    faces = zip(*(column[visible].tolist() for column in columns), strict=True)
    for number, (start, end, is_disc, half_axes) in enumerate(faces, start=1):
        if is_disc:
            cv2.ellipse(canvas, fixed[start].tolist(), half_axes, 0, 0, 360, number, -1, cv2.LINE_8, 4)
        else:
            cv2.fillConvexPoly(canvas, fixed[start:end], number, cv2.LINE_8, 4)
    anchor = (float(u[-1] - low_u) / fine, float(v[-1] - low_v) / fine)
    return Drawing(canvas, shape.materials[visible], shades[visible, None], anchor, float(zoom[-1]) / fine, fine)


@dataclass(frozen=True)
class Geometry:
    """A shape's faces as arrays: points of all faces after one another, and one row per face."""

    points: Floats
    starts: NDArray[np.intp]
    counts: NDArray[np.intp]
    middles: Floats
    normals: Floats
    flat: NDArray[np.bool_]  # has a front and a back
    radii: Floats
    materials: NDArray[np.intp]
    reach: float
    height: float


@functools.lru_cache(maxsize=512)
def geometry(model: str, phase: int) -> Geometry:
    faces = SHAPES[model](phase).faces
    points = np.concatenate([face.points for face in faces])
    counts = np.array([len(face.points) for face in faces])
    radii = np.array([face.radius for face in faces])
    starts = np.cumsum(counts) - counts
    return Geometry(
        points=points,
        starts=starts,
        counts=counts,
        middles=np.stack([face.points.mean(axis=0) for face in faces]),
        normals=np.stack([np.zeros(3) if face.normal is None else face.normal for face in faces]),
        flat=np.array([face.normal is not None for face in faces]),
        radii=radii,
        materials=np.array([_MATERIAL_NAMES.index(face.material) for face in faces]),
        reach=float(np.hypot(points[:, 0], points[:, 1]).max()),
        height=float(max(points[:, 2].max(), (points[starts, 2] + radii[:, 1]).max())),
    )


def shade(flat: NDArray[np.bool_], towards_light: Floats) -> Floats:
    """How bright faces are: those that turn to the light more, round ones all alike."""
    return np.where(flat, 0.62 + 0.48 * np.maximum(towards_light, 0.0), 0.95)


def height_of(model: str) -> float:
    return geometry(model, 0).height


_CLOTHES = (
    (196, 52, 48), (30, 92, 150), (236, 190, 60), (230, 226, 218), (58, 120, 80), (150, 60, 120), (240, 130, 60),
    (90, 70, 60), (60, 160, 170), (220, 110, 140), (120, 130, 60), (46, 48, 70),
)  # fmt: skip
_CAR_PAINT = (
    (226, 226, 224),
    (60, 62, 66),
    (150, 152, 156),
    (150, 30, 32),
    (36, 60, 110),
    (196, 190, 176),
    (92, 40, 36),
    (40, 92, 96),
)
_HIDES = ((214, 204, 190), (120, 84, 60), (60, 50, 46), (168, 140, 110), (190, 176, 160))
_LIVERIES = ((196, 40, 40), (36, 96, 160), (40, 130, 80), (224, 130, 30), (190, 190, 196), (110, 60, 130))


LOOKS = 6  # individuals of one kind that differ in colour


@functools.lru_cache(maxsize=4096)
def palette_of(model: str, look: int, accents: Palette) -> Palette:
    """Two paints from an individual's seed; stalls and carts take the city's accents.

    There are a few looks per model, not thousands, so that painted pictures are used again.
    """
    kind = KINDS.get(model)
    a = look % LOOKS
    b = 5 * a + 3
    if kind is None or model in ("mobile_vendor",):
        return accents[a % len(accents)], accents[b % len(accents)]
    match kind.superclass:
        case Superclass.ANIMAL:
            return _HIDES[a % len(_HIDES)], accents[b % len(accents)]
        case Superclass.LIGHT_VEHICLE:
            if model == "taxi":
                return (40, 40, 44), (240, 190, 30)
            return _CAR_PAINT[a % len(_CAR_PAINT)], _CAR_PAINT[b % len(_CAR_PAINT)]
        case Superclass.HEAVY_VEHICLE:
            return _LIVERIES[a % len(_LIVERIES)], _LIVERIES[b % len(_LIVERIES)]
        case Superclass.INTERMEDIATE:
            if model == "auto_rickshaw":
                return ((40, 120, 62), (34, 34, 38), (236, 186, 36))[a % 3], _CLOTHES[b % len(_CLOTHES)]
            return _LIVERIES[a % len(_LIVERIES)], _CLOTHES[b % len(_CLOTHES)]
        case Superclass.TWO_WHEELER:
            return _CAR_PAINT[a % len(_CAR_PAINT)], _CLOTHES[b % len(_CLOTHES)]
        case _:
            return _CLOTHES[a % len(_CLOTHES)], _CLOTHES[(b + a) % len(_CLOTHES)]
