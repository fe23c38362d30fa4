"""Who moves and on what: the crowd, its state, and the ground, as flat arrays with one row per entity."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

RATE = 8.0  # simulation steps per second; frames between two steps are interpolated
DT = 1.0 / RATE
FAR = 1e6  # a speed limit that limits nothing


def clip(values: NDArray[Any], low: float | Floats, high: float | Floats) -> Floats:
    """np.clip, whose call overhead is twice that of its two comparisons on arrays of a hundred rows."""
    clipped: Floats = np.minimum(np.maximum(values, low), high)
    return clipped


def wrap(difference: Floats, period: float | Floats) -> Floats:
    """The shortest way around the ring."""
    return difference - period * np.rint(difference / period)


@dataclass(frozen=True)
class Crowd:
    """What does not change while agents move. Every array has one row per entity; legs have one column per leg."""

    half_length: Floats
    half_width: Floats
    speed: Floats
    reaction: Floats
    accelerate: Floats
    brake: Floats
    agility: Floats
    push: Floats
    wheels: Bools
    mobile: Bools  # False: parked vehicles, stalls, pillars
    side: Floats  # +1 passes on the left of what it meets, -1 on the right
    leg_axis: Ints  # [N, 2] 0: along x, 1: along y
    leg_sign: Floats  # [N, 2]
    leg_lateral: Floats  # [N, 2] wanted coordinate across the axis
    leg_crosses: Bools  # [N, 2] walks straight over to the wanted coordinate before going on
    leg_at: Floats  # [N] time at which the second leg starts; inf where it starts at `turn_at` or never
    turn_at: Floats  # [N] coordinate along the first leg where the second starts; nan where it does not
    wander: Floats  # [N, 3] amplitude (m), angular rate, phase of its sideways drift
    pause: Floats  # [N, 3] share of time standing, angular rate, phase
    room: Floats  # [N, 2] half width it may use of the x street and of the y street
    partner: Ints  # [N] index of the one it walks with, -1 alone
    obeys: Bools  # stops at a red light

    def __len__(self) -> int:
        return self.speed.size

    def route(self, leg: Ints) -> Route:
        """The leg everyone is on; kept until somebody changes leg."""
        cached: tuple[Ints, Route] | None = self.__dict__.get("_route")
        if cached is None or cached[0] is not leg:
            cached = (leg, Route.of(self, leg))
            object.__setattr__(self, "_route", cached)
        return cached[1]

    def take(self, rows: Ints, partner: Ints) -> Crowd:
        """A crowd of these rows (repeats allowed) with new partner indices."""
        chosen = {f.name: getattr(self, f.name)[rows] for f in fields(self)}
        return Crowd(**(chosen | {"partner": partner}))

    @staticmethod
    def joined(crowds: Sequence[Crowd]) -> Crowd:
        """Several crowds as one, each still walking with its own partners."""
        columns = {f.name: np.concatenate([getattr(crowd, f.name) for crowd in crowds]) for f in fields(Crowd)}
        offset = np.repeat(np.cumsum([0, *map(len, crowds[:-1])]), [len(crowd) for crowd in crowds])
        columns["partner"] = np.where(columns["partner"] >= 0, columns["partner"] + offset, -1)
        return Crowd(**columns)

    @functools.cached_property
    def look(self) -> Floats:
        """How far ahead each takes notice of others."""
        return self.half_length + 1.2 + 1.1 * self.speed

    @functools.cached_property
    def manner(self) -> Manner:
        return Manner.of(self)

    @functools.cached_property
    def bulk(self) -> Floats:
        """How much farther each is noticed for its size."""
        return self.half_length + self.half_width

    @functools.cached_property
    def body(self) -> Floats:
        """`[6, N]` what neighbours have to know: half length and width, push, look, speed, side."""
        return np.array([self.half_length, self.half_width, self.push, self.look, self.speed, self.side])


@dataclass(frozen=True)
class Manner:
    """Constants of the step that follow from the crowd: wheels roll forwards only and slide little, walkers may."""

    least_forward: Floats
    slide_by_speed: Floats
    slide_anyway: Floats
    top_speed: Floats
    keep_course: Floats
    turn: Floats
    pause_below: Floats
    any_partner: bool

    @classmethod
    def of(cls, crowd: Crowd) -> Manner:
        wheels = crowd.wheels
        return cls(
            least_forward=np.where(wheels, 0.0, -FAR),
            slide_by_speed=np.where(wheels, crowd.agility, 0.0),
            slide_anyway=np.where(wheels, 0.0, 0.4 + crowd.speed),
            top_speed=(1.35 * crowd.speed + 0.2) * crowd.mobile,
            keep_course=np.where(wheels, 0.65, 0.25),
            turn=np.where(wheels, 0.30, 0.45),
            pause_below=np.where(crowd.pause[:, 0] > 0, 2.0 * crowd.pause[:, 0] - 1.0, -2.0),
            any_partner=bool((crowd.partner >= 0).any()),
        )


@dataclass(frozen=True)
class Route:
    """Direction and wanted lateral coordinate of everyone's present leg."""

    along_x: Bools
    sign: Floats
    ux: Floats
    uy: Floats
    leftward: Floats  # +1 where a larger lateral coordinate lies to the left of the direction
    lateral: Floats
    crossing: Floats  # 1 for those who walk straight over first, else 0
    slope: Floats  # steepest sideways share of the direction
    room: Floats  # half width of its street that it may use
    everyone_along_x: bool

    @classmethod
    def of(cls, crowd: Crowd, leg: Ints) -> Route:
        row = np.arange(len(crowd))
        along_x = crowd.leg_axis[row, leg] == 0
        sign = crowd.leg_sign[row, leg]
        crosses = crowd.leg_crosses[row, leg]
        return cls(
            along_x=along_x,
            sign=sign,
            ux=np.where(along_x, sign, 0.0),
            uy=np.where(along_x, 0.0, sign),
            leftward=np.where(along_x, sign, -sign),
            lateral=crowd.leg_lateral[row, leg],
            crossing=crosses.astype(np.float64),
            slope=np.where(crosses, 1.0, np.minimum(crowd.agility, 0.5)),
            room=np.where(along_x, crowd.room[:, 0], crowd.room[:, 1]),
            everyone_along_x=bool(along_x.all()),
        )


@dataclass(frozen=True)
class Motion:
    """Where everyone is and goes: `[N]` at one moment, `[T, N]` over time. Only differences are wrapped."""

    x: Floats
    y: Floats
    vx: Floats
    vy: Floats
    hx: Floats
    hy: Floats
    leg: Ints

    def copy(self) -> Self:
        return type(self)(**{f.name: getattr(self, f.name).copy() for f in fields(self)})

    def take(self, rows: Ints | slice) -> Self:
        return type(self)(**{f.name: getattr(self, f.name)[..., rows] for f in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Several crowds as one."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts], axis=-1) for f in fields(cls)})


@dataclass(frozen=True)
class State(Motion):
    """One moment."""


@dataclass(frozen=True)
class Ground:
    """The torus, the crossing and its light."""

    extent: tuple[float, float]
    junction: float | None = None  # x of the crossing street's centre line
    stop_line: float = 0.0  # m from the crossing's centre at which one waits
    cycle: float = 0.0  # s of one light cycle; 0: no light
    phase: float = 0.0

    @functools.cached_property
    def periods(self) -> Floats:
        """`[2, 1]` the extent, for rows of x and y."""
        return np.array(self.extent)[:, None]

    def red(self, time: float) -> tuple[bool, bool]:
        """Whether the x street and the y street have to wait."""
        if self.cycle == 0 or self.junction is None:
            return (False, False)
        position = ((time + self.phase) / self.cycle) % 1.0
        return (position > 0.5, not 0.55 < position < 0.95)
