"""Who is out today: draws the crowd of one clip and puts it on the street."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .crowd import Crowd, Ground, State
from .settings import CaptureMode
from .street import CROSS_LENGTH, LENGTH, Street
from .taxonomy import KIND_NAMES, KINDS, Kind, Superclass

_DENSE_MIX: dict[str, float] = {
    "pedestrian": 0.38, "schoolchild": 0.03, "porter": 0.02, "bicycle": 0.04, "cargo_bicycle": 0.012,
    "motorcycle": 0.095, "scooter": 0.065, "multi_rider_two_wheeler": 0.05, "delivery_rider": 0.025,
    "hatchback": 0.045, "sedan": 0.025, "suv": 0.02, "taxi": 0.02, "bus": 0.010, "minibus": 0.010, "truck": 0.007,
    "tempo": 0.015, "auto_rickshaw": 0.075, "e_rickshaw": 0.025, "cycle_rickshaw": 0.03, "mobile_vendor": 0.03,
    "handcart": 0.015, "cow": 0.014, "dog": 0.020, "goat": 0.008, "animal_cart": 0.006,
}  # fmt: skip
_SPARSE_MIX: dict[str, float] = {
    "pedestrian": 0.22, "bicycle": 0.04, "motorcycle": 0.02, "hatchback": 0.16, "sedan": 0.26, "suv": 0.20,
    "taxi": 0.02, "bus": 0.02, "minibus": 0.01, "truck": 0.03, "dog": 0.02,
}  # fmt: skip

EGO = {"drive": "hatchback", "walk": "pedestrian"}  # the body that carries the camera
STATIC, CAMERA = -1, -2  # entries of `Population.kind` that are not agents


@dataclass(frozen=True)
class Population:
    """The crowd with its starting state. Row order: camera carrier (if any), agents, obstacles."""

    crowd: Crowd
    start: State
    ground: Ground
    kind: np.ndarray  # [N] index into KIND_NAMES, STATIC or CAMERA
    look: np.ndarray  # [N] seeds of colours
    stature: np.ndarray  # [N] size factor

    @property
    def agents(self) -> np.ndarray:
        """Rows that are dynamic agents."""
        return np.flatnonzero(self.kind >= 0)

    @property
    def camera(self) -> int | None:
        rows = np.flatnonzero(self.kind == CAMERA)
        return int(rows[0]) if rows.size else None


def populate(street: Street, mode: CaptureMode, density: float, rng: np.random.Generator) -> Population:
    """Draw agents by density and traffic mix, give each a route and a place, and add camera carrier and obstacles."""
    rows = _Rows(street, rng)
    if mode != "aerial":
        rows.add_camera(mode)
    area = 2 * street.half_way * LENGTH / 100.0
    per_100 = street.family.dense if street.regime == "dense" else street.family.sparse
    crowding = street.city.crowding if street.regime == "dense" else 1.0
    count = max(3, int(rng.poisson(area * per_100 * crowding * density)))
    names, weights = _mix(street)
    chosen = sorted(
        (names[k] for k in rng.choice(len(names), size=count, p=weights)), key=lambda name: -KINDS[name].length
    )  # long vehicles find room first
    for name in chosen:
        rows.add_agent(KINDS[name])
    return rows.finish(street)


def _mix(street: Street) -> tuple[list[str], np.ndarray]:
    base = _DENSE_MIX if street.regime == "dense" else _SPARSE_MIX
    weights = np.array(
        [
            share
            * street.family.mix.get(KINDS[name].superclass, 1.0)
            * (street.city.mix.get(KINDS[name].superclass, 1.0) if street.regime == "dense" else 1.0)
            for name, share in base.items()
        ]
    )
    if street.half_road < 3.6:  # long vehicles do not enter narrow lanes
        weights *= [KINDS[name].length < 6.0 for name in base]
    return list(base), weights / weights.sum()


class _Rows:
    """Collects entities one by one, then turns them into columns."""

    def __init__(self, street: Street, rng: np.random.Generator) -> None:
        self.street, self.rng = street, rng
        self.rows: list[dict[str, object]] = []
        self.places = np.zeros((1000, 4))  # centre and half extents of everything placed so far
        self.count = 0
        for o in street.obstacles:
            extent_x = max(o.half_length * abs(o.hx), o.half_width)
            self._take(o.x, o.y, extent_x, max(o.half_length * abs(o.hy), o.half_width))

    def _take(self, *place: float) -> None:
        if self.count == len(self.places):
            self.places = np.concatenate([self.places, np.zeros_like(self.places)])
        self.places[self.count] = place
        self.count += 1

    def add_camera(self, mode: CaptureMode) -> None:
        kind = KINDS[EGO[mode]]
        y = self.street.half_road * float(self.rng.uniform(0.35, 0.6))
        if mode == "walk":
            y = float(self.rng.uniform(-0.7, 0.7)) * (self.street.half_way - 1.0)
        self._append(kind, CAMERA, 4.0, y, 0, 1.0, y, crosses=False, restless=0.0)

    def add_agent(self, kind: Kind) -> None:
        street, rng = self.street, self.rng
        walker = kind.superclass is Superclass.PEDESTRIAN
        on_cross = street.junction is not None and rng.random() < 0.33 and kind.length < 6.5
        axis = 1 if on_cross else 0
        sign = 1.0 if rng.random() < 0.5 else -1.0
        lateral = self._lateral(kind, axis, sign)
        spot = self._spot(kind, axis, lateral)
        if spot is None:
            return
        along, lateral = spot
        second = None
        if walker and rng.random() < street.family.crossing * (1 if street.disorder > 0.3 else 0.15):
            second = (axis, sign, -np.sign(lateral or 1) * float(rng.uniform(0.75, 0.95)) * self._edge(axis))
        row = self._append(kind, KIND_NAMES.index(kind.name), along, lateral, axis, sign, lateral, crosses=walker)
        if second is not None:
            row |= {"second": second, "leg_at": float(rng.uniform(-2.0, 8.0))}
        elif street.junction is not None and kind.wheels and rng.random() < 0.3:
            new_sign = 1.0 if rng.random() < 0.5 else -1.0
            new_lateral = self._lateral(kind, 1 - axis, new_sign)
            # The second leg runs along the other street: start turning where that leg's line is met.
            turn_at = new_lateral + (street.junction if axis == 0 else 0.0) - 1.5 * sign
            row |= {"second": (1 - axis, new_sign, new_lateral), "turn_at": turn_at}
        if walker and rng.random() < 0.35:
            self._companion(kind, row, len(self.rows) - 1)

    def _companion(self, kind: Kind, leader: dict[str, object], index: int) -> None:
        along, lateral = float(leader["along"]), float(leader["lateral_now"])  # type: ignore[arg-type]
        axis, sign = leader["first"][0], leader["first"][1]  # type: ignore[index]
        other = lateral + (0.75 if lateral < 0 else -0.75)
        row = self._append(kind, KIND_NAMES.index(kind.name), along + 0.1, other, axis, sign, other, crosses=True)
        row |= {key: leader[key] for key in ("second", "leg_at", "speed") if key in leader}
        row["partner"], leader["partner"] = index, len(self.rows) - 1

    def _edge(self, axis: int) -> float:
        return self.street.half_way - 0.6 if axis == 0 else self.street.cross_half_way - 0.6

    def _lateral(self, kind: Kind, axis: int, sign: float) -> float:
        """Where across the street it likes to be. Traffic keeps left: +y when heading +x, +x when heading -y."""
        street, rng = self.street, self.rng
        keep = sign if axis == 0 else -sign
        road, edge = street.half_road, self._edge(axis)
        loose = street.disorder
        if kind.superclass is Superclass.PEDESTRIAN or kind.name in ("mobile_vendor", "dog", "goat"):
            if rng.random() < 0.35 * loose:  # in the carriageway, as one does
                return float(rng.uniform(-1, 1)) * road
            side = (-1.0, 1.0)[int(rng.integers(2))]  # rng.choice draws the same at several times the cost
            return side * float(rng.uniform(road + 0.1, max(edge, road + 0.3)))
        room = road - kind.width / 2
        if loose < 0.3:  # lane centres
            lanes = max(1, int(road // 3.0))
            width = road / lanes
            lane = int(rng.integers(lanes))
            wanted = (lane + 0.5) * width
            if kind.superclass is Superclass.PEDAL_CYCLE:
                wanted = road - 0.5
            return keep * min(wanted, room)
        wrong_way = rng.random() < 0.07 * loose and kind.width < 1.6
        inner = 1.1 if street.family.flyover and axis == 0 else -0.25 * road * loose
        wanted = float(rng.uniform(min(inner + kind.width / 2, room - 0.1), room))
        return -keep * wanted if wrong_way else keep * wanted

    def _spot(self, kind: Kind, axis: int, lateral: float) -> tuple[float, float] | None:
        """A place without overlap, near the wanted lateral coordinate; None where the street is full."""
        length = LENGTH if axis == 0 else CROSS_LENGTH
        taken = self.places[: self.count]
        tries = self.rng.random(10).tolist()
        for attempt, share in enumerate(tries):
            along = (share if axis == 0 else share - 0.5) * length
            nudge = 0.0 if attempt < 4 else float(self.rng.normal(0, 0.6))
            x, y, half_x, half_y = self._footprint(kind, axis, along, lateral + nudge)
            apart_x = np.abs((x - taken[:, 0] + LENGTH / 2) % LENGTH - LENGTH / 2) > half_x + taken[:, 2] + 0.25
            apart_y = np.abs(y - taken[:, 1]) > half_y + taken[:, 3] + 0.15
            if (apart_x | apart_y).all():
                return along, lateral + nudge
        return None

    def _footprint(self, kind: Kind, axis: int, along: float, lateral: float) -> tuple[float, float, float, float]:
        if axis == 0:
            return along, lateral, kind.length / 2, kind.width / 2
        return (self.street.junction or 0.0) + lateral, along, kind.width / 2, kind.length / 2

    def _append(
        self,
        kind: Kind,
        code: int,
        along: float,
        lateral_now: float,
        axis: int,
        sign: float,
        lateral: float,
        *,
        crosses: bool,
        restless: float | None = None,
    ) -> dict[str, object]:
        rng = self.rng
        x, y, half_x, half_y = self._footprint(kind, axis, along, lateral_now)
        self._take(x, y, half_x, half_y)
        slow = 0.75 if self.street.scene_type in ("market", "residential", "heritage") else 1.0
        quick = 1.0 if self.street.regime == "dense" else 1.25
        pace = slow * quick if kind.wheels else 1.0
        u, n = rng.random(7).tolist(), rng.standard_normal(3).tolist()
        stature = 0.96 + 0.08 * u[0] if kind.wheels else min(max(1.0 + 0.06 * n[0], 0.85), 1.15)
        hurry = min(max(1.0 + kind.speed_spread * n[1], 0.5), 1.6)
        drift = (0.05 + 0.45 * self.street.disorder) * (0.5 if kind.width > 1.5 else 1.0)
        row: dict[str, object] = {
            "spec": kind,
            "code": code,
            "x": x,
            "y": y,
            "along": along,
            "lateral_now": lateral_now,
            "first": (axis, sign, lateral),
            "crosses": crosses,
            "stature": stature,
            "look": int(rng.integers(2**31)),
            "speed": max(0.25, kind.speed * pace * hurry),
            "push": kind.push + 0.10 * n[2],
            "side": 1.0 if u[1] < 0.5 else -1.0,
            "wander": (drift, 0.4 + 0.7 * u[2], 2 * np.pi * u[3]),
            "pause": (kind.restless if restless is None else restless, 0.25 + 0.45 * u[4], 2 * np.pi * u[5]),
            "obeys": u[6] > 0.55 * self.street.disorder,
        }
        self.rows.append(row)
        return row

    def finish(self, street: Street) -> Population:
        agents, n = self.rows, len(self.rows) + len(street.obstacles)
        fill = len(street.obstacles)

        def column(get: object, static: object, dtype: type = float) -> np.ndarray:
            return np.array([get(row) for row in agents] + [static] * fill, dtype=dtype)  # type: ignore[operator]

        def legs(part: int, dtype: type) -> np.ndarray:
            first = [row["first"][part] for row in agents] + [0] * fill  # type: ignore[index]
            second = [row.get("second", row["first"])[part] for row in agents] + [0] * fill  # type: ignore[index]
            return np.stack([np.array(first, dtype=dtype), np.array(second, dtype=dtype)], axis=1)

        specs = [row["spec"] for row in agents]
        kinds: list[Kind] = [spec for spec in specs if isinstance(spec, Kind)]
        stature = column(lambda row: row["stature"], 1.0)
        half_length = np.array([k.length / 2 for k in kinds] + [o.half_length for o in street.obstacles]) * stature
        half_width = np.array([k.width / 2 for k in kinds] + [o.half_width for o in street.obstacles]) * stature
        powered = np.array([k.wheels and k.speed > 3.0 for k in kinds] + [False] * fill)
        wheels = np.array([k.wheels for k in kinds] + [False] * fill)
        road_bound = np.array([k.width > 1.0 and k.wheels for k in kinds] + [False] * fill)
        soft = street.half_road + 0.5 * street.disorder * (street.half_way - street.half_road)
        crosses = column(lambda row: row["crosses"], False, bool)
        crowd = Crowd(
            half_length=half_length,
            half_width=half_width,
            speed=column(lambda row: row["speed"], 0.0),
            reaction=np.array([k.reaction for k in kinds] + [1.0] * fill),
            accelerate=np.where(powered, 4.2, np.where(wheels, 2.5, 4.0)),
            brake=np.where(wheels, 7.0, 6.0),
            agility=np.array([k.agility for k in kinds] + [0.0] * fill),
            push=np.maximum(column(lambda row: row["push"], 1.5), 0.05),
            wheels=wheels,
            mobile=np.arange(n) < len(agents),
            side=column(lambda row: row["side"], 1.0),
            leg_axis=legs(0, int).astype(np.intp),
            leg_sign=legs(1, float),
            leg_lateral=legs(2, float),
            leg_crosses=np.stack([np.zeros(n, bool), crosses], axis=1),
            leg_at=column(lambda row: row.get("leg_at", np.inf), np.inf),
            turn_at=column(lambda row: row.get("turn_at", np.nan), np.nan),
            wander=np.array([row["wander"] for row in agents] + [(0.0, 1.0, 0.0)] * fill, dtype=float),
            pause=np.array([row["pause"] for row in agents] + [(0.0, 1.0, 0.0)] * fill, dtype=float),
            room=np.stack([np.where(road_bound, soft, street.half_way) - half_width] * 2, axis=1),
            partner=column(lambda row: row.get("partner", -1), -1, int).astype(np.intp),
            obeys=column(lambda row: row["obeys"], False, bool),
        )
        hx = column(lambda row: row["first"][1] if row["first"][0] == 0 else 0.0, 1.0)
        hy = column(lambda row: row["first"][1] if row["first"][0] == 1 else 0.0, 0.0)
        hx[len(agents) :], hy[len(agents) :] = [o.hx for o in street.obstacles], [o.hy for o in street.obstacles]
        x = np.concatenate([column(lambda row: row["x"], 0.0)[: len(agents)], [o.x for o in street.obstacles]])
        y = np.concatenate([column(lambda row: row["y"], 0.0)[: len(agents)], [o.y for o in street.obstacles]])
        v = 0.6 * crowd.speed
        start = State(x, y, v * hx, v * hy, hx, hy, np.zeros(n, dtype=np.intp))
        ground = Ground(street.extent, street.junction, street.half_road + 1.0, street.signal, street.signal_phase)
        look = np.concatenate(
            [column(lambda row: row["look"], 0, int)[: len(agents)], [o.look for o in street.obstacles]]
        )
        kind = column(lambda row: row["code"], STATIC, int)
        return Population(crowd, start, ground, kind, look.astype(np.int64), stature)
