"""What each kind of agent looks like."""

from __future__ import annotations

import numpy as np

from .shapes import Body, Face, shape


@shape("pedestrian")
def pedestrian(phase: int) -> Body:
    return Body().walker(phase)


@shape("sari_pedestrian")
def sari_pedestrian(phase: int) -> Body:
    """The same walker in a long drape; drawn for every third pedestrian."""
    body = Body().walker(phase, coat="paint2", legs="paint")
    body.prism([(-0.20, 0.06), (0.20, 0.06), (0.13, 0.95), (-0.13, 0.95)], 0.0, 0.44, "paint")
    body.panel([(-0.16, 0.23, 0.75), (0.14, 0.23, 0.75), (0.10, -0.20, 1.45), (-0.12, -0.20, 1.45)], "paint")
    return body


@shape("schoolchild")
def schoolchild(phase: int) -> Body:
    body = Body().walker(phase, scale=0.75, coat="white", legs="paint")
    return body.box(-0.17, 0.0, 0.62, 0.16, 0.30, 0.42, "paint2")


@shape("porter")
def porter(phase: int) -> Body:
    body = Body().walker(phase, coat="paint", legs="canvas")
    return body.box(0.0, 0.0, 1.70, 0.50, 0.60, 0.34, "cargo", "canvas")


def _cycle(body: Body, wheel: float = 0.33, base: float = 0.52) -> Body:
    body.wheel(base, 0.0, wheel, 0.05).wheel(-base, 0.0, wheel, 0.05)
    body.prism([(-0.50, 0.36), (0.10, 0.30), (0.45, 0.70), (-0.15, 0.78)], 0.0, 0.06, "paint")
    return body.box(0.42, 0.0, 0.92, 0.06, 0.48, 0.05, "metal")


@shape("bicycle")
def bicycle(phase: int) -> Body:
    return _cycle(Body()).rider(-0.12, 0.88, 0.16)


@shape("parked_bicycle")
def parked_bicycle(phase: int) -> Body:
    return _cycle(Body())


@shape("cargo_bicycle")
def cargo_bicycle(phase: int) -> Body:
    body = _cycle(Body(), base=0.62).rider(0.0, 0.88, 0.14)
    for side in (0.3, -0.3):
        body.box(-0.62, side, 0.45, 0.5, 0.22, 0.50, "metal", "white")
    return body


def _two_wheeler(body: Body, step_through: bool) -> Body:
    radius = 0.24 if step_through else 0.31
    body.wheel(0.66, 0.0, radius, 0.12).wheel(-0.62, 0.0, radius, 0.14)
    if step_through:
        body.prism([(0.42, 0.22), (0.62, 0.30), (0.52, 0.98), (0.42, 0.98)], 0.0, 0.36, "paint")
        body.prism([(-0.82, 0.32), (-0.02, 0.26), (-0.05, 0.70), (-0.78, 0.72)], 0.0, 0.34, "paint", "dark")
    else:
        body.prism([(-0.60, 0.30), (0.35, 0.28), (0.40, 0.66), (-0.55, 0.62)], 0.0, 0.26, "dark")
        body.prism([(0.00, 0.62), (0.42, 0.66), (0.36, 0.92), (0.02, 0.86)], 0.0, 0.28, "paint")
        body.prism([(-0.75, 0.66), (0.00, 0.66), (0.00, 0.80), (-0.78, 0.82)], 0.0, 0.26, "dark")
    body.box(0.48, 0.0, 0.98, 0.06, 0.62, 0.06, "metal")
    body.disc(0.66, 0.0, 0.86, 0.09, 0.09, "light").end_panel(-0.84, -1.0, -0.09, 0.09, 0.58, 0.68, "tail")
    return body.end_panel(-0.86, -1.0, -0.10, 0.10, 0.42, 0.54, "plate")


@shape("motorcycle")
def motorcycle(phase: int) -> Body:
    return _two_wheeler(Body(), False).rider(-0.15, 0.80)


@shape("scooter")
def scooter(phase: int) -> Body:
    return _two_wheeler(Body(), True).rider(-0.18, 0.74, 0.04)


@shape("parked_motorcycle")
def parked_motorcycle(phase: int) -> Body:
    return _two_wheeler(Body(), False)


@shape("parked_scooter")
def parked_scooter(phase: int) -> Body:
    return _two_wheeler(Body(), True)


@shape("multi_rider_two_wheeler")
def multi_rider(phase: int) -> Body:
    body = _two_wheeler(Body(), False).rider(-0.62, 0.84, 0.02, "paint")
    return body.rider(-0.28, 0.82, 0.04, "white").rider(0.06, 0.80, 0.08)


@shape("delivery_rider")
def delivery_rider(phase: int) -> Body:
    body = _two_wheeler(Body(), True).rider(0.0, 0.76, 0.06, "paint")
    return body.box(-0.58, 0.0, 0.80, 0.46, 0.50, 0.52, "paint", "dark")


def _car(
    length: float, width: float, height: float, cabin: tuple[float, float, float, float], roof: str = "paint"
) -> Body:
    """`cabin`: x of rear base, rear roof, front roof, front base as shares of the half length."""
    body, half, waist = Body(), length / 2, 0.58 * height
    for x in (0.62 * half, -0.62 * half):
        for y in (width / 2 - 0.09, -width / 2 + 0.09):
            body.wheel(x, y, 0.30, 0.18)
    body.prism(
        [
            (-half, 0.24),
            (half, 0.22),
            (half, 0.50 * height),
            (0.55 * half, waist),
            (-0.80 * half, waist),
            (-half, 0.54 * height),
        ],
        0.0,
        width,
        "paint",
    )
    rear_base, rear_roof, front_roof, front_base = (share * half for share in cabin)
    body.prism(
        [(rear_base, waist), (front_base, waist), (front_roof, height), (rear_roof, height)],
        0.0,
        width * 0.9,
        "glass",
        roof,
    )
    for x in (rear_roof, (rear_roof + front_roof) / 2, front_roof):  # door posts
        body.side_panels(x - 0.05, x + 0.05, waist, height, width * 0.45 + 0.004, roof)
    for y in (0.68, -0.98):
        y0, y1 = y * width / 2, (y + 0.3) * width / 2
        body.end_panel(half + 0.003, 1.0, y0, y1, 0.36 * height, 0.46 * height, "light")
        body.end_panel(-half - 0.003, -1.0, y0, y1, 0.40 * height, 0.50 * height, "tail")
    body.end_panel(half + 0.003, 1.0, -0.35, 0.35, 0.28, 0.36 * height, "dark")
    for facing in (1.0, -1.0):
        body.end_panel(facing * (half + 0.006), facing, -0.26, 0.26, 0.30, 0.42, "plate")
    return body


@shape("hatchback")
def hatchback(phase: int) -> Body:
    return _car(3.7, 1.65, 1.50, (-0.92, -0.70, 0.18, 0.55))


@shape("sedan")
def sedan(phase: int) -> Body:
    return _car(4.4, 1.75, 1.48, (-0.66, -0.42, 0.16, 0.50))


@shape("suv")
def suv(phase: int) -> Body:
    return _car(4.5, 1.85, 1.80, (-0.96, -0.88, 0.25, 0.50))


@shape("taxi")
def taxi(phase: int) -> Body:
    body = _car(3.95, 1.68, 1.52, (-0.85, -0.62, 0.18, 0.52), roof="yellow")
    return body.box(-0.2, 0.0, 1.52, 0.25, 0.5, 0.14, "white")


def _coach(length: float, width: float, height: float, floor: float = 0.40) -> Body:
    body, half = Body(), length / 2
    for x in (0.62 * half, -0.58 * half):
        for y in (width / 2 - 0.12, -width / 2 + 0.12):
            body.wheel(x, y, 0.45, 0.24)
    body.prism(
        [(-half, floor), (half, floor), (half, 0.62 * height), (half - 0.12, height), (-half, height)],
        0.0,
        width,
        "paint",
        "white",
    )
    body.side_panels(-half, half, 0.30 * height, 0.40 * height, width / 2 + 0.004, "paint2")
    windows = max(3, round(length / 1.35))
    pitch = (length - 0.6) / windows
    for k in range(windows):
        x0 = -half + 0.3 + k * pitch
        body.side_panels(x0 + 0.08, x0 + pitch - 0.08, 0.52 * height, 0.82 * height, width / 2 + 0.004, "glass")
    body.end_panel(half + 0.003, 1.0, -0.45 * width, 0.45 * width, 0.46 * height, 0.86 * height, "glass")
    body.end_panel(-half - 0.003, -1.0, -0.40 * width, 0.40 * width, 0.55 * height, 0.82 * height, "glass")
    body.end_panel(half + 0.004, 1.0, -0.30 * width, 0.30 * width, 0.88 * height, 0.97 * height, "yellow")
    for y in (0.30, -0.44):
        body.end_panel(half + 0.004, 1.0, y * width, (y + 0.14) * width, 0.22 * height, 0.30 * height, "light")
        body.end_panel(-half - 0.004, -1.0, y * width, (y + 0.14) * width, 0.22 * height, 0.34 * height, "tail")
    for facing in (1.0, -1.0):
        body.end_panel(facing * (half + 0.006), facing, -0.3, 0.3, 0.46, 0.62, "plate")
    return body


@shape("bus")
def bus(phase: int) -> Body:
    return _coach(9.5, 2.5, 3.1)


@shape("minibus")
def minibus(phase: int) -> Body:
    return _coach(6.2, 2.1, 2.6)


def _lorry(length: float, width: float, height: float, cab: float, load: float) -> Body:
    body, half = Body(), length / 2
    for x in (half - 0.28 * cab - 0.45, -0.60 * half):
        for y in (width / 2 - 0.12, -width / 2 + 0.12):
            body.wheel(x, y, 0.14 * height, 0.22)
    bed = 0.30 * height
    body.box(-cab / 2, 0.0, bed, length - cab, width, load - bed, "paint2", "cargo")
    for k in range(4):
        x = -half + 0.2 + k * (length - cab - 0.4) / 3
        body.side_panels(x - 0.05, x + 0.05, bed, load, width / 2 + 0.004, "dark")
    body.prism(
        [
            (half - cab, 0.16 * height),
            (half, 0.16 * height),
            (half, 0.55 * height),
            (half - 0.25, 0.86 * height),
            (half - cab, 0.86 * height),
        ],
        0.0,
        width * 0.95,
        "paint",
    )
    body.end_panel(half + 0.003, 1.0, -0.42 * width, 0.42 * width, 0.52 * height, 0.78 * height, "glass")
    body.side_panels(half - 0.75 * cab, half - 0.25, 0.52 * height, 0.76 * height, width * 0.475 + 0.004, "glass")
    for y in (0.30, -0.44):
        body.end_panel(half + 0.004, 1.0, y * width, (y + 0.14) * width, 0.26 * height, 0.34 * height, "light")
        body.end_panel(-half - 0.004, -1.0, y * width, (y + 0.14) * width, 0.24 * height, 0.30 * height, "tail")
    body.end_panel(half + 0.006, 1.0, -0.3, 0.3, 0.17 * height, 0.23 * height, "plate")
    return body


@shape("truck")
def truck(phase: int) -> Body:
    return _lorry(7.2, 2.35, 3.0, 1.9, 2.9)


@shape("tempo")
def tempo(phase: int) -> Body:
    return _lorry(4.2, 1.7, 2.1, 1.3, 1.7)


def _auto(people: bool) -> Body:
    """Three wheels, canvas hood, open sides."""
    body = Body().wheel(1.08, 0.0, 0.22, 0.12).wheel(-0.85, 0.52, 0.22, 0.12).wheel(-0.85, -0.52, 0.22, 0.12)
    body.prism([(0.75, 0.25), (1.25, 0.30), (1.12, 0.95), (0.85, 1.05)], 0.0, 0.80, "paint")
    body.prism([(-1.28, 0.28), (0.80, 0.25), (0.80, 0.62), (-1.28, 0.72)], 0.0, 1.28, "paint")
    body.prism([(-1.30, 0.70), (-0.95, 0.70), (-0.95, 1.45), (-1.22, 1.45)], 0.0, 1.26, "paint")
    if people:
        body.rider(0.30, 0.62, 0.05, "canvas").rider(-0.62, 0.66, 0.0, "paint2", 0.25)
    body.prism([(-1.28, 1.38), (0.75, 1.42), (0.55, 1.72), (-1.15, 1.70)], 0.0, 1.30, "yellow", "yellow")
    body.panel([(0.84, -0.5, 1.02), (0.84, 0.5, 1.02), (0.66, 0.5, 1.45), (0.66, -0.5, 1.45)], "glass")
    body.disc(1.22, 0.0, 0.66, 0.11, 0.11, "light")
    for y in (0.42, -0.58):
        body.end_panel(-1.31, -1.0, y, y + 0.16, 0.42, 0.54, "tail")
    return body.end_panel(-1.312, -1.0, -0.2, 0.2, 0.42, 0.54, "plate")


@shape("auto_rickshaw")
def auto_rickshaw(phase: int) -> Body:
    return _auto(people=True)


@shape("parked_auto_rickshaw")
def parked_auto_rickshaw(phase: int) -> Body:
    return _auto(people=False)


@shape("e_rickshaw")
def e_rickshaw(phase: int) -> Body:
    body = Body().wheel(1.15, 0.0, 0.24, 0.1).wheel(-0.9, 0.45, 0.24, 0.1).wheel(-0.9, -0.45, 0.24, 0.1)
    body.prism([(0.85, 0.30), (1.22, 0.30), (1.15, 0.95), (0.95, 1.0)], 0.0, 0.62, "paint")
    body.prism([(-1.35, 0.30), (0.85, 0.28), (0.80, 0.46), (-1.35, 0.62)], 0.0, 1.0, "paint")
    body.rider(0.40, 0.62, 0.04, "white").rider(-0.35, 0.68, 0.0, "paint2", 0.22).rider(
        -0.95, 0.70, 0.0, "canvas", -0.2
    )
    for x in (0.85, -0.3, -1.3):
        for y in (0.5, -0.5):
            body.box(x, y, 0.5, 0.05, 0.05, 1.25, "metal")
    return body.box(-0.2, 0.0, 1.72, 2.3, 1.1, 0.08, "paint", "paint").disc(1.2, 0.0, 0.75, 0.09, 0.09, "light")


@shape("cycle_rickshaw")
def cycle_rickshaw(phase: int) -> Body:
    body = Body().wheel(1.05, 0.0, 0.34, 0.05).wheel(-0.65, 0.5, 0.36, 0.06).wheel(-0.65, -0.5, 0.36, 0.06)
    body.prism([(-0.2, 0.40), (0.9, 0.36), (0.95, 0.62), (0.3, 0.80)], 0.0, 0.07, "paint").rider(
        0.42, 0.92, 0.16, "canvas"
    )
    body.prism([(-1.05, 0.55), (-0.20, 0.50), (-0.20, 0.72), (-1.05, 0.78)], 0.0, 0.95, "paint")
    body.rider(-0.62, 0.82, -0.02, "paint2", 0.2)
    return body.prism(
        [(-1.15, 0.75), (-1.00, 0.75), (-0.55, 1.62), (-0.35, 1.55), (-0.60, 1.78), (-1.08, 1.40)],
        0.0,
        1.0,
        "paint2",
        "paint2",
    )


@shape("mobile_vendor")
def mobile_vendor(phase: int) -> Body:
    """A pushed cart with produce and a parasol."""
    body = Body().walker(phase, x=-0.78, coat="white", legs="paint2")
    for x in (0.05, 0.65):
        for y in (0.42, -0.42):
            body.wheel(x, y, 0.26, 0.05)
    body.box(0.35, 0.0, 0.62, 1.25, 1.0, 0.20, "wood", "green")
    for k, (x, y) in enumerate(((0.05, 0.25), (0.4, -0.2), (0.7, 0.2), (0.1, -0.3), (0.55, 0.3))):
        body.disc(x, y, 0.92, 0.16, 0.12, ("fruit", "green", "tail", "yellow", "fruit")[k])
    body.box(0.35, 0.0, 0.8, 0.05, 0.05, 1.1, "metal")
    return body.prism([(-0.42, 1.82), (1.12, 1.82), (0.45, 2.12), (0.25, 2.12)], 0.0, 1.2, "paint", "paint")


@shape("handcart")
def handcart(phase: int) -> Body:
    return _loaded_cart(Body().walker(phase, x=-1.05, coat="paint", legs="canvas"))


@shape("parked_handcart")
def parked_handcart(phase: int) -> Body:
    return _loaded_cart(Body())


def _loaded_cart(body: Body) -> Body:
    for y in (0.48, -0.48):
        body.wheel(0.25, y, 0.38, 0.06)
    body.box(0.3, 0.0, 0.62, 1.9, 0.95, 0.08, "wood")
    return body.box(0.1, 0.0, 0.70, 0.75, 0.85, 0.42, "cargo", "canvas").box(
        0.85, 0.05, 0.70, 0.6, 0.75, 0.62, "paint2", "cargo"
    )


@shape("cow")
def cow(phase: int) -> Body:
    return Body().cow_like(phase, 2.1, 1.35, 0.7, "paint", horns=True)


@shape("dog")
def dog(phase: int) -> Body:
    return Body().cow_like(phase, 0.85, 0.60, 0.28, "paint", horns=False)


@shape("goat")
def goat(phase: int) -> Body:
    return Body().cow_like(phase, 1.0, 0.78, 0.34, "paint", horns=False)


@shape("animal_cart")
def animal_cart(phase: int) -> Body:
    ox = Body().cow_like(phase, 1.9, 1.30, 0.65, "paint", horns=True)
    body = Body()
    for face in ox.faces:
        moved = face.points + np.array([1.25, 0.0, 0.0])
        body.faces.append(Face(moved, face.material, face.normal, face.radius))
    for y in (0.68, -0.68):
        body.wheel(-1.15, y, 0.58, 0.08)
    body.box(-1.2, 0.0, 0.68, 2.0, 1.2, 0.10, "wood").box(-1.45, 0.0, 0.78, 1.3, 1.1, 0.62, "cargo", "canvas")
    return body.box(0.2, 0.0, 0.75, 1.5, 0.08, 0.06, "wood").rider(-0.45, 1.0, 0.05, "white")
