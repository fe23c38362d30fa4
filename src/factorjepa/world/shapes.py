"""Bodies of agents and obstacles as a few coloured solids.

A shape is a list of faces in body coordinates (x forward, y left, z up; metres). Each face has a material: a named
colour, or one of the two paints that differ from agent to agent. Round things are drawn as view-facing discs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MATERIALS: dict[str, tuple[int, int, int]] = {
    "glass": (70, 92, 110), "tyre": (28, 27, 28), "metal": (150, 152, 156), "dark": (46, 44, 46),
    "wood": (130, 88, 52), "skin": (142, 98, 70), "hair": (30, 24, 22), "canvas": (196, 178, 140),
    "light": (255, 246, 214), "tail": (206, 36, 28), "leaf": (62, 104, 48), "leaf2": (84, 128, 60),
    "concrete": (162, 158, 150), "yellow": (240, 190, 30), "fruit": (232, 140, 40), "green": (40, 130, 70),
    "white": (232, 230, 224), "plate": (236, 228, 170), "cargo": (170, 150, 118),
}  # fmt: skip
PAINTS = ("paint", "paint2")  # two colours per individual


@dataclass(frozen=True)
class Face:
    """A convex polygon `[K, 3]`, or a disc (one point with a radius) that always faces the viewer."""

    points: NDArray[np.float64]
    material: str
    normal: NDArray[np.float64] | None = None  # None: seen from both sides
    radius: tuple[float, float] = (0.0, 0.0)  # horizontal, vertical half axes of a disc


class Body:
    """Collects the faces of one shape."""

    def __init__(self) -> None:
        self.faces: list[Face] = []

    def box(
        self,
        x: float,
        y: float,
        z: float,
        length: float,
        width: float,
        height: float,
        material: str,
        top: str | None = None,
    ) -> Body:
        """A cuboid centred at (x, y) standing on z."""
        return self.prism(
            [(x - length / 2, z), (x + length / 2, z), (x + length / 2, z + height), (x - length / 2, z + height)],
            y,
            width,
            material,
            top,
        )

    def prism(
        self, profile: list[tuple[float, float]], y: float, width: float, material: str, top: str | None = None
    ) -> Body:
        """A side view (x, z), counter-clockwise seen from the right, drawn out over `width`."""
        n = len(profile)
        for sign in (1.0, -1.0):
            points = np.array([(px, y + sign * width / 2, pz) for px, pz in profile])
            self.faces.append(Face(points, material, np.array([0.0, sign, 0.0])))
        for k in range(n):
            (ax, az), (bx, bz) = profile[k], profile[(k + 1) % n]
            normal = np.array([bz - az, 0.0, -(bx - ax)])
            size = float(np.linalg.norm(normal))
            if size < 1e-9 or (az <= 0.02 and bz <= 0.02):
                continue  # nobody sees the underside
            points = np.array(
                [(ax, y - width / 2, az), (bx, y - width / 2, bz), (bx, y + width / 2, bz), (ax, y + width / 2, az)]
            )
            upward = normal[2] / size > 0.7
            self.faces.append(Face(points, (top or material) if upward else material, normal / size))
        return self

    def panel(self, points: list[tuple[float, float, float]], material: str) -> Body:
        """A flat patch seen from both sides."""
        self.faces.append(Face(np.array(points, dtype=float), material))
        return self

    def side_panels(self, x0: float, x1: float, z0: float, z1: float, y: float, material: str) -> Body:
        """The same patch on both flanks, one millimetre proud of the body at `±y`."""
        for sign in (1.0, -1.0):
            points = np.array([(x0, sign * y, z0), (x1, sign * y, z0), (x1, sign * y, z1), (x0, sign * y, z1)])
            self.faces.append(Face(points, material, np.array([0.0, sign, 0.0])))
        return self

    def end_panel(self, x: float, facing: float, y0: float, y1: float, z0: float, z1: float, material: str) -> Body:
        """A patch on the front (`facing` 1) or the back (-1)."""
        points = np.array([(x, y0, z0), (x, y1, z0), (x, y1, z1), (x, y0, z1)])
        self.faces.append(Face(points, material, np.array([facing, 0.0, 0.0])))
        return self

    def disc(self, x: float, y: float, z: float, rx: float, rz: float, material: str) -> Body:
        """A ball or an egg: always looks round."""
        self.faces.append(Face(np.array([(x, y, z)]), material, radius=(rx, rz)))
        return self

    def wheel(self, x: float, y: float, radius: float, width: float = 0.1) -> Body:
        angles = np.arange(8) * math.pi / 4
        profile = [(x + radius * math.cos(a), radius + radius * math.sin(a)) for a in angles]
        for sign in (1.0, -1.0):
            points = np.array([(px, y + sign * width / 2, pz) for px, pz in profile])
            self.faces.append(Face(points, "tyre", np.array([0.0, sign, 0.0])))
            hub = np.array(
                [
                    (x + 0.5 * (px - x), y + sign * (width / 2 + 0.002), radius + 0.5 * (pz - radius))
                    for px, pz in profile
                ]
            )
            self.faces.append(Face(hub, "metal", np.array([0.0, sign, 0.0])))
        rim = [(x - radius, 0.0), (x + radius, 0.0), (x + radius, 2 * radius), (x - radius, 2 * radius)]
        for facing, (px, _) in ((-1.0, rim[0]), (1.0, rim[1])):
            points = np.array(
                [
                    (px, y - width / 2, 0.25 * radius),
                    (px, y + width / 2, 0.25 * radius),
                    (px, y + width / 2, 1.75 * radius),
                    (px, y - width / 2, 1.75 * radius),
                ]
            )
            self.faces.append(Face(points, "tyre", np.array([facing, 0.0, 0.0])))
        return self

    def rider(self, x: float, z: float, lean: float = 0.12, shirt: str = "paint2", y: float = 0.0) -> Body:
        """A seated person: legs, torso, arms, head."""
        self.prism(
            [(x - 0.05, z - 0.35), (x + 0.35, z - 0.35), (x + 0.38, z + 0.05), (x - 0.15, z + 0.12)], y, 0.42, "dark"
        )
        self.prism(
            [(x - 0.18, z), (x + 0.14, z), (x + 0.12 + lean, z + 0.55), (x - 0.12 + lean, z + 0.55)], y, 0.40, shirt
        )
        self.disc(x + lean + 0.02, y, z + 0.70, 0.125, 0.15, "skin")
        self.disc(x + lean - 0.01, y, z + 0.75, 0.13, 0.12, "hair")
        return self

    def walker(
        self, phase: int, x: float = 0.0, y: float = 0.0, scale: float = 1.0, coat: str = "paint", legs: str = "paint2"
    ) -> Body:
        """A walking person; `phase` 0-3 swings legs and arms."""
        swing = (0.0, 0.22, 0.0, -0.22)[phase % 4] * scale
        hip, shoulder = 0.82 * scale, 1.40 * scale
        for sign in (1.0, -1.0):
            foot, knee = x + sign * swing, 0.10 * scale
            self.prism(
                [
                    (foot - 0.07 * scale, 0.0),
                    (foot + 0.11 * scale, 0.0),
                    (x + 0.09 * scale, hip),
                    (x - 0.09 * scale, hip),
                ],
                y + sign * 0.09 * scale,
                0.15 * scale,
                legs,
            )
            self.box(foot + 0.03 * scale, y + sign * 0.09 * scale, 0.0, 0.22 * scale, 0.12 * scale, knee * 0.7, "dark")
            hand = x - sign * swing * 0.9
            self.prism(
                [(hand - 0.04, 0.74 * scale), (hand + 0.05, 0.74 * scale), (x + 0.06, shoulder), (x - 0.05, shoulder)],
                y + sign * 0.24 * scale,
                0.09 * scale,
                coat,
            )
        self.prism(
            [
                (x - 0.12 * scale, hip - 0.08),
                (x + 0.12 * scale, hip - 0.08),
                (x + 0.11 * scale, shoulder + 0.05),
                (x - 0.11 * scale, shoulder + 0.05),
            ],
            y,
            0.42 * scale,
            coat,
        )
        self.disc(x + 0.02, y, 1.56 * scale, 0.105 * scale, 0.13 * scale, "skin")
        self.disc(x - 0.01, y, 1.615 * scale, 0.112 * scale, 0.095 * scale, "hair")
        return self

    def cow_like(self, phase: int, length: float, height: float, width: float, coat: str, horns: bool) -> Body:
        swing = (0.0, 0.12, 0.0, -0.12)[phase % 4] * length / 2
        belly, back = 0.45 * height, 0.88 * height
        for k, fx in enumerate((0.30, -0.32)):
            for sign in (1.0, -1.0):
                foot = fx * length + sign * swing * (1 if k else -1)
                self.prism(
                    [
                        (foot - 0.06 * height, 0),
                        (foot + 0.06 * height, 0),
                        (fx * length + 0.07 * height, belly + 0.05),
                        (fx * length - 0.07 * height, belly + 0.05),
                    ],
                    sign * width * 0.32,
                    0.13 * height,
                    coat,
                )
        self.prism(
            [
                (-0.42 * length, belly),
                (0.36 * length, belly - 0.02),
                (0.40 * length, back),
                (-0.40 * length, back - 0.02),
            ],
            0.0,
            width * 0.9,
            coat,
        )
        self.prism(
            [
                (0.34 * length, 0.62 * height),
                (0.52 * length, 0.66 * height),
                (0.56 * length, 0.98 * height),
                (0.34 * length, 0.86 * height),
            ],
            0.0,
            width * 0.45,
            coat,
        )
        self.disc(0.53 * length, 0.0, 0.92 * height, 0.13 * height, 0.12 * height, coat)
        if horns:
            for sign in (1.0, -1.0):
                self.panel(
                    [
                        (0.52 * length, sign * 0.06, 0.98 * height),
                        (0.50 * length, sign * 0.06, 0.98 * height),
                        (0.50 * length, sign * 0.22, 1.13 * height),
                    ],
                    "wood",
                )
            self.side_panels(
                -0.2 * length, 0.1 * length, belly + 0.12 * height, back - 0.06 * height, width * 0.45 + 0.004, "paint2"
            )
        return self


Maker = Callable[[int], Body]
SHAPES: dict[str, Maker] = {}


def shape(*names: str) -> Callable[[Maker], Maker]:
    """Register a function from animation phase to body under one or more names."""

    def register(make: Maker) -> Maker:
        for name in names:
            SHAPES[name] = make
        return make

    return register
