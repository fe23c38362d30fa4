"""Pictures of bodies: drawn once per view, painted per individual, kept in a cache.

A view of a shape (azimuth, elevation, distance and walking phase, each in bins) is rasterised as a map of face numbers.
A palette turns that map into colour, so that a hundred scooters share one drawing. Discs and polygons are drawn far to
near; edges are smoothed by drawing at two to four times the size.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from . import bodies, furniture  # noqa: F401  (they register their shapes)
from .shapes import MATERIALS, PAINTS, SHAPES, Face
from .taxonomy import KINDS, Superclass

AZIMUTHS = 32
_FIXED_POINT, _OPAQUE = 64, 65535  # scales of colour and opacity in 16 bits
_ELEVATION_STEP = math.radians(8)
_LEVELS = (12, 24, 48, 96, 192, 384)  # heights in pixels that are drawn; the next larger one is shrunk to fit
_DISTANCES = (3.0, 4.0, 5.5, 7.5, 11.0, 18.0, 40.0)  # m at which perspective inside a body is drawn


@dataclass(frozen=True)
class Drawing:
    """One view of a shape: face numbers `[H, W]` (0: nothing), and where the ground point lies."""

    faces: NDArray[np.uint8]
    materials: tuple[str, ...]
    shades: NDArray[np.float32]
    anchor: tuple[float, float]  # pixel of the body's origin on the ground, at final size
    scale: float  # pixels per metre at the body's distance, at final size
    supersample: int


@dataclass(frozen=True)
class Sprite:
    """Premultiplied colour and opacity `[H, W, 4]` float32, colours 0-255."""

    pixels: NDArray[np.float32]
    anchor: tuple[float, float]
    scale: float


def view_key(azimuth: float, elevation: float, distance: float, height_px: float) -> tuple[int, int, int, int]:
    """Bins of a view: azimuth of the camera seen from the body's heading, elevation, distance, size level."""
    a = round(azimuth / (2 * math.pi) * AZIMUTHS) % AZIMUTHS
    e = min(11, max(0, round(elevation / _ELEVATION_STEP)))
    d = next((k for k, limit in enumerate(_DISTANCES) if distance < limit * 1.15), len(_DISTANCES) - 1)
    level = next((k for k, limit in enumerate(_LEVELS) if height_px <= limit), len(_LEVELS) - 1)
    return a, e, d, level


@functools.lru_cache(maxsize=6000)
def sprite(model: str, phase: int, view: tuple[int, int, int, int], palette: tuple[tuple[int, int, int], ...], night: bool) -> Sprite:
    """The painted picture of a body."""
    drawing = _draw(model, phase, view)
    table = np.zeros((256, 4), np.uint16)
    for number, (material, shade) in enumerate(zip(drawing.materials, drawing.shades, strict=True), start=1):
        colour = palette[PAINTS.index(material)] if material in PAINTS else MATERIALS[material]
        if night and material in ("light", "tail"):
            shade = np.float32(3.0)  # lamps shine: they must survive the darkening of the scene
        elif night and material == "glass" and model in ("bus", "minibus"):
            shade = np.float32(1.8)
        table[number, :3] = np.asarray(colour) * (shade * _FIXED_POINT)
        table[number, 3] = _OPAQUE
    # Four 16-bit channels travel as one 64-bit word: one look-up per pixel instead of four.
    large = np.take(table.view(np.uint64)[:, 0], drawing.faces).view(np.uint16).reshape(*drawing.faces.shape, 4)
    size = (drawing.faces.shape[1] // drawing.supersample, drawing.faces.shape[0] // drawing.supersample)
    pixels = cv2.resize(large, size, interpolation=cv2.INTER_AREA).astype(np.float32)
    pixels *= np.array([1 / _FIXED_POINT] * 3 + [1 / _OPAQUE], np.float32)
    return Sprite(pixels, drawing.anchor, drawing.scale)


@functools.lru_cache(maxsize=3000)
def _draw(model: str, phase: int, view: tuple[int, int, int, int]) -> Drawing:
    azimuth_bin, elevation_bin, distance_bin, level = view
    fine = 4 if level < 2 else 3 if level < 4 else 2
    faces, points, starts, reach, tall = _geometry(model, phase)
    azimuth = azimuth_bin / AZIMUTHS * 2 * math.pi
    elevation = elevation_bin * _ELEVATION_STEP
    distance = max(_DISTANCES[distance_bin], 0.75 * reach + 1.2)  # never inside the body
    towards = np.array([math.cos(azimuth) * math.cos(elevation), math.sin(azimuth) * math.cos(elevation), math.sin(elevation)])
    right = np.array([-math.sin(azimuth), math.cos(azimuth), 0.0])
    up = np.cross(towards, right)
    eye = towards * distance + np.array([0.0, 0.0, 0.35 * tall])
    relative = points - eye
    depth = np.maximum(-(relative @ towards), 0.15)
    scale = _LEVELS[level] / max(tall, 0.5)
    zoom = scale * distance * fine / depth
    u, v = (relative @ right) * zoom, -(relative @ up) * zoom
    radii = np.array([face.radius for face in faces])
    disc = radii[:, 0] > 0
    ru, rv = radii[:, 0] * zoom[starts[:-1]], radii[:, 1] * zoom[starts[:-1]]
    low_u = min(u.min(), (u[starts[:-1]] - ru)[disc].min(initial=np.inf))
    high_u = max(u.max(), (u[starts[:-1]] + ru)[disc].max(initial=-np.inf))
    low_v = min(v.min(), (v[starts[:-1]] - rv)[disc].min(initial=np.inf))
    high_v = max(v.max(), (v[starts[:-1]] + rv)[disc].max(initial=-np.inf))
    margin = fine
    width = (int(high_u - low_u) // fine + 3) * fine
    height = (int(high_v - low_v) // fine + 3) * fine
    canvas = np.zeros((height, width), np.uint8)
    u, v = u - low_u + margin, v - low_v + margin

    mean_depth = np.add.reduceat(depth, starts[:-1]) / np.diff(starts)
    light = -0.45 * right + 0.75 * np.array([0.0, 0.0, 1.0]) + 0.48 * towards
    materials: list[str] = []
    shades: list[float] = []
    for index in np.argsort(-mean_depth, kind="stable"):
        face: Face = faces[index]
        a, b = starts[index], starts[index + 1]
        if face.normal is not None:
            middle = points[a:b].mean(axis=0)
            if float(face.normal @ (eye - middle)) <= 0:
                continue
            shade = 0.62 + 0.48 * max(0.0, float(face.normal @ light))
        else:
            shade = 0.95
        materials.append(face.material)
        shades.append(shade)
        number = len(materials)
        if face.radius[0] > 0:
            centre = (round(float(u[a]) * 16), round(float(v[a]) * 16))
            axes = (max(16, round(float(ru[index]) * 16)), max(16, round(float(rv[index]) * 16)))
            cv2.ellipse(canvas, centre, axes, 0, 0, 360, number, -1, cv2.LINE_8, 4)
        else:
            polygon = np.rint(np.stack([u[a:b], v[a:b]], axis=1) * 16).astype(np.int32)
            cv2.fillConvexPoly(canvas, polygon, number, cv2.LINE_8, 4)
    origin = -eye
    origin_zoom = scale * distance * fine / max(0.15, -(origin @ towards))
    anchor = (
        (float(origin @ right) * origin_zoom - low_u + margin) / fine,
        (-float(origin @ up) * origin_zoom - low_v + margin) / fine,
    )
    return Drawing(canvas, tuple(materials), np.array(shades, np.float32), anchor, origin_zoom / fine, fine)


@functools.lru_cache(maxsize=512)
def _geometry(model: str, phase: int) -> tuple[list[Face], NDArray[np.float64], NDArray[np.intp], float, float]:
    """Faces, their points in one array with offsets, horizontal reach and height of the shape."""
    faces = SHAPES[model](phase).faces
    points = np.concatenate([face.points for face in faces])
    starts = np.concatenate([[0], np.cumsum([len(face.points) for face in faces])])
    tops = [float(face.points[:, 2].max()) + face.radius[1] for face in faces]
    reach = float(np.hypot(points[:, 0], points[:, 1]).max())
    return faces, points, starts, reach, max(tops)


def height_of(model: str) -> float:
    return _geometry(model, 0)[4]


_CLOTHES = (
    (196, 52, 48), (30, 92, 150), (236, 190, 60), (230, 226, 218), (58, 120, 80), (150, 60, 120), (240, 130, 60),
    (90, 70, 60), (60, 160, 170), (220, 110, 140), (120, 130, 60), (46, 48, 70),
)  # fmt: skip
_CAR_PAINT = ((226, 226, 224), (60, 62, 66), (150, 152, 156), (150, 30, 32), (36, 60, 110), (196, 190, 176), (92, 40, 36), (40, 92, 96))
_HIDES = ((214, 204, 190), (120, 84, 60), (60, 50, 46), (168, 140, 110), (190, 176, 160))
_LIVERIES = ((196, 40, 40), (36, 96, 160), (40, 130, 80), (224, 130, 30), (190, 190, 196), (110, 60, 130))


@functools.lru_cache(maxsize=4096)
def palette_of(model: str, look: int, accents: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    """Two paints from an individual's seed; stalls and autos take the city's accents."""
    kind = KINDS.get(model)
    a, b = look % 9973, (look // 9973) % 9967
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
