"""Painted surfaces: carriageway, house fronts, sky. Drawn once per street, then only warped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from .cities import RGB
from .settings import Illumination, Weather
from .street import Building, Street

Image = NDArray[np.uint8]
Colour = tuple[float, ...]
GROUND_SCALE = 8.0  # texture pixels per metre of ground
WALL_SCALE = 12.0  # and of wall
_GOODS = 10  # on display in a shop


@dataclass(frozen=True)
class Light:
    """How a scene is lit: gain per channel, colour of the air, how fast it hides things, sun for shadows."""

    gain: NDArray[np.float32]
    air: NDArray[np.float32]
    fog: float  # per metre
    zenith: NDArray[np.float32]
    shadow: float
    sun: tuple[float, float]  # ground direction of shadows times their length per metre of height
    night: bool


def light_of(street: Street, illumination: Illumination, weather: Weather, rng: np.random.Generator) -> Light:
    looks: dict[Illumination, tuple[Colour, Colour, Colour, float]] = {
        "day": ((1.0, 0.99, 0.96), (214, 220, 226), (120, 164, 214), 0.42),
        "dusk": ((0.86, 0.70, 0.60), (232, 168, 128), (104, 96, 142), 0.25),
        "night": ((0.50, 0.50, 0.60), (50, 50, 70), (18, 20, 40), 0.12),
    }
    gain, air, zenith = (np.array(colour, np.float32) for colour in looks[illumination][:3])
    shadow, fog = looks[illumination][3], 0.004 + 0.010 * street.city.haze
    if weather == "rain":
        gain, air, zenith, shadow, fog = gain * 0.82, air * 0.78, air * 0.6, 0.10, fog + 0.012
    elif weather == "haze":
        zenith, shadow, fog = 0.35 * zenith + 0.65 * air, 0.5 * shadow, fog + 0.028
    angle, length = float(rng.uniform(0, 2 * np.pi)), float(rng.uniform(0.35, 0.8))
    sun = (length * float(np.cos(angle)), length * float(np.sin(angle)))
    return Light(gain, air, fog, zenith, shadow, sun, illumination == "night")


def noise(shape: tuple[int, int], octaves: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    """Smooth noise in about [-1, 1] that tiles: blurred grids at several scales."""
    out: NDArray[np.float32] | None = None
    for cells in octaves:
        size = (max(2, shape[0] * cells // max(shape)), max(2, shape[1] * cells // max(shape)))
        grid = rng.uniform(-1, 1, size=size).astype(np.float32) / np.float32(len(octaves))
        layer = np.asarray(cv2.resize(grid, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR), np.float32)
        out = layer if out is None else np.add(out, layer, out=out)
    assert out is not None
    return out


def ground_texture(street: Street, weather: Weather, light: Light, rng: np.random.Generator) -> Image:
    """The whole ring from above, lit, at GROUND_SCALE: x to the right, y = 0 in the middle row."""
    width = round(street.extent[0] * GROUND_SCALE)
    height = round((street.extent[1] if street.junction is not None else 32.0) * GROUND_SCALE)
    middle, scale = height / 2, GROUND_SCALE
    road, earth = np.array(street.city.road, np.float32), np.array(street.city.earth, np.float32)
    image = _filled((height, width), earth * np.float32(0.85))
    rows = (np.arange(height) - middle) / scale
    whole_row = np.ones((width, 1), np.float32)  # filling row by row is several times as fast as pixel by pixel
    image[np.abs(rows) < street.half_way] = whole_row * earth
    image[np.abs(rows) < street.half_road] = whole_row * road
    if street.family.water:
        image[rows < -street.half_way - 0.1] = whole_row * np.array((96, 132, 146), np.float32)
    if street.junction is not None:
        columns = np.arange(width) / scale - street.junction
        image[:, np.abs(columns) < street.half_way] = earth
        image[:, np.abs(columns) < street.half_road] = road
        image[np.abs(rows) < street.half_road] = whole_row * road
    _paving(image, rows, street)
    shade = noise((height, width), (90, 400), rng)
    shade *= np.float32(0.07)
    shade += 1
    if street.disorder > 0.3:  # soft boundaries: dust and broken edges eat into the carriageway
        for kerb in (-street.half_road, street.half_road):
            low, high = (max(0, round(middle + (kerb + side) * scale)) for side in (-0.9, 0.9))
            ragged = np.clip(1.3 * noise((high - low, width), (48, 120), rng), 0, 0.8)
            image[low:high] += _shaded(_filled((high - low, width), earth) - image[low:high], ragged)
        for octaves, least, depth in (((14, 30), 0.42, 0.14), ((70, 160), 0.55, 0.20)):  # patches; potholes, stains
            dark = cv2.threshold(noise((height, width), octaves, rng), least, depth, cv2.THRESH_BINARY)[1]
            shade *= 1 - dark
    image = _shaded(image, shade)
    _markings(image, street)
    if weather == "rain":
        puddles = np.clip(noise((height, width), (20, 60), rng) * 2.2 - 0.25, 0, 1)
        image = _shaded(image, 0.72 - 0.15 * puddles)
        image += cv2.merge([puddles * np.float32(tone) for tone in (70, 78, 88)])
    if light.night:  # pools of lamp light
        pools = np.zeros((height, width), np.float32)
        for x in range(0, int(street.extent[0]), 14):
            for sign in (1, -1):
                centre = (round((x + 4) * scale), round(middle + sign * street.half_road * scale))
                cv2.circle(pools, centre, round(4.5 * scale), 1.0, -1)
        soft = cv2.blur(cv2.blur(pools, (61, 61)), (61, 61))
        image = _shaded(image, *(1 + soft * np.float32(warm) for warm in (1.5, 1.15, 0.7)))
    return _lit(image, light)


def _filled(shape: tuple[int, int], colour: NDArray[np.float32]) -> NDArray[np.float32]:
    image = np.empty((*shape, 3), np.float32)
    image[:] = np.tile(colour, (shape[1], 1))
    return image


def _shaded(image: NDArray[np.float32], *shades: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Image times one map, or one per channel: merged planes are far faster than broadcasting over the last axis."""
    planes = [shade.astype(np.float32, copy=False) for shade in shades]
    return np.asarray(cv2.multiply(image, cv2.merge(planes * (3 // len(planes)))), np.float32)


def _lit(image: NDArray[np.float32], light: Light) -> Image:
    return np.asarray(cv2.convertScaleAbs(cv2.transform(image, np.diag(light.gain))), np.uint8)


def _paving(image: NDArray[np.float32], rows: NDArray[np.floating[Any]], street: Street) -> None:
    """Kerbs and slabs of the footpaths."""
    scale = GROUND_SCALE
    path = (np.abs(rows) > street.half_road) & (np.abs(rows) < street.half_way)
    columns = np.arange(image.shape[1])
    mouth = np.zeros(image.shape[1], bool)
    if street.junction is not None:
        mouth = np.abs(columns / scale - street.junction) < street.half_road
    image[np.ix_(path, (columns % round(1.2 * scale) == 0) & ~mouth)] *= 0.86
    kerb = np.abs(np.abs(rows) - street.half_road) < 0.12
    striped = street.regime == "sparse" or street.scene_type in ("flyover", "junction")
    light, dark = (
        (np.array((226, 222, 210)), np.array((60, 58, 58)))
        if striped
        else (np.array((176, 170, 160)), np.array((150, 144, 134)))
    )
    block = (columns // round(1.0 * scale)) % 2 == 0
    for shade, which in ((light, block), (dark, ~block)):
        image[np.ix_(kerb, which & ~mouth)] = shade


def _markings(image: NDArray[np.float32], street: Street) -> None:
    """Lane lines and zebra crossings: crisp where rules are kept, worn where they are not."""
    scale, middle = GROUND_SCALE, image.shape[0] / 2
    worn = 0.75 - 0.6 * street.disorder
    white = np.array((232, 230, 222), np.float32)

    def paint(y0: float, y1: float, x0: float, x1: float) -> None:
        a, b = sorted((round(middle + y0 * scale), round(middle + y1 * scale)))
        c, d = max(0, round(x0 * scale)), round(x1 * scale)
        patch = image[max(0, a) : b, c:d]
        patch += worn * (white - patch)

    if street.family.flyover:
        image[round(middle - 0.8 * scale) : round(middle + 0.8 * scale)] = (150, 146, 138)
    lanes = max(1, int(street.half_road // 3.0))
    for lane in range(lanes):
        offset = lane * street.half_road / lanes
        for x in np.arange(0.0, street.extent[0], 4.0):
            if street.junction is not None and abs(x + 1 - street.junction) < street.half_way + 1:
                continue
            for sign in (1,) if lane == 0 else (1, -1):
                length = 4.0 if lane == 0 and street.disorder < 0.3 else 2.0
                paint(sign * offset - 0.07, sign * offset + 0.07, float(x), float(x) + length)
    if street.junction is not None:
        for side in (-1, 1):
            x = street.junction + side * (street.half_way + 0.6)
            for y in np.arange(-street.half_road + 0.3, street.half_road - 0.3, 1.0):
                paint(float(y), float(y) + 0.5, x - 1.1, x + 1.1)


def wall_texture(street: Street, building: Building, light: Light) -> Image:
    """One house front, `[height, width, 3]` at WALL_SCALE, first row at the roof."""
    rng = np.random.Generator(np.random.PCG64([street.look, building.look]))
    city, scale = street.city, WALL_SCALE
    span = max(abs(building.x1 - building.x0), abs(building.y1 - building.y0))
    width, height = max(8, round(span * scale)), max(8, round(building.height * scale))
    paint = np.array(city.walls[int(rng.integers(len(city.walls)))], np.float32)
    image = _filled((height, width), paint * np.float32(rng.uniform(0.9, 1.06)))
    stains = noise((height, width), (12, 60), rng)
    stains *= np.float32(0.05)
    stains += 1
    image[: max(1, round(0.25 * scale))] = np.array(city.trim)  # parapet
    ground_floor = round(3.2 * scale)
    storeys = max(0, round((building.height - 3.6) / 3.1))
    # Lit rooms are painted over-bright, so that they stay bright when the night's gain is applied.
    glow = tuple(float(c) for c in np.array((250, 214, 140)) / light.gain) if light.night else None
    for storey in range(storeys):
        top = round(height - ground_floor - (storey + 1) * 3.1 * scale)
        _storey(image, top, city.trim, building, rng, glow, city.balconies)
    if building.shop:
        _shops(image, ground_floor, city.accents, rng, glow)
    else:
        _entrance(image, ground_floor, city.trim, building.arched, rng)
    grime = np.linspace(0.0, 1.0, height, dtype=np.float32)[:, None] ** 4
    stains *= 1 - np.float32(0.22) * grime
    return np.asarray(cv2.convertScaleAbs(_shaded(image, *(stains * gain for gain in light.gain))), np.uint8)


def _storey(
    image: NDArray[np.float32],
    top: int,
    trim: RGB,
    building: Building,
    rng: np.random.Generator,
    glow: Colour | None,
    balconies: float,
) -> None:
    scale, width = WALL_SCALE, image.shape[1]
    count = max(1, round(width / scale / 2.3))
    pitch = width / count
    has_balcony = rng.random() < balconies
    for k in range(count):
        x0, x1 = round((k + 0.27) * pitch), round((k + 0.73) * pitch)
        y0, y1 = top + round(0.7 * scale), top + round(2.2 * scale)
        glass = (58, 66, 76) if glow is None or rng.random() < 0.55 else glow
        cv2.rectangle(image, (x0 - 2, y0 - 2), (x1 + 2, y1 + 2), trim, -1)
        cv2.rectangle(image, (x0, y0), (x1, y1), glass, -1)
        if building.arched:
            cv2.ellipse(image, ((x0 + x1) // 2, y0), ((x1 - x0) // 2 + 2, round(0.5 * scale)), 0, 180, 360, trim, -1)
            cv2.ellipse(image, ((x0 + x1) // 2, y0), ((x1 - x0) // 2, round(0.4 * scale)), 0, 180, 360, glass, -1)
        elif rng.random() < 0.25:  # air conditioner under the window
            cv2.rectangle(image, (x0, y1 + 3), (x0 + round(0.8 * scale), y1 + round(0.55 * scale)), (208, 206, 200), -1)
        elif rng.random() < 0.2:  # washing on a line
            colour = rng.integers(60, 240, size=3).tolist()
            cv2.rectangle(image, (x0, y1), (x0 + round(0.5 * scale), y1 + round(0.7 * scale)), colour, -1)
    if has_balcony:
        y = top + round(2.35 * scale)
        cv2.rectangle(image, (2, y), (width - 3, y + round(0.12 * scale)), tuple(0.7 * c for c in trim), -1)
        for x in range(4, width - 4, max(3, round(0.35 * scale))):
            cv2.line(image, (x, y - round(0.7 * scale)), (x, y), trim, 1)
        cv2.line(image, (2, y - round(0.7 * scale)), (width - 3, y - round(0.7 * scale)), trim, 1)


def _shops(
    image: NDArray[np.float32], floor: int, accents: tuple[RGB, ...], rng: np.random.Generator, glow: Colour | None
) -> None:
    """Open shutters, dark interiors, awnings and signboards with unreadable lettering."""
    scale, (height, width) = WALL_SCALE, image.shape[:2]
    count = max(1, round(width / scale / 3.6))
    pitch = width / count
    for k in range(count):
        x0, x1 = round(k * pitch + 3), round((k + 1) * pitch - 3)
        top = height - floor
        sign = accents[int(rng.integers(len(accents)))]
        inside: Colour = glow or (70, 62, 56)
        if rng.random() < 0.2:
            inside = (128, 130, 132)  # shutter down
        cv2.rectangle(image, (x0, top + round(0.9 * scale)), (x1, height - 1), inside, -1)
        goods = zip(
            rng.integers(x0, max(x0 + 1, x1 - 6), size=_GOODS).tolist(),
            rng.integers(top + round(1.1 * scale), height - 4, size=_GOODS).tolist(),
            rng.integers(3, (9, 8), size=(_GOODS, 2)).tolist(),
            rng.integers(50, 230, size=(_GOODS, 3)).tolist(),
            strict=True,
        )
        for gx, gy, (wide, high), colour in goods:
            cv2.rectangle(image, (gx, gy), (min(x1, gx + wide), gy + high), colour, -1)
        cv2.rectangle(image, (x0 - 2, top), (x1 + 2, top + round(0.75 * scale)), sign, -1)
        ink = (245, 240, 225) if sum(sign) < 420 else (60, 30, 30)
        x = x0 + 4
        for stroke, gap in rng.integers(
            2, (6, 5), size=(max(0, x1 - x0) // 4, 2)
        ).tolist():  # more than there is room for
            if x >= x1 - 6:
                break
            cv2.rectangle(image, (x, top + 4), (x + stroke, top + round(0.75 * scale) - 4), ink, -1)
            x += stroke + gap
        awning = accents[int(rng.integers(len(accents)))]
        for stripe in range(x0, x1, 8):
            colour = awning if (stripe // 8) % 2 else (232, 228, 220)
            cv2.rectangle(
                image, (stripe, top + round(0.8 * scale)), (min(stripe + 8, x1), top + round(1.15 * scale)), colour, -1
            )


def _entrance(image: NDArray[np.float32], floor: int, trim: RGB, arched: bool, rng: np.random.Generator) -> None:
    scale, (height, width) = WALL_SCALE, image.shape[:2]
    count = max(1, round(width / scale / 2.8))
    pitch = width / count
    door = int(rng.integers(count))
    for k in range(count):
        x0, x1 = round((k + 0.22) * pitch), round((k + 0.78) * pitch)
        top = height - floor + round((0.7 if k == door else 0.9) * scale)
        bottom = height - 1 if k == door or arched else height - round(0.9 * scale)
        inside = tuple(0.55 * c for c in trim) if k == door else (64, 68, 74)
        cv2.rectangle(image, (x0 - 3, top - 3), (x1 + 3, bottom), trim, -1)
        cv2.rectangle(image, (x0, top), (x1, bottom), inside, -1)
        if arched:
            cv2.ellipse(image, ((x0 + x1) // 2, top), ((x1 - x0) // 2 + 3, round(0.6 * scale)), 0, 180, 360, trim, -1)
            cv2.ellipse(image, ((x0 + x1) // 2, top), ((x1 - x0) // 2, round(0.5 * scale)), 0, 180, 360, inside, -1)


def sky_panorama(street: Street, light: Light, rng: np.random.Generator) -> Image:
    """360° of sky and distant roofs, `[120, 720, 3]`: two pixels per degree, horizon at row 90."""
    height, width, horizon = 120, 720, 90
    rows = np.clip((horizon - np.arange(height)) / horizon, 0, 1).astype(np.float32)[:, None] ** np.float32(0.7)
    clouds = 0.35 * np.clip(noise((height, width), (10, 24, 60), rng) * 1.4, 0, 1) * rows
    # From the air at the horizon to the zenith, and where clouds are back to the air.
    share = rows * (1 - clouds)
    image = cv2.merge([air + share * (top - air) for air, top in zip(light.air, light.zenith, strict=True)])
    shade = 0.62 * light.air + 0.38 * np.asarray(street.city.walls[0], np.float32) * light.gain
    x = 0
    while x < width:
        span, rise = int(rng.integers(8, 26)), int(rng.integers(3, 14))
        tone = shade * float(rng.uniform(0.86, 1.02))
        image[horizon - rise :, x : x + span] = tone
        if rng.random() < 0.12 + 0.5 * street.city.arches:
            cv2.circle(image, (x + span // 2, horizon - rise), span // 4, tuple(map(float, tone)), -1)
        if light.night:
            for _ in range(4):
                px, py = min(width - 1, x + int(rng.integers(span))), horizon - int(rng.integers(rise))
                image[py, px] = (220, 190, 120)
        x += span
    image[horizon + 2 :] = light.air * 0.9
    return np.asarray(np.clip(image, 0, 255), np.uint8)
