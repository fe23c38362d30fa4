"""The static scene: street geometry, buildings and obstacles of one source video.

A street is a ring of `extent[0]` metres, so that traffic never runs out and every place looks like a street in both
directions. The facades stand at `y = ±half_way`; the carriageway is `|y| < half_road`; between them lie footpaths.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .cities import CITIES, City
from .settings import SceneType, WorldSettings
from .taxonomy import KINDS, Superclass

_S = Superclass


@dataclass(frozen=True)
class Family:
    """What makes a market a market. Lengths in metres; rates per 10 m of kerb; density in agents per 100 m²."""

    half_road: float
    path: float  # width of the footpath on each side
    dense: float
    sparse: float
    stalls: float = 0.0
    parked: float = 0.0
    poles: float = 0.35
    crossing: float = 0.15  # share of walkers who cross the carriageway during a clip
    water: bool = False  # the right side is open water with a railing
    flyover: bool = False  # a deck on pillars runs above the median
    cross_street: bool = False
    mix: dict[Superclass, float] = field(default_factory=dict)


FAMILIES: dict[SceneType, Family] = {
    "residential": Family(3.0, 1.4, 3.8, 0.39, 0.25, 1.3, mix={_S.HEAVY_VEHICLE: 0.2, _S.ANIMAL: 1.6}),
    "promenade": Family(3.6, 3.0, 3.3, 0.50, 0.45, 0.3, water=True, mix={_S.PEDESTRIAN: 1.8, _S.HEAVY_VEHICLE: 0.3}),
    "market": Family(
        3.0,
        2.2,
        5.8,
        0.60,
        2.3,
        0.6,
        crossing=0.30,
        mix={_S.PEDESTRIAN: 1.7, _S.INTERMEDIATE: 1.5, _S.LIGHT_VEHICLE: 0.4},
    ),
    "heritage": Family(4.0, 2.6, 3.5, 0.50, 0.7, 0.5, mix={_S.PEDESTRIAN: 1.5, _S.ANIMAL: 1.6}),
    "flyover": Family(
        7.0, 1.8, 2.6, 0.53, 0.3, 0.5, crossing=0.12, flyover=True, mix={_S.LIGHT_VEHICLE: 1.4, _S.HEAVY_VEHICLE: 1.6}
    ),
    "commercial": Family(5.0, 2.4, 3.6, 0.55, 0.8, 1.0, crossing=0.22, mix={_S.LIGHT_VEHICLE: 1.3}),
    "junction": Family(5.0, 2.2, 3.4, 0.53, 0.5, 0.5, crossing=0.25, cross_street=True, mix={_S.LIGHT_VEHICLE: 1.2}),
    "transit": Family(6.0, 3.0, 3.0, 0.50, 0.5, 0.4, crossing=0.20, mix={_S.HEAVY_VEHICLE: 3.0, _S.PEDESTRIAN: 1.3}),
}


@dataclass(frozen=True)
class Obstacle:
    """A static body. `model` names a shape (a parked vehicle uses its kind's), `look` seeds its colours."""

    model: str
    x: float
    y: float
    hx: float
    hy: float
    half_length: float
    half_width: float
    look: int
    blocks: bool = True  # False: decoration that nobody has to walk around (overhanging signs)


@dataclass(frozen=True)
class Building:
    """A house front on the line y = `side * y`, or a corner wall along the crossing street."""

    x0: float
    x1: float
    y0: float
    y1: float
    height: float
    look: int
    arched: bool
    shop: bool


@dataclass(frozen=True)
class Street:
    city: City
    scene_type: SceneType
    family: Family
    regime: str
    disorder: float
    extent: tuple[float, float]
    half_road: float
    half_way: float
    junction: float | None
    signal: float  # s of the light cycle, 0 without
    signal_phase: float  # s into the cycle at the start of every clip
    buildings: tuple[Building, ...]
    obstacles: tuple[Obstacle, ...]
    look: int

    @property
    def cross_half_way(self) -> float:
        return self.half_way


LENGTH = 80.0  # m around the ring
CROSS_LENGTH = 60.0
DEPTH = 14.0  # m that buildings reach back from the facade line


def build_street(settings: WorldSettings, city_name: str, scene_type: SceneType, rng: np.random.Generator) -> Street:
    """Lay out one street of a city."""
    city, family = CITIES[city_name], FAMILIES[scene_type]
    half_road = family.half_road * float(rng.uniform(0.92, 1.12))
    half_way = half_road + family.path * float(rng.uniform(0.9, 1.15))
    junction = LENGTH / 2 + float(rng.uniform(-6, 6)) if family.cross_street else None
    disorder = min(1.0, settings.disorder * city.disorder)
    signal = 0.0
    if junction is not None and (settings.regime == "sparse" or rng.random() < 0.5):
        signal = float(rng.uniform(16, 24))
    return Street(
        city=city,
        scene_type=scene_type,
        family=family,
        regime=settings.regime,
        disorder=disorder,
        extent=(LENGTH, CROSS_LENGTH),
        half_road=half_road,
        half_way=half_way,
        junction=junction,
        signal=signal,
        signal_phase=float(rng.uniform(0, 30)),
        buildings=tuple(_buildings(city, scene_type, family, half_way, junction, rng)),
        obstacles=tuple(_obstacles(settings, city, family, half_road, half_way, junction, rng)),
        look=int(rng.integers(2**31)),
    )


def _buildings(
    city: City, scene_type: SceneType, family: Family, half_way: float, junction: float | None, rng: np.random.Generator
) -> list[Building]:
    buildings: list[Building] = []
    shops = {"market": 0.95, "commercial": 0.95, "transit": 0.7, "junction": 0.8, "flyover": 0.7}.get(scene_type, 0.35)
    for side in (1.0, -1.0):
        if side < 0 and family.water:
            continue
        x = 0.0
        while x < LENGTH - 0.1:
            width = min(float(rng.uniform(6.5, 13.0)), LENGTH - x)
            if LENGTH - (x + width) < 4.0:
                width = LENGTH - x
            floors = int(rng.integers(city.floors[0], city.floors[1] + 1))
            height = 1.2 + 3.1 * floors + float(rng.uniform(-0.3, 0.8))
            look, arched = (
                int(rng.integers(2**31)),
                bool(rng.random() < city.arches * (2 if scene_type == "heritage" else 1)),
            )
            shop = bool(rng.random() < shops)
            for x0, x1 in _without_gap(x, x + width, junction, half_way):
                buildings.append(Building(x0, x1, side * half_way, side * half_way, height, look, arched, shop))
            x += width
    if junction is not None:
        far = CROSS_LENGTH / 2
        for x in (junction - half_way, junction + half_way):
            for side in (1.0, -1.0):
                for y0, y1 in ((half_way, half_way + 11.0), (half_way + 11.0, far)):
                    height = 1.2 + 3.1 * int(rng.integers(city.floors[0], city.floors[1] + 1))
                    buildings.append(
                        Building(
                            x,
                            x,
                            side * y0,
                            side * y1,
                            height,
                            int(rng.integers(2**31)),
                            False,
                            bool(rng.random() < shops),
                        )
                    )
    return buildings


def _without_gap(x0: float, x1: float, junction: float | None, half_way: float) -> list[tuple[float, float]]:
    if junction is None:
        return [(x0, x1)]
    left, right = junction - half_way, junction + half_way
    pieces = [(x0, min(x1, left)), (max(x0, right), x1)]
    return [(a, b) for a, b in pieces if b - a > 0.5]


def _obstacles(
    settings: WorldSettings,
    city: City,
    family: Family,
    half_road: float,
    half_way: float,
    junction: float | None,
    rng: np.random.Generator,
) -> list[Obstacle]:
    """Things along the kerbs, at most one per place, never in the mouth of the crossing."""
    sparse = settings.regime == "sparse"
    clutter = settings.clutter
    stall_models = ["stall", "stall", "fruit_stall", "kiosk"]
    parked_models = ["sedan", "hatchback", "suv"]
    if not sparse:
        two_wheelers = ["parked_scooter", "parked_scooter", "parked_motorcycle", "parked_bicycle"]
        parked_models = [*two_wheelers, "parked_auto_rickshaw", "parked_handcart", "hatchback", "taxi"]
    placed: list[Obstacle] = []

    def free(x: float, y: float, clearance: float) -> bool:
        if junction is not None and abs((x - junction + LENGTH / 2) % LENGTH - LENGTH / 2) < half_way + clearance:
            return False
        return all(
            abs((x - o.x + LENGTH / 2) % LENGTH - LENGTH / 2) > clearance + o.half_length or abs(y - o.y) > 1.2
            for o in placed
        )

    def scatter(
        rate: float, models: list[str], inset: tuple[float, float], along: bool, footprint: tuple[float, float] | None
    ) -> None:
        for side in (1.0, -1.0):
            for _ in range(rng.poisson(rate * LENGTH / 10.0 / 2.0)):
                model = models[int(rng.integers(len(models)))]
                kind = KINDS.get(model.removeprefix("parked_"))
                half = (kind.length / 2, kind.width / 2) if kind else (footprint or (0.4, 0.4))
                x, y = float(rng.uniform(0, LENGTH)), side * float(rng.uniform(*inset))
                if not free(x, y, half[0] + 0.4):
                    continue
                if along:
                    hx, hy = (1.0 if side > 0 else -1.0), float(rng.normal(0, 0.08))
                else:
                    hx, hy = float(rng.normal(0, 0.05)), -side
                norm = float(np.hypot(hx, hy))
                placed.append(Obstacle(model, x, y, hx / norm, hy / norm, *half, int(rng.integers(2**31))))

    if family.flyover:
        placed += [
            Obstacle("pillar", float(x), 0.0, 1.0, 0.0, 0.9, 0.9, int(rng.integers(2**31)))
            for x in np.arange(6.0, LENGTH, 16.0)
        ]
    if family.water:
        placed += [
            Obstacle("railing", float(x) + 2.0, -half_way - 0.1, 1.0, 0.0, 2.0, 0.06, 0)
            for x in np.arange(0.0, LENGTH, 4.0)
        ]
    kerb = (half_road - 0.1, half_road + 0.5)
    scatter(family.stalls * clutter, stall_models, (half_way - 1.1, half_way - 0.7), False, (0.9, 0.7))
    scatter(family.parked * clutter, parked_models, (half_road - 0.7, half_road - 0.1), True, None)
    scatter(family.poles * max(clutter, 0.6), ["lamp", "pole"], kerb, True, (0.14, 0.14))
    scatter(
        city.greenery * max(clutter, 0.6),
        ["tree", "tree", "palm" if family.water else "tree"],
        kerb,
        True,
        (0.25, 0.25),
    )
    if family is FAMILIES["transit"]:
        scatter(0.35, ["shelter"], (half_road + 0.9, half_road + 1.1), True, (1.9, 0.5))
    return placed
