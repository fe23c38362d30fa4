"""What stands about: stalls, poles, trees, pillars, shelters. Static occluders that agents walk around."""

from __future__ import annotations

from .shapes import Body, shape


@shape("stall")
def stall(phase: int) -> Body:
    body = Body().box(0.0, 0.0, 0.0, 1.2, 1.7, 0.85, "wood", "cargo")
    for y in (0.8, -0.8):
        for x in (0.6, -0.5):
            body.box(x, y, 0.0, 0.06, 0.06, 2.1, "metal")
    body.prism([(-0.65, 2.25), (0.95, 1.85), (0.95, 1.93), (-0.65, 2.36)], 0.0, 1.95, "paint", "paint")
    for k in range(3):
        body.box(0.0, -0.6 + 0.6 * k, 0.85, 0.9, 0.45, 0.16, ("paint2", "fruit", "green")[k])
    return body


@shape("fruit_stall")
def fruit_stall(phase: int) -> Body:
    body = Body().prism([(-0.6, 0.0), (0.7, 0.0), (0.7, 0.55), (-0.6, 0.95)], 0.0, 1.8, "wood", "green")
    for row in range(2):
        for k in range(4):
            material = ("fruit", "tail", "yellow", "green")[(k + row) % 4]
            body.disc(0.35 - 0.55 * row, -0.65 + 0.43 * k, 0.78 + 0.18 * row, 0.2, 0.14, material)
    body.box(-0.4, 0.0, 0.0, 0.06, 0.06, 2.3, "metal")
    return body.prism([(-1.0, 2.0), (0.9, 2.0), (0.05, 2.45), (-0.15, 2.45)], 0.0, 2.0, "paint", "paint")


@shape("kiosk")
def kiosk(phase: int) -> Body:
    body = Body().box(0.0, 0.0, 0.0, 1.1, 1.5, 2.2, "paint", "metal")
    body.end_panel(0.553, 1.0, -0.62, 0.62, 0.95, 1.75, "dark").end_panel(0.555, 1.0, -0.7, 0.7, 1.82, 2.15, "paint2")
    return body.side_panels(-0.4, 0.4, 0.9, 1.7, 0.754, "paint2")


@shape("pillar")
def pillar(phase: int) -> Body:
    body = (
        Body().box(0.0, 0.0, 0.0, 1.3, 1.3, 5.4, "concrete").box(0.0, 0.0, 0.0, 1.9, 1.9, 0.5, "concrete", "concrete")
    )
    for z in (0.7, 1.3):
        body.side_panels(-0.65, 0.65, z, z + 0.3, 0.654, "yellow").end_panel(
            0.653, 1.0, -0.65, 0.65, z, z + 0.3, "yellow"
        )
        body.end_panel(-0.653, -1.0, -0.65, 0.65, z, z + 0.3, "yellow")
    return body.prism([(-0.6, 5.4), (0.6, 5.4), (0.9, 6.2), (-0.9, 6.2)], 0.0, 3.4, "concrete")


@shape("lamp")
def lamp(phase: int) -> Body:
    body = Body().box(0.0, 0.0, 0.0, 0.13, 0.13, 5.2, "metal").box(0.0, -0.6, 5.1, 0.10, 1.3, 0.09, "metal")
    return body.box(0.0, -1.15, 4.98, 0.22, 0.42, 0.12, "light", "metal")


@shape("pole")
def pole(phase: int) -> Body:
    body = Body().box(0.0, 0.0, 0.0, 0.17, 0.17, 6.0, "wood")
    for z in (5.2, 5.6):
        body.box(0.0, 0.0, z, 0.08, 1.3, 0.08, "wood")
    return body.box(0.12, 0.0, 2.4, 0.22, 0.4, 0.55, "metal")


@shape("tree")
def tree(phase: int) -> Body:
    body = Body().box(0.0, 0.0, 0.0, 0.34, 0.34, 2.6, "wood")
    for x, y, z, r, material in (
        (0.0, 0.9, 3.3, 1.2, "leaf"), (0.7, -0.6, 3.4, 1.3, "leaf"), (-0.8, -0.3, 3.2, 1.1, "leaf"),
        (0.2, 0.3, 4.1, 1.3, "leaf2"), (-0.3, -0.5, 3.9, 1.0, "leaf2"),
    ):  # fmt: skip
        body.disc(x, y, z, r, 0.8 * r, material)
    return body


@shape("palm")
def palm(phase: int) -> Body:
    body = Body().prism([(-0.14, 0.0), (0.16, 0.0), (0.42, 4.8), (0.24, 4.8)], 0.0, 0.24, "wood")
    for dx, dy in ((1.6, 0.3), (-1.2, 0.5), (0.4, 1.6), (0.3, -1.6), (1.2, -1.1), (-0.8, -1.1), (1.1, 1.2)):
        tip = (0.33 + dx, dy, 4.5)
        body.panel(
            [
                (0.33, 0.0, 4.95),
                (0.33 + 0.55 * dx - 0.15 * dy, 0.55 * dy + 0.15 * dx, 5.25),
                tip,
                (0.33 + 0.55 * dx + 0.15 * dy, 0.55 * dy - 0.15 * dx, 5.0),
            ],
            "leaf2",
        )
    return body


@shape("railing")
def railing(phase: int) -> Body:
    body = (
        Body().box(0.0, 0.0, 0.0, 4.0, 0.30, 0.35, "concrete", "concrete").box(0.0, 0.0, 0.92, 4.0, 0.08, 0.09, "white")
    )
    for x in (-1.8, -0.9, 0.0, 0.9, 1.8):
        body.box(x, 0.0, 0.35, 0.12, 0.1, 0.6, "white")
    return body


@shape("shelter")
def shelter(phase: int) -> Body:
    body = Body().box(0.0, 0.35, 0.0, 3.6, 0.08, 2.2, "glass").box(0.0, 0.2, 0.45, 3.0, 0.35, 0.1, "wood")
    for x in (1.75, -1.75):
        body.box(x, -0.4, 0.0, 0.1, 0.1, 2.4, "metal")
    return body.box(0.0, -0.1, 2.35, 3.9, 1.4, 0.16, "paint", "paint").side_panels(
        -1.9, 1.9, 2.35, 2.51, 0.82, "paint2"
    )
