"""How agents move: each wants to get on, and negotiates the way with its neighbours.

The law is local and has compact support: a neighbour farther than the pair's reach contributes exactly zero. Pair
terms are accumulated one after another (`bincount`), so a zero term changes no bit. Therefore an edit (an agent taken
out, an agent braking) leaves every agent that it does not reach unchanged to the bit.

Entities are rows of flat arrays. Several alternative worlds of the same crowd can be stepped at once by stacking their
rows. Coordinates are metres on a torus (`extent`): x along the street, y to the left, heading as a unit vector.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

RATE = 8.0  # simulation steps per second; frames between two steps are interpolated
DT = 1.0 / RATE
FAR = 1e6  # a speed limit that limits nothing

_HEADWAY = 0.75  # s kept to whoever is ahead
_COMFORT = 3.0  # m/s^2 at which one plans to brake
_STANDOFF = 0.25  # m kept when stopped behind someone
_CONFLICT_HORIZON = 2.2  # s ahead that crossing paths are compared
_SIDE_MARGIN = 0.30  # m of clearance that counts as in one's path
_SWERVE_MARGIN = 0.75  # m of clearance that one tries to get by moving sideways
_CONTACT = 0.40  # m under which bodies push apart
_HARD_CONTACT = 9.0  # m/s^2 of that push at touch


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


@dataclass
class State:
    """What changes. Positions are not wrapped: differences are."""

    x: Floats
    y: Floats
    vx: Floats
    vy: Floats
    hx: Floats
    hy: Floats
    leg: Ints

    def copy(self) -> State:
        return State(**{f.name: getattr(self, f.name).copy() for f in fields(self)})

    def take(self, rows: Ints | slice) -> State:
        return State(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @staticmethod
    def joined(states: Sequence[State]) -> State:
        return State(**{f.name: np.concatenate([getattr(state, f.name) for state in states]) for f in fields(State)})


@dataclass(frozen=True)
class Ground:
    """The torus, the crossing and its light."""

    extent: tuple[float, float]
    junction: float | None = None  # x of the crossing street's centre line
    stop_line: float = 0.0  # m from the crossing's centre at which one waits
    cycle: float = 0.0  # s of one light cycle; 0: no light
    phase: float = 0.0

    def red(self, time: float) -> tuple[bool, bool]:
        """Whether the x street and the y street have to wait."""
        if self.cycle == 0 or self.junction is None:
            return (False, False)
        position = ((time + self.phase) / self.cycle) % 1.0
        return (position > 0.5, not 0.55 < position < 0.95)


@dataclass(frozen=True)
class Pairs:
    """Directed pairs (who reacts, to whom), sorted by who reacts."""

    who: Ints
    whom: Ints
    reach: Floats  # distance beyond which the second has no influence on the first

    @property
    def starts(self) -> Ints:
        return np.flatnonzero(np.diff(self.who, prepend=-1))


def _clip(values: NDArray[Any], low: float | Floats, high: float | Floats) -> Floats:
    """np.clip, whose call overhead is twice that of its two comparisons on arrays of a hundred rows."""
    clipped: Floats = np.minimum(np.maximum(values, low), high)
    return clipped


def wrap(difference: Floats, period: float | Floats) -> Floats:
    """The shortest way around the ring."""
    return difference - period * np.rint(difference / period)


def pairs_within(state: State, crowd: Crowd, ground: Ground, world: Ints, reacts: Bools) -> Pairs:
    """All directed pairs of the same world in which the first (one that `reacts`) can notice the second.

    Sweep along x: the street is much longer than anyone's reach, so most pairs are never looked at. Worlds lie far
    apart on the sweep line.
    """
    period, n = ground.extent[0], state.x.size
    x = state.x % period
    line = x + world * (4.0 * period)
    ring = np.concatenate([line - period, line, line + period])
    order = np.argsort(ring, kind="stable")
    ring, order = ring[order], order % n
    rows = np.flatnonzero(reacts)
    widest = crowd.bulk.max(initial=0.0)
    ahead, touching = crowd.look[rows] + widest, crowd.half_length[rows] + widest + 2 * _CONTACT
    hx = state.hx[rows]
    # Whoever walks along x looks one way; behind, only contact counts.
    low = np.searchsorted(ring, line[rows] - np.where(hx > 0.95, touching + 0.4 * ahead, ahead))
    counts = np.searchsorted(ring, line[rows] + np.where(hx < -0.95, touching + 0.4 * ahead, ahead)) - low
    who = np.repeat(rows, counts)
    whom = order[np.arange(who.size) + np.repeat(low - np.cumsum(counts) + counts, counts)]
    reaches = crowd.look[who] + crowd.bulk[whom]
    dx, dy = wrap(x[whom] - x[who], period), wrap(state.y[whom] - state.y[who], ground.extent[1])
    near = (dx * dx + dy * dy < reaches * reaches) & (who != whom)
    # Whoever is behind matters only in contact.
    near &= dx * state.hx[who] + dy * state.hy[who] > -(crowd.half_length[who] + crowd.bulk[whom] + _CONTACT)
    return Pairs(who[near], whom[near], reaches[near])


@dataclass(frozen=True)
class Intent:
    """What everyone would do on an empty street."""

    speed: Floats
    dirx: Floats
    diry: Floats
    across: Floats  # present coordinate across one's own street
    route: Route


def intent(state: State, crowd: Crowd, ground: Ground, time: float, urge: Floats) -> Intent:
    """Desired speed and direction. `urge` scales every desired speed (1 normally, 0 for one told to brake)."""
    route, manner = crowd.route(state.leg), crowd.manner
    drift = crowd.wander[:, 0] * np.sin(crowd.wander[:, 1] * time + crowd.wander[:, 2])
    across = wrap(state.y, ground.extent[1])
    if not route.everyone_along_x:
        across = np.where(route.along_x, across, _from_junction(state.x, ground))
    error = route.lateral + drift - across  # along +y on the x street, along +x on the y street
    onward = 1.0 - 0.92 * route.crossing * _clip((np.abs(error) - 0.8) / 1.5, 0.0, 1.0)
    sideways = _clip(0.35 * error * route.leftward, -1.0, 1.0) * route.slope
    norm = 1.0 / np.sqrt(onward * onward + sideways * sideways)
    onward, sideways = onward * norm, sideways * norm
    walking = np.sin(crowd.pause[:, 1] * time + crowd.pause[:, 2]) >= manner.pause_below
    return Intent(
        speed=crowd.speed * urge * walking,
        dirx=route.ux * onward - route.uy * sideways,
        diry=route.uy * onward + route.ux * sideways,
        across=across,
        route=route,
    )


def step(state: State, crowd: Crowd, ground: Ground, pairs: Pairs, time: float, present: Bools, urge: Floats) -> State:
    """One step of `DT`. An absent entity influences nobody."""
    want, manner = intent(state, crowd, ground, time, urge), crowd.manner
    limit, swerve, pushx, pushy = _neighbours(state, crowd, ground, pairs, present, want)
    pushx, pushy = pushx * (urge > 0), pushy * (urge > 0)  # with the brakes on, nobody is pushed along
    limit = np.minimum(limit, _signal_limit(state, crowd, ground, time, want.route))
    wanted = want.speed
    if manner.any_partner:
        pull, abreast = _company(state, crowd, ground, present)
        wanted = wanted + pull * (wanted > 0)
        swerve = swerve + abreast
    target = np.maximum(np.minimum(wanted, limit), 0.0)
    beyond = want.across - _clip(want.across, -want.route.room, want.route.room)
    if want.route.everyone_along_x:
        pushy = pushy - 5.0 * beyond
    else:
        pushx = pushx - 5.0 * beyond * ~want.route.along_x
        pushy = pushy - 5.0 * beyond * want.route.along_x

    ax = (want.dirx * target - state.vx) / crowd.reaction + pushx
    ay = (want.diry * target - state.vy) / crowd.reaction + pushy
    hx, hy = state.hx, state.hy
    forward = _clip(ax * hx + ay * hy, -crowd.brake, crowd.accelerate)
    left = _clip(ay * hx - ax * hy, -4.0, 4.0) + swerve
    v_forward = np.maximum(state.vx * hx + state.vy * hy + DT * forward, manner.least_forward)
    slide = manner.slide_by_speed * v_forward + manner.slide_anyway
    v_left = _clip(state.vy * hx - state.vx * hy + DT * left, -slide, slide)
    speed = np.sqrt(v_forward * v_forward + v_left * v_left) + 1e-9
    slow = np.minimum(manner.top_speed / speed, 1.0)
    v_forward, v_left, speed = v_forward * slow, v_left * slow, speed * slow
    vx, vy = v_forward * hx - v_left * hy, v_forward * hy + v_left * hx

    # Heading follows the way one goes; wheels also keep to the way they want, so a nudge does not turn them around.
    # Someone who stands keeps looking where they looked.
    going = (1.0 - manner.keep_course) / np.maximum(speed, 0.05)
    turn = np.minimum(speed / 0.8, 1.0) * manner.turn
    nx = hx + turn * (vx * going + want.dirx * manner.keep_course - hx)
    ny = hy + turn * (vy * going + want.diry * manner.keep_course - hy)
    length = 1.0 / np.sqrt(nx * nx + ny * ny + 1e-12)
    x, y = state.x + DT * vx, state.y + DT * vy
    return State(x, y, vx, vy, nx * length, ny * length, _next_leg(state, crowd, ground, x, y, time))


def _neighbours(
    state: State, crowd: Crowd, ground: Ground, pairs: Pairs, present: Bools, want: Intent
) -> tuple[Floats, Floats, Floats, Floats]:
    """Speed limit, sideways acceleration and body push that each entity takes from its neighbours."""
    n = len(crowd)
    i, j = pairs.who, pairs.whom
    if i.size == 0:
        return np.full(n, FAR), np.zeros(n), np.zeros(n), np.zeros(n)
    terms = pair_terms(state, crowd, ground, pairs, want)
    there = present[j]
    limit = np.full(n, FAR)
    starts = pairs.starts
    limit[i[starts]] = np.minimum.reduceat(np.where(there, np.minimum(terms.follow, terms.give_way), FAR), starts)
    swerve = np.bincount(i, terms.swerve * there, n)
    pushx = np.bincount(i, terms.pushx * there, n)
    pushy = np.bincount(i, terms.pushy * there, n)
    hard = _HARD_CONTACT * 1.5
    return limit, _clip(swerve, -3.5, 3.5), _clip(pushx, -hard, hard), _clip(pushy, -hard, hard)


@dataclass(frozen=True)
class PairTerms:
    """What the second of each pair does to the first."""

    follow: Floats  # speed allowed behind it
    give_way: Floats  # speed allowed while it passes
    swerve: Floats  # sideways acceleration, left positive
    pushx: Floats
    pushy: Floats


def pair_terms(state: State, crowd: Crowd, ground: Ground, pairs: Pairs, intended: Intent) -> PairTerms:
    """The interaction law, pair by pair."""
    i, j = pairs.who, pairs.whom
    dx, dy = wrap(state.x[j] - state.x[i], ground.extent[0]), wrap(state.y[j] - state.y[i], ground.extent[1])
    distance = np.sqrt(dx * dx + dy * dy) + 1e-6
    near = _clip(pairs.reach - distance, 0.0, 1.0)
    hx, hy, gx, gy = state.hx[i], state.hy[i], state.hx[j], state.hy[j]
    ahead, left = dx * hx + dy * hy, dy * hx - dx * hy
    parallel, crosswise = np.abs(hx * gx + hy * gy), np.abs(hx * gy - hy * gx)
    hl_j, hw_j = crowd.half_length[j], crowd.half_width[j]
    reach_ahead = crowd.half_length[i] + parallel * hl_j + crosswise * hw_j
    reach_side = crowd.half_width[i] + crosswise * hl_j + parallel * hw_j
    gap, clear = ahead - reach_ahead, np.abs(left) - reach_side
    in_front = (ahead > 0) * near
    want = intended.speed[i]
    vjx, vjy = state.vx[j], state.vy[j]
    v_ahead = np.maximum(vjx * hx + vjy * hy, 0.0)

    # Following: no faster than the one ahead plus what the gap allows.
    in_path = _clip(1.0 - clear / _SIDE_MARGIN, 0.0, 1.0) * in_front
    room = np.maximum(gap - _STANDOFF, 0.0)
    allowed = np.minimum(v_ahead + room / _HEADWAY, np.sqrt(v_ahead * v_ahead + 2.0 * _COMFORT * room))
    follow = want - in_path * np.maximum(want - allowed, 0.0)

    # Gap acceptance: would we meet if I went on? Then the less pushy one waits.
    wx, wy = vjx - intended.dirx[i] * want, vjy - intended.diry[i] * want
    closest = -(dx * wx + dy * wy) / (wx * wx + wy * wy + 1e-3)
    miss = np.sqrt((dx + wx * closest) ** 2 + (dy + wy * closest) ** 2)
    body = 0.55 * (crowd.half_length[i] + crowd.half_width[i] + hl_j + hw_j) + 0.35
    conflict = (closest > 0) & (crosswise > 0.35) & (crowd.push[j] > crowd.push[i]) & (vjx * vjx + vjy * vjy > 0.04)
    strength = _clip((_CONFLICT_HORIZON - closest) / 0.8, 0.0, 1.0) * _clip((body - miss) / 0.5, 0.0, 1.0)
    give_way = want * (1.0 - conflict * strength * in_front)

    # Swerving: get past the slower one, or out of the way of the oncoming one.
    look = 1.2 + 0.9 * crowd.speed[i]
    impatience = _clip(want - (vjx * hx + vjy * hy), 0.0, 2.0) * 0.5
    evade = _clip(1.0 - gap / look, 0.0, 1.0) * _clip(1.0 - clear / _SWERVE_MARGIN, 0.0, 1.0)
    away = -(left - 0.3 * crowd.side[i]) / (np.abs(left) + 0.3)
    swerve = 4.0 * evade * impatience * away * in_front

    # Contact: bodies keep apart, the lighter one gives more.
    touch = _clip(1.0 - clear / _CONTACT, 0.0, 2.0) * _clip(1.0 - (np.abs(ahead) - reach_ahead) / _CONTACT, 0.0, 2.0)
    share = _HARD_CONTACT * crowd.push[j] / (crowd.push[i] + crowd.push[j])
    push = -touch * share * near / distance
    return PairTerms(follow, give_way, swerve, push * dx, push * dy)


def _company(state: State, crowd: Crowd, ground: Ground, present: Bools) -> tuple[Floats, Floats]:
    """Those who walk together keep level and side by side: speed correction, sideways acceleration."""
    together = crowd.partner >= 0
    other = np.where(together, crowd.partner, 0)
    there = together & present[other]
    dx, dy = wrap(state.x[other] - state.x, ground.extent[0]), wrap(state.y[other] - state.y, ground.extent[1])
    ahead, left = dx * state.hx + dy * state.hy, dy * state.hx - dx * state.hy
    close = there & (dx * dx + dy * dy < 36.0)
    pull = np.where(close, _clip(0.5 * ahead, -0.5, 0.5) * crowd.speed, 0.0)
    abreast = np.where(close, _clip(1.2 * (left - 0.75 * np.where(left >= 0, 1.0, -1.0)), -1.2, 1.2), 0.0)
    return pull, abreast


def _signal_limit(state: State, crowd: Crowd, ground: Ground, time: float, route: Route) -> Floats | float:
    """Speed allowed in front of a red light, for those who obey it."""
    red_x, red_y = ground.red(time)
    if not (red_x or red_y):
        return FAR
    along = np.where(route.along_x, _from_junction(state.x, ground), wrap(state.y, ground.extent[1])) * route.sign
    distance = -along - ground.stop_line - crowd.half_length
    waits = crowd.obeys & np.where(route.along_x, red_x, red_y) & (distance > -0.5)
    return np.where(waits, np.maximum(distance - 0.3, 0.0) / _HEADWAY, FAR)


def _next_leg(state: State, crowd: Crowd, ground: Ground, x: Floats, y: Floats, time: float) -> Ints:
    due = time >= crowd.leg_at
    if ground.junction is not None:
        along_x = crowd.leg_axis[:, 0] == 0
        past = np.where(along_x, x, y) - crowd.turn_at
        past = wrap(past, np.where(along_x, *ground.extent)) * crowd.leg_sign[:, 0]
        due |= (past >= 0) & (past < 3.0)  # nan compares false: those never turn
    due &= state.leg == 0
    return np.where(due, 1, state.leg) if due.any() else state.leg


def _from_junction(x: Floats, ground: Ground) -> Floats:
    return wrap(x - (ground.junction or 0.0), ground.extent[0])
